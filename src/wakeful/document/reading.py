"""The state while a document is read: its values, what they depend on, and the problems found so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from wakeful.document.fields import Field
from wakeful.errors import InvalidArgument, InvalidSchedule
from wakeful.job.job import Timing
from wakeful.job.policy import Catchup, Overlap
from wakeful.values.json_value import Json

MAX_REPORTED: Final = 20


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A value of a document with the name that the document uses: `timeout` and `timeoutMs` are one field."""

    name: str
    value: object


class Problems:
    """The problems of a document, collected so that one error reports them all.

    >>> problems = Problems()
    >>> with problems.of("deliver"):
    ...     raise InvalidArgument("'yes' is neither true nor false")
    >>> problems.raise_all()
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: deliver: 'yes' is neither true nor false
    """

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self._error: type[InvalidArgument] = InvalidArgument

    def __contains__(self, name: object) -> bool:
        return name in self._lines

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, name: str, message: str) -> None:
        """Record a problem of a field; only its first one is kept."""
        # Some messages begin with the name of the field already.
        message = message.removeprefix(f"{name}: ").removeprefix(f"{name} ")
        line = f"{name}: {message}".encode(errors="backslashreplace").decode()
        self._lines.setdefault(name, " ".join(line.splitlines()))

    def of(self, name: str) -> _Recorder:
        """Record an InvalidArgument of a block as a problem of a field."""
        return _Recorder(self, name)

    def record(self, name: str, error: InvalidArgument) -> None:
        """Record an error as a problem of a field."""
        if isinstance(error, InvalidSchedule):
            self._error = InvalidSchedule
        self.add(name, error.message)

    def raise_all(self) -> None:
        """Raise the problems if there are any: as InvalidSchedule if the schedule has one."""
        if self._lines:
            lines = list(self._lines.values())
            more = [f"… and {len(lines) - MAX_REPORTED} more"] if len(lines) > MAX_REPORTED else []
            raise self._error("\n".join(lines[:MAX_REPORTED] + more))


class _Recorder:
    __slots__ = ("_name", "_problems")

    def __init__(self, problems: Problems, name: str) -> None:
        self._problems, self._name = problems, name

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> bool:
        if isinstance(error, InvalidArgument):
            self._problems.record(self._name, error)
            return True
        return False


@dataclass(frozen=True, slots=True)
class Defaults:
    """The operator's defaults and limits for documents.

    With an allowlist, the zone of a job must be in it, whether its document names the zone or inherits it.
    """

    tz: str = "UTC"
    overlap: Overlap = "skip"
    catchup: Catchup = "none"
    jitter_ms: int = 0
    tz_allowlist: frozenset[str] | None = None
    max_payload_bytes: int = 65536


@dataclass(frozen=True, slots=True)
class DocumentReader:
    """A document that is being read, with everything that its meaning depends on."""

    #: the values by field
    values: Mapping[str, NamedValue]
    problems: Problems
    now_ms: int
    defaults: Defaults
    #: the document was valid when it was stored: skip checks against the clock and the operator's limits
    stored: bool = False
    #: the timing that the job has; an unchanged one is not checked against the clock again
    old_timing: Timing | None = None
    #: the target that the job has, if the document is a patch
    old_target: Mapping[str, Json] | None = None

    def read(self, table: Iterable[Field]) -> dict[str, Any]:
        """Return the values of these fields, read, by attribute."""
        values = {}
        for field in table:
            if field.kind.read is not None and field.name in self.values:
                item = self.values[field.name]
                with self.problems.of(item.name):
                    values[field.attr] = field.kind.read(item.value)
        return values
