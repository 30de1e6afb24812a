"""The message queue of an agent's sessions in a document, and the names of sessions."""

from __future__ import annotations

import re
from typing import Final, Literal

from wakeful.document.kinds import Kind, choice, milliseconds, whole
from wakeful.document.objects import check_names, copy_object, read_as, read_object, replace_duration
from wakeful.document.values import refuse, shown
from wakeful.job.job import Json

#: The session of a message that names none.
MAIN: Final = "main"
Mode = Literal["queue", "followup", "interrupt"]
Drop = Literal["old", "new"]
_LONGEST_DEBOUNCE_MS: Final = 60_000
#: The name of a session, as a regular expression.
SESSION_NAME: Final = "[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}"
_NAME: Final = re.compile(SESSION_NAME)
FIELDS: Final[dict[str, Kind]] = {
    "mode": choice(Mode),
    "cap": whole(1, 1_000),
    "drop": choice(Drop),
    "debounceMs": milliseconds(0, _LONGEST_DEBOUNCE_MS),
    "turns": whole(1, 100),
}


def queue(value: object) -> dict[str, Json]:
    """Return how messages wait in an agent's sessions.

    >>> queue({"mode": "interrupt", "debounce": "2s"})
    {'mode': 'interrupt', 'debounceMs': 2000}
    """
    values = read_object(value, '{"mode": "queue", "cap": 10, "drop": "old", "debounceMs": 800}')
    replace_duration(values, "debounce")
    check_names(values, "a queue", tuple(FIELDS))
    for name, read in FIELDS.items():
        if name in values:
            values[name] = read_as(name, read, values[name])
    return copy_object(values)


def is_session_name(name: str) -> bool:
    """Return whether a session can have this name.

    >>> is_session_name("telegram:123456789"), is_session_name("a b")
    (True, False)
    """
    return _NAME.fullmatch(name) is not None


def session_name(value: object) -> str:
    """Return the name of a session; `main` for None.

    >>> session_name(None), session_name("telegram:123456789")
    ('main', 'telegram:123456789')
    """
    if value is None:
        return MAIN
    if not isinstance(value, str) or not is_session_name(value):
        refuse(
            f"session: {shown(value)} is not a valid name of a session; use letters, digits and . _ : @ + -, "
            "at most 128, such as 'telegram:123456789'"
        )
    return value
