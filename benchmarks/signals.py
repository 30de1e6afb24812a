"""Signals through agents: one instance, a thousand instances, and 100,000 that hibernate.

    python -m benchmarks.signals                              both stores
    python -m benchmarks.signals --signals 20000 --instances 1 100 1000 --store sqlite
    python -m benchmarks.signals --hibernated 0               without the part on memory
    python -m benchmarks.signals --json

**Ours** is an application with default settings and an agent class whose handler counts in its state. The
time is from the first `app.agents.send` to the last outcome on disk: each signal has an id, is stored, taken
and handled, and its outcome is written with the new state in one transaction. Signals are sent in batches of
up to 100 per call, several calls at once. Statements are counted in a round of their own, from the first
`send` to the last outcome (`benchmarks/bare/statements.py`).

**The floor** is the same rows by plain driver calls: one transaction per signal for one instance, which ends
it and takes the next; for many instances, batches of 100, as many as the lane of the class permits at once.
Floor and ours take turns; the best round of each counts. CPU time is that of this process, without the server
of PostgreSQL; on a machine that is used by others, compare it rather than the rates.

**Memory** compares the resident memory of a process whose database has 100,000 hibernated instances with one
whose database has none, and prints how long a signal to a hibernated instance takes: until `send` returns,
and until it is handled.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from benchmarks.bare.databases import STORES, fresh
from benchmarks.bare.postgres_signals import add_instances, postgres_floor
from benchmarks.bare.signal_floors import add_sqlite_instances, sqlite_floor
from benchmarks.bare.statements import Statements, counted_statements
from benchmarks.idle import memory_mb
from wakeful import Agent, SetState, Signal, Wakeful, on
from wakeful.agents.context import Context
from wakeful.run.instances import instance_id
from wakeful.store.connect import store_at
from wakeful.store.rows import RunFilter

ROUNDS = 3
#: signals per call of `send`, and calls at once
BATCH = 100
SENDERS = 10
#: at most so many signals of an instance wait: its mailbox holds 1,000
WAITING = 800
#: the size of the lane `team`
LANE = 100
TRIES = 50
UNFINISHED = RunFilter("default", states=("running", "pending", "retrying"), limit=1)


@dataclass(frozen=True, slots=True)
class Rate:
    """Signals per second, CPU time per signal, and statements per signal."""

    store: str
    instances: int
    signals: int
    floor_per_second: float
    ours_per_second: float
    ratio: float
    floor_cpu_us: float
    ours_cpu_us: float
    #: floor to ours
    cpu_ratio: float
    ours_statements: float


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a process, and the time of a signal to an instance that hibernates."""

    store: str
    hibernated: int
    memory_mb: float
    memory_without_mb: float
    send_ms: float
    handled_ms: float


class Load:
    """The signals that were sent and handled, by instance."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.handled: Counter[str] = Counter()
        self.left = 0
        self.progress = asyncio.Event()


def counting(app: Wakeful, load: Load) -> None:
    """Register a class whose handler counts in its state."""

    class Counting(Agent):
        name = "counter"
        state = {"count": 0}

        @on("count")
        async def count(self, signal: Signal, ctx: Context) -> SetState:
            load.handled[ctx.instance] += 1
            load.left -= 1
            load.progress.set()
            return SetState(count=ctx.state["count"] + 1)

    app.agent(Counting)


async def signals_through(
    url: str, names: list[str], signals: int, statements: Statements | None = None
) -> tuple[float, float]:
    """Return the seconds, and the seconds of CPU time, from the first `send` to the last outcome.

    `statements` has those of this time afterwards.
    """
    app = Wakeful(url)
    load = Load()
    counting(app, load)
    async with app:
        batches = list(batches_of(names, signals))
        load.left = signals
        gc.collect()
        if statements is not None:
            statements.count = 0
        began, cpu = time.perf_counter(), time.process_time()

        async def send(start: int) -> None:
            for name, many in batches[start::SENDERS]:
                while load.sent[name] - load.handled[name] > WAITING:
                    load.progress.clear()
                    await load.progress.wait()
                load.sent[name] += len(many)
                await app.agents.send("counter", name, many)

        await asyncio.gather(*[send(start) for start in range(SENDERS)])
        while load.left > 0:
            load.progress.clear()
            await load.progress.wait()
        while True:
            await asyncio.sleep(0.005)
            if not await app.store.runs(UNFINISHED):
                break
        took = time.perf_counter() - began, time.process_time() - cpu
        executed = 0 if statements is None else statements.count
        counted = [(await app.agents.state("counter", name))["count"] for name in names[:3]]
        assert counted == [load.sent[name] for name in names[:3]], counted
    if statements is not None:
        statements.count = executed
    return took


def batches_of(names: list[str], signals: int) -> Iterator[tuple[str, list[Signal]]]:
    """Yield the instance and the signals of each call, round by round."""
    per_instance = signals // len(names)
    for start in range(0, per_instance, BATCH):
        for name in names:
            numbers = range(start, min(start + BATCH, per_instance))
            yield name, [Signal("count", {"number": n}, id=str(n), source="bench") for n in numbers]


def measure(store: str, instances: int, signals: int, rounds: int) -> Rate:
    """Measure floor and ours in turns; return the best of each."""
    names = [f"i{number}" for number in range(instances)]
    signals = signals // instances * instances
    floors, ours = [], []
    for _ in range(rounds):
        with fresh(store) as url:
            floors.append(asyncio.run(_floor(url, names, signals, BATCH, LANE)))
        with fresh(store) as url:
            ours.append(asyncio.run(signals_through(url, names, signals)))
    with fresh(store) as url, counted_statements() as statements:
        asyncio.run(signals_through(url, names, signals, statements))
        executed = statements.count
    floor_s, floor_cpu_s = map(min, zip(*floors, strict=True))
    ours_s, ours_cpu_s = map(min, zip(*ours, strict=True))
    return Rate(
        store,
        instances,
        signals,
        signals / floor_s,
        signals / ours_s,
        floor_s / ours_s,
        floor_cpu_s / signals * 1e6,
        ours_cpu_s / signals * 1e6,
        floor_cpu_s / ours_cpu_s,
        executed / signals,
    )


async def hibernated(url: str, count: int) -> None:
    """Run an engine, and print its memory and the time of signals to instances that hibernate."""
    app = Wakeful(url)
    load = Load()
    counting(app, load)
    sent, handled = [], []
    async with app:
        await asyncio.sleep(3)
        gc.collect()
        used_mb = memory_mb()
        for number in range(TRIES if count else 0):
            name = f"i{count * number // TRIES}"
            load.progress.clear()
            began = time.perf_counter()
            await app.agents.send("counter", name, Signal("count", {"number": number}))
            sent.append(time.perf_counter() - began)
            await load.progress.wait()
            handled.append(time.perf_counter() - began)
    times = [statistics.median(each) * 1000 if each else 0.0 for each in (sent, handled)]
    print(json.dumps([used_mb, *times]))


def measure_memory(store: str, count: int) -> Memory:
    """Measure a process with so many hibernated instances, and one with none."""

    def run(instances: int) -> tuple[float, float, float]:
        with fresh(store) as url:
            asyncio.run(_add_hibernated(url, instances))
            command = [sys.executable, "-m", "benchmarks.signals", "--url", url, "--hibernated"]
            output = subprocess.run([*command, str(instances)], check=True, capture_output=True, text=True)
            used_mb, send_ms, handled_ms = json.loads(output.stdout.strip().splitlines()[-1])
            return used_mb, send_ms, handled_ms

    without_mb, _, _ = run(0)
    used_mb, send_ms, handled_ms = run(count)
    return Memory(store, count, used_mb, without_mb, send_ms, handled_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--signals", type=int, default=10_000)
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 1_000])
    parser.add_argument("--hibernated", type=int, default=100_000, help="0: do not measure the memory")
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.url:
        asyncio.run(hibernated(arguments.url, arguments.hibernated))
        return
    rates = [
        measure(store, instances, arguments.signals, arguments.rounds)
        for store in arguments.store
        for instances in arguments.instances
    ]
    measured = arguments.store if arguments.hibernated else ()
    memories = [measure_memory(store, arguments.hibernated) for store in measured]
    if arguments.json:
        print(json.dumps([*map(asdict, rates), *map(asdict, memories)]))
        return
    print(
        f"{'store':10}{'instances':>10}{'signals':>9}{'floor/s':>10}{'ours/s':>10}{'ratio':>8}"
        f"{'floor CPU':>13}{'our CPU':>13}{'ratio':>8}{'statements':>12}"
    )
    for r in rates:
        print(
            f"{r.store:10}{r.instances:10,}{r.signals:9,}{r.floor_per_second:10.0f}{r.ours_per_second:10.0f}"
            f"{r.ratio:8.2f}{r.floor_cpu_us:10.0f} us{r.ours_cpu_us:10.0f} us"
            f"{r.cpu_ratio:8.2f}{r.ours_statements:12.1f}"
        )
    if memories:
        print(f"\n{'store':10}{'hibernated':>11}{'memory':>12}{'without':>12}{'send':>12}{'handled':>12}")
    for m in memories:
        print(
            f"{m.store:10}{m.hibernated:11,}{m.memory_mb:9.1f} MB{m.memory_without_mb:9.1f} MB"
            f"{m.send_ms:9.2f} ms{m.handled_ms:9.2f} ms"
        )


async def _floor(
    url: str, names: Sequence[str], signals: int, insert: int, batch: int
) -> tuple[float, float]:
    """Return the seconds, and the seconds of CPU time in this process, for these signals as bare SQL."""
    await _create_schema(url)
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        return await asyncio.to_thread(sqlite_floor, path, names, signals, insert, batch)
    return await postgres_floor(url, names, signals, insert, batch)


async def _add_hibernated(url: str, count: int) -> None:
    """Create the schema, and add so many instances that have handled a signal and hibernate."""
    await _create_schema(url)
    now_ms = time.time_ns() // 1_000_000
    names = [f"i{number}" for number in range(count)]
    ids = [instance_id("default", "counter", name) for name in names]
    if url.startswith("sqlite"):
        add_sqlite_instances(url.removeprefix("sqlite:///"), ids, names, now_ms)
    else:
        await add_instances(url, ids, names, now_ms)


async def _create_schema(url: str) -> None:
    store = store_at(url)
    await store.open()
    await store.close()


if __name__ == "__main__":
    main()
