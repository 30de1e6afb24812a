"""Agents in Python: a class with handlers for signals.

    class DailyReport(Agent):
        name = "daily-report"
        state = {"count": 0}
        schedules = [Schedule("0 6 * * *", "report.generate", job_id="daily")]

        @on("report.generate")
        async def generate(self, signal, ctx):
            return [SetState(count=ctx.state["count"] + 1), Emit(Signal("report.ready"))]

A handler is `async def handler(self, signal, ctx)`, or `def`, which runs in a thread. It returns nothing, a
directive, or several of them; text among them is the output of the run. The most specific pattern wins; the
default handler is the one with the pattern `*`.

The object is a cache in one process: it may keep connections, which `on_thaw` opens and `on_hibernate`
closes. What must survive is in the state, which only `SetState` changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

from wakeful.agents.schedules import Schedule as Schedule
from wakeful.errors import InvalidArgument
from wakeful.signal.signals import MAX_TYPE, check_text
from wakeful.values.json_value import quote

if TYPE_CHECKING:
    from wakeful.agents.context import InstanceContext

#: The attribute of a handler that has its patterns.
PATTERNS: Final = "__wakeful_patterns__"
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
#: How many types of signals a class remembers the handler of.
_MAX_TYPES: Final = 1_000
_NO_STATE: Final = "self.state is not the state of the instance; read ctx.state and return SetState(...)"

H = TypeVar("H", bound=Callable[..., Any])


def check_pattern(value: object) -> str:
    """Return a pattern in its normal form if it is valid, else raise InvalidArgument.

    >>> check_pattern("report.**"), check_pattern("**")
    ('report.*', '*')
    """
    text = check_text("pattern", value, MAX_TYPE)
    *first, last = text.split(".")
    segments = [*first, "*" if last == "**" else last]
    for segment in segments:
        if not segment:
            raise InvalidArgument(f"pattern: {quote(text)} has an empty segment; write 'report.*'")
        if "*" in segment and segment != "*":
            raise InvalidArgument(
                f"pattern: {quote(text)} has '{segment}'; '*' stands for a whole segment, as in 'report.*'"
            )
    return ".".join(segments)


def matches(pattern: str, type: str) -> bool:
    """Return whether a type matches a pattern.

    Segments are separated by dots. `*` matches one segment; as the last segment it matches one or more, so
    `*` alone matches every type. `**` is the same as `*` and only stands at the end.

    >>> [matches("report.*", type) for type in ("report.generate", "report.a.b", "report")]
    [True, True, False]
    >>> matches("*.done", "report.done"), matches("*.done", "report.a.done"), matches("*", "report.done")
    (True, False, True)
    """
    wanted, found = pattern.split("."), type.split(".")
    if wanted[-1] in ("*", "**"):
        wanted.pop()
        if len(found) <= len(wanted):
            return False
        found = found[: len(wanted)]
    elif len(found) != len(wanted):
        return False
    return all(want in ("*", part) for want, part in zip(wanted, found, strict=True))


def specificity(pattern: str) -> tuple[int, ...]:
    """Return the sort key of a pattern: of those that match a type, the least one is the most specific.

    Segments are compared from the left: text, then `*` for one segment, then `*` for all the rest. Two
    patterns that match the same type never have the same key.

    >>> sorted(["*", "a.*", "a.*.c", "a.b.c", "a.b.*"], key=specificity)
    ['a.b.c', 'a.b.*', 'a.*.c', 'a.*', '*']
    """
    *first, last = pattern.split(".")
    return (*(int(segment == "*") for segment in first), 2 if last in ("*", "**") else 0)


class Agent:
    """The base class of agents. Each attribute can be set in a subclass.

    Durations are text such as `"30s"` or a `timedelta`; `timeout_ms` is a number, as in a job.
    """

    #: the agent of the workspace that this class is: a slug
    name: ClassVar[str]
    #: raise it when the form of the state changes, and convert the old state in `migrate`
    version: ClassVar[int] = 1
    #: the initial state: a dict, a dataclass, or a pydantic model
    state: ClassVar[Any] = {}
    schedules: ClassVar[Sequence[Schedule]] = ()
    #: how often a signal is tried, and for how long each time
    max_attempts: ClassVar[int] = 5
    timeout: ClassVar[str | timedelta] = "60s"
    #: the first and the longest delay between attempts
    backoff: ClassVar[Mapping[str, Any]] = {"base": "500ms", "max": "30s"}
    #: how many signals may wait
    mailbox: ClassVar[int] = 1000
    #: how long the ids of signals, and the keys of `ctx.seen`, are remembered
    dedupe_for: ClassVar[str | timedelta] = "7d"
    #: after this time without a signal the object is removed from memory
    hibernate_after: ClassVar[str | timedelta] = "15m"
    #: the concurrency limit that its signals count towards
    lane: ClassVar[str] = "team"

    def migrate(self, state: dict[str, Any], from_version: int) -> object:
        """Return the state of an older version in the form of this one.

        It gets the stored JSON object, and returns a dict or an object of the type of the state. An error
        blocks the instance; the stored state is never reset. Without this method the stored state is used
        as it is.
        """
        return state

    @classmethod
    def redact(cls, state: dict[str, Any]) -> Mapping[str, Any]:
        """Return what pages show of a state; the stored state, and what the API returns, stay as they are.

        It gets a copy of the stored JSON object. It is called only in processes that have the class.
        """
        return state

    def on_thaw(self, ctx: InstanceContext) -> object:
        """Prepare the object after it was created, such as open connections. It cannot change the state."""

    def on_hibernate(self, ctx: InstanceContext) -> object:
        """Release resources before the object is removed from memory. It cannot change the state."""


def on(*patterns: str) -> Callable[[H], H]:
    """Return a decorator for the handler of signals whose type matches one of these patterns.

    Segments are separated by dots. `*` matches one segment; as the last segment it matches one or more. So
    `report.*` matches `report.generate` and `report.a.b`, and `*` matches all: the default handler.
    """
    if len(patterns) == 1 and callable(patterns[0]):
        raise InvalidArgument('write the type of the signal: @on("report.generate")')
    if not patterns:
        raise InvalidArgument('on() needs a type or a pattern, such as @on("report.*")')
    checked = tuple(check_pattern(pattern) for pattern in patterns)

    def decorate(function: H) -> H:
        if not callable(function):
            raise InvalidArgument(f"@on{patterns} decorates {function!r}; it is for methods")
        setattr(function, PATTERNS, (*getattr(function, PATTERNS, ()), *checked))
        return function

    return decorate


class Handler(NamedTuple):
    """A method that handles signals."""

    #: its name in the class
    name: str
    function: Callable[..., Any]
    #: whether it is a coroutine function or an asynchronous generator, and runs in the event loop
    asynchronous: bool
    #: how many of (signal, ctx) it takes
    arguments: int


class SignalHandlers:
    """The handlers of a class by pattern."""

    def __init__(self, by_pattern: Mapping[str, Handler]) -> None:
        self._ordered = sorted(by_pattern.items(), key=lambda item: specificity(item[0]))
        self._wild = [(pattern, handler) for pattern, handler in self._ordered if "*" in pattern]
        #: by type, filled as types arrive; senders choose the types, so it is bounded
        self._found: dict[str, Handler | None] = {
            pattern: handler for pattern, handler in by_pattern.items() if "*" not in pattern
        }

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns, the most specific ones first."""
        return tuple(pattern for pattern, _ in self._ordered)

    def find(self, type: str) -> Handler | None:
        """Return the handler with the most specific pattern that matches a type; None if there is none."""
        try:
            return self._found[type]
        except KeyError:
            found = next((handler for pattern, handler in self._wild if matches(pattern, type)), None)
            if len(self._found) < _MAX_TYPES:
                self._found[type] = found
            return found


def find_handlers(cls: type[Agent]) -> SignalHandlers:
    """Return the handlers of a class, or raise InvalidArgument.

    A method that overrides a handler of a base class handles the same patterns, unless it has its own `@on`.
    """
    by_pattern: dict[str, Handler] = {}
    for name in dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base)):
        # The nearest decorated definition has the patterns; the nearest definition is called.
        patterns = next((found for base in cls.__mro__ if (found := _patterns(base, name))), ())
        if not patterns:
            continue
        if hasattr(Agent, name) or name == "name":
            raise InvalidArgument(
                f"class {cls.__name__}: the handler '{name}' has the name of an attribute of Agent; rename it"
            )
        handler = _handler(cls, name, inspect.getattr_static(cls, name))
        for pattern in patterns:
            other = by_pattern.setdefault(pattern, handler)
            if other.name != name:
                raise InvalidArgument(
                    f"class {cls.__name__}: {other.name} and {name} both handle '{pattern}'; remove one @on"
                )
    return SignalHandlers(by_pattern)


def takes_context(hook: Callable[..., object]) -> bool:
    """Return whether `on_thaw` or `on_hibernate`, as a bound method, takes the context."""
    parameters = inspect.signature(hook).parameters.values()
    return any(each.kind in (*_POSITIONAL, each.VAR_POSITIONAL) for each in parameters)


class NotHere:
    """The attribute `state` of an agent object: the state is in the context, so any use is an error."""

    def __getattr__(self, name: str) -> object:
        raise AttributeError(_NO_STATE)

    def __getitem__(self, key: object) -> object:
        raise AttributeError(_NO_STATE)

    def __setitem__(self, key: object, value: object) -> None:
        raise AttributeError(_NO_STATE)

    def __repr__(self) -> str:
        return "<the state is ctx.state>"


def _patterns(base: type, name: str) -> tuple[str, ...]:
    found = getattr(vars(base).get(name), PATTERNS, ())
    return found if isinstance(found, tuple) else ()


def _handler(cls: type[Agent], name: str, function: object) -> Handler:
    if isinstance(function, staticmethod | classmethod) or not callable(function):
        raise InvalidArgument(
            f"class {cls.__name__}: {name} is not a method; write `async def {name}(self, signal, ctx)`"
        )
    parameters = list(inspect.signature(function).parameters.values())
    needed = [each for each in parameters if each.default is each.empty and each.kind in _POSITIONAL]
    keywords = [
        each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty
    ]
    if not 1 <= len(needed) <= 3 or keywords:
        raise InvalidArgument(
            f"class {cls.__name__}: {name} must take (self, signal, ctx); write "
            f"`async def {name}(self, signal, ctx)`"
        )
    takes_all = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    arguments = 2 if takes_all else min(2, sum(each.kind in _POSITIONAL for each in parameters) - 1)
    asynchronous = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    return Handler(name, function, asynchronous, arguments)
