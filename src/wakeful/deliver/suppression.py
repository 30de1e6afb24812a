"""Which answers nobody is to be bothered with. Pure.

An agent says that there is nothing to say with a word of its own, as its whole answer: `NO_REPLY`, or when it
looked around by itself, `HEARTBEAT_OK`. Models put such a word in quotes, or a full stop behind it.
"""

from __future__ import annotations

from typing import Final

from wakeful.store.sessions import HEARTBEAT

NO_REPLY: Final = "NO_REPLY"
HEARTBEAT_OK: Final = "HEARTBEAT_OK"
#: What may stand round such a word.
_TRIMMINGS: Final = " \t\r\n`*\"'.!“”„"


def suppression_reason(output: str | None, job: str | None) -> str | None:
    """Why this answer, of a run of this job, is not sent; None: it is.

    >>> suppression_reason(" `NO_REPLY`. ", "digest")
    'its answer was NO_REPLY'
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
    word = output.strip(_TRIMMINGS)
    if word == NO_REPLY or (word == HEARTBEAT_OK and job == HEARTBEAT):
        return f"its answer was {word}"
    return None
