"""Finds handlers that change `ctx.state` in place, which stores nothing: a `SetState` is missing.

Only the first calls of each handler that return no `SetState` are checked, so the check costs nothing later.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from wakeful.agents.class_registry import RegisteredClass
from wakeful.agents.state import StateType, state_from_text

#: How many calls of each handler are checked.
_CHECKED: Final = 10


class UnsavedChanges:
    """Remembers which handlers of this process were checked."""

    def __init__(self) -> None:
        self._checks: Counter[tuple[type, str]] = Counter()

    def found(self, registered: RegisteredClass, handler: str, value: object, text: str) -> bool:
        """Return whether a handler changed its copy of the state; for each handler at most once."""
        key = registered.cls, handler
        if self._checks[key] >= _CHECKED:
            return False
        self._checks[key] += 1
        if not _is_changed(registered.state, value, text):
            return False
        self._checks[key] = _CHECKED
        return True


def _is_changed(state: StateType, value: object, text: str) -> bool:
    try:
        return state.replace(value) != state.replace(state.load(state_from_text(text)))
    except Exception:  # what cannot be stored was not there before; the code of the state may raise anything
        return True
