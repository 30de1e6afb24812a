"""MCP events: deliveries of one event to many subscriptions, and the idle cost of subscriptions to time.

    python -m benchmarks.events                           2,000 subscriptions; 20,000 that are idle
    python -m benchmarks.events --subscriptions 10000 --idle 100000 --store sqlite --json

**Deliveries** is the rate from the end of a run to the last response of a callback, with one subscription for
each. **Of webhooks** compares it with as many webhook jobs that are due at one instant
(`benchmarks.webhooks`), in the same process and with as many slots.

**Idle** is the CPU time of an engine with subscriptions to time of which no tick is due, compared with as
many jobs (`benchmarks.idle`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.bare.databases import STORES, fresh
from benchmarks.bare.floors import sleeping_job
from benchmarks.bare.receiver import receiver
from benchmarks.idle import fill
from benchmarks.webhooks import SECRET, storm
from wakeful import Wakeful
from wakeful.engine.engine import LANES, EngineConfig
from wakeful.launch.event_callback import EventLauncher
from wakeful.service.agents.subscription_jobs import subscription_job
from wakeful.service.auth.access import LOCAL
from wakeful.service.auth.accounts import JobContext
from wakeful.signal.event_catalog import TICK, find_event
from wakeful.store.connect import store_at
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_to_row
from wakeful.store.rows import JobRow
from wakeful.store.sql.driver import SqlSession
from wakeful.store.sql.subscriptions import ADD_SUBSCRIPTION, BEGIN_FEEDING, SubscriptionRow

SLOTS = 200
BULK = 10_000
FINISHED = "run.finished"


@dataclass(frozen=True, slots=True)
class Result:
    """One store."""

    store: str
    deliveries_per_second: float
    of_webhooks: float
    idle_cpu_percent: float
    jobs_cpu_percent: float
    of_jobs: float


async def add_subscriptions(
    store: Store, context: JobContext, event: str, url: str, secret: bytes, count: int
) -> None:
    """Add subscriptions without verifying their callbacks; those to time are due in a year."""
    now_ms = time.time_ns() // 1_000_000

    async def add(session: SqlSession, rows: Sequence[SubscriptionRow]) -> None:
        await session.execute_many(ADD_SUBSCRIPTION, [row[:14] for row in rows])
        if event != TICK:
            await session.execute(BEGIN_FEEDING, rows[0].position)

    position = await store.last_change()
    for start in range(0, count, BULK):
        jobs: list[JobRow] = []
        rows: list[SubscriptionRow] = []
        for number in range(start, min(start + BULK, count)):
            identity = f"sub_{number:032x}"
            job = job_to_row(
                subscription_job(context, identity, find_event(FINISHED), {}, now_ms, LOCAL), secret
            )
            if event == TICK:
                later = sleeping_job(number, now_ms)
                job = job._replace(timing=later.timing, next_ms=later.next_ms, wake_ms=later.wake_ms)
            jobs.append(job)
            of = identity, "default", "default", "key:1", event, "{}", f"{url}?n={number}", job.id
            rows.append(SubscriptionRow(*of, position, now_ms, now_ms))
        await store.create_jobs(jobs)
        await store._driver.write(store._shared(add), rows)


async def deliver(database: str, url: str, count: int) -> float:
    """Return how many subscriptions per second get one event."""
    config = EngineConfig(lanes={**LANES, "cron": SLOTS})
    app = Wakeful(database, config=config, secret_key="k" * 44, allow_private_targets=True)
    responses, all_sent = 0, asyncio.Event()

    @app.function()
    async def work() -> None: ...

    async with app:
        launcher = app._parts.launchers.launcher("event")
        assert isinstance(launcher, EventLauncher)

        def counting(status: int | None) -> None:
            nonlocal responses
            assert status == 200, status
            responses += 1
            if responses == count:
                all_sent.set()

        launcher._on_response = counting
        await app.jobs.create("work", schedule="0 0 29 2 *", target={"kind": "function", "name": "work"})
        context = await app.services.accounts.context("default", "default")
        secret = app.services.keyring.seal(SECRET)
        await add_subscriptions(app.store, context, FINISHED, url, secret, count)
        await asyncio.sleep(2)  # the feeder notices the first subscriptions
        began = time.time()
        await app.jobs.run("work")
        await all_sent.wait()
        return count / (time.time() - began)


async def fill_subscriptions(url: str, count: int) -> None:
    store = store_at(url)
    await store.open()
    await add_subscriptions(store, _context(), TICK, "https://a.example/", b"", count)
    await store.close()


def _context() -> JobContext:
    from wakeful.document import Defaults

    return JobContext("default", "default", Defaults())


def idle_cpu(url: str, seconds: float) -> float:
    """Return the CPU time of an idle engine in percent of a core."""
    command = [sys.executable, "-m", "benchmarks.idle", "--url", url, "--seconds", str(seconds)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(output.strip().splitlines()[-1])["cpu_percent"])


def measure(store: str, callback: str, wanted: argparse.Namespace) -> Result:
    """Measure one store."""
    with fresh(store) as url:
        webhooks = asyncio.run(storm(url, callback, wanted.subscriptions, SLOTS))
    with fresh(store) as url:
        rate = asyncio.run(deliver(url, callback, wanted.subscriptions))
    with fresh(store) as url:
        asyncio.run(fill(url, wanted.idle))
        jobs = idle_cpu(url, wanted.seconds)
    with fresh(store) as url:
        asyncio.run(fill_subscriptions(url, wanted.idle))
        idle = idle_cpu(url, wanted.seconds)
    return Result(store, rate, rate / webhooks, idle, jobs, idle / jobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--subscriptions", type=int, default=2_000)
    parser.add_argument("--idle", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    logging.disable(logging.WARNING)
    with receiver() as callback:
        results = [measure(store, callback, wanted) for store in wanted.store]
    if wanted.json:
        print(json.dumps([asdict(result) for result in results]))
        return
    print(f"{'store':10}{'deliveries/s':>13}{'of webhooks':>13}{'idle CPU':>10}{'of jobs':>9}")
    for r in results:
        print(
            f"{r.store:10}{r.deliveries_per_second:13,.0f}{r.of_webhooks:13.2f}"
            f"{r.idle_cpu_percent:8.2f} %{r.of_jobs:9.2f}"
        )


if __name__ == "__main__":
    main()
