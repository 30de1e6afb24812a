"""The long chaos, as `make chaos` runs it; `CHAOS_SECONDS`, `CHAOS_JOBS` and `CHAOS_SEED` say how much."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.world import World


def main() -> int:
    seconds = float(os.environ.get("CHAOS_SECONDS", "600"))
    jobs = int(os.environ.get("CHAOS_JOBS", "2000"))
    seed = int(os.environ.get("CHAOS_SEED", str(time.time_ns() % 1_000_000)))
    say(f"{seconds:g} s, {jobs} jobs, seed {seed}")
    with tempfile.TemporaryDirectory(prefix="wakeful-chaos-") as folder:
        world = World(Path(folder), seed, jobs, pace=min(10, max(1, jobs // 200)), say=say)
        found = asyncio.run(world.go_through(seconds, crash_every=min(60, seconds / 2)))
    for complaint in found.complaints[:50]:
        say(complaint)
    say(f"{world.tally}; {found.rescues} runs rescued, {found.released} given back")
    states = ", ".join(f"{count} {state}" for state, count in sorted(found.states.items()))
    say(f"{found.ticks} ticks ({found.cut_off} of them cut off by a change), {found.launches} launches")
    say(f"{found.runs} runs: {states}")
    say(f"{len(found.lost)} lost, {len(found.doubled)} doubled, {len(found.others)} other complaints")
    return 1 if found.complaints else 0


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
