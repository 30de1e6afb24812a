"""What a process reports to its supervisor: JSON objects, one per line, in a pipe."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

from wakeful import errors
from wakeful.errors import WakefulError

Kind = Literal["status", "prepared", "ready", "alive", "stopping", "failed"]


@dataclass(frozen=True, slots=True)
class Message:
    """A message. `text` is a status, the reason why the process is not ready, or that of a failure."""

    kind: Kind
    text: str = ""
    #: `alive`: the loops that hang; `failed`: the class of the error
    names: tuple[str, ...] = ()
    #: `prepared`: what the first process did for all
    values: dict[str, str | bool | None] = field(default_factory=dict)

    def line(self) -> bytes:
        """Return the message as a line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Message:
        """Return the message of a line.

        >>> Message.of_line(Message("alive", names=("planner",)).line()).names
        ('planner',)
        """
        read = json.loads(line)
        return cls(read["kind"], read["text"], tuple(read["names"]), read["values"])

    @classmethod
    def of_error(cls, error: WakefulError) -> Message:
        """Return the message of an error that ends the process."""
        return cls("failed", error.message, (type(error).__name__,))

    def error(self) -> WakefulError:
        """Return the error of a `failed` message.

        >>> Message.of_error(errors.Unavailable("no database")).error().code
        'unavailable'
        """
        kind = getattr(errors, self.names[0], None) if self.names else None
        if isinstance(kind, type) and issubclass(kind, WakefulError):
            return kind(self.text)
        return WakefulError(self.text)
