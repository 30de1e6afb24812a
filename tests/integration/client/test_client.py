"""`AsyncClient`: the methods, types and errors of the embedded API, over HTTP."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.integration.conftest import QUICK, SELDOM
from tests.support.api_client import served
from tests.support.receiver import Receiver
from tests.support.waiting import PATIENCE
from wakeful import (
    AlreadyExists,
    FailedPrecondition,
    Function,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
    Wakeful,
    WakefulError,
    Webhook,
)
from wakeful.client import AsyncClient
from wakeful.client.connection import Connection
from wakeful.schedule.schedules import Every
from wakeful.service.runs.dead_letters import DeadLetterService


@pytest.fixture
async def app(tmp_path: Path) -> Wakeful:
    app = Wakeful(f"sqlite:///{tmp_path}/wakeful.db", config=QUICK, secret_key="a key for tests")

    @app.function()
    async def note() -> str:
        return "noted"

    @app.function()
    async def fail() -> None:
        raise RuntimeError("no")

    return app


@pytest.fixture
async def client(app: Wakeful) -> AsyncIterator[AsyncClient]:
    async with app, served(app) as operator, AsyncClient(operator.url, operator.key) as client:
        yield client


async def test_a_job_is_created_updated_paused_and_deleted(client: AsyncClient):
    made = await client.jobs.create(
        "digest",
        schedule="0 7 * * *",
        tz="Europe/Berlin",
        target=Webhook("https://example.com/hook"),
        timeout=timedelta(seconds=90),
        payload={"to": "me"},
    )
    assert made.explain == "At 07:00, every day (Europe/Berlin)"
    assert str(made.secret).startswith("whsec_")

    same = await client.jobs.upsert(
        "digest",
        schedule="0 7 * * *",
        tz="Europe/Berlin",
        target=Webhook("https://example.com/hook"),
        timeout=timedelta(seconds=90),
        payload={"to": "me"},
    )
    assert same.revision == made.revision
    assert (made.created, same.created, same.secret) == (True, False, None)

    changed = await client.jobs.update("digest", schedule=timedelta(minutes=5), if_version=made.revision)
    assert changed.schedule == Every(300_000, "Europe/Berlin")
    with pytest.raises(FailedPrecondition):
        await client.jobs.update("digest", message="x", if_version=made.revision)

    assert (await client.jobs.pause("digest")).enabled is False
    assert await client.jobs.list(include_disabled=False) == []
    assert (await client.jobs.resume("digest")).enabled is True
    assert str((await client.jobs.rotate_secret("digest")).secret) != made.secret
    hook = await client.jobs.create_hook("digest")
    assert str(hook.url).endswith(f"/hooks/{hook.token}")
    assert (await client.jobs.get_hook("digest")).id == hook.id
    assert (await client.jobs.get("digest")).hook is True
    await client.jobs.delete_hook("digest")
    assert (await client.jobs.get("digest")).hook is False
    assert [job.name for job in await client.jobs.list()] == ["digest"]
    await client.jobs.delete("digest")
    with pytest.raises(NotFound, match="no job 'digest'"):
        await client.jobs.get("digest")


async def test_a_list_reads_all_pages(client: AsyncClient, app: Wakeful):
    await app.jobs.create_many({"name": f"job-{n:04}", "schedule": SELDOM} for n in range(1, 1002))

    assert len(await client.jobs.list()) == 1001


async def test_a_run_is_started_and_awaited(client: AsyncClient):
    await client.jobs.create("note", schedule=SELDOM, target=Function("note"))
    assert await client.jobs.run("note", mode="due") is None
    seen: list[str] = []

    run = await client.jobs.run("note", payload=[1])
    async with asyncio.timeout(PATIENCE):
        over = await client.runs.wait(run.id, poll=0.01, on_poll=lambda run: seen.append(run.state))

    assert (over.state, over.output, over.payload) == ("succeeded", "noted", [1])
    assert seen[-1] == "succeeded"
    assert [each.id for each in await client.runs.list()] == [run.id]
    assert [each.id for each in await client.jobs.runs("note")] == [run.id]
    assert await client.runs.list(states=["failed", "skipped"]) == []
    with pytest.raises(FailedPrecondition):
        await client.runs.cancel(run.id)


async def test_a_dead_letter_is_replayed_and_discarded(client: AsyncClient):
    await client.jobs.create("fail", schedule=SELDOM, target=Function("fail"), max_attempts=1)
    run = await client.jobs.run("fail")
    async with asyncio.timeout(PATIENCE):
        await client.runs.wait(run.id, poll=0.01)
        (dead,) = await client.runs.dead_letters()
        again = await client.runs.replay(dead.id)
        await client.runs.wait(again.id, poll=0.01)

    assert (again.replay_of, again.idempotency_key) == (run.id, run.idempotency_key)
    with pytest.raises(FailedPrecondition, match="not a dead letter"):
        await client.runs.discard(run.id)
    await client.runs.discard(again.id)
    assert await client.runs.dead_letters() == []
    with pytest.raises(NotFound):
        await client.runs.discard("nobody")


@pytest.mark.parametrize("verb", ["replay", "discard"])
async def test_all_dead_letters_are_more_than_one_request(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch, verb: str
):
    await client.jobs.create("fail", schedule=SELDOM, target=Function("fail"), max_attempts=1)
    async with asyncio.timeout(PATIENCE):
        dead = [(await client.jobs.run("fail")).id for _ in range(5)]
        for run_id in dead:
            await client.runs.wait(run_id, poll=0.01)
    defaults = DeadLetterService.select.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "limit", 2)  # instead of a thousand
    rest = client._rest
    async with asyncio.timeout(PATIENCE):  # replayed runs fail again, and are not replayed without an end
        done = await (rest.replay_all("default") if verb == "replay" else rest.discard_all())
    assert done == dead
    assert not {run.id for run in await client.runs.dead_letters()} & set(dead)


@pytest.mark.parametrize("name", [".", "..", "a\ud800"])
async def test_a_name_leads_to_no_other_path(client: AsyncClient, name: str):
    calls = [client.jobs.rotate_secret, client.jobs.get, client.runs.get, client.agents.get]
    for call in calls:
        with pytest.raises(InvalidArgument, match=r"is not a name or an id|is not text in Unicode"):
            await call(name)


async def test_a_filter_that_cannot_be_sent_is_rejected(client: AsyncClient):
    await client.jobs.create("a", schedule=SELDOM, labels={"team": "ops"})
    with pytest.raises(InvalidArgument, match="not text in Unicode"):  # not the jobs of the team 'ops'
        await client.jobs.list(labels={"team": "o\ud800ps"})
    with pytest.raises(InvalidArgument, match=r"limit: 1\.5 is neither"):
        await client.runs.list(limit=1.5)  # type: ignore[arg-type]


async def test_a_key_may_end_with_a_line_end(client: AsyncClient):
    async with AsyncClient(client.url, f"{client._rest.key}\n") as other:
        assert await other.jobs.list() == []


async def test_work_is_claimed_and_completed(client: AsyncClient):
    await client.jobs.create("pull", schedule=SELDOM, target={"kind": "pull"}, message="work")
    run = await client.jobs.run("pull")

    (claimed,) = await client.runs.claim("laptop", wait_ms=5_000)
    assert (claimed.id, claimed.payload) == (run.id, {"message": "work"})
    assert (await client.runs.heartbeat(claimed)).state == "running"
    done = await client.runs.complete(claimed, "succeeded", output="done", usage={"tokens": 5})

    assert (done.state, done.output, done.usage) == ("succeeded", "done", {"tokens": 5})


async def test_a_backfill_creates_past_runs(client: AsyncClient):
    await client.jobs.create("note", schedule="@daily", target=Function("note"))
    end = datetime.now(UTC) - timedelta(minutes=1)

    assert await client.jobs.backfill("note", end - timedelta(days=3), end) == 3


async def test_agents_keys_audit_quotas_and_workflows(client: AsyncClient):
    await client.agents.put("writer", {"description": "writes", "target": {"kind": "pull"}})
    assert [agent.name for agent in await client.agents.list()] == ["default", "writer"]
    assert (await client.agents.get("writer")).description == "writes"
    assert (await client.runs.of("writer").wake({"a": 1})).state == "pending"
    await client.workflows.put("flow", 1, {"nodes": ["a"]})
    assert (await client.workflows.get("flow", 1)).dag == {"nodes": ["a"]}
    key = await client.keys.create(
        "ci", role="agent", agent="writer", expires_at=datetime(2050, 1, 1, tzinfo=UTC)
    )
    assert [each.id for each in await client.keys.list()][-1] == key.id
    await client.keys.revoke(key.id)
    assert "key.revoke" in {entry.action for entry in await client.audit.list()}
    assert (await client.audit.verify())["flaw"] is None
    assert (await client.status())["engine"] is True
    assert "deadLetterRatio" in await client.slo()
    assert "/sign-in#wl_" in await client.sign_in_link()
    assert await client.ready()
    assert isinstance(await client.quotas.list(), list)


async def test_errors_have_the_message_of_the_embedded_api(client: AsyncClient, app: Wakeful):
    await client.jobs.create("there", schedule="@daily")

    for ask, embedded in (
        (client.jobs.create("there", schedule="@daily"), app.jobs.create("there", schedule="@daily")),
        (client.jobs.create("x", schedule="61 * * * *"), app.jobs.create("x", schedule="61 * * * *")),
        (client.jobs.get("nope"), app.jobs.get("nope")),
        (client.runs.get("nope"), app.runs.get("nope")),
    ):
        with pytest.raises(WakefulError) as far:
            await ask
        with pytest.raises(WakefulError) as near:
            await embedded
        assert far.value.message == near.value.message
        assert far.value.code == near.value.code
        assert issubclass(near.type, far.type)


async def test_a_missing_permission_and_an_unknown_key_are_errors(client: AsyncClient):
    member = await client.keys.create("ci", role="member")

    async with AsyncClient(client.url, member.key) as other:
        with pytest.raises(PermissionDenied):
            await other.jobs.create("x", schedule="@daily")
    async with AsyncClient(client.url, "wk_" + "x" * 43) as other:
        with pytest.raises(Unauthenticated):
            await other.jobs.list()


async def test_an_unreachable_server_is_unavailable_and_the_error_has_a_hint():
    async with AsyncClient("http://127.0.0.1:1", "wk_x") as client:
        with pytest.raises(Unavailable, match="wakeful serve"):
            await client.jobs.list()


async def test_a_server_that_is_not_wakeful_is_unavailable(receiver: Receiver):
    async with AsyncClient(receiver.url, "wk_x") as client:
        with pytest.raises(Unavailable, match="not as Wakeful does"):
            await client.jobs.list()


async def test_an_invalid_address_is_rejected():
    with pytest.raises(InvalidArgument, match="not the address"):
        AsyncClient("nonsense")


async def test_a_duplicate_name_is_rejected(client: AsyncClient):
    await client.jobs.create("a", schedule="@daily")

    with pytest.raises(AlreadyExists, match="already has a job 'a'"):
        await client.jobs.create("a", schedule="@daily")


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the first loops end with open connections
async def test_a_client_works_in_one_event_loop_after_another(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
):
    assert await client.ready()
    for _ in range(2):
        assert await asyncio.to_thread(lambda: asyncio.run(client.jobs.list())) == []
    assert await client.ready()
    await client.close()
    gc.collect()
    assert "Unclosed" not in caplog.text


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the loops end with open connections
def test_threads_with_event_loops_of_their_own_share_a_client():
    connection = Connection("http://127.0.0.1:1", None)

    def open_and_end() -> None:
        asyncio.run(connection.open())

    class Interrupted(asyncio.SelectorEventLoop):
        """A loop during whose check another thread has its turn."""

        def is_closed(self) -> bool:
            if others:
                other = others.pop()
                other.start()
                other.join(PATIENCE)
            return super().is_closed()

    others: list[threading.Thread] = []
    loop = Interrupted()
    loop.run_until_complete(connection.open())
    loop.close()
    others.append(threading.Thread(target=open_and_end))
    open_and_end()
    assert loop not in connection._sessions
