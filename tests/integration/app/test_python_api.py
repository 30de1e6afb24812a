"""The embedded scheduler, as a Python program uses it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import stat
import subprocess
import sys
import threading
import typing
import weakref
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import wakeful
from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.receiver import Receiver
from tests.support.replica import another_process, entries
from tests.support.waiting import PATIENCE, eventually, gone, over, runs_of, stored, the_run_of
from wakeful import (
    AlreadyExists,
    FailedPrecondition,
    Function,
    InvalidArgument,
    InvalidSchedule,
    Launch,
    NotFound,
    Unavailable,
    Wakeful,
    Webhook,
)


def soon() -> datetime:
    """Return a time near enough to wait for, but after the start of an app."""
    return datetime.now(UTC) + timedelta(seconds=5)


# --- declarations ------------------------------------------------------------------------------------


async def test_a_decorated_function_is_called_at_every_tick_of_its_job(new_app: NewApp):
    app = new_app()
    calls: list[Launch] = []

    @app.every("1s")
    async def pulse(run: Launch) -> None:
        calls.append(run)

    async with app:
        await eventually(lambda: len(calls) >= 2)
        job = await stored(app, "pulse")
    first, second = calls[:2]
    assert first.job == "pulse"
    assert first.scheduled_ms == job.anchor_ms + 1000
    assert (second.scheduled_ms - first.scheduled_ms) % 1000 == 0
    seconds = f"{first.scheduled_ms // 1000}.{first.scheduled_ms % 1000:03d}".removesuffix(".000")
    assert first.idempotency_key == sha256(f"{job.id}:{seconds}".encode()).hexdigest()


@on_one_store
async def test_decorators_declare_each_kind_of_schedule(new_app: NewApp):
    app = new_app()

    @app.cron("0 9 * * 1-5", tz="Europe/Berlin", description="for all")
    async def stand_up() -> None: ...

    @app.every(timedelta(minutes=5), name="often")
    async def _pulse() -> None: ...

    @app.at("2099-03-01T09:00", tz="Europe/Berlin", payload={"to": "me"})
    def celebrate(run: Launch) -> None: ...

    async with app:
        jobs = {job.name: job for job in await app.jobs.list()}
    assert sorted(jobs) == ["celebrate", "often", "stand-up"]
    schedules = {name: job.schedule.to_json() for name, job in jobs.items() if job.schedule}
    assert schedules["stand-up"] == {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Europe/Berlin"}
    assert schedules["often"] == {"kind": "every", "everyMs": 300_000}
    assert schedules["celebrate"] == {"kind": "at", "atMs": 4_076_035_200_000, "tz": "Europe/Berlin"}
    assert jobs["stand-up"].description == "for all"
    assert jobs["celebrate"].payload == {"to": "me"}


@on_one_store
async def test_a_blocking_function_runs_in_a_thread_and_blocks_no_other(new_app: NewApp):
    app = new_app()
    let_go = threading.Event()

    @app.function()
    def block() -> str:
        let_go.wait(PATIENCE)
        return threading.current_thread().name

    @app.function()
    async def quick() -> str:
        return "done"

    async with app:
        await app.jobs.create("slow", schedule=SELDOM, target=Function("block"))
        await app.jobs.create("fast", schedule=SELDOM, target=Function("quick"))
        slow = await app.jobs.run("slow")
        fast = await app.jobs.run("fast")
        assert (await over(app, fast.id)).output == "done"
        let_go.set()
        assert "wakeful" in str((await over(app, slow.id)).output)


@on_one_store
async def test_a_function_gets_the_payload_and_its_result_is_the_output(new_app: NewApp):
    app = new_app()

    @app.function()
    async def echo(run: Launch) -> object:
        return {"payload": run.payload, "message": run.message}

    async with app:
        await app.jobs.create("own", schedule=SELDOM, target=Function("echo"), payload={"a": [1, None]})
        await app.jobs.create("told", schedule=SELDOM, target=Function("echo"), message="wake up")
        own = await over(app, (await app.jobs.run("own")).id)
        given = await over(app, (await app.jobs.run("own", payload={"b": 2})).id)
        told = await over(app, (await app.jobs.run("told")).id)
    assert own.output == '{"payload":{"a":[1,null]},"message":null}'
    assert given.output == '{"payload":{"b":2},"message":null}'
    assert told.output == '{"payload":{"message":"wake up"},"message":"wake up"}'


@on_one_store
async def test_a_duplicate_declaration_is_rejected(new_app: NewApp):
    app = new_app()

    async def report() -> None: ...

    app.cron("0 9 * * *")(report)
    with pytest.raises(AlreadyExists, match="'report' is already declared"):
        app.cron("0 17 * * *")(report)
    app.cron("0 17 * * *", name="report-again")(report)


@on_one_store
async def test_an_invalid_declaration_fails_the_start_and_names_its_job(new_app: NewApp):
    app = new_app()

    @app.cron("0 25 * * *")
    async def never() -> None: ...

    with pytest.raises(InvalidSchedule, match=r"job 'never': schedule: .*25"):
        async with app:
            pass
    async with new_app() as other:
        assert await other.jobs.list() == []


@on_one_store
async def test_a_finished_at_job_does_not_run_again_after_a_restart(new_app: NewApp):
    when, calls = soon(), []

    def program() -> Wakeful:
        app = new_app()

        @app.at(when)
        async def once(run: Launch) -> None:
            calls.append(run.id)

        return app

    async with program() as app:
        await gone(app, "once")
    async with program() as app:
        assert await app.jobs.list() == []
        assert len(await runs_of(app, "once")) == 1
    assert len(calls) == 1


@on_one_store
async def test_an_at_job_missed_while_no_app_was_running_runs_at_the_next_start(new_app: NewApp):
    when, calls = soon(), []

    def program() -> Wakeful:
        app = new_app()

        @app.at(when)
        async def once(run: Launch) -> None:
            calls.append(run.scheduled_at)

        return app

    async with program():
        assert calls == []
    await eventually(lambda: datetime.now(UTC) > when)
    async with program() as app:
        await gone(app, "once")
    assert calls == [when.replace(microsecond=when.microsecond // 1000 * 1000)]


@on_one_store
async def test_a_new_at_job_in_the_past_is_ignored_unless_it_is_invalid(new_app: NewApp):
    app = new_app()

    @app.at("2001-01-01T00:00")
    async def too_late() -> None: ...

    async with app:
        assert await app.jobs.list() == []

    other = new_app()

    @other.at("2001-01-01T00:00", tz="Europe/Brelin")
    async def misspelt() -> None: ...

    with pytest.raises(InvalidSchedule, match="Europe/Brelin"):
        async with other:
            pass


# --- jobs and runs -----------------------------------------------------------------------------------


async def test_creating_a_duplicate_name_is_rejected(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.create("digest", schedule=SELDOM)
        with pytest.raises(AlreadyExists, match="'digest'"):
            await app.jobs.create("digest", schedule=SELDOM)


async def test_create_many_creates_all_jobs_or_none(new_app: NewApp):
    async with new_app() as app:
        with pytest.raises(InvalidArgument, match="name"):
            await app.jobs.create_many(
                [{"name": "good", "schedule": SELDOM}, {"name": "Not A Slug", "schedule": SELDOM}]
            )
        assert await app.jobs.list() == []
        saved = await app.jobs.create_many(
            [{"name": name, "schedule": SELDOM, "target": Webhook("https://example.com")} for name in "abc"]
        )
        assert len({each.secret for each in saved}) == 3
        assert [job.name for job in await app.jobs.list()] == ["a", "b", "c"]


@on_one_store
@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"schedule": "0 9 * * *", "tz": "Mars/Olympus"}, "Mars/Olympus"),
        ({"schedule": "0 0 31 2 *"}, "never"),
        ({"schedule": "2001-01-01T00:00"}, "in the past; it is now"),
        ({"schedule": SELDOM, "target": Webhook("ftp://example.com")}, "http or https"),
        ({"schedule": SELDOM, "max_attempts": 0}, "max_?[aA]ttempts: 0 is out of range"),
        ({}, "schedule: it is missing"),
    ],
)
async def test_an_invalid_job_is_rejected(new_app: NewApp, fields: Any, sentence: str):
    async with new_app() as app:
        with pytest.raises(InvalidArgument, match=sentence):
            await app.jobs.create("digest", **fields)
        assert await app.jobs.list() == []


@on_one_store
async def test_unknown_jobs_and_runs_are_not_found(new_app: NewApp):
    async with new_app() as app:
        for asking in (
            app.jobs.get("x"), app.jobs.delete("x"), app.jobs.pause("x"), app.jobs.run("x"),
            app.jobs.update("x", description="y"), app.runs.get("r"), app.runs.cancel("r"),
            app.runs.replay("r"), app.runs.discard("r"), app.runs.complete("r", "succeeded"),
        ):  # fmt: skip
            with pytest.raises(NotFound):
                await asking


async def test_jobs_and_runs_are_scoped_to_the_agent_and_the_workspace(new_app: NewApp):
    app, stranger = new_app(), new_app(workspace="other")

    @app.function()
    @stranger.function()  # replicas of one database: either may claim the run
    async def whose(run: Launch) -> str:
        return run.agent

    async with app, stranger:
        for agent in ("ada", "bob"):
            await app.jobs.of(agent).create("digest", schedule=SELDOM, target=Function("whose"))
        run = await app.jobs.of("ada").run("digest")
        assert (await over(app, run.id)).output == "ada"
        assert [each.id for each in await app.runs.of("ada").list()] == [run.id]
        assert await app.runs.of("bob").list() == []
        assert await app.jobs.list() == []
        assert await stranger.jobs.of("ada").list() == []
        with pytest.raises(NotFound):
            await stranger.runs.get(run.id)


async def test_reads_change_nothing(new_app: NewApp):
    async with new_app() as app:
        saved = await app.jobs.create("digest", schedule=SELDOM, target=Webhook("https://example.com"))
        for _ in range(2):
            assert await app.jobs.get("digest") == saved
            assert list(await app.jobs.list()) == [saved]
            assert await app.jobs.run("digest", mode="due") is None
            assert await app.runs.list() == []


async def test_runs_are_listed_newest_first_with_pagination(new_app: NewApp):
    app = new_app()

    @app.function()
    async def fine() -> None: ...

    async with app:
        await app.jobs.create("digest", schedule=SELDOM, target=Function("fine"))
        ids = [(await app.jobs.run("digest")).id for _ in range(5)]
        for run_id in ids:
            await over(app, run_id)
        newest = [run.id for run in await app.runs.list(limit=3)]
        rest = [run.id for run in await app.runs.list(limit=3, before=newest[-1])]
        assert newest + rest == ids[::-1]
        assert await app.runs.list(states=["failed"]) == []
        assert len(await app.runs.list(trigger="user", states=["succeeded"])) == 5


# --- start and stop ----------------------------------------------------------------------------------


@on_one_store
async def test_an_app_can_be_restarted(new_app: NewApp):
    app = new_app()

    @app.function()
    async def fine() -> None: ...

    async with app:
        await app.jobs.create("digest", schedule=SELDOM, target=Function("fine"))
    async with app:
        assert (await over(app, (await app.jobs.run("digest")).id)).state == "succeeded"


@on_one_store
async def test_a_restart_keeps_nothing_of_the_engine_before(new_app: NewApp):
    app, engines = new_app(), []
    for _ in range(3):
        async with app:
            engines.append(weakref.ref(app._running_engine))
    gc.collect()
    assert [engine() for engine in engines[:-1]] == [None, None]


@on_one_store
async def test_starting_a_started_app_is_rejected(new_app: NewApp):
    async with new_app() as app:
        with pytest.raises(FailedPrecondition, match="already started"):
            await app.__aenter__()
        assert await app.jobs.list() == []


@on_one_store
async def test_a_failed_start_leaves_nothing_open_and_can_be_retried(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    app = new_app()

    async def unavailable(*given: object) -> set[str]:
        raise Unavailable("the database is not there")

    with monkeypatch.context() as patched:
        patched.setattr(app.store, "beat", unavailable)
        with pytest.raises(Unavailable):
            await app.__aenter__()
    gc.collect()  # a connection left open would raise a warning, which is an error here
    async with app:
        assert await app.jobs.list() == []


@on_one_store
async def test_serve_forever_starts_the_app_and_returns_after_stop(new_app: NewApp):
    app, called = new_app(), asyncio.Event()

    @app.at(soon())
    async def once() -> None:
        called.set()

    async with asyncio.timeout(PATIENCE):
        serving = asyncio.create_task(app.serve_forever())
        await called.wait()
        await app.stop()
        await serving


@on_one_store
async def test_sigterm_stops_the_program_and_releases_its_runs(
    new_app: NewApp, database: str, tmp_path: Path
):
    journal = tmp_path / "journal"
    async with new_app(config=wakeful.EngineConfig(lanes={})) as app:
        await app.jobs.create("work", schedule=SELDOM, target=Function("work"))
        run = await app.jobs.run("work")
        with another_process(database, journal) as process:
            await eventually(lambda: entries(journal))
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, PATIENCE) == 0
        assert (await app.runs.get(run.id)).state == "retrying"


@on_one_store
async def test_defaults_are_read_from_the_environment(new_app: NewApp, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WAKEFUL_DEFAULT_TZ", "Asia/Tokyo")
    monkeypatch.setenv("WAKEFUL_DEFAULT_OVERLAP_POLICY", "queue")
    async with new_app() as app:
        job = await app.jobs.create("digest", schedule="0 9 * * *")
    assert (job.tz, job.overlap_policy) == ("Asia/Tokyo", "queue")


# --- encryption keys ---------------------------------------------------------------------------------


async def test_an_sqlite_database_creates_its_own_encryption_key(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("WAKEFUL_SECRET_KEY", raising=False)
    url = f"sqlite:///{tmp_path}/wakeful.db"
    async with Wakeful(url, allow_private_targets=True) as app:
        assert not (tmp_path / "wakeful.db.key").exists()
        await app.jobs.create("digest", schedule=SELDOM, target=Webhook(receiver.url))
    assert stat.S_IMODE((tmp_path / "wakeful.db.key").stat().st_mode) == 0o600
    async with Wakeful(url, allow_private_targets=True) as app:
        run = await app.jobs.run("digest")
        assert (await over(app, run.id)).state == "succeeded"
    assert "webhook-signature" in receiver.headers


async def test_a_postgres_database_rejects_webhooks_without_an_encryption_key(
    database: str, monkeypatch: pytest.MonkeyPatch
):
    if database.startswith("sqlite"):
        pytest.skip("an SQLite database makes its own")
    monkeypatch.delenv("WAKEFUL_SECRET_KEY", raising=False)
    async with Wakeful(database) as app:
        await app.jobs.create("function", schedule=SELDOM, target=Function("digest"))
        with pytest.raises(FailedPrecondition, match="WAKEFUL_SECRET_KEY is not set"):
            await app.jobs.create("digest", schedule=SELDOM, target=Webhook("https://example.com"))
    monkeypatch.setenv("WAKEFUL_SECRET_KEY", "a key from the environment")
    async with Wakeful(database) as app:
        saved = await app.jobs.create("digest", schedule=SELDOM, target=Webhook("https://example.com"))
    assert str(saved.secret).startswith("whsec_")


# --- imports -----------------------------------------------------------------------------------------


def test_the_package_exports_the_public_api():
    assert {wakeful.Wakeful, wakeful.Webhook, wakeful.Function, wakeful.Launch, wakeful.Permanent}
    assert set(wakeful.__all__) <= set(dir(wakeful))
    with pytest.raises(AttributeError, match="no attribute 'Wakefull'"):
        wakeful.Wakefull  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_cron_evaluator_loads_no_heavy_modules():
    program = """
import sys
import wakeful.cron
heavy = {"aiohttp", "asyncio", "sqlite3", "cryptography", "holidays"}
print(*sorted(heavy & sys.modules.keys()))
import wakeful
assert wakeful.Wakeful is not None
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


#: What a program that only declares jobs does not need.
_NOT_FOR_DECLARING = (
    *("aiohttp", "apprise", "celery", "cryptography", "fastapi", "holidays", "jwt", "nats", "opentelemetry"),
    *("prometheus_client", "pydantic", "rich", "starlette", "typer", "uvicorn", "yaml"),
    *("wakeful.api", "wakeful.cli", "wakeful.dashboard", "wakeful.server", "wakeful.store.postgres"),
)


def test_declaring_jobs_loads_no_server_and_no_library_that_only_some_jobs_need(tmp_path: Path):
    program = f"""
import sys
from wakeful import Webhook, Wakeful
app = Wakeful("sqlite:///{tmp_path}/wakeful.db", secret_key="a long random text")

@app.cron("0 9 * * *")
def report(run): ...

print(*sorted(set({_NOT_FOR_DECLARING!r}) & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_importing_the_scheduler_loads_no_services_and_no_store():
    """They are imported when one is constructed."""
    program = """
import sys
from wakeful import Wakeful
print(*sorted({"wakeful.service", "wakeful.store", "wakeful.engine", "wakeful.model"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_complete_program_runs_a_tick(tmp_path: Path):
    """A complete program, as in the documentation."""

    async def main() -> str | None:
        app = Wakeful(f"sqlite:///{tmp_path}/wakeful.db")

        @app.at(soon())
        async def hello(run: Launch) -> str:
            return f"hello from {run.job}"

        async with app:
            return (await over(app, (await the_run_of(app, "hello")).id)).output

    assert asyncio.run(main()) == "hello from hello"


def test_the_annotations_of_an_app_can_be_read(tmp_path: Path):
    Wakeful(f"sqlite:///{tmp_path / 'wakeful.db'}")
    for name, method in inspect.getmembers(Wakeful, inspect.isfunction):
        assert typing.get_type_hints(method) is not None, name
