"""Every interface that takes the id of an instance takes any text."""

from __future__ import annotations

import html
import random
import re

import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support.agents import counter
from tests.support.api_client import served
from tests.support.waiting import over
from wakeful import AsyncClient
from wakeful.service.auth.access import LOCAL
from wakeful.service.cron_tool.local import LocalScheduler
from wakeful.values.instance_names import check_instance

IDS = [
    ".", "..", "...", "/", "//", "a/b", "a/../b", "../..", "a/start", "start", "%2F", "%", "a%2Fb", "~",
    "~Li4", "a b", " a ", "a+b", "a?b=c&d", "a#b", "a:b", "a,b", "a;b", "a\\b", "'\"<script>", "{{7*7}}",
    "$[0]", "-x", "--help", "Ünïcode", "日本", "🙂👩‍👩‍👧", "e\u0301", "x" * 255, "🙂" * 255, "null",
    "user@example.com",
]  # fmt: skip
_RANDOM = random.Random(7)
IDS += ["".join(chr(_RANDOM.choice([_RANDOM.randrange(0x20, 0x7F), _RANDOM.randrange(0xA1, 0xD7FF)]))
                for _ in range(_RANDOM.randrange(1, 12))).replace("\u2028", "x").replace("\u2029", "x")
        for _ in range(15)]  # fmt: skip


@on_one_store
async def test_any_text_is_an_id_in_every_interface(new_app: NewApp):
    app = new_app()
    app.agent(counter())
    async with app, served(app) as http, AsyncClient(http.url, http.key) as client:
        started = await client.agents.start_many("counter", IDS)
        assert ([each.id for each in started.instances], started.errors) == (
            [check_instance(each) for each in IDS], (),
        )  # fmt: skip
        tool = LocalScheduler(app.services, LOCAL, "default")
        for given in IDS:
            name = check_instance(given)
            info = await client.agents.start("counter", given)
            assert info.id == name
            run = await client.agents.send("counter", given, "add")
            assert run.instance == name
            await over(app, run.id)
            assert (await client.agents.state("counter", given))["count"] == 1
            assert [each.id for each in await client.runs.of("counter").list(instance=given)] == [run.id]
            assert (await client.agents.pause("counter", given)).status == "paused"
            assert (await client.agents.resume("counter", given)).status == "active"
            assert (await client.agents.hibernate("counter", given)).id == name
            assert (await app.agents.instance("counter", given)).id == name
            assert (await tool.instance("counter", name))["id"] == name
            target = {"kind": "agent", "instance": given, "signal": "add"}
            saved = await client.jobs.of("counter").upsert("to-instance", schedule="@daily", target=target)
            assert saved.target == {**target, "instance": name}
            fired = await client.jobs.of("counter").run("to-instance")
            assert fired.instance == name
            await over(app, fired.id)
            assert (await client.agents.stop("counter", given)).status == "stopped"
        found, cursor = [], None
        while True:
            page = await client.agents.instances("counter", limit=7, cursor=cursor)
            found += [each.id for each in page]
            if (cursor := page.cursor) is None:
                break
        assert sorted(found) == sorted({check_instance(each) for each in IDS})
        for name in found:
            await client.agents.delete_instance("counter", name, erase=True)
        assert await client.agents.list("counter") == []
        assert await client.runs.of("counter").list(instance=IDS[0]) == []


@on_one_store
@pytest.mark.parametrize("name", ["a/b", "..", "🙂", "a b", "'\"<script>", "~x", "a?b#c"])
async def test_the_dashboard_links_to_any_instance(new_app: NewApp, name: str):
    app = new_app()
    app.agent(counter())
    async with app, served(app) as http:
        await over(app, (await app.agents.send("counter", name, "add")).id)
        page = await http("GET", "/workspaces/default/agents/counter/instances")
        (link,) = set(re.findall(r'href="([^"]*/agents/counter/instances/[^"]+)"', page.body))
        shown = await http("GET", html.unescape(link))
        assert shown.status == 200
        assert f"counter/{name}" in html.unescape(shown.body)
        paths = {html.unescape(each) for each in re.findall(r'data-path="([^"]+)"', shown.body)}
        (stop,) = [each for each in paths if each.endswith("/stop")]
        assert (await http("POST", stop)).body["status"] == "stopped"
        (erase,) = [each for each in paths if each.endswith("?erase=true")]
        assert (await http("DELETE", erase.removesuffix("?erase=true"), erase="true")).status == 204
        assert await app.agents.list("counter") == []
