"""Coalesced events over HTTP: one summary per interval, the same for all, complete across reconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from yarl import URL

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import HOME, ApiClient, served
from tests.support.sse_client import ReceivedEvent, Stream, listening
from tests.support.waiting import PATIENCE, eventually, over
from wakeful import Agent, Wakeful, on
from wakeful.errors import Unavailable
from wakeful.service.auth.access import LOCAL
from wakeful.store.changelog import ChangeRow
from wakeful.store.stats import LiveFigures

ACME = "/api/workspaces/acme"


async def given_job(caller: ApiClient, name: str = "digest", agent: str = "default") -> str:
    document = {"name": name, "schedule": SELDOM, "target": {"kind": "function", "name": "nothing"}}
    reply = await caller("POST", f"/agents/{agent}/jobs", document)
    assert reply.status == 201, reply
    return str(reply.body["id"])


async def run_now(caller: ApiClient, name: str = "digest", agent: str = "default") -> str:
    reply = await caller("POST", f"/agents/{agent}/jobs/{name}/run")
    assert reply.status in (200, 201, 202), reply
    return str(reply.body["id"])


def app_with_function(new_app: NewApp) -> Wakeful:
    app = new_app()
    app.function("nothing")(lambda: "done")
    return app


def with_run(run_id: str) -> Callable[[ReceivedEvent], bool]:
    """Match the event that has this run, finished."""
    return lambda event: run_id in event.data["changed"]["runs"] and bool(event.data["runs"]["finished"])


def with_job(job_id: str) -> Callable[[ReceivedEvent], bool]:
    """Match the event that has this job."""
    return lambda event: job_id in event.data["changed"]["jobs"]


def totals(events: list[ReceivedEvent]) -> tuple[int, dict[str, int]]:
    """Return how many runs started, and how many finished by state, over all events."""
    finished: dict[str, int] = {}
    for event in events:
        for state, number in event.data["runs"]["finished"].items():
            finished[state] = finished.get(state, 0) + number
    return sum(event.data["runs"]["started"] for event in events), finished


async def hello(stream: Stream) -> ReceivedEvent:
    """Return the first event: the subscription has its position."""
    (first,) = await stream.until(lambda event: True)
    return first


async def test_an_event_summarizes_what_changed_and_has_the_figures(new_app: NewApp) -> None:
    app = app_with_function(new_app)
    async with app, served(app) as operator, listening(operator, coalesceMs=250) as stream:
        first = await hello(stream)
        assert (first.type, first.data["runs"]) == ("changes", {"started": 0, "finished": {}})
        assert first.data["figures"].keys() == {
            *(
                "running",
                "pending",
                "retrying",
                "deadLetters",
                "openIncidents",
                "acknowledgedIncidents",
                "inbox",
            ),
            *("workers", "nextTickMs"),
        }
        job_id = await given_job(operator)
        ids = [await run_now(operator) for _ in range(3)]
        for run_id in ids:
            await over(app, run_id)
        received: list[ReceivedEvent] = []

        def all_finished(event: ReceivedEvent) -> bool:
            received.append(event)
            return totals(received)[1] == {"succeeded": 3}

        await stream.until(all_finished)
        assert totals(received) == (3, {"succeeded": 3})
        assert {each for event in received for each in event.data["changed"]["runs"]} == set(ids)
        assert {each for event in received for each in event.data["changed"]["jobs"]} == {job_id}
        assert {each for event in received for each in event.data["kinds"]} == {"jobs", "runs"}
        received += await stream.until(lambda event: event.data["figures"]["nextTickMs"] is not None)
        seqs = [event.seq for event in received]
        assert seqs == sorted(seqs) == [event.data["seq"] for event in received]


async def test_an_instance_that_is_paused_is_a_change_of_its_agent_and_no_plain_event(
    new_app: NewApp,
) -> None:
    app = new_app()

    @app.agent
    class Report(Agent):
        name = "report"

        @on("*")
        def handle(self) -> None: ...

    instance = "/agents/report/instances/eu"
    async with app, served(app) as operator:
        await operator("POST", f"{instance}/start")
        async with listening(operator, coalesceMs=250) as stream, listening(operator) as plain:
            await hello(stream)
            assert (await operator("POST", f"{instance}/pause")).status == 200
            (*_, event) = await stream.until(lambda event: "instances" in event.data["kinds"])
            assert event.data["changed"]["agents"] == ["report"]
            job_id = await given_job(operator)
            (*events,) = await plain.until(lambda event: event.data.get("jobId") == job_id)
            assert [each.type for each in events] == ["job.changed"]


async def test_nothing_is_missed_across_a_server_restart(new_app: NewApp) -> None:
    app = app_with_function(new_app)
    async with app, served(app) as operator:
        await given_job(operator)
        async with listening(operator, coalesceMs=250) as stream:
            await hello(stream)
            first = await run_now(operator)
            before = await stream.until(with_run(first))
        meanwhile = [await run_now(operator) for _ in range(3)]
        for run_id in meanwhile:
            await over(app, run_id)
    again = app_with_function(new_app)
    async with again, served(again) as local:
        operator = await local.new("member")
        last = await run_now(operator)
        await over(again, last)
        async with listening(operator, last_event_id=before[-1].seq, coalesceMs=1000) as stream:
            (resumed,) = await stream.until(lambda event: True)  # one event about everything
        assert resumed.type == "changes"
        assert resumed.data["changed"]["runs"] == [*meanwhile, last]
        assert totals([*before, resumed]) == (5, {"succeeded": 5})


@on_one_store
async def test_many_reconnecting_dashboards_share_one_event(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_with_function(new_app)
    async with app, served(app) as operator:
        await given_job(operator)
        await over(app, await run_now(operator))
        events = app.services.live
        keep = await events.subscribe(LOCAL, "default", 60_000)
        reads = 0
        original = app.store.run_changes

        async def counted(ids: list[str]) -> object:
            nonlocal reads
            reads += 1
            return await original(ids)

        monkeypatch.setattr(app.store, "run_changes", counted)
        resumed = [await events.subscribe(LOCAL, "default", 60_000, after=0) for _ in range(50)]
        sent = await asyncio.gather(*(each.next() for each in resumed))
        assert reads == 1
        assert all(each is sent[0] or each == sent[0] for each in sent)
        for each in (keep, *resumed):
            each.close()


async def test_workspaces_and_agents_do_not_see_each_other(new_app: NewApp) -> None:
    app = app_with_function(new_app)
    async with app, served(app) as operator:
        await operator("PUT", ACME, {})
        stranger = await operator.new("admin", "acme")
        assert (await stranger("GET", "/events", coalesceMs=1000)).code == "not-found"
        ada = await operator.new("agent", agent="ada")
        assert (await ada("GET", "/events", coalesceMs=1000, agent="default")).code == "not-found"
        async with (
            listening(stranger, ACME, coalesceMs=250) as theirs,
            listening(ada, coalesceMs=250) as hers,
            listening(operator, coalesceMs=250) as ours,
        ):
            for stream in (theirs, hers, ours):
                await hello(stream)
            ids = {"default": await given_job(operator), "ada": await given_job(operator, "x", "ada")}
            document = {"name": "y", "schedule": SELDOM, "target": {"kind": "pull"}}
            reply = await operator("POST", f"{ACME}/agents/bob/jobs", document)
            ids["bob"] = reply.body["id"]
            await run_now(operator)
            seen: list[set[str]] = []
            for stream, last in ((ours, "ada"), (hers, "ada"), (theirs, "bob")):
                events = await stream.until(with_job(ids[last]))
                seen.append({each for event in events for each in event.data["changed"]["jobs"]})
                workspace = "acme" if stream is theirs else "default"
                assert {event.data["workspace"] for event in events} == {workspace}
            assert seen == [{ids["default"], ids["ada"]}, {ids["ada"]}, {ids["bob"]}]


async def test_a_slow_subscriber_delays_no_other_and_gets_one_event_about_everything(
    new_app: NewApp,
) -> None:
    app = app_with_function(new_app)
    async with app, served(app) as operator:
        await given_job(operator)
        events = app.services.live
        slow, quick = [await events.subscribe(LOCAL, "default", 250) for _ in range(2)]
        for each in (slow, quick):
            assert await each.next()
        ids = []
        for _ in range(3):  # three events, of which the slow one reads none
            ids.append(await run_now(operator))
            await over(app, ids[-1])
            async with asyncio.timeout(PATIENCE):
                frame = b""
                while ids[-1].encode() not in frame or b'"finished":{}' in frame:
                    frame = await quick.next() or b""
        frame = await slow.next() or b""
        assert all(run_id.encode() in frame for run_id in ids)
        assert b'"started":3,"finished":{"succeeded":3}' in frame
        for each in (slow, quick):
            each.close()
        assert events._reader is None  # without subscribers there is no reader


@on_one_store
async def test_a_client_that_waits_gets_an_event_without_its_task(new_app: NewApp) -> None:
    app = app_with_function(new_app)
    async with app, served(app) as operator:
        subscription = await app.services.live.subscribe(LOCAL, "default", 250)
        assert await subscription.next()
        written: list[bytes] = []
        can_write = True

        def write(frame: bytes) -> bool:
            if can_write:
                written.append(frame)
            return can_write

        first = await given_job(operator, "first")
        async with asyncio.timeout(PATIENCE):
            while first.encode() not in (await subscription.next() or b""):
                pass
        subscription.write = write
        waiting = asyncio.create_task(subscription.next())
        await asyncio.sleep(0)
        job_id = await given_job(operator, "second")
        await eventually(lambda: job_id.encode() in b"".join(written))
        assert not waiting.done()
        can_write = False
        last = await given_job(operator, "last")
        async with asyncio.timeout(PATIENCE):
            frame = await waiting or b""
        assert last.encode() in frame
        assert job_id.encode() not in frame
        subscription.close()


@on_one_store
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_every_event_is_a_whole_part_of_the_response(new_app: NewApp, version: str) -> None:
    app = app_with_function(new_app)
    async with app, served(app) as operator:
        address = URL(operator.url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(
            f"GET {HOME}/events?coalesceMs=250 HTTP/{version}\r\nHost: {address.authority}\r\n"
            f"Authorization: Bearer {operator.key}\r\n\r\n".encode()
        )
        async with asyncio.timeout(PATIENCE):
            head = await reader.readuntil(b"\r\n\r\n")
            assert (b"chunked" in head) is (version == "1.1")
            text = b""
            for number in range(3):
                job_id = await given_job(operator, f"job-{number}")
                while job_id.encode() not in text or not text.endswith(b"\n\n"):
                    if version == "1.0":
                        text += await reader.read(100_000)
                    else:
                        size = int(await reader.readuntil(b"\r\n"), 16)
                        text += await reader.readexactly(size)
                        assert await reader.readexactly(2) == b"\r\n"
        assert text.count(b"data: ") == text.count(b"\n\n") == text.count(b"event: ")
        writer.close()


@on_one_store
async def test_events_keep_their_interval(new_app: NewApp) -> None:
    app = app_with_function(new_app)
    loop = asyncio.get_running_loop()
    async with app, served(app) as operator:
        await given_job(operator)
        events = app.services.live
        subscription = await events.subscribe(LOCAL, "default", 400)  # rounded up to 500
        at: list[float] = []
        while len(at) < 4:
            await run_now(operator)
            assert await subscription.next()
            at.append(loop.time())
        gaps = [later - earlier for earlier, later in zip(at, at[1:], strict=False)]
        assert min(gaps) >= 0.45, gaps
        subscription.close()


async def test_pruned_changes_and_unknown_numbers_cause_a_reset(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_with_function(new_app)
    async with app, served(app) as operator:
        await given_job(operator, "one")
        await given_job(operator, "two")
        async with listening(operator, after=10**9, coalesceMs=1000) as stream:
            reset, first = await stream.until(lambda event: event.type == "changes")
            assert (reset.type, reset.seq) == ("reset", first.seq)
        async with listening(operator, after=0, coalesceMs=1000) as stream:
            (first,) = await stream.until(lambda event: True)
            assert first.data["kinds"] == ["jobs"]
        monkeypatch.setattr("wakeful.service.coalesced_events.MOST_CHANGES", 1)
        async with listening(operator, after=0, coalesceMs=500) as stream:
            assert (await hello(stream)).type == "reset"
        monkeypatch.undo()
        # Changes are kept until their runs are counted.
        await eventually(lambda: app.store.prune_changes(app.store.clock.now_ms() + 60_000, 100))
        async with listening(operator, after=0, coalesceMs=2000) as stream:
            assert (await hello(stream)).type == "reset"


async def test_changes_that_are_pruned_before_the_process_reads_them_cause_a_reset(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_with_function(new_app)
    async with app, served(app) as operator:
        await given_job(operator)
        async with (
            listening(operator, coalesceMs=250) as stream,
            listening(operator, coalesceMs=500) as other,
        ):
            for each in (stream, other):
                await hello(each)
            before = await app.store.last_change()
            changes, suspended = app.store.changes, True

            async def none_while_suspended(after: int, limit: int = 20) -> list[ChangeRow]:
                return [] if suspended else await changes(after, limit)

            monkeypatch.setattr(app.store, "changes", none_while_suspended)
            await given_job(operator, "two")
            newest = await given_job(operator, "three")

            async def is_pruned() -> bool:
                await app.store.prune_changes(app.store.clock.now_ms() + 60_000, 100)
                return (await changes(before, 1))[0].first > before + 1

            await eventually(is_pruned)
            suspended = False
            for each in (stream, other):
                events = await each.until(
                    lambda event: event.type == "changes" and newest in event.data["changed"]["jobs"]
                )
                assert [event.type for event in events[-2:]] == ["reset", "changes"]
                assert events[-2].seq == events[-1].seq
            await given_job(operator, "four")
            events = await stream.until(lambda event: event.data["kinds"] == ["jobs"])
            assert [event.type for event in events] == ["changes"] * len(events)


@on_one_store
async def test_changed_figures_are_sent_without_a_change(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.service.coalesced_events.FIGURES_S", 0.1)
    monkeypatch.setattr("wakeful.service.change_summary.KEPT_S", 0.0)
    app = new_app()
    async with app, served(app) as operator:
        figures = await app.store.live_figures("default", None, 0)

        async def changed(workspace: str, agent: str | None, since_ms: int) -> LiveFigures:
            return figures._replace(dead_letters=7)

        async with listening(operator, coalesceMs=250) as stream:
            assert (await hello(stream)).data["figures"]["deadLetters"] == 0
            monkeypatch.setattr(app.store, "live_figures", changed)
            await stream.until(lambda event: event.data["figures"]["deadLetters"] == 7)
            shown: Any = await app.services.live.figures(LOCAL, "default")
            assert shown["figures"]["deadLetters"] == 7


@on_one_store
async def test_figures_that_cannot_be_read_hold_up_no_other_workspace(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app()
    async with app:
        await app.services.agents.workspaces.put(LOCAL, "other", {})
        live, read = app.services.live, app.store.live_figures
        first = await live.subscribe(LOCAL, "other", 250)
        second = await live.subscribe(LOCAL, "default", 250)
        assert await first.next() is not None
        assert await second.next() is not None
        broken, failures = True, 0

        async def fails(workspace: str, agent: str | None, since_ms: int) -> LiveFigures:
            nonlocal failures
            if workspace == "other" and broken:
                failures += 1
                raise Unavailable("too slow") if failures % 2 else ValueError("odd")
            return await read(workspace, agent, since_ms)

        monkeypatch.setattr(app.store, "live_figures", fails)
        live._figures._kept.clear()
        for workspace, agent in (("other", "ada"), ("default", "ada")):
            document = {"name": "digest", "schedule": SELDOM, "target": {"kind": "pull"}}
            await app.services.jobs.create(LOCAL, workspace, agent, document)
        async with asyncio.timeout(PATIENCE):
            while b'"kinds":["jobs"]' not in (await second.next() or b""):
                pass
            await eventually(lambda: failures >= 2)
            broken = False
            while b'"kinds":["jobs"]' not in (await first.next() or b""):
                pass
        first.close()
        second.close()


@on_one_store
async def test_wrong_parameters_are_refused(new_app: NewApp) -> None:
    app = new_app()
    async with app, served(app) as operator:
        for query in ("249", "60001", "x", "1000&job=digest", "1000&types=run.started"):
            reply = await operator("GET", f"{HOME}/events?coalesceMs={query}")
            assert reply.code == "invalid-argument", query
        assert app.services.live._reader is None


@on_one_store
async def test_a_stopping_server_and_a_revoked_key_end_the_stream(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.api.http.events.CHECK_S", 0.0)
    app = new_app()
    async with app, served(app) as operator:
        caller = await operator.new("member")
        async with listening(caller, coalesceMs=250) as stream, listening(operator, coalesceMs=250) as other:
            await hello(stream)
            await hello(other)
            (key,) = [
                key for key in await app.services.auth.keys.list(LOCAL, "default") if key.name == "member"
            ]
            await app.services.auth.keys.revoke(LOCAL, "default", key.id)
            document = {"name": "x", "schedule": SELDOM, "target": {"kind": "pull"}}
            await operator("POST", "/agents/default/jobs", document)  # so that there is an event
            async with asyncio.timeout(PATIENCE):
                while await stream.next_event() is not None:
                    pass
            app.services.live.shut_down()
            async with asyncio.timeout(PATIENCE):
                while await other.next_event() is not None:
                    pass
        await eventually(lambda: app.services.live._reader is None)
        assert app.services.auth.connection_limits.open()["events"] == 0
