"""Dead letters in SQLite: replayed or discarded, a thousand as quickly as one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from wakeful.store.port import Replay
from wakeful.store.rows import DeadLetter, RunView
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.runs import add_runs, run_view
from wakeful.store.sqlite.statements import RUN_COLUMNS

_LETTER: Final = f"""
    SELECT {", ".join(f"r.{column}" for column in RUN_COLUMNS.split(", "))},
        coalesce(j.policy, '{{}}'), coalesce(j.work, '{{}}')"""
#: the primary keys of runs and jobs, once for each
LETTERS: Final = f"""{_LETTER}
    FROM json_each(?2) e CROSS JOIN runs r ON r.id = e.value LEFT JOIN jobs j ON j.id = r.job_id
    WHERE r.workspace = ?1 AND r.dead ORDER BY e.key"""
#: runs_dead: the beginning of it, in its order; the jobs' primary key for what is found
OLDEST_LETTERS: Final = f"""{_LETTER}
    FROM runs r INDEXED BY runs_dead LEFT JOIN jobs j ON j.id = r.job_id
    WHERE r.workspace = ?1 AND r.dead ORDER BY r.id LIMIT ?2"""
#: the primary key, once for each
BURY: Final = "UPDATE runs SET dead = 0 WHERE id IN (SELECT value FROM json_each(?))"


async def replay(
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
    views = await add_runs(db, tell, now_ms, born)
    _bury(db, (str(run.replay_of) for run in born))
    return views


async def discard(
    db: sqlite3.Connection, tell: TransactionEvents, workspace: str, which: Sequence[str] | int
) -> list[str]:
    """Dead letters stop being any. See `Store.discard_runs`."""
    gone = [letter.run.id for letter in _letters(db, workspace, which)]
    _bury(db, gone)
    return gone


def _letters(db: sqlite3.Connection, workspace: str, which: Sequence[str] | int) -> list[DeadLetter]:
    if isinstance(which, int):
        rows = db.execute(OLDEST_LETTERS, (workspace, which))
    else:
        rows = db.execute(LETTERS, (workspace, json.dumps(list(dict.fromkeys(which)))))
    return [DeadLetter(run_view(row[:-2]), *row[-2:]) for row in rows]


def _bury(db: sqlite3.Connection, run_ids: Iterable[str]) -> None:
    db.execute(BURY, (json.dumps(list(run_ids)),))
