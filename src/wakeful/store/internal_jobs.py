"""The jobs that Wakeful creates for itself: their names are reserved, and they count towards no quota."""

from __future__ import annotations

from typing import Final

from wakeful.store.alerts import ALERT_JOBS
from wakeful.store.sessions import HEARTBEAT, WAKE_JOB
from wakeful.store.suggestions import ANALYSIS_JOB, EVALUATION_JOB

INTERNAL_JOBS: Final = frozenset({*ALERT_JOBS, WAKE_JOB, HEARTBEAT, ANALYSIS_JOB, EVALUATION_JOB})
#: Names with this prefix are reserved for future internal jobs.
RESERVED_PREFIX: Final = "wakeful-"
#: The names as a list in SQL.
IN_SQL: Final = ", ".join(f"'{name}'" for name in sorted(INTERNAL_JOBS))


def is_reserved(name: str) -> bool:
    """Return whether users cannot give a job this name.

    >>> is_reserved("heartbeat"), is_reserved("wakeful-alerts"), is_reserved("daily-report")
    (True, True, False)
    """
    return name in INTERNAL_JOBS or name.startswith(RESERVED_PREFIX)
