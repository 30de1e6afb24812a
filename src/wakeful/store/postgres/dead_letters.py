"""Dead letters in PostgreSQL: replayed or discarded, a thousand as quickly as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from wakeful.store.port import Replay
from wakeful.store.postgres.jobs import is_id
from wakeful.store.postgres.runs import add_runs
from wakeful.store.postgres.statements import RUN_COLUMNS
from wakeful.store.rows import DeadLetter, RunView

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents

_LETTER: Final = f"""
    SELECT {RUN_COLUMNS}, coalesce(j.policy, '{{}}'), coalesce(j.work, '{{}}')
    FROM runs r LEFT JOIN jobs j ON j.id = r.job_id"""
#: the primary keys of runs and jobs, once for each
LETTERS: Final = f"""{_LETTER}
    WHERE r.id = ANY($2::uuid[]) AND r.workspace = $1 AND r.dead ORDER BY r.id FOR UPDATE OF r"""
#: runs_dead: the beginning of it, in its order; the jobs' primary key for what is found
OLDEST_LETTERS: Final = f"""{_LETTER}
    WHERE r.workspace = $1 AND r.dead ORDER BY r.id LIMIT $2 FOR UPDATE OF r"""
#: the primary key, once for each
BURY: Final = "UPDATE runs SET dead = false WHERE id = ANY($1::uuid[])"


async def replay(
    db: Db, tell: TransactionEvents, now_ms: int, workspace: str, which: Sequence[str] | int, make: Replay
) -> list[RunView]:
    """Make new runs of dead letters. See `Store.replay_runs`."""
    made = [(letter.run.id, make(letter)) for letter in await _letters(db, workspace, which)]
    born = [run._replace(replay_of=dead) for dead, run in made if run is not None]
    if not born:
        return []
    views = await add_runs(db, tell, now_ms, born)
    await db.execute(BURY, [run.replay_of for run in born])
    return views


async def discard(db: Db, tell: TransactionEvents, workspace: str, which: Sequence[str] | int) -> list[str]:
    """Dead letters stop being any. See `Store.discard_runs`."""
    gone = [letter.run.id for letter in await _letters(db, workspace, which)]
    await db.execute(BURY, gone)
    return gone


async def _letters(db: Db, workspace: str, which: Sequence[str] | int) -> list[DeadLetter]:
    """Those that nobody else replays or discards before we are done."""
    if isinstance(which, int):
        rows = await db.fetch(OLDEST_LETTERS, workspace, which)
        return [DeadLetter(RunView(*row[:-2]), *row[-2:]) for row in map(tuple, rows)]
    ids = list(filter(is_id, dict.fromkeys(which)))
    rows = await db.fetch(LETTERS, workspace, ids)
    found = {row[0]: DeadLetter(RunView(*row[:-2]), *row[-2:]) for row in map(tuple, rows)}
    return [found[run_id] for run_id in ids if run_id in found]
