"""The event stream over HTTP: live events, and catch-up after a reconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient, served
from tests.support.sse_client import ReceivedEvent, listening
from tests.support.waiting import PATIENCE, eventually, over
from wakeful import AsyncClient, Function
from wakeful.evolution.suggestion import Suggestion
from wakeful.service.auth.access import LOCAL
from wakeful.values.ids import new_id


def finished(run_id: str) -> Callable[[ReceivedEvent], bool]:
    """Match the `run.finished` event of this run."""
    return lambda event: event.type == "run.finished" and event.data["run"]["id"] == run_id


async def run_now(caller: ApiClient, name: str = "digest", agent: str = "default") -> str:
    """Run the job and return the id of the run."""
    reply = await caller("POST", f"/agents/{agent}/jobs/{name}/run")
    assert reply.status in (200, 201, 202), reply
    return str(reply.body["id"])


async def given_jobs(caller: ApiClient, *names: str, agent: str = "default") -> None:
    for name in names:
        document = {"name": name, "schedule": SELDOM, "target": {"kind": "function", "name": "nothing"}}
        reply = await caller("POST", f"/agents/{agent}/jobs", document)
        assert reply.status == 201, reply


async def test_a_suggestion_emits_an_event_when_it_is_made_and_decided(new_app: NewApp) -> None:
    app = new_app()
    async with app, served(app) as operator, AsyncClient(operator.url, operator.key) as client:
        await given_jobs(operator, "digest")
        job, now_ms = (await operator("GET", f"{JOBS}/digest")).body, app.store.clock.now_ms()
        made = Suggestion(
            new_id(now_ms), "default", "default", job["id"], "digest", "pause_failing", "open",
            '{"failed":12,"days":6.5,"failedPerDay":1.85}', '{"enabled":false}', '{"enabled":true}', 1,
            now_ms, now_ms,
        )  # fmt: skip
        other = await operator.new("agent", agent="other")
        async with listening(operator, types="suggestion.changed") as stream, listening(other) as elsewhere:
            await app.store.write_suggestions([made])
            for path, status in ((None, "open"), ("apply", "applied"), ("rollback", "rolled_back")):
                if path is not None:
                    done = await operator("POST", f"/suggestions/{made.id}/{path}")
                    assert done.status == 200, done.body
                (event,) = await stream.until(lambda event: event.type == "suggestion.changed")
                assert (event.data["job"], event.data["jobId"]) == ("digest", job["id"])
                shown = (await operator("GET", f"/suggestions/{made.id}")).body
                assert event.data["suggestion"] == {key: shown[key] for key in shown if key != "may"}
                assert event.data["suggestion"]["status"] == status
            await run_now(operator, "digest")
            await given_jobs(operator, "own", agent="other")
            (own,) = await elsewhere.until(lambda event: event.type == "job.changed")
            assert own.data["job"] == "own", "an agent gets no suggestions for others"
        async for each in client.events(types=["suggestion.changed"], after=0):
            assert each.suggestion is not None
            assert (each.suggestion.id, each.suggestion.status) == (made.id, "rolled_back")
            break


async def test_a_run_emits_events_when_it_starts_and_finishes(new_app: NewApp) -> None:
    app = new_app()
    app.function("nothing")(lambda: "done")
    async with app, served(app) as operator, listening(operator) as stream:
        await given_jobs(operator, "digest")
        run_id = await run_now(operator)
        made, started, ended = await stream.until(finished(run_id))
        assert (made.type, made.data["job"], made.data["deleted"]) == ("job.changed", "digest", False)
        assert (started.type, started.data["agentId"], started.data["job"]) == (
            "run.started",
            "default",
            "digest",
        )
        assert ended.data["run"]["state"] == "succeeded"
        shown = (await operator("GET", f"/runs/{run_id}")).body
        of_one = ("attempts", "waitingFor", "may")  # fields that only the response for one run has
        assert ended.data["run"] == {name: value for name, value in shown.items() if name not in of_one}
        assert [event.seq for event in (made, started, ended)] == [
            event.data["seq"] for event in (made, started, ended)
        ]
        await operator("DELETE", "/agents/default/jobs/digest")
        (gone,) = await stream.until(lambda event: event.type == "job.changed")
        assert (gone.data["job"], gone.data["deleted"]) == ("digest", True)


@pytest.mark.parametrize("by", ["header", "query"])
async def test_a_reconnecting_client_receives_each_missed_event_once(new_app: NewApp, by: str) -> None:
    app = new_app()
    app.function("nothing")(lambda: None)
    async with app, served(app) as operator:
        await given_jobs(operator, "digest")
        async with listening(operator) as stream:
            first = await run_now(operator)
            received = await stream.until(finished(first))
        meanwhile = [await run_now(operator) for _ in range(3)]
        for run_id in meanwhile:
            await over(app, run_id)
        seen = received[-1].seq
        header, query = (seen, 0) if by == "header" else (None, seen)
        async with listening(operator, last_event_id=header, after=query) as stream:
            last = await run_now(operator)
            received += await stream.until(finished(last))
    seqs = [event.seq for event in received]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    for run_id in (first, *meanwhile, last):
        assert [event.type for event in received if event.data["run"]["id"] == run_id] == [
            "run.started",
            "run.finished",
        ]


async def test_events_are_replayed_from_the_beginning_after_a_restart(new_app: NewApp) -> None:
    app = new_app()
    app.function("nothing")(lambda: None)
    async with app, served(app) as operator:
        await given_jobs(operator, "digest")
        run_id = await run_now(operator)
        await over(app, run_id)
    again = new_app()
    async with again, served(again) as operator:
        caller = await operator.new("member")
        async with listening(caller, after=0) as stream:
            received = await stream.until(finished(run_id))
    assert [event.type for event in received] == ["job.changed", "run.started", "run.finished"]


async def test_events_of_another_replica_are_received(new_app: NewApp) -> None:
    here, there = new_app(), new_app()
    here.function("nothing")(lambda: None)
    there.function("nothing")(lambda: None)
    async with here, there, served(here) as operator, listening(operator) as stream:
        await there.jobs.create("digest", schedule=SELDOM, target=Function("nothing"))
        (made,) = await stream.until(lambda event: True)
        assert made.data["job"] == "digest"


@on_one_store
async def test_events_are_filtered_by_type_job_and_agent(new_app: NewApp) -> None:
    app = new_app()
    app.function("nothing")(lambda: None)
    async with (
        app,
        served(app) as operator,
        listening(operator, types="run.finished") as ends,
        listening(operator, job="other") as others,
        listening(operator, agent="ada") as adas,
    ):
        await given_jobs(operator, "digest", "other")
        await operator("PUT", "/agents/ada", {})
        await given_jobs(operator, "hers", agent="ada")
        for name in ("digest", "other"):
            run_id = await run_now(operator, name)
            await over(app, run_id)
        hers = await run_now(operator, "hers", "ada")
        assert {event.type for event in await ends.until(finished(hers))} == {"run.finished"}
        assert {event.data["job"] for event in await others.until(finished(run_id))} == {"other"}
        assert {event.data["agentId"] for event in await adas.until(finished(hers))} == {"ada"}


@on_one_store
async def test_events_of_other_workspaces_and_agents_are_not_sent(new_app: NewApp) -> None:
    app = new_app()
    async with app, served(app) as operator:
        await operator("PUT", "/api/workspaces/acme", {})
        stranger = await operator.new("admin", "acme")
        assert (await stranger("GET", "/events")).code == "not-found"
        assert (await operator.with_key("wk_wrong")("GET", "/events")).code == "unauthenticated"
        assert (await operator("GET", "/events", types="run.lost")).code == "invalid-argument"
        assert (await operator("GET", "/events", headers={"Last-Event-ID": "x"})).code == "invalid-argument"
        bound = await operator.new("agent", agent="ada")
        assert (await bound("GET", "/events", agent="default")).code == "not-found"
        document = {"name": "x", "schedule": SELDOM, "target": {"kind": "pull"}}
        async with listening(bound) as stream, listening(stranger, "/api/workspaces/acme") as elsewhere:
            await operator("POST", "/agents/default/jobs", document)
            await operator("POST", "/agents/ada/jobs", document)
            await operator("POST", "/api/workspaces/acme/agents/bob/jobs", document)
            (hers,) = await stream.until(lambda event: True)
            (theirs,) = await elsewhere.until(lambda event: True)
            assert (hers.data["agentId"], theirs.data["agentId"]) == ("ada", "bob")


async def test_pruned_events_cause_a_reset_event(new_app: NewApp) -> None:
    app = new_app()
    async with app, served(app) as operator:
        await given_jobs_without_function(operator, "one", "two")
        # Changes are kept until their runs are counted.
        await eventually(lambda: app.store.prune_changes(app.store.clock.now_ms() + 60_000, 100))
        async with listening(operator, after=0) as stream:
            reset, two = await stream.until(lambda event: event.type == "job.changed")
            assert (reset.type, reset.seq, two.data["job"]) == ("reset", two.seq - 1, "two")
        async with listening(operator, after=10**9) as stream:  # a sequence number of another database
            (reset,) = await stream.until(lambda event: True)
            assert (reset.type, reset.seq) == ("reset", two.seq)


async def given_jobs_without_function(caller: ApiClient, *names: str) -> None:
    for name in names:
        reply = await caller("POST", JOBS, {"name": name, "schedule": SELDOM, "target": {"kind": "pull"}})
        assert reply.status == 201, reply


@on_one_store
async def test_a_stopping_server_ends_its_streams(new_app: NewApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.server.serve.GRACE", 4 * PATIENCE)
    app = new_app()
    loop = asyncio.get_running_loop()
    async with app:
        async with served(app) as operator:
            stream = listening(operator)
            events = await stream.__aenter__()
            began = loop.time()
            app.services.events.shut_down()
            assert await events.next_event() is None
            assert loop.time() - began < PATIENCE
            await stream.__aexit__(None, None, None)
        assert app.services.events._reader is None


async def test_a_slow_listener_delays_no_other_and_misses_nothing(new_app: NewApp) -> None:
    app = new_app()
    async with app:
        feed = app.services.events
        slow = await feed.subscribe(LOCAL, "default")
        quick = await feed.subscribe(LOCAL, "default")
        count = 2_500  # more than the buffer holds
        documents = [
            {"name": f"job-{n}", "schedule": SELDOM, "target": {"kind": "pull"}} for n in range(count)
        ]
        await app.services.jobs.create_many(LOCAL, "default", "default", documents)
        for listener in (quick, slow):
            names: list[str | None] = []
            async with asyncio.timeout(PATIENCE):
                while len(names) < count:
                    names += [event.job for event in await listener.next(1.0) or ()]
            assert names == [document["name"] for document in documents]
            listener.close()
        assert feed._reader is None  # without listeners there is no reader


@on_one_store
async def test_revoking_a_key_ends_its_stream(new_app: NewApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.api.http.events.HEARTBEAT_S", 0.05)
    app = new_app()
    async with app, served(app) as operator:
        caller = await operator.new("member")
        async with listening(caller) as stream:
            (key,) = [
                key for key in await app.services.auth.keys.list(LOCAL, "default") if key.name == "member"
            ]
            await app.services.auth.keys.revoke(LOCAL, "default", key.id)
            async with asyncio.timeout(PATIENCE):
                assert await stream.next_event() is None


@on_one_store
async def test_the_reader_stops_when_its_last_listener_is_garbage_collected(new_app: NewApp) -> None:
    app = new_app()
    async with app:
        listener = await app.services.events.subscribe(LOCAL, "default")
        assert app.services.events._reader is not None
        del listener
        await eventually(lambda: app.services.events._reader is None)
        again = await app.services.events.subscribe(LOCAL, "default", after=0)
        await app.jobs.create("digest", schedule=SELDOM, target={"kind": "pull"})
        assert [event.job for event in await again.next(PATIENCE) or ()] == ["digest"]
        again.close()


@on_one_store
async def test_only_the_initial_id_block_of_a_stream_has_no_data(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients such as httpx-sse report a block without data as an event, and code that parses it fails."""
    monkeypatch.setattr("wakeful.api.http.events.HEARTBEAT_S", 0.01)
    app = new_app()
    async with app, served(app) as operator:
        for query, first in (("?after=0", []), ("", ["id"])):
            blocks: list[list[str]] = [[]]
            async with (
                asyncio.timeout(PATIENCE),
                operator.session.get(
                    f"{operator.url}{HOME}/events{query}", headers={"Authorization": f"Bearer {operator.key}"}
                ) as response,
            ):
                comments = 0
                while comments < 3 or not any("data" in block for block in blocks):
                    line = (await response.content.readline()).decode().rstrip("\n")
                    comments += line.startswith(":")
                    if comments == 2:
                        await operator("PUT", f"{JOBS}/digest", {"schedule": SELDOM, "description": query})
                    if not line:
                        blocks.append([])
                    elif not line.startswith((":", "retry:")):
                        blocks[-1].append(line.partition(":")[0])
            without = [block for block in blocks[:-1] if "data" not in block]
            assert without == ([first] if first else [])
