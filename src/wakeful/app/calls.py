"""A call of a function that is enqueued: its arguments and options, and what the function returned."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar, cast

from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.launch.port import MAX_OUTPUT
from wakeful.model import Run
from wakeful.store.idempotency import KEPT_MS, LONGEST_KEPT_MS
from wakeful.values.duration import parse_duration
from wakeful.values.instants import LATEST_MS
from wakeful.values.json_value import Json, json_value

R = TypeVar("R")

#: The most bytes of a character. An output is cut before a character that is beyond its limit.
_LONGEST_CHARACTER: Final = 4
#: The options of `enqueue`, which no parameter of a function may be named.
OPTIONS: Final = ("in_", "at", "key", "unique_for")
#: An option that is newer: a function whose parameter has this name is called without the option.
CONNECTION: Final = "connection"


def read_result(run: Run, function: Callable[..., R]) -> R:
    """Return what the function returned in a run, from its output.

    Text and values of JSON come back as they were; text that a function without a return annotation returns
    is read as JSON if it is JSON. Raises FailedPrecondition if the output may be a part of the result.
    """
    if run.state != "succeeded":
        why = run.error or run.reason or "no reason is known"
        raise FailedPrecondition(f"run {run.id} of '{run.job}' ended as {run.state}: {why}")
    text = run.output
    if text is None:
        return cast(R, text)
    if not _returns_text(function):
        with contextlib.suppress(ValueError):
            return cast(R, json.loads(text))
    if len(text.encode()) > MAX_OUTPUT - _LONGEST_CHARACTER:
        raise FailedPrecondition(
            f"the result of run {run.id} of '{run.job}' has {MAX_OUTPUT // 1024} KB or more, and only the "
            "beginning is kept, as its output; store large results elsewhere, and return where they are"
        )
    return cast(R, text)


def _returns_text(function: Callable[..., object]) -> bool:
    annotation = inspect.signature(function).return_annotation
    return annotation is str or annotation == "str"


def read_parameters(function: Callable[..., object]) -> inspect.Signature:
    """Return the parameters that a call has arguments for. InvalidArgument: one cannot be in a call."""
    name = getattr(function, "__name__", "function")
    signature = inspect.signature(function)
    for each in signature.parameters.values():
        if each.name in OPTIONS:
            raise InvalidArgument(f"{name}: its parameter '{each.name}' is an option of `enqueue`; rename it")
        if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL):
            raise InvalidArgument(f"{name}: its parameter '{each.name}' has no name in a call; give it one")
    return signature.replace(
        parameters=[each for each in signature.parameters.values() if each.name != "run"]
    )


def read_arguments(
    function: Callable[..., object],
    args: Any,
    kwargs: Mapping[str, Any],
    parameters: inspect.Signature | None = None,
) -> dict[str, Json]:
    """Return the arguments of a call by name, as JSON. Raises InvalidArgument if they do not fit.

    `parameters` are those of the function, if they have been read.

    >>> def send(to, subject="news", *, urgent=False): ...
    >>> read_arguments(send, ["a@example.com"], {"urgent": True})
    {'to': 'a@example.com', 'urgent': True}
    >>> read_arguments(send, [], {"whom": "a@example.com"})
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: send: missing a required argument: 'to'
    """
    name = getattr(function, "__name__", "function")
    given = parameters or read_parameters(function)
    try:
        bound = given.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise InvalidArgument(f"{name}: {error}") from error
    more = bound.pop(_keywords(given), {})
    arguments: dict[str, Json] = {}
    for key, value in {**bound, **more}.items():
        try:
            arguments[key] = json_value(value, None)
        except InvalidArgument as error:
            raise InvalidArgument(f"{name}: {key}: {error.message}") from error
    return arguments


def _keywords(signature: inspect.Signature) -> str:
    """Return the name of the parameter that takes all other keywords, if there is one."""
    names = [each.name for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]
    return names[0] if names else ""


def takes_connection(function: Callable[..., object], value: object) -> bool:
    """Return whether `connection` is an argument of the function itself, and not the option of `enqueue`.

    >>> takes_connection(lambda connection: None, "x"), takes_connection(lambda **more: None, "x")
    (True, True)
    >>> takes_connection(lambda **more: None, object()), takes_connection(lambda: None, "x")
    (False, False)
    """
    parameters = inspect.signature(function).parameters
    if CONNECTION in parameters:
        return True
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return takes_any and (value is None or isinstance(value, str | int | float | list | dict))


def not_committed(name: str) -> FailedPrecondition:
    """Return the error for the result of a call whose transaction is not committed."""
    return FailedPrecondition(
        f"the call of '{name}' runs when your transaction has committed: await the call, commit, and then "
        "await its `result()`"
    )


class Task(NamedTuple):
    """A function whose calls are enqueued."""

    function: Callable[..., object]
    name: str
    #: the fields of its job; None: it is declared with a schedule, so the job exists
    options: Mapping[str, Any] | None


class UniqueKey(NamedTuple):
    """The key of a call, and for how long no other call with it is enqueued."""

    text: str
    kept_ms: int


class Call(NamedTuple):
    """A call of a function, to be enqueued."""

    task: Task
    arguments: dict[str, Json]
    due_ms: int | None
    key: UniqueKey | None
    #: the connection of the caller, if the call is enqueued in its transaction
    connection: object | None


def read_key(key: str | None, unique_for: str | timedelta | float | None) -> UniqueKey | None:
    """Return the key of a call, unique for a day or for the window."""
    if key is None:
        if unique_for is not None:
            raise InvalidArgument("unique_for: what is unique is the `key` of a call; give one")
        return None
    kept_ms = KEPT_MS if unique_for is None else read_ms(unique_for)
    if not 0 < kept_ms <= LONGEST_KEPT_MS:
        raise InvalidArgument("unique_for: give a duration of at most 366 days, such as '1h'")
    return UniqueKey(key, kept_ms)


def is_defined_again(known: Callable[..., object], function: Callable[..., object]) -> bool:
    """Return whether a cell of a notebook, or a line at a prompt, defines a function anew."""
    return getattr(function, "__module__", None) == "__main__" and (
        getattr(known, "__qualname__", None) == getattr(function, "__qualname__", "")
    )


def read_due_ms(in_: str | timedelta | float | None, at: datetime | None, now_ms: int) -> int | None:
    """Return when a call is due: after a duration (text, or seconds), or at a time; None is now."""
    if in_ is not None and at is not None:
        raise InvalidArgument("give `in_` or `at`, not both")
    if at is not None:
        if at.tzinfo is None:
            raise InvalidArgument("at: the time has no zone; write datetime(..., tzinfo=UTC)")
        return _check_due(round(at.timestamp() * 1000))
    if in_ is None:
        return None
    return _check_due(now_ms + read_ms(in_))


def read_ms(duration: str | timedelta | float) -> int:
    """Return the milliseconds of a duration: text, a timedelta, or seconds.

    >>> read_ms("2h"), read_ms(timedelta(seconds=1)), read_ms(0.5)
    (7200000, 1000, 500)
    """
    if isinstance(duration, str):
        return parse_duration(duration)
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not seconds >= 0:
        raise InvalidArgument("a duration is text such as '20m', or seconds; it cannot lead into the past")
    return round(min(seconds, LATEST_MS) * 1000)


def _check_due(due_ms: int) -> int:
    if not 0 <= due_ms <= LATEST_MS:
        raise InvalidArgument("a call is due between 1970 and 9998; `in_` is text such as '20m', or seconds")
    return due_ms


def identify(function: Callable[..., object]) -> object:
    """Return what identifies a function: itself, or the id of a callable object without a hash."""
    try:
        hash(function)
    except TypeError:
        return id(function)
    return function


def slug_of(function: Callable[..., object]) -> str:
    """Return the name of the job of a function: `send_mail` is `send-mail`."""
    return getattr(function, "__name__", "function").strip("_").replace("_", "-").lower()
