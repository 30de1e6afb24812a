"""Which answers say nothing: they are not delivered, and not added to the conversation of a job. Pure.

An agent that has nothing to report returns `NO_REPLY` or `[SILENT]` as its whole output, or `HEARTBEAT_OK`
for a heartbeat. Models may add quotes or a full stop; to `HEARTBEAT_OK` they also add a remark, before or
after it.
"""

from __future__ import annotations

import re
from typing import Final

from wakeful.job.job import HEARTBEAT_JOB

NO_REPLY: Final = "NO_REPLY"
SILENT: Final = "[SILENT]"
HEARTBEAT_OK: Final = "HEARTBEAT_OK"
#: Characters around such a word that are ignored.
_IGNORED: Final = " \t\r\n`*\"'.!“”„"
#: HEARTBEAT_OK at the beginning or the end of an answer
_ALL_WELL: Final = re.compile(rf"{HEARTBEAT_OK}\b|.*\b{HEARTBEAT_OK}$", re.DOTALL)
#: A heartbeat whose remark is longer has something to report.
_LONGEST_REMARK: Final = 300


def suppression_reason(output: str | None, job: str | None) -> str | None:
    """Return why an output is not delivered; None if it is.

    >>> suppression_reason(" `NO_REPLY`. ", "digest"), suppression_reason("[SILENT]", "digest")
    ('its answer was NO_REPLY', 'its answer was [SILENT]')
    >>> (
    ...     suppression_reason("NO_REPLYING", "digest"),
    ...     suppression_reason("NO_REPLY is what I would say", "digest"),
    ... )
    (None, None)
    >>> suppression_reason("HEARTBEAT_OK", "heartbeat"), suppression_reason("HEARTBEAT_OK", "digest")
    ('its answer was HEARTBEAT_OK', None)
    >>> (
    ...     suppression_reason("HEARTBEAT_OK - nothing new", "heartbeat"),
    ...     suppression_reason("HEARTBEAT_OKAY", "heartbeat"),
    ... )
    ('its answer was HEARTBEAT_OK', None)
    """
    if output is None or not output.strip():
        return "it said nothing"
    word = output.strip(_IGNORED)
    if word in (NO_REPLY, SILENT):
        return f"its answer was {word}"
    is_short = len(word) <= len(HEARTBEAT_OK) + _LONGEST_REMARK
    if job == HEARTBEAT_JOB and is_short and _ALL_WELL.match(word):
        return f"its answer was {HEARTBEAT_OK}"
    return None
