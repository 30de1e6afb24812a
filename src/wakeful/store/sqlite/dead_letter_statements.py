"""What the SQLite store says of dead letters, each with the index that serves it."""

from __future__ import annotations

from typing import Final

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
