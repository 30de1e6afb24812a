"""Dead letters in SQLite: replayed or discarded, a thousand as quickly as one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from wakeful.store.port import Replay
from wakeful.store.rows import DeadLetter, RunView
from wakeful.store.sqlite import dead_letter_statements as sql
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.records import add_runs, run_view


def replay(
    db: sqlite3.Connection,
    tell: TransactionEvents,
    now_ms: int,
    workspace: str,
    which: Sequence[str] | int,
    make: Replay,
) -> list[RunView]:
    """Make new runs of dead letters. See `Store.replay_runs`."""
    made = [(letter.run.id, make(letter)) for letter in _letters(db, workspace, which)]
    born = [run._replace(replay_of=dead) for dead, run in made if run is not None]
    if not born:
        return []
    views = add_runs(db, tell, now_ms, born)
    _bury(db, (str(run.replay_of) for run in born))
    return views


def discard(db: sqlite3.Connection, workspace: str, which: Sequence[str] | int) -> list[str]:
    """Dead letters stop being any. See `Store.discard_runs`."""
    gone = [letter.run.id for letter in _letters(db, workspace, which)]
    _bury(db, gone)
    return gone


def _letters(db: sqlite3.Connection, workspace: str, which: Sequence[str] | int) -> list[DeadLetter]:
    if isinstance(which, int):
        rows = db.execute(sql.OLDEST_LETTERS, (workspace, which))
    else:
        rows = db.execute(sql.LETTERS, (workspace, json.dumps(list(dict.fromkeys(which)))))
    return [DeadLetter(run_view(row[:-2]), *row[-2:]) for row in rows]


def _bury(db: sqlite3.Connection, run_ids: Iterable[str]) -> None:
    db.execute(sql.BURY, (json.dumps(list(run_ids)),))
