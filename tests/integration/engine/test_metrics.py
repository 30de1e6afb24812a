"""Metrics of the engine and the HTTP server, counted per app."""

from __future__ import annotations

import time
from typing import Any

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.receiver import Receiver
from tests.support.waiting import eventually, over, the_run_of
from wakeful import Function, Permanent, Wakeful, Webhook
from wakeful.engine.metrics import Metrics
from wakeful.settings import Settings


def value(app: Wakeful, name: str, **labels: str) -> float:
    """Return the value of a metric, or 0 if it has none."""
    return app.services.metrics.registry.get_sample_value(f"wakeful_{name}", labels) or 0


async def scraped(caller: ApiClient, **given: Any) -> tuple[int, str]:
    """Scrape /metrics; return the status and the text."""
    async with caller.session.get(f"{caller.url}/metrics", **given) as response:
        return response.status, await response.text()


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
    from wakeful.store.port import Planned

    metrics = Metrics()
    runs = [
        ended(tick(job(), NOW), "skipped"),
        ended(tick(job(), NOW), "missed")._replace(covers=59),
        tick(job(), NOW),
    ]
    metrics.record_planned(Planned(3, runs))
    said = {name: metrics.registry.get_sample_value(f"wakeful_{name}_total") for name in (
        "schedules_due", "runs_emitted", "runs_skipped_overlap", "runs_missed",
    )}  # fmt: skip
    assert said == {
        "schedules_due": 3, "runs_emitted": 1, "runs_skipped_overlap": 1, "runs_missed": 59,
    }  # fmt: skip


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
        status, text = await scraped(operator)
    assert status == 200
    lines = text.splitlines()
    counted = 'wakeful_http_requests_total{method="GET",route="/api/workspaces/{workspace}'
    assert counted + '/jobs",status="200"} 1.0' in lines
    assert counted + '/runs/{run_id}",status="404"} 1.0' in lines
    assert any(line.startswith("wakeful_build_info{") for line in lines)
    assert "wakeful_dead_letters 0.0" in lines


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
