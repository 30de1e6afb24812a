"""Metrics of the engine and the HTTP server, counted per app."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.conftest import QUICK, SELDOM, STORES, NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.chat_endpoint import chat_endpoint
from tests.support.receiver import Receiver
from tests.support.waiting import eventually, over, the_run_of
from wakeful import Chat, Function, Permanent, Wakeful, Webhook
from wakeful.engine import database_metrics
from wakeful.engine.exposition import new_registry
from wakeful.engine.metrics import Metrics
from wakeful.settings import Settings


def value(app: Wakeful, name: str, **labels: str) -> float:
    """Return the value of a metric, or 0 if it has none."""
    return new_registry(app.services.metrics).get_sample_value(f"wakeful_{name}", labels) or 0


async def scraped(caller: ApiClient, **given: Any) -> tuple[int, str]:
    """Scrape /metrics; return the status and the text."""
    async with caller.session.get(f"{caller.url}/metrics", **given) as response:
        return response.status, await response.text()


@pytest.fixture
def uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the database at every scrape."""
    monkeypatch.setattr(database_metrics, "_MAX_AGE_S", 0.0)


async def test_a_tick_that_runs_is_counted_with_its_drift_and_its_duration(new_app: NewApp) -> None:
    app = new_app()

    @app.every("1s", start_at=time.time_ns() // 1_000_000 + 300, max_runs=2)
    def pulse() -> None: ...

    async with app:
        await eventually(lambda: value(app, "runs_finished_total", state="succeeded") == 2)
        assert value(app, "runs_emitted_total") == 2
        assert value(app, "schedules_due_total") >= 2
        assert value(app, "drift_seconds_count") == value(app, "run_duration_seconds_count") == 2
        assert value(app, "drift_seconds_bucket", le="60") == 2
        assert 0 <= value(app, "drift_seconds_sum") < 60
        assert value(app, "lane_size", lane="cron") == 30
        assert value(app, "lane_used", lane="cron") == 0


async def test_failures_retries_and_dead_letters_are_counted(new_app: NewApp) -> None:
    app = new_app()

    @app.function("fail")
    def fail() -> None:
        raise ValueError("no")

    @app.function("give-up")
    def give_up() -> None:
        raise Permanent("never")

    quick = {"base_ms": 1, "max_ms": 1}
    async with app:
        await app.jobs.create("a", schedule=SELDOM, target=Function("fail"), max_attempts=2, backoff=quick)
        await app.jobs.create("b", schedule=SELDOM, target=Function("give-up"))
        for name in ("a", "b"):
            run = await app.jobs.run(name)
            assert run is not None
            await over(app, run.id)
        await eventually(lambda: value(app, "runs_finished_total", state="failed") == 2)
        assert value(app, "runs_failed_launch_total") == 3
        assert value(app, "retries_total") == 1
        await app.services.metrics.refresh(app.store)
        assert value(app, "dead_letters") == 2
        assert value(app, "queue_depth", lane="cron") == 0


async def test_skipped_and_missed_ticks_are_counted(new_app: NewApp) -> None:
    from tests.support.factories import NOW, job, tick
    from tests.support.factories import over as ended
    from wakeful.store.plans import Planned

    metrics = Metrics()
    runs = [
        ended(tick(job(), NOW), "skipped"),
        ended(tick(job(), NOW), "missed")._replace(covers=59),
        tick(job(), NOW),
    ]
    metrics.record_planned(Planned(3, runs))
    said = {name: new_registry(metrics).get_sample_value(f"wakeful_{name}_total") for name in (
        "schedules_due", "runs_emitted", "runs_skipped_overlap", "runs_missed",
    )}  # fmt: skip
    assert said == {
        "schedules_due": 3, "runs_emitted": 1, "runs_skipped_overlap": 1, "runs_missed": 59,
    }  # fmt: skip


@on_one_store
async def test_responses_of_chat_endpoints_are_counted_by_status_class(new_app: NewApp) -> None:
    async with chat_endpoint() as endpoint:
        endpoint.keys = None
        app = new_app()
        async with app:
            target = Chat(endpoint.url, "m")
            await app.jobs.create("good", schedule=SELDOM, target=target, message="hello")
            await over(app, (await app.jobs.run("good")).id)
            assert value(app, "chat_responses_total", **{"class": "2xx"}) == 1


@on_one_store
async def test_webhook_responses_are_counted_by_status_class(new_app: NewApp, receiver: Receiver) -> None:
    app = new_app()
    async with app:
        await app.jobs.create("good", schedule=SELDOM, target=Webhook(receiver.url))
        await app.jobs.create("none", schedule=SELDOM, target=Webhook("http://127.0.0.1:1/"), max_attempts=1)
        for name in ("good", "none"):
            run = await app.jobs.run(name)
            assert run is not None
            await over(app, run.id)
        assert value(app, "webhook_responses_total", **{"class": "2xx"}) == 1
        assert value(app, "webhook_responses_total", **{"class": "none"}) == 1


@on_one_store
async def test_metrics_count_requests_by_route_and_include_build_info(new_app: NewApp) -> None:
    app = new_app()
    async with app, served(app) as operator:
        await operator("GET", "/jobs")
        await operator("GET", "/runs/nonsense")
        for method in ("PROPFIND", "X" * 30):
            async with operator.session.request(method, f"{operator.url}/healthz"):
                pass
        status, text = await scraped(operator)
    assert status == 200
    lines = text.splitlines()
    counted = 'wakeful_http_requests_total{method="GET",route="/api/workspaces/{workspace}'
    assert counted + '/jobs",status="200"} 1.0' in lines
    assert counted + '/runs/{run_id}",status="404"} 1.0' in lines
    assert {line.split('"')[1] for line in lines if "http_requests_total{" in line} == {"GET", "other"}
    assert any(line.startswith("wakeful_build_info{") for line in lines)
    assert "wakeful_dead_letters 0.0" in lines
    assert "wakeful_event_subscriptions 0.0" in lines
    assert 'wakeful_event_sources{state="failed"} 0.0' in lines


@on_one_store
async def test_the_metrics_key_is_required_if_it_is_set(new_app: NewApp) -> None:
    app = new_app(settings=Settings(metrics_key="sesame"))
    async with app, served(app) as operator:
        assert (await scraped(operator))[0] == 401
        assert (await scraped(operator, headers={"Authorization": "Bearer other"}))[0] == 401
        assert (await scraped(operator, headers={"Authorization": "Bearer sesame"}))[0] == 200


@on_one_store
async def test_two_apps_in_one_process_count_separately(new_app: NewApp) -> None:
    one, two = new_app(), new_app()
    one.function("nothing")(lambda: None)
    async with one:
        await one.jobs.create("digest", schedule=SELDOM, target=Function("nothing"))
        await one.jobs.run("digest")
        await over(one, (await the_run_of(one, "digest")).id)
        await eventually(lambda: value(one, "runs_finished_total", state="succeeded") == 1)
        async with two:
            assert value(two, "runs_finished_total", state="succeeded") == 0


# --- the whole database ----------------------------------------------------------------------------------


@on_one_store
async def test_the_planner_reports_its_passes_although_no_job_is_due(new_app: NewApp) -> None:
    app = new_app()
    async with app:
        first = value(app, "last_planning_pass_timestamp_seconds")
        await eventually(lambda: value(app, "last_planning_pass_timestamp_seconds") > first)
        assert value(app, "schedules_due_total") == 0
        assert time.time() - value(app, "last_planning_pass_timestamp_seconds") < 60
        assert value(app, "loop_stalled", loop="planner") == 0
        assert new_registry(app.services.metrics).get_sample_value("process_start_time_seconds")


async def test_a_run_in_a_full_lane_has_an_age_until_it_starts(new_app: NewApp, uncached: None) -> None:
    app, go = new_app(config=replace(QUICK, lanes={"cron": 1})), asyncio.Event()

    @app.function("work")
    async def work() -> None:
        await go.wait()

    async def refreshed() -> Wakeful:
        await app.services.metrics.refresh(app.store)
        return app

    async with app:
        for name in ("a", "b"):
            await app.jobs.create(name, schedule=SELDOM, target=Function("work"))
            await app.jobs.run(name)
        await eventually(lambda: value(app, "lane_used", lane="cron") == 1)

        async def waits() -> bool:
            return value(await refreshed(), "oldest_due_run_age_seconds") > 0

        await eventually(waits)
        assert value(app, "queue_depth", lane="cron") == 1
        assert value(app, "lane_wait_seconds", lane="cron") > 0
        assert value(app, "oldest_due_job_age_seconds") == 0
        assert value(app, "workers_alive") == 1
        go.set()

        async def started() -> bool:
            return value(await refreshed(), "queue_depth", lane="cron") == 0

        await eventually(started)
        assert value(app, "oldest_due_run_age_seconds") == 0


async def test_runs_for_executors_are_counted_by_agent_and_never_by_a_lane(
    new_app: NewApp, uncached: None
) -> None:
    app = new_app(settings=Settings(metrics_agents=2))
    async with app:
        for number in range(5):
            other = new_app(agent=f"agent-{number}")
            await other.store.open()
            await other.jobs.create("pull", schedule=SELDOM)
            for _ in range(number + 1):
                await other.jobs.run("pull")
            await other.store.close()

        async def depths() -> dict[tuple[str, ...], float]:
            await app.services.metrics.refresh(app.store)
            return {
                tuple(sample.labels.values()): sample.value
                for metric in new_registry(app.services.metrics).collect()
                if metric.name == "wakeful_pull_queue_depth"
                for sample in metric.samples
            }

        assert await eventually(depths) == {
            ("default", "agent-3"): 4, ("default", "agent-4"): 5, ("_other", "_other"): 6,
        }  # fmt: skip
        assert value(app, "oldest_unclaimed_run_age_seconds") > 0
        assert value(app, "oldest_due_run_age_seconds") == 0
        lanes = [
            sample.labels["lane"]
            for metric in new_registry(app.services.metrics).collect()
            for sample in metric.samples
            if "lane" in sample.labels
        ]
        assert lanes
        assert not [lane for lane in lanes if lane.startswith("pull")]


@on_one_store
async def test_a_run_that_an_executor_completes_is_counted(new_app: NewApp) -> None:
    app = new_app()
    async with app, served(app) as operator:
        await app.jobs.create("pull", schedule=SELDOM)
        await app.jobs.run("pull")
        claimed = (await operator("POST", "/runs/claim", {"worker": "w"})).body["runs"][0]
        completion = {"attempt": claimed["attempt"], "status": "failed", "error": "no"}
        await operator("POST", f"/runs/{claimed['id']}/complete", completion)
        assert value(app, "runs_failed_launch_total") == 1


def test_the_number_of_series_is_limited_with_many_agents() -> None:
    metrics = Metrics(agents=10)
    for number in range(5_000):
        metrics.record_finished([], [], [("acme", f"agent-{number}", "succeeded")])
    metrics.record_finished([], [], [("acme", "agent-1", "succeeded"), ("acme", "agent-4999", "failed")])
    (family,) = (
        each for each in new_registry(metrics).collect() if each.name == "wakeful_agent_runs_finished"
    )
    counts = {tuple(sample.labels.values()): sample.value for sample in family.samples}
    assert len({labels[:2] for labels in counts}) == 11
    assert counts["acme", "agent-1", "succeeded"] == 2
    assert counts["_other", "_other", "succeeded"] == 4_990
    assert counts["_other", "_other", "failed"] == 1


@pytest.mark.skipif("postgres" not in STORES, reason="there is no PostgreSQL here")
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_metrics_respond_with_the_last_values_while_the_database_hangs(
    new_app: NewApp, database: str, uncached: None
) -> None:
    import asyncpg

    app = new_app()
    async with app, served(app) as operator:
        await scraped(operator)
        before = value(app, "database_read_timestamp_seconds")
        blocker = await asyncpg.connect(database)
        try:
            async with blocker.transaction():
                await blocker.execute("LOCK TABLE workers IN ACCESS EXCLUSIVE MODE")
                status, text = await scraped(operator)
                assert (status, "wakeful_dead_letters 0.0" in text) == (200, True)
                assert value(app, "database_read_timestamp_seconds") == before
        finally:
            await blocker.close()

        async def read_again() -> bool:
            await scraped(operator)
            return value(app, "database_read_timestamp_seconds") > before

        await eventually(read_again)


@pytest.mark.skipif("postgres" not in STORES, reason="there is no PostgreSQL here")
async def test_metrics_respond_and_count_the_error_while_the_database_is_down(uncached: None) -> None:
    from tests.support.postgres_server import PrivateServer
    from wakeful.store.postgres import PostgresStore

    server = await asyncio.to_thread(PrivateServer)
    try:
        app = Wakeful(store=PostgresStore(server.url), config=QUICK, secret_key="a key for tests")
        async with app, served(app) as operator:
            await scraped(operator)
            before = value(app, "database_read_timestamp_seconds")
            await asyncio.to_thread(server.stop)

            async def counted() -> bool:
                status, text = await scraped(operator)
                assert (status, "wakeful_workers_alive 1.0" in text) == (200, True)
                return value(app, "database_read_errors_total") >= 1

            await eventually(counted)
            assert value(app, "database_read_timestamp_seconds") >= before
            await asyncio.to_thread(server.start)
    finally:
        await asyncio.to_thread(server.close)
