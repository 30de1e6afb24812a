"""The long chaos test of `make chaos`, configured by the environment.

`CHAOS_DATABASES` (`postgres,sqlite`, one after the other), `CHAOS_SECONDS` (600) for each, `CHAOS_JOBS`
(2000), `CHAOS_CRASH_EVERY` (30): seconds between faults of the database, and `CHAOS_SEED`. Races between
processes make a run with the same seed differ.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.chaos.databases import Database, PostgresDatabase, SqliteDatabase
from tests.chaos.world import World

_DATABASES: Final[dict[str, Callable[[], Database]]] = {
    "postgres": PostgresDatabase,
    "sqlite": SqliteDatabase,
}


def main() -> int:
    names = os.environ.get("CHAOS_DATABASES", ",".join(_DATABASES)).split(",")
    return max([run_on(name) for name in names])


def run_on(name: str) -> int:
    """Run the test on one database. Returns 1 if there are complaints."""
    seconds = float(os.environ.get("CHAOS_SECONDS", "600"))
    jobs = int(os.environ.get("CHAOS_JOBS", "2000"))
    crash_every = float(os.environ.get("CHAOS_CRASH_EVERY", min(30, seconds / 4)))
    seed = int(os.environ.get("CHAOS_SEED", str(time.time_ns() % 1_000_000)))
    say(f"{name}, {seconds:g} s, {jobs} jobs, seed {seed}")
    folder = Path(tempfile.mkdtemp(prefix="wakeful-chaos-"))
    world = World(folder, _DATABASES[name], seed, jobs, pace=min(10, max(1, jobs // 200)), say=say)
    found = asyncio.run(world.go_through(seconds, crash_every=crash_every))
    if found.complaints:
        (folder / "story.pickle").write_bytes(pickle.dumps((world.lives, world.records, world.launches)))
        say("\n".join([*found.complaints[:50], f"what was recorded is kept in {folder}"]))
    else:
        shutil.rmtree(folder)
    say(f"{world.tally}; {found.rescues} runs rescued, {found.released} given back")
    states = ", ".join(f"{count} {state}" for state, count in sorted(found.states.items()))
    say(f"{found.ticks} ticks, {found.launches} launches")
    say(f"{found.runs} runs: {states}")
    say(f"{len(found.lost)} lost, {len(found.doubled)} doubled, {len(found.others)} other complaints")
    return 1 if found.complaints else 0


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
