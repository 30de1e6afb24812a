"""Which answers say nothing: they are not delivered, and not added to the conversation of a job. Pure.

An agent that has nothing to report returns `NO_REPLY` or `[SILENT]` as its whole output, or `HEARTBEAT_OK`
for a heartbeat. Models may add quotes or a full stop.
"""

from __future__ import annotations

from typing import Final

from wakeful.job import HEARTBEAT_JOB

NO_REPLY: Final = "NO_REPLY"
SILENT: Final = "[SILENT]"
HEARTBEAT_OK: Final = "HEARTBEAT_OK"
#: Characters around such a word that are ignored.
_IGNORED: Final = " \t\r\n`*\"'.!“”„"


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
    """
    if output is None or not output.strip():
        return "it said nothing"
    word = output.strip(_IGNORED)
    if word in (NO_REPLY, SILENT) or (word == HEARTBEAT_OK and job == HEARTBEAT_JOB):
        return f"its answer was {word}"
    return None
