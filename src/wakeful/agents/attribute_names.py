"""The names of the attributes of an agent class, and names that are probably misspelled. Pure."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final

from wakeful.agents.agent import PATTERNS, Agent

#: The methods that a class may override.
METHODS: Final = frozenset({"migrate", "redact", "on_thaw", "on_hibernate"})
#: The attributes that a class may set.
SETTINGS: Final = frozenset(
    {"name", "timeout_ms", *(name for name in vars(Agent) if not name.startswith("_"))} - METHODS
)
#: How similar a name is to the one that is meant.
_SIMILAR: Final = 0.75


def misspelled_attributes(cls: type[Agent]) -> list[str]:
    """Return a sentence for each attribute that looks like a setting or a method of `Agent` but is none.

    A class may have attributes of its own, so only values are compared with settings, and only methods with
    methods.

    >>> class Report(Agent):
    ...     max_attempt = 3
    ...     regions = ("eu", "us")
    >>> misspelled_attributes(Report)
    ["'max_attempt' is not a setting of an agent and has no effect; did you mean 'max_attempts'?"]
    """
    found = []
    for base in cls.__mro__:
        if not issubclass(base, Agent) or base is Agent:
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in SETTINGS or name in METHODS or hasattr(value, PATTERNS):
                continue
            is_method = isinstance(value, Callable | staticmethod | classmethod)  # type: ignore[arg-type]
            kind, known = ("method", METHODS) if is_method else ("setting", SETTINGS)
            if near := get_close_matches(name, sorted(known), 1, _SIMILAR):
                found.append(
                    f"'{name}' is not a {kind} of an agent and has no effect; did you mean '{near[0]}'?"
                )
    return found
