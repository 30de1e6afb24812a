"""What the PostgreSQL store says of dead letters, each with the index that serves it."""

from __future__ import annotations

from typing import Final

from wakeful.store.postgres.statements import RUN_COLUMNS

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
