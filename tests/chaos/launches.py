"""The journal of launches, which survives the kill of its process.

One file per process and one line per event, each written with a single system call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wakeful import Launch


@dataclass
class Launched:
    """A launch that happened. Times are microseconds of the machine's real clock, which the database uses."""

    run_id: str
    attempt: int
    key: str
    #: None: a webhook, of which the receiver does not know the sender
    worker: str | None
    at_us: int
    #: succeeded, failed or cut (cancelled); None: its process was killed
    end: str | None = None
    ended_us: int | None = None


class Journal:
    """The writer of the journal of this process."""

    def __init__(self, path: Path, clock_ns: Callable[[], int]) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._clock_ns = clock_ns

    def begin(self, run: Launch, worker: str) -> None:
        """Record the start of this attempt."""
        self._write(f"begin {run.id} {run.attempt} {run.idempotency_key} {worker}")

    def end(self, run: Launch, how: str) -> None:
        """Record the end of this attempt."""
        self._write(f"end {run.id} {run.attempt} {how}")

    def _write(self, event: str) -> None:
        os.write(self._file, f"{self._clock_ns() // 1000} {event}\n".encode())


def read_launches(folder: Path) -> list[Launched]:
    """Return the launches of all journals in this folder, in the order of their start."""
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
