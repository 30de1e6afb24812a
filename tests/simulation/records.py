"""Records read directly from the SQLite file: runs, attempts and every state change of every run.

Triggers that the simulation adds to the schema record the changes in the transaction that makes them, so none
is missed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

_STEPS = """
CREATE TABLE IF NOT EXISTS steps (
    seq INTEGER PRIMARY KEY, run_id TEXT, was TEXT, state TEXT, attempt INTEGER, worker TEXT, due_at INTEGER,
    started_at INTEGER
);
CREATE TRIGGER IF NOT EXISTS steps_born AFTER INSERT ON runs BEGIN
    INSERT INTO steps (run_id, was, state, attempt, worker, due_at, started_at)
    VALUES (NEW.id, NULL, NEW.state, NEW.attempt, NEW.worker, NEW.due_at, NEW.started_at);
END;
CREATE TRIGGER IF NOT EXISTS steps_moved AFTER UPDATE ON runs
WHEN OLD.state IS NOT NEW.state OR OLD.attempt IS NOT NEW.attempt OR OLD.worker IS NOT NEW.worker
    OR OLD.scheduled_at IS NOT NEW.scheduled_at OR OLD.idempotency_key IS NOT NEW.idempotency_key
    OR (OLD.finished_at IS NOT NULL AND OLD.state NOT IN ('running', 'retrying')
        AND (OLD.finished_at IS NOT NEW.finished_at OR OLD.reason IS NOT NEW.reason
             OR OLD.output IS NOT NEW.output OR OLD.error IS NOT NEW.error))
BEGIN
    INSERT INTO steps (run_id, was, state, attempt, worker, due_at, started_at)
    VALUES (NEW.id, OLD.state, NEW.state, NEW.attempt, NEW.worker, NEW.due_at, NEW.started_at);
END;
CREATE TRIGGER IF NOT EXISTS steps_gone AFTER DELETE ON runs BEGIN
    INSERT INTO steps (run_id, was, state, attempt, worker, due_at)
    VALUES (OLD.id, OLD.state, NULL, OLD.attempt, OLD.worker, OLD.due_at);
END;
"""


@dataclass(frozen=True)
class Run:
    """A row of `runs`."""

    id: str
    job_id: str | None
    scheduled_ms: int
    fire_ms: int
    trigger: str
    triggered_by: str | None
    state: str
    reason: str | None
    covers: int
    until_ms: int | None
    attempt: int
    serial: bool
    started_ms: int | None
    finished_ms: int | None
    key: str
    replay_of: str | None
    dead: bool
    #: runs of one planning pass have the same
    created_ms: int = 0


@dataclass(frozen=True)
class Step:
    """A change of a run: `was` is None for its insert, `state` is None for its deletion."""

    seq: int
    run_id: str
    was: str | None
    state: str | None
    attempt: int
    worker: str | None
    due_ms: int | None
    #: None in the step to `running`: the run is prefetched
    started_ms: int | None = None


@dataclass(frozen=True)
class Attempt:
    """An attempt that did not end its run."""

    run_id: str
    attempt: int
    error: str | None


@dataclass
class Records:
    """The contents of the database."""

    runs: list[Run] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)


class Recorder:
    """A separate connection to the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = sqlite3.connect(path, isolation_level=None)

    def watch(self) -> None:
        """Record every step of a run from now on."""
        self.run_script(_STEPS)

    def run_script(self, script: str) -> None:
        """Execute several statements, such as further triggers."""
        self._connection.executescript(script)

    def seq(self) -> int:
        """Return the number of the last step."""
        found = self._connection.execute("SELECT max(seq) FROM steps").fetchone()[0]
        return int(found or 0)

    def execute(self, sql: str, *arguments: object) -> list[tuple[object, ...]]:
        """Execute a statement that bypasses the store."""
        return self._connection.execute(sql, arguments).fetchall()

    def read(self) -> Records:
        """Return all records."""
        ask = self._connection.execute
        runs = ask(
            "SELECT id, job_id, scheduled_at, fire_at, trigger, triggered_by, state, reason, covers,"
            " until_at, attempt, serial, started_at, finished_at, idempotency_key, replay_of, dead,"
            " created_at FROM runs"
            " ORDER BY scheduled_at, id"
        )
        steps = ask(
            "SELECT seq, run_id, was, state, attempt, worker, due_at, started_at FROM steps ORDER BY seq"
        )
        attempts = ask("SELECT run_id, attempt, error FROM attempts ORDER BY run_id, attempt")
        return Records(
            [Run(*row[:11], bool(row[11]), *row[12:16], bool(row[16]), row[17]) for row in runs],  # type: ignore[call-arg]
            [Step(*row) for row in steps],
            [Attempt(*row) for row in attempts],
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def read(path: Path) -> Records:
    """Return the records of a file."""
    with closing(Recorder(path)) as recorder:
        return recorder.read()
