"""The journal of launches: what the functions of a replica really did, whatever becomes of their process.

A file a process, a line an event, each written with one call to the system: it is there when the call
returns, and stays when the process is killed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wakeful import Launch


@dataclass
class Launched:
    """A launch that really happened. Instants are microseconds of this machine's true clock, which is also
    the database's."""

    run_id: str
    attempt: int
    key: str
    worker: str
    at_us: int
    #: succeeded, failed or cut (it was cancelled); None: its process was killed in the middle of it
    end: str | None = None
    ended_us: int | None = None


class Journal:
    """Writes the file of this process."""

    def __init__(self, path: Path, clock_ns: Callable[[], int]) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._clock_ns = clock_ns

    def begin(self, run: Launch, worker: str) -> None:
        """Note that this attempt begins."""
        self._write(f"begin {run.id} {run.attempt} {run.idempotency_key} {worker}")

    def end(self, run: Launch, how: str) -> None:
        """Note how it ended."""
        self._write(f"end {run.id} {run.attempt} {how}")

    def _write(self, event: str) -> None:
        os.write(self._file, f"{self._clock_ns() // 1000} {event}\n".encode())


def read_launches(folder: Path) -> list[Launched]:
    """All launches of all processes that kept their journals in this folder, as they began."""
    launches = []
    for path in sorted(folder.glob("*.journal")):
        begun: dict[tuple[str, str], Launched] = {}
        for line in path.read_text().splitlines():
            at, what, run_id, attempt, *more = line.split()
            if what == "begin":
                key, worker = more
                launch = Launched(run_id, int(attempt), key, worker, int(at))
                begun[run_id, attempt] = launch
                launches.append(launch)
            else:
                launch = begun[run_id, attempt]
                launch.end, launch.ended_us = more[0], int(at)
    return sorted(launches, key=lambda launch: launch.at_us)
