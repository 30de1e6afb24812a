"""A lane that one workspace floods: the share of another one, and what sharing costs.

    python -m benchmarks.fairness                      both stores
    python -m benchmarks.fairness --store sqlite --json

**The share.** In an application with a lane of 8 slots, 400 runs of one workspace are due, each of which
takes 50 ms. A moment later 100 runs of another one are due. The share is its part of the runs that start from
its first to its last one, as a ratio to the ideal, which is half of them. The wait is that of its first run.

**The cost** is that of claims alone: 3,000 due runs of 1, 2 and 100 workspaces are claimed, 10 at a time,
with sharing, and without it, longest due first. The first claim does not count. The ratio compares the
claimed runs per second of the two, which take turns; the best round of each counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from dataclasses import asdict, dataclass

from benchmarks.bare.databases import STORES, fresh
from wakeful import Function, Launch, Wakeful
from wakeful.app.jobs import Jobs
from wakeful.engine.engine import EngineConfig
from wakeful.run.run import NewRun
from wakeful.store.connect import store_at
from wakeful.store.lane_shares import NOT_SHARED, LaneOccupancy, OwnerMemory
from wakeful.values.ids import new_id

SLOTS, TAKES_S = 8, 0.05
FLOOD, SMALL = 400, 100
CLAIMED, AT_ONCE, ROUNDS = 3_000, 10, 3
WORKSPACES = (1, 2, 100)


@dataclass(frozen=True, slots=True)
class Share:
    """What the second workspace got."""

    store: str
    ratio: float
    wait_ms: float


@dataclass(frozen=True, slots=True)
class Cost:
    """Claimed runs per second."""

    store: str
    workspaces: int
    shared_per_second: float
    unshared_per_second: float
    ratio: float


def due_run(workspace: str, now_ms: int, job: tuple[str, str] | None = None, requires: str = "") -> NewRun:
    """Return a run that is due now, of this job (id and name)."""
    job_id, name = job or (None, None)
    return NewRun(
        new_id(now_ms), job_id, workspace, "default", name, now_ms, now_ms, "user", None, "pending",
        None, 1, None, 1, None, "cron", False, now_ms, None, None, new_id(now_ms), None, None,
        requires=requires,
    )  # fmt: skip


async def share(store: str, url: str) -> Share:
    """Measure the share of a workspace beside one that floods the lane."""
    app = Wakeful(url, config=EngineConfig(lanes={"cron": SLOTS}))
    started: list[str] = []
    first_at = 0.0
    all_started = asyncio.Event()

    @app.function("work")
    async def work(run: Launch) -> None:
        nonlocal first_at
        if run.workspace == "small" and not first_at:
            first_at = time.perf_counter()
        started.append(run.workspace)
        if started.count("small") == SMALL:
            all_started.set()
        await asyncio.sleep(TAKES_S)

    async def add(workspace: str, count: int) -> None:
        jobs = Jobs(app.services, workspace, "default")
        job = await jobs.create("job", schedule="0 0 29 2 *", target=Function("work"))
        now_ms = app.store.clock.now_ms()
        runs = [due_run(workspace, now_ms, (job.id, job.name), "function:work") for _ in range(count)]
        await app.store.add_runs(runs)

    async with app:
        await add("flood", FLOOD)
        await asyncio.sleep(0.5)
        began = time.perf_counter()
        await add("small", SMALL)
        await all_started.wait()
    first = started.index("small")
    last = len(started) - started[::-1].index("small")
    return Share(store, 2 * SMALL / (last - first), (first_at - began) * 1000)


async def claim_rate(url: str, workspaces: int, *, shared: bool) -> float:
    """Return how many runs per second are claimed."""
    store = store_at(url)
    await store.open()
    try:
        now_ms = store.clock.now_ms()
        # The runs of the last workspace are a tenth of all, and due last.
        others = max(1, workspaces - 1)
        names = [f"workspace-{number % others:03}" for number in range(CLAIMED * 9 // 10)]
        names += [f"workspace-{workspaces - 1:03}"] * (CLAIMED - len(names))
        await store.add_runs([due_run(name, now_ms) for name in names])
        full = {"cron": LaneOccupancy({}, {}, saturated=True, memory=OwnerMemory())}
        usage = full if shared else NOT_SHARED

        async def claim() -> int:
            return len(await store.take(store.clock.now_ms(), "worker", {"cron": AT_ONCE}, usage=usage))

        first = await claim()  # which also prepares the statements
        began, count = time.perf_counter(), first
        while count < CLAIMED:
            count += await claim()
        return (CLAIMED - first) / (time.perf_counter() - began)
    finally:
        await store.close()


def cost(store: str, workspaces: int, rounds: int) -> Cost:
    """Measure claims with and without sharing in turns; return the best of each."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds):
        for shared, measured in rates.items():
            with fresh(store) as url:
                measured.append(asyncio.run(claim_rate(url, workspaces, shared=shared)))
    with_sharing, without = max(rates[True]), max(rates[False])
    return Cost(store, workspaces, with_sharing, without, with_sharing / without)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    shares: list[Share] = []
    for store in arguments.store:
        with fresh(store) as url:
            shares.append(asyncio.run(share(store, url)))
    costs = [cost(store, count, arguments.rounds) for store in arguments.store for count in WORKSPACES]
    if arguments.json:
        print(json.dumps({"shares": [*map(asdict, shares)], "costs": [*map(asdict, costs)]}))
        return
    for each in shares:
        print(f"{each.store:10} share {each.ratio:.2f} of the ideal, first run after {each.wait_ms:.0f} ms")
    print(f"{'store':10}{'workspaces':>12}{'shared/s':>10}{'without/s':>11}{'ratio':>8}")
    for row in costs:
        print(
            f"{row.store:10}{row.workspaces:12}{row.shared_per_second:10.0f}{row.unshared_per_second:11.0f}"
            f"{row.ratio:8.2f}"
        )


if __name__ == "__main__":
    main()
