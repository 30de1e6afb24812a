"""A document on its way to a definition: what was given, what it depends on, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from wakeful.document.fields import Field
from wakeful.errors import InvalidArgument, InvalidSchedule
from wakeful.job import Json, Timing
from wakeful.policy import Catchup, Overlap

MAX_TOLD: Final = 20


@dataclass(frozen=True, slots=True)
class Given:
    """A value of a document, and the name it stands under: `timeout` and `timeoutMs` are one field."""

    name: str
    value: object


class Problems:
    """All that is wrong with a document, gathered so that it is said at once.

    >>> problems = Problems()
    >>> with problems.of("deliver"):
    ...     raise InvalidArgument("'yes' is neither true nor false")
    >>> problems.tell()
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: deliver: 'yes' is neither true nor false
    """

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self._kind: type[InvalidArgument] = InvalidArgument

    def __contains__(self, name: object) -> bool:
        return name in self._lines

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, name: str, sentence: str) -> None:
        """Note one; a field has one problem at a time."""
        # Some of the sentences that come from below begin with the name already.
        sentence = sentence.removeprefix(f"{name}: ").removeprefix(f"{name} ")
        line = f"{name}: {sentence}".encode(errors="backslashreplace").decode()
        self._lines.setdefault(name, " ".join(line.splitlines()))

    def of(self, name: str) -> _Noting:
        """What is refused in here is a problem of this field: `with problems.of("deliver"): …`."""
        return _Noting(self, name)

    def note(self, name: str, error: InvalidArgument) -> None:
        """Note what was refused."""
        if isinstance(error, InvalidSchedule):
            self._kind = InvalidSchedule
        self.add(name, error.message)

    def tell(self) -> None:
        """Raise them, if there are any: InvalidSchedule where the schedule is among them."""
        if self._lines:
            lines = list(self._lines.values())
            more = [f"… and {len(lines) - MAX_TOLD} more"] if len(lines) > MAX_TOLD else []
            raise self._kind("\n".join(lines[:MAX_TOLD] + more))


class _Noting:
    __slots__ = ("_name", "_problems")

    def __init__(self, problems: Problems, name: str) -> None:
        self._problems, self._name = problems, name

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> bool:
        if isinstance(error, InvalidArgument):
            self._problems.note(self._name, error)
            return True
        return False


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where a document says nothing, and what the operator allows.

    With an allowlist, a job has a zone of it, whether its document names the zone or inherits it.
    """

    tz: str = "UTC"
    overlap: Overlap = "skip"
    catchup: Catchup = "none"
    jitter_ms: int = 0
    tz_allowlist: frozenset[str] | None = None
    max_payload_bytes: int = 65536


@dataclass(frozen=True, slots=True)
class Reading:
    """A document that is being read: what was given, and what its meaning depends on beside that."""

    given: Mapping[str, Given]
    problems: Problems
    now_ms: int
    defaults: Defaults
    #: it was right once: nothing is judged by the clock or by what the operator allows today
    stored: bool = False
    #: the timing as it is; what stays so is not judged by the clock again
    old_timing: Timing | None = None
    #: the target as it is, where the document is a patch
    old_target: Mapping[str, Json] | None = None

    def fields(self, table: Iterable[Field]) -> dict[str, Any]:
        """What was given of these fields, read, by attribute."""
        values = {}
        for field in table:
            if field.read is not None and field.name in self.given:
                item = self.given[field.name]
                with self.problems.of(item.name):
                    values[field.attr] = field.read(item.value)
        return values
