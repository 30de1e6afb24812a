"""`Wakeful` and `AsyncClient`: the same methods, and equal objects for the same job, run and agent."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.api_client import served
from tests.support.waiting import over
from wakeful import (
    AgentsApi,
    AlreadyExists,
    AsyncClient,
    FailedPrecondition,
    Function,
    IncidentsApi,
    InvalidArgument,
    InvalidSchedule,
    JobsApi,
    NotFound,
    RunsApi,
    Scheduler,
    SuggestionsApi,
    Wakeful,
    WakefulError,
    Webhook,
    app,
)
from wakeful.app import admin as app_admin
from wakeful.app import agents as app_agents


class Pair(NamedTuple):
    """A scheduler in this process, and the same one over its HTTP API."""

    embedded: Scheduler
    remote: Scheduler


@pytest.fixture
async def pair(new_app: NewApp) -> AsyncIterator[Pair]:
    app = new_app()

    @app.function()
    async def note() -> str:
        return "noted"

    @app.function()
    async def fail() -> None:
        raise RuntimeError("no")

    async with app, served(app) as operator, AsyncClient(operator.url, operator.key) as client:
        yield Pair(app, client)


def same(one: object, other: object) -> None:
    """Compare all fields, including those excluded from `==`."""
    assert type(one) is type(other)
    assert dataclasses.asdict(one) == dataclasses.asdict(other)  # type: ignore[call-overload]


async def test_a_job_is_the_same_through_both(pair: Pair):
    embedded, remote = pair
    fields = {
        "schedule": "0 7 * * *",
        "tz": "Europe/Berlin",
        "target": Webhook("https://example.com/hook", headers={"x-a": "b"}),
        "payload": {"to": ["me", 1, None]},
        "start_at": datetime(2027, 1, 1, tzinfo=UTC),
        "exclude": ["weekends"],
        "backoff": {"base": "1s", "max": "5s"},
        "timeout": timedelta(seconds=90),
        "labels": {"team": "ops"},
        "overlap_policy": "queue",
        "budget": {"tokens_per_day": 10},
    }
    created = await embedded.jobs.create("digest", **fields)  # type: ignore[arg-type]
    again = await remote.jobs.upsert("digest", **fields)  # type: ignore[arg-type]
    assert again == created
    assert created.next_ticks == again.next_ticks
    assert (created.created, again.created) == (True, False)
    assert str(created.secret).startswith("whsec_")
    same(await embedded.jobs.get("digest"), await remote.jobs.get("digest"))
    same(await embedded.jobs.upsert("digest", **fields), again)  # type: ignore[arg-type]
    same((await embedded.jobs.list())[0], (await remote.jobs.list())[0])
    same(await embedded.jobs.update("digest", message="x"), await remote.jobs.update("digest", message="x"))
    paused = await embedded.jobs.pause("digest", note="n")
    assert paused == await remote.jobs.get("digest")
    assert (paused.enabled, paused.pause_note, paused.next_ticks) == (False, "n", ())
    same(await remote.jobs.resume("digest"), await embedded.jobs.resume("digest"))


@pytest.mark.parametrize("schedule", ["every 15m", "in 2h", None])
async def test_a_job_of_each_kind_is_the_same_through_both(pair: Pair, schedule: str | None):
    embedded, remote = pair
    await remote.jobs.create("first", schedule=SELDOM)
    created = await embedded.jobs.create("job", schedule=schedule, after=None if schedule else "first")
    read = await remote.jobs.get("job")
    assert read == created
    assert read.next_ticks == created.next_ticks
    same(read, await embedded.jobs.get("job"))


async def test_a_run_is_the_same_through_both(pair: Pair):
    embedded, remote = pair
    assert isinstance(embedded, Wakeful)
    await embedded.jobs.create("fail", schedule=SELDOM, target=Function("fail"), max_attempts=1)
    begun = await remote.jobs.run("fail", payload={"a": 1})
    await over(embedded, begun.id)
    failed = await embedded.runs.get(begun.id)
    assert (failed.state, failed.error, len(failed.attempts)) == ("failed", "RuntimeError: no", 1)
    same(failed, await remote.runs.get(begun.id))
    same(failed, await remote.runs.wait(begun.id))
    assert await embedded.runs.attempts(begun.id) == await remote.runs.attempts(begun.id)
    assert await embedded.runs.dead_letters() == await remote.runs.dead_letters() == [failed]
    assert await embedded.jobs.runs("fail") == await remote.jobs.runs("fail") == [failed]
    same((await embedded.jobs.get("fail")).last_runs[0], (await remote.jobs.get("fail")).last_runs[0])
    replay = await embedded.runs.replay(begun.id)
    await over(embedded, replay.id)
    page = await embedded.runs.list(limit=1)
    assert page == await remote.runs.list(limit=1)
    assert [run.id for run in page] == [replay.id]
    (older,) = await embedded.runs.list(limit=1, cursor=page.cursor)
    assert (older.id, (await embedded.runs.list(before=replay.id))[0].id) == (begun.id, begun.id)
    assert await embedded.runs.discard_many(None) == [replay.id]
    assert await remote.runs.dead_letters(all_agents=True) == []


async def test_all_dead_letters_are_those_of_the_agent(pair: Pair):
    embedded, remote = pair
    assert isinstance(embedded, Wakeful)
    for agent in ("ada", "bob"):
        for name in ("one", "two"):
            jobs = embedded.jobs.of(agent)
            await jobs.create(name, schedule=SELDOM, target=Function("fail"), max_attempts=1)
            await over(embedded, (await jobs.run(name)).id)

    async def left() -> list[str]:
        return sorted(run.agent for run in await remote.runs.dead_letters(all_agents=True))

    assert await embedded.runs.discard_many(None) == await remote.runs.discard_many(None) == []
    assert len(await remote.runs.of("ada").discard_many(None)) == 2
    assert await left() == ["bob", "bob"]
    for scheduler in pair:
        again = await scheduler.runs.of("bob").replay_many(None)
        assert len(again) == 2
        assert await scheduler.runs.of("ada").replay_many(None) == []
        for run in await remote.runs.list(all_agents=True, limit=2):
            await over(embedded, run.id)
    assert await left() == ["bob", "bob"]
    assert len(await embedded.runs.discard_many(None, all_agents=True)) == 2
    assert await left() == []


async def test_a_skipped_tick_is_the_same_through_both(pair: Pair):
    for scheduler in pair:
        job = await scheduler.jobs.upsert("digest", schedule="every 1h")
        skipped = await scheduler.jobs.skip_next("digest")
        assert skipped.skipped is not None
        assert (skipped.skipped.state, skipped.skipped.reason) == ("skipped", "asked")
        assert skipped.skipped.scheduled_at == job.next_at


async def test_runs_are_claimed_and_completed_through_both(pair: Pair):
    for scheduler in pair:
        await scheduler.jobs.upsert("pull", schedule=SELDOM, target={"kind": "pull"}, timeout="90s")
        begun = await scheduler.jobs.run("pull")
        (claimed,) = await scheduler.runs.claim("laptop", agents=["default"], wait_ms=1_000)
        assert (claimed.id, claimed.target, claimed.timeout) == (
            begun.id,
            {"kind": "pull"},
            timedelta(seconds=90),
        )
        assert (await scheduler.runs.heartbeat(claimed)).state == "running"
        beat = await scheduler.runs.heartbeat_many([claimed])
        assert (beat.renewed, beat.lost) == ((claimed.id,), ())
        assert (await scheduler.runs.release("other", [claimed])).lost == (claimed.id,)
        assert (await scheduler.runs.release("laptop", [claimed])).released == (claimed.id,)
        (claimed,) = await scheduler.runs.claim("laptop", wait_ms=1_000, claim_id=begun.id)
        assert (await scheduler.runs.release("laptop", claim_id=begun.id)).released == (claimed.id,)
        (claimed,) = await scheduler.runs.claim("laptop", wait_ms=1_000)
        done = await scheduler.runs.complete(claimed, "succeeded", output={"a": 1}, usage={"tokens": 5})
        assert (done.output, done.usage) == ('{"a":1}', {"tokens": 5})
        woken = await scheduler.runs.wake({"a": 1})
        assert (woken.trigger, (await scheduler.runs.cancel(woken.id)).state) == ("user", "cancelled")


async def test_an_agent_is_the_same_through_both(pair: Pair):
    embedded, remote = pair
    fields = {"description": "writes", "target": {"kind": "pull"}, "heartbeat": True}
    put = await embedded.agents.put("writer", fields)
    same(await remote.agents.get("writer"), put)
    assert await embedded.agents.list() == await remote.agents.list()
    receipt = await embedded.agents.say("writer", "hello", session="a")
    assert (receipt.session, receipt.state) == ("a", "waiting")
    (session,) = await remote.agents.sessions("writer")
    same(session, (await embedded.agents.sessions("writer"))[0])


async def test_errors_are_the_same_through_both(pair: Pair):
    calls: list[tuple[type[WakefulError], Callable[[Scheduler], object]]] = [
        (NotFound, lambda each: each.jobs.get("nobody")),
        (NotFound, lambda each: each.jobs.update("nobody", message="x")),
        (NotFound, lambda each: each.runs.get("nobody")),
        (NotFound, lambda each: each.runs.replay("nobody")),
        (NotFound, lambda each: each.agents.get("nobody")),
        (FailedPrecondition, lambda each: each.jobs.update("digest", message="x", if_version=99)),
        (WakefulError, lambda each: each.jobs.dry_run("digest", schedule="61 * * * *")),
        (InvalidArgument, lambda each: each.runs.list(states=["done"])),
        (InvalidArgument, lambda each: each.runs.list(cursor="2")),
        (InvalidArgument, lambda each: each.runs.dead_letters(cursor="2")),
        (InvalidArgument, lambda each: each.jobs.runs("digest", cursor="2")),
        (InvalidArgument, lambda each: each.incidents.list(cursor="2")),
        (InvalidArgument, lambda each: each.suggestions.list(cursor="2")),
        (InvalidArgument, lambda each: each.agents.sessions("default", cursor="a b")),
    ]
    await pair.embedded.jobs.create("digest", schedule=SELDOM)
    for kind, call in calls:
        messages = []
        for scheduler in pair:
            with pytest.raises(kind) as refused:
                await call(scheduler)  # type: ignore[misc]
            messages.append(refused.value.message.replace('"', ""))  # an ETag is quoted
        assert messages[0] == messages[1]
    assert (await pair.remote.jobs.get("digest")).schedule is not None


@pytest.mark.parametrize("limit", [0, -1, 2**63, True, 1.5])
async def test_a_wrong_size_of_a_page_is_refused(new_app: NewApp, limit: Any):
    async with new_app() as app:
        await app.jobs.create("digest", schedule=SELDOM)
        lists: list[Callable[..., Awaitable[object]]] = [
            app.runs.list, app.runs.dead_letters, partial(app.jobs.runs, "digest"), app.incidents.list,
            app.suggestions.list, app.inbox.list, app.agents.instances,
            partial(app.agents.sessions, "default"),
        ]  # fmt: skip
        for each in lists:
            with pytest.raises(InvalidArgument, match="limit: write a whole number"):
                await each(limit=limit)
        with pytest.raises(InvalidArgument, match="trigger: 'magic' is not one of"):
            await app.runs.list(trigger="magic")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("remote", "embedded"),
    [
        (JobsApi, app.Jobs),
        (RunsApi, app.Runs),
        (AgentsApi, app_agents.Agents),
        (IncidentsApi, app_admin.Incidents),
        (SuggestionsApi, app_admin.Suggestions),
    ],
)
def test_every_method_of_the_embedded_api_has_the_parameters_of_the_client(remote: type, embedded: type):
    names = {name for name in dir(remote) if not name.startswith("_")}
    own = {
        name
        for base in embedded.__mro__
        if base.__module__.startswith(("wakeful.app", "wakeful.client"))
        for name in vars(base)
        if not name.startswith("_")
    }
    assert own == names
    for name in names:
        assert _parameters(getattr(embedded, name)) == _parameters(getattr(remote, name)), name
        assert inspect.getdoc(getattr(embedded, name)), name


def _parameters(method: Callable[..., object]) -> list[tuple[str, object, object]]:
    found = inspect.signature(method).parameters.values()
    # Only a scheduler in the process can write in a transaction of its caller.
    return [(each.name, each.kind, each.default) for each in found if each.name != "connection"]


async def test_many_jobs_are_created_together_or_not_at_all(pair: Pair):
    documents = [{"name": name, "schedule": SELDOM, "target": Webhook("https://a.example")} for name in "abc"]
    for number, each in enumerate(pair):
        jobs = each.jobs.of(f"team-{number}")
        with pytest.raises(InvalidArgument, match=r"^jobs\[1\]: name"):
            await jobs.create_many([documents[0], {"name": "Not A Slug", "schedule": SELDOM}])
        with pytest.raises(InvalidSchedule if number == 0 else InvalidArgument, match=r"^jobs\[0\]: .*never"):
            await jobs.create_many([{"name": "x", "schedule": "0 0 31 2 *"}])
        await jobs.create("c", schedule=SELDOM)
        with pytest.raises(AlreadyExists, match="'c'"):
            await jobs.create_many(documents)
        assert [job.name for job in await jobs.list()] == ["c"]
        await jobs.delete("c")
        made = await jobs.create_many(documents)
        assert [job.name for job in made] == ["a", "b", "c"]
        assert len({job.secret for job in made} - {None}) == 3


async def test_previews_and_tests_of_targets_are_the_same(pair: Pair):
    previews = [
        await each.jobs.preview(
            count=2,
            schedule="30 2 * * *",
            tz="Europe/Berlin",
            start_at=datetime(2027, 3, 28, tzinfo=UTC),
            dst_gap="skip",
        )
        for each in pair
    ]
    assert previews[0] == previews[1]
    assert "2027-03-29T02:30:00.000+02:00" in str(previews[0]["ticks"])
    await pair.embedded.jobs.create("noted", schedule=SELDOM, target=Function("note"))
    tests = [await each.jobs.test_target("noted") for each in pair]
    tests += [await each.jobs.test_target(target=Function("note"), payload=1) for each in pair]
    assert all(test["ok"] for test in tests)
    assert len({str(test) for test in tests}) == 1
