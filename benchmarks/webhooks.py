"""Webhooks per second of one process: end to end, the launcher alone, and a bare loop with aiohttp.

    python -m benchmarks.webhooks                       5,000 jobs on both stores, with 30 and 200 slots
    python -m benchmarks.webhooks --uvloop              with uvloop (`pip install uvloop`)
    python -m benchmarks.webhooks --receiver-ms 100     the receiver takes 100 ms
    python -m benchmarks.webhooks --json

**End to end**: signed webhook jobs due at one instant, with default settings, from that instant to the last
outcome in the database. 30 slots are the default of a lane. `busy` is the part of the slots that waits for
the receiver: posts x the time of the receiver / (slots x duration). It is printed with `--receiver-ms`.

**The floor** is a loop with a default aiohttp session that signs the same bodies twice and posts them,
without address guard, trace, other headers or outcomes. **Tuned** is that loop without the defaults of
aiohttp that a webhook does not need: cookies, timers, redirects, decompression.

Both and the launcher alone (`WebhookLauncher.start`, without a database) keep the same number of posts in
flight, to the same server in a separate process. They take turns, and the median of the rounds counts. The
CPU time per post is printed too: on a busy machine it varies less than the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hmac
import importlib
import json
import logging
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, TypeVar

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from benchmarks.bare.databases import STORES, fresh
from benchmarks.bare.receiver import receiver
from wakeful import Wakeful
from wakeful.engine.engine import LANES, EngineConfig
from wakeful.launch.address_guard import AddressGuard
from wakeful.launch.port import Launch
from wakeful.launch.webhook import WebhookLauncher
from wakeful.run.outcome import Succeeded
from wakeful.store.rows import RunFilter
from wakeful.values.clock import SystemClock

POSTS = 5_000
IN_FLIGHT = 100
ROUNDS = 5
SECRET = b"k" * 32
KEY = "5f" * 32
SLOTS = (30, 200)

Post = Callable[[int], Awaitable[None]]
T = TypeVar("T")
STILL_RUNNING = RunFilter("default", states=("running",), limit=1)


@dataclass(frozen=True, slots=True)
class Row:
    """One way to post: its rate and its CPU time."""

    name: str
    per_second: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """The jobs of one instant on one store."""

    store: str
    slots: int
    per_second: float
    #: compared with the launcher alone, and with the bare loop
    of_launcher: float
    of_floor: float
    busy: float | None


class Secrets:
    """The same secret for every job."""

    def find_secrets(self, run: Launch) -> tuple[bytes, ...]:
        """Return the secret."""
        return (SECRET,)


def bare(session: ClientSession, url: str) -> Post:
    async def post(number: int) -> None:
        body = b'{"job":"digest","payload":{"message":"hello","n":%d}}' % number
        timestamp = str(int(time.time()))
        signed = f"{KEY}.{timestamp}.".encode() + body
        headers = {
            "content-type": "application/json",
            "x-wakeful-signature": hmac.digest(SECRET, body, "sha256").hex(),
            "webhook-id": KEY,
            "webhook-timestamp": timestamp,
            "webhook-signature": f"v1,{b64encode(hmac.digest(SECRET, signed, 'sha256')).decode()}",
        }
        async with session.post(url, data=body, headers=headers) as response:
            await response.read()
            assert response.status == 200

    return post


def launched(launcher: WebhookLauncher, url: str) -> Post:
    target = {"kind": "webhook", "url": url}

    async def post(number: int) -> None:
        outcome = await launcher.start(
            Launch(
                f"run-{number}", "digest", "j1", "default", "default",
                f'{{"message":"hello","n":{number}}}',
                1_741_392_000_000, 1_741_392_000_000, 1, "schedule", KEY, target,
            )
        )  # fmt: skip
        assert isinstance(outcome, Succeeded), outcome

    return post


async def measure(post: Post) -> tuple[float, float]:
    numbers = iter(range(POSTS))

    async def keep_posting() -> None:
        for number in numbers:
            await post(number)

    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*[keep_posting() for _ in range(IN_FLIGHT)])
    return POSTS / (time.perf_counter() - start), (time.process_time() - cpu) / POSTS * 1e6


async def run(url: str) -> list[Row]:
    launcher = WebhookLauncher(
        Secrets(), AddressGuard(allow_private=True), SystemClock(), lambda status: None
    )
    await launcher.open()
    async with (
        ClientSession(connector=TCPConnector(limit=IN_FLIGHT)) as plain,
        ClientSession(
            connector=TCPConnector(limit=IN_FLIGHT),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=None),
            auto_decompress=False,
        ) as tuned,
    ):
        ways = {"floor": bare(plain, url), "tuned": bare(tuned, url), "launcher": launched(launcher, url)}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for way in ways.values():  # connections, caches
            await measure(way)
        for _ in range(ROUNDS):
            for name, way in ways.items():
                found[name].append(await measure(way))
    await launcher.close()
    return [
        Row(name, median(rate for rate, _ in each), median(cpu for _, cpu in each))
        for name, each in found.items()
    ]


async def storm(database: str, url: str, jobs: int, slots: int) -> float:
    """Return how many jobs per second were done, from their instant to the last outcome."""
    config = EngineConfig(lanes={**LANES, "cron": slots})
    app = Wakeful(database, config=config, secret_key="k" * 44, allow_private_targets=True)
    responses = 0
    async with app:
        launcher = app._parts.launchers.launcher("webhook")
        assert isinstance(launcher, WebhookLauncher)
        count = launcher._on_response

        def counting(status: int | None) -> None:
            nonlocal responses
            assert status == 200, status
            responses += 1
            count(status)

        launcher._on_response = counting
        due = int(time.time()) + 4 + jobs // 1_000
        await app.jobs.create_many(documents(url, jobs, due * 1000))
        if time.time() > due - 1:
            raise SystemExit("creating the jobs took longer than the time until they are due")
        gc.collect()
        await asyncio.sleep(max(0.0, due - time.time()))
        while True:
            await asyncio.sleep(0.005)
            if responses >= jobs and not await app.store.runs(STILL_RUNNING):
                return jobs / (time.time() - due)


def documents(url: str, jobs: int, due_ms: int) -> Iterator[dict[str, object]]:
    """Yield the documents of webhook jobs that are all due at that instant."""
    for number in range(jobs):
        yield {
            "name": f"job-{number}",
            "schedule": {"kind": "every", "everyMs": 3_600_000},
            "startAt": due_ms,
            "target": {"kind": "webhook", "url": url},
            "payload": {"message": "hello", "n": number},
        }


def end_to_end(wanted: argparse.Namespace, url: str, rows: list[Row]) -> Iterator[EndToEnd]:
    floor, launcher = rows[0].per_second, rows[-1].per_second
    for store in wanted.store:
        for slots in wanted.slots:
            with fresh(store) as database:
                rate = run_loop(storm(database, url, wanted.jobs, slots), wanted.uvloop)
            busy = rate * wanted.receiver_ms / 1000 / slots if wanted.receiver_ms else None
            yield EndToEnd(store, slots, rate, rate / launcher, rate / floor, busy)


def run_loop(main: Coroutine[Any, Any, T], uvloop: bool) -> T:
    factory = importlib.import_module("uvloop").new_event_loop if uvloop else None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def show(rows: list[Row], results: list[EndToEnd], jobs: int) -> None:
    print(f"{POSTS} posts, {IN_FLIGHT} in flight, median of {ROUNDS} rounds\n")
    floor = rows[0]
    print(f"{'':<12}{'per second':>11}{'ratio':>8}{'µs cpu':>9}{'ratio':>8}")
    for row in rows:
        print(
            f"{row.name:<12}{row.per_second:>10.0f}{row.per_second / floor.per_second:>8.2f}"
            f"{row.cpu_us:>9.0f}{floor.cpu_us / row.cpu_us:>8.2f}"
        )
    print(f"\n{jobs} jobs at one instant, end to end\n")
    print(f"{'store':<10}{'slots':>6}{'per second':>12}{'of launcher':>13}{'of floor':>10}{'busy':>7}")
    for each in results:
        busy = "" if each.busy is None else f"{each.busy:>7.0%}"
        print(
            f"{each.store:<10}{each.slots:>6}{each.per_second:>12.0f}{each.of_launcher:>13.2f}"
            f"{each.of_floor:>10.2f}{busy}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--store", choices=STORES, nargs="*", default=list(STORES))
    parser.add_argument("--slots", type=int, nargs="+", default=list(SLOTS), help="the sizes of the lane")
    parser.add_argument("--receiver-ms", type=int, default=0, help="how long the receiver takes")
    parser.add_argument("--uvloop", action="store_true", help="use uvloop instead of asyncio's own loop")
    parser.add_argument("--json", action="store_true", help="print the numbers for a program")
    wanted = parser.parse_args()
    logging.disable(logging.WARNING)
    with receiver(wanted.receiver_ms) as url:
        rows = run_loop(run(url), wanted.uvloop)
        results = list(end_to_end(wanted, url, rows))
    if wanted.json:
        found = {"clients": [asdict(row) for row in rows], "stores": [asdict(each) for each in results]}
        print(json.dumps(found, indent=2))
    else:
        show(rows, results, wanted.jobs)


if __name__ == "__main__":
    main()
