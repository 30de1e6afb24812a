"""How messages wait in an agent's sessions, as people write it, and what a session may be called."""

from __future__ import annotations

import re
from typing import Final, Literal

from wakeful.document.objects import an_object, copied, durations, only, read_as
from wakeful.document.values import Reader, choice, milliseconds, refuse, shown, whole
from wakeful.job import Json

#: The session of who names none.
MAIN: Final = "main"
Mode = Literal["queue", "followup", "interrupt"]
Drop = Literal["old", "new"]
_LONGEST_DEBOUNCE_MS: Final = 60_000
#: What a session may be called, as a regular expression.
SESSION_NAME: Final = "[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}"
_NAME: Final = re.compile(SESSION_NAME)
FIELDS: Final[dict[str, Reader]] = {
    "mode": choice(Mode),
    "cap": whole(1, 1_000),
    "drop": choice(Drop),
    "debounceMs": milliseconds(0, _LONGEST_DEBOUNCE_MS),
    "turns": whole(1, 100),
}


def queue(value: object) -> dict[str, Json]:
    """How messages wait in an agent's sessions.

    >>> queue({"mode": "interrupt", "debounce": "2s"})
    {'mode': 'interrupt', 'debounceMs': 2000}
    """
    given = an_object(value, '{"mode": "queue", "cap": 10, "drop": "old", "debounceMs": 800}')
    durations(given, "debounce")
    only(given, "a queue", tuple(FIELDS))
    for name, read in FIELDS.items():
        if name in given:
            given[name] = read_as(name, read, given[name])
    return copied(given)


def session_name(value: object) -> str:
    """What a conversation is called: `main`, where nobody says.

    >>> session_name(None), session_name("telegram:123456789")
    ('main', 'telegram:123456789')
    """
    if value is None:
        return MAIN
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        refuse(
            f"session: {shown(value)} cannot be the name of a session; use letters, digits and . _ : @ + -, "
            "at most 128, such as 'telegram:123456789'"
        )
    return value
