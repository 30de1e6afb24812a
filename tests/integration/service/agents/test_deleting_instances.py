"""Instances are deleted, and erased with their history: no text of theirs stays in any table."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import asyncpg
import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support.agents import busy, counter, handled, schedules
from tests.support.api_client import served
from tests.support.waiting import eventually, in_state, over
from wakeful import FailedPrecondition, NotFound, PermissionDenied, Wakeful
from wakeful.agents.agent import Agent, on
from wakeful.agents.context import Context
from wakeful.agents.directives import Delay, Emit, SetCron, SetState
from wakeful.agents.launcher import AgentLauncher
from wakeful.client import AsyncClient
from wakeful.model import Run
from wakeful.run.instances import instance_id
from wakeful.service.agents import instances as service
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.signal.signals import Signal

MARK = "marker-7f3a9c"
NAME = "customer 7/eu"


class Talkative(Agent):
    """Leaves the text of its signals wherever an agent can leave text."""

    name = "talkative"
    state: ClassVar[Any] = {"text": ""}
    max_attempts = 2
    backoff: ClassVar[Mapping[str, Any]] = {"base": "1ms", "max": "1ms"}

    @on("keep")
    async def keep(self, signal: Signal, ctx: Context) -> list[Any]:
        text = signal.data["text"]  # type: ignore[index, call-overload]
        ctx.seen(text)
        return [
            SetState(text=text),
            Emit(Signal("said", {"text": text})),
            Delay("1h", Signal("keep", {"text": text}), id=str(text)),
            SetCron("0 6 * * *", Signal("fail", {"text": text}), "daily", description=str(text)),
            f"done {text}",
        ]

    @on("fail")
    async def fail(self, signal: Signal) -> None:
        raise ValueError(str(signal.data))

    @on("wakeful.message")
    async def hear(self, signal: Signal) -> str:
        return f"heard {signal.data!r}"


async def rows_with(address: str, text: str) -> list[str]:
    """Return the tables and columns of a database that have this text anywhere."""
    found = []
    if address.startswith("sqlite"):
        db = sqlite3.connect(address.removeprefix("sqlite:///"))
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for column in [each[1] for each in db.execute(f"PRAGMA table_info({table})")]:
                query = f"SELECT count(*) FROM {table} WHERE instr(CAST({column} AS TEXT), ?)"
                if db.execute(query, (text,)).fetchone()[0]:
                    found.append(f"{table}.{column}")
        db.close()
        return found
    connection = await asyncpg.connect(address)
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    for (table,) in tables:
        if await connection.fetchval(f'SELECT count(*) FROM "{table}" t WHERE strpos(t::text, $1) > 0', text):
            found.append(table)
    await connection.close()
    return found


async def history_of(app: Wakeful, name: str, agent: str = "talkative") -> list[Run]:
    return [*await app.runs.of(agent).list(instance=name)]


@pytest.mark.parametrize("name", [NAME, "default"])
async def test_nothing_of_an_erased_instance_stays_in_any_table(new_app: NewApp, database: str, name: str):
    app = new_app()
    app.agent(Talkative)
    async with app, served(app) as http:
        await app.agents.update("talkative", {"alerts": {"url": "http://127.0.0.1:9/alerts"}})
        await app.agents.start("talkative", name, state={"text": MARK})
        kept = await app.agents.send("talkative", name, Signal("keep", {"text": MARK}, id=MARK))
        assert (await over(app, kept.id)).output == f"done {MARK}"
        (daily,) = (await app.agents.instance("talkative", name)).schedules
        failed = await app.jobs.of("talkative").run(daily.name)
        assert (await over(app, failed.id)).dead
        event = {"specversion": "1.0", "id": "1", "source": "/a", "type": "fail", "data": {"text": MARK}}
        post = partial(http, "POST", "/agents/talkative/signals", event, headers={"idempotency-key": "k1"})
        reply = await post(instance=name)
        assert (await over(app, reply.body["id"])).state == "failed"
        if name == "default":
            await app.agents.say("talkative", MARK)

            async def heard() -> bool:
                return bool((await app.agents.session("talkative")).history)

            await eventually(heard)
        tables = {each.partition(".")[0] for each in await rows_with(database, MARK)}
        assert tables >= {
            "runs", "attempts", "instances", "jobs", "signal_ids", "job_incidents", "idempotency_keys",
            *(["session_history"] if name == "default" else []),
        }  # fmt: skip
        await app.agents.delete_instance("talkative", name, erase=True)
        assert await rows_with(database, MARK) == []
        assert await history_of(app, name) == []
        with pytest.raises(NotFound):
            await app.agents.instance("talkative", name)
        again = await post(instance=name)
        assert (again.status, again.body["id"], again.body["payload"]) == (202, reply.body["id"], None)


async def test_a_deleted_instance_loses_its_state_mailbox_and_schedules_and_keeps_its_runs(new_app: NewApp):
    cls = counter()
    app = new_app()
    app.agent(cls)
    async with app:
        await app.agents.start("counter", "eu", state={"count": 7})
        done = await app.agents.send("counter", "eu", Signal("add", id="s1"))
        await over(app, done.id)
        running = await busy(app, cls)
        waiting = await app.agents.send("counter", "eu", "add")
        await app.agents.delete_instance("counter", "eu")
        for run in (running, waiting):
            assert (ended := await over(app, run.id)).state == "cancelled"
            assert ended.reason == "instance_deleted"
        assert await app.agents.list("counter") == []
        assert (await app.runs.of("counter").get(done.id)).state == "succeeded"
        with pytest.raises(NotFound, match="no instance 'eu'; start it"):
            await app.agents.delete_instance("counter", "eu")
        # A new instance of the name begins anew: its state, its memory of signals, and its object.
        again = await app.agents.send("counter", "eu", Signal("add", id="s1"))
        assert not again.duplicate
        await over(app, again.id)
        assert (await app.agents.state("counter", "eu"))["count"] == 1
        assert cls.hooks.count("thaw eu") == 2
        await app.agents.start("counter", "eu")
        assert await schedules(app) == {"0 6 * * *": True}
        await app.agents.delete_instance("counter", "eu", erase=True)
        assert await history_of(app, "eu", "counter") == []


async def test_the_history_of_an_instance_can_be_erased_after_it_was_deleted(new_app: NewApp):
    app = new_app()
    app.agent(counter())
    async with app:
        await handled(app, "add")
        await app.agents.delete_instance("counter", "eu")
        assert len(await history_of(app, "eu", "counter")) == 1
        await app.agents.delete_instance("counter", "eu", erase=True)
        assert await history_of(app, "eu", "counter") == []
        with pytest.raises(NotFound):
            await app.agents.delete_instance("counter", "eu", erase=True)


async def test_an_erasure_that_was_cut_continues_and_nothing_enters_meanwhile(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(service, "ERASE_BATCH", 2)
    monkeypatch.setattr(service, "_ERASE_S", -1.0)
    app = new_app()
    app.agent(counter())
    async with app:
        for _ in range(7):
            await handled(app, "add")
        left = await app.services.agents.instances.delete(LOCAL, "default", "counter", "eu", erase=True)
        assert left is not None
        assert (left.row.status, left.row.data) == ("deleting", None)
        with pytest.raises(FailedPrecondition, match="is being deleted; send it again"):
            await app.agents.send("counter", "eu", "add")
        for refused in (app.agents.start, app.agents.stop, app.agents.pause, app.agents.resume):
            with pytest.raises(FailedPrecondition, match="is being deleted with its history"):
                await refused("counter", "eu")
        # Nobody calls again: the pruner of any process does the rest.
        store = app.services.store
        while ids := await store.deleting_instances(10):
            assert ids == [instance_id("default", "counter", "eu")]
            await store.erase_instance(ids[0], 2)
        assert await history_of(app, "eu", "counter") == []
        await handled(app, "add")
        assert (await app.agents.state("counter", "eu"))["count"] == 1


async def test_a_handler_that_ends_beside_a_deletion_brings_nothing_back(new_app: NewApp):
    first, second = new_app(), new_app()
    for app in (first, second):
        app.agent(Talkative)
    async with first, second:

        async def send(app: Wakeful, number: int) -> None:
            with contextlib.suppress(FailedPrecondition):  # it is being deleted
                await app.agents.send("talkative", "eu", Signal("keep", {"text": f"{MARK}-{number}"}))

        async def delete(app: Wakeful, erase: bool) -> None:
            with contextlib.suppress(NotFound):
                await app.agents.delete_instance("talkative", "eu", erase=erase)

        async def start(app: Wakeful) -> None:
            with contextlib.suppress(FailedPrecondition, NotFound):  # it is being deleted, or was at once
                await app.agents.start("talkative", "eu")

        for number in range(12):
            await asyncio.gather(
                send(first, number), delete(second, number % 2 == 0), send(second, number), start(first),
                delete(first, number % 3 == 0), send(first, number),
            )  # fmt: skip
        await delete(first, True)
        store = first.services.store
        own = instance_id("default", "talkative", "eu")
        assert await store.instance("default", "talkative", "eu") is None
        assert await store.schedules(own) == []
        assert await history_of(first, "eu") == []
        await over(first, (await first.agents.send("talkative", "eu", Signal("keep", {"text": "x"}))).id)
        assert (await second.agents.state("talkative", "eu")) == {"text": "x"}


class Quiet(Talkative):
    """Another agent with the same handlers."""

    name = "quiet"


async def test_an_erasure_keeps_the_responses_about_other_agents(new_app: NewApp):
    app = new_app()
    app.agent(Talkative)
    app.agent(Quiet)
    async with app, served(app) as http:
        event = {"specversion": "1.0", "id": "1", "source": "/a", "type": "fail", "data": {"text": MARK}}
        post = partial(http, "POST", "/agents/quiet/signals", event, headers={"idempotency-key": "k1"})
        reply = await post(instance="default")
        await app.agents.start("talkative", "default")
        await app.agents.delete_instance("talkative", "default", erase=True)
        again = await post(instance="default")
        assert again.body == reply.body


async def test_an_erasure_that_another_process_completes_is_no_error(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(service, "ERASE_BATCH", 1)
    monkeypatch.setattr(service, "_ERASE_S", -1.0)
    delete = service.InstanceService.delete
    app = new_app()
    app.agent(counter())

    async def delete_beside_a_pruner(*args: Any, **named: Any) -> Any:
        left, store = await delete(*args, **named), app.services.store
        for each in await store.deleting_instances(10):
            while await store.erase_instance(each, 10):
                pass
        return left

    monkeypatch.setattr(service.InstanceService, "delete", delete_beside_a_pruner)
    async with app, served(app) as http, AsyncClient(http.url, http.key) as client:
        for agents in (app.agents, client.agents):
            for _ in range(3):
                await handled(app, "add")
            await agents.delete_instance("counter", "eu", erase=True)
            assert await history_of(app, "eu", "counter") == []
            with pytest.raises(NotFound):
                await agents.delete_instance("counter", "eu", erase=True)


class Remembering(Agent):
    """Remembers its signals in its object, which each process keeps in memory."""

    name = "remembering"

    def __init__(self) -> None:
        self.heard: list[str] = []

    @on("hear")
    async def hear(self, signal: Signal) -> str:
        self.heard.append(str(signal.data))
        return " ".join(self.heard)


async def test_a_process_that_missed_a_deletion_uses_no_object_of_the_old_instance(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(AgentLauncher, "hibernate", lambda *_: False)  # the notice is lost
    app = new_app()
    app.agent(Remembering)
    async with app:
        assert await app.agents.ask("remembering", "eu", Signal("hear", MARK)) == MARK
        await app.agents.delete_instance("remembering", "eu", erase=True)
        assert await app.agents.ask("remembering", "eu", Signal("hear", "new")) == "new"


#: Begins an erasure and does not continue it.
BEGIN = """
import asyncio, sys
from wakeful.run.instances import instance_id
from wakeful.service.agents.instance_rules import delete
from wakeful.store.connect import store_at

async def main():
    store = store_at(sys.argv[1])
    await store.open()
    at, now = ("default", "counter", "eu"), store.clock.now_ms()
    await store.change_instance(*at, now, delete(*at, now, erase=True))
    assert await store.erase_instance(instance_id(*at), 1)
    print("begun", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_an_erasure_continues_after_its_process_is_killed(new_app: NewApp, database: str):
    app = new_app()
    app.agent(counter())
    async with app:
        for _ in range(3):
            await handled(app, "add")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BEGIN, database, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    process.kill()
    await process.wait()
    other = new_app()
    async with other:
        own = instance_id("default", "counter", "eu")

        async def erased() -> bool:
            return await other.services.store.instances_by_ids([own]) == []

        await eventually(erased)
        assert not await other.services.store.has_runs_of(own)


async def test_an_instance_is_deleted_beside_its_agent(new_app: NewApp):
    app = new_app()
    app.agent(counter())
    async with app:
        await app.agents.start("counter", "eu")
        results = await asyncio.gather(
            app.agents.delete("counter"),
            app.agents.delete_instance("counter", "eu", erase=True),
            app.agents.delete("counter"),
            app.agents.delete_instance("counter", "eu"),
            return_exceptions=True,
        )
        errors = [each for each in results if each is not None]
        assert all(isinstance(each, NotFound | FailedPrecondition) for each in errors), errors
        assert await app.services.store.instance("default", "counter", "eu") is None


@on_one_store
async def test_a_delay_in_memory_of_a_deleted_instance_is_dropped(new_app: NewApp):
    app = new_app()
    app.agent(counter())
    async with app:
        await handled(app, "delay")
        await app.agents.delete_instance("counter", "eu")
        delays = app._parts.agent_runtime._delays

        async def dropped() -> bool:
            return len(delays) == 0

        await eventually(dropped)
        assert await app.agents.list("counter") == []


@on_one_store
async def test_who_may_delete_an_instance_and_what_the_audit_log_says(new_app: NewApp):
    app = new_app()
    app.agent(counter())
    async with app:
        await handled(app, Signal("secret.type", {"text": MARK}))
        manage = app.services.agents.instances
        where = "default", "counter", "eu"
        for principal, error in (
            (Principal("key:1", "member", "default"), PermissionDenied),
            (Principal("key:1", "agent", "default", "other"), NotFound),
            (Principal("key:1", "admin", "another"), NotFound),
        ):
            with pytest.raises(error):
                await manage.delete(principal, *where, erase=True)
        await manage.delete(Principal("key:1", "agent", "default", "counter"), *where, erase=True)
        entries = await app.services.admin.audit.list(LOCAL, "default", limit=5)
        (entry,) = [each for each in entries if each.action == "instance.erase"]
        assert (entry.subject, entry.actor, MARK in entry.details) == ("counter/eu", "key:1", False)


# --- start --------------------------------------------------------------------------------------------------


async def test_a_state_replaces_that_of_an_active_instance_only_on_request(new_app: NewApp):
    cls = counter()
    app = new_app()
    app.agent(cls)
    async with app:
        await app.agents.start("counter", "eu", state={"count": 1})
        await app.agents.start("counter", "eu", state={"count": 1})
        with pytest.raises(FailedPrecondition, match="with replace to give it this one"):
            await app.agents.start("counter", "eu", state={"count": 5})
        info = await app.agents.start("counter", "eu", state={"count": 5}, replace=True)
        assert (info.revision, (await app.agents.state("counter", "eu"))["count"]) == (1, 5)
        # A handler that runs meanwhile does not overwrite it: it is tried again with the new state.
        run = await busy(app, cls)
        await app.agents.start("counter", "eu", state={"count": 9}, replace=True)
        cls.released.set()
        assert (await over(app, run.id)).state == "succeeded"
        await handled(app, "add")
        assert (await app.agents.state("counter", "eu"))["count"] == 10
        with pytest.raises(Exception, match="state: give the state that replaces"):
            await app.agents.start("counter", "eu", replace=True)


async def test_many_instances_start_in_one_transaction_with_errors_by_id(new_app: NewApp):
    app = new_app()
    app.agent(counter())
    async with app:
        await app.agents.start("counter", "busy", state={"count": 3})
        names = [f"user/{number}" for number in range(300)]
        wrong: dict[str, Any] = {"busy": {"count": 4}, "a\nb": None, "typed": {"count": object()}}
        states = {**dict.fromkeys(names), **wrong, "us": {"count": 2}}
        started = await app.agents.start_many("counter", states)
        assert [each.id for each in started.instances] == [*names, "us"]
        assert {each.id: each.code for each in started.errors} == {
            "busy": "failed-precondition", "a\nb": "invalid-argument", "typed": "invalid-argument",
        }  # fmt: skip
        assert (await app.agents.state("counter", "us"))["count"] == 2
        assert (await app.agents.state("counter", "busy"))["count"] == 3
        assert await schedules(app, "user/7") == {"0 6 * * *": True}
        again = await app.agents.start_many("counter", names[:3])
        assert (len(again.instances), again.errors) == (3, ())
        with pytest.raises(Exception, match="start 1 to 1000 at once, not 1001"):
            await app.agents.start_many("counter", [str(number) for number in range(1001)])


# --- ask ----------------------------------------------------------------------------------------------------


class Answering(Agent):
    """Answers what it is asked."""

    name = "answering"
    max_attempts = 1
    app: ClassVar[Wakeful]

    @on("double")
    async def double(self, signal: Signal) -> str:
        return str(2 * signal.data)  # type: ignore[operator]

    @on("nothing")
    async def nothing(self, signal: Signal) -> None: ...

    @on("fail")
    async def fail(self, signal: Signal) -> None:
        raise ValueError("it does not work")

    @on("self")
    async def ask_self(self, signal: Signal) -> str | None:
        return await self.app.agents.ask("answering", "eu", "nothing", timeout=5)

    @on("self.sync")
    def ask_self_in_a_thread(self, signal: Signal) -> str | None:
        return self.app.sync.agents.ask("answering", "eu", "nothing", timeout=5)

    @on("other")
    async def ask_other(self, signal: Signal) -> str | None:
        return await self.app.agents.ask("answering", "us", Signal("double", 21), timeout=20)


async def test_ask_returns_what_the_handler_returns(new_app: NewApp):
    app = new_app()
    Answering.app = app
    app.agent(Answering)
    async with app:
        ask = app.agents.ask
        assert await ask("answering", "eu", Signal("double", 4)) == "8"
        assert await ask("answering", "eu", "nothing") is None
        assert await ask("answering", "eu", "other") == "42"
        with pytest.raises(FailedPrecondition, match="ended as failed: ValueError: it does not work"):
            await ask("answering", "eu", "fail")
        for kind in ("self", "self.sync"):
            with pytest.raises(FailedPrecondition, match="asks its own instance"):
                await ask("answering", "eu", kind)
        assert await asyncio.to_thread(app.sync.agents.ask, "answering", "eu", Signal("double", 5)) == "10"
        await app.agents.pause("answering", "eu")
        with pytest.raises(TimeoutError, match=r"has not handled 'double' within 0\.05 s; the signal stays"):
            await ask("answering", "eu", Signal("double", 4, id="late"), timeout=0.05)
        await app.agents.resume("answering", "eu")
        assert await ask("answering", "eu", Signal("double", 4, id="late")) == "8"
        await in_state(app, (await history_of(app, "eu", "answering"))[0].id, "succeeded")
