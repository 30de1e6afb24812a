"""Function targets: Python callables that are registered in this process by name.

A coroutine function is awaited in the event loop; any other callable runs in a thread. It takes the run as
its only positional parameter, or nothing. Its return value is the output of the run: text unchanged, other
values as compact JSON, and values that JSON cannot represent as `repr`. An exception fails the attempt,
`wakeful.errors.Permanent` permanently. A function that verifies runs may also take `output` and `evidence`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from wakeful.errors import AlreadyExists, InvalidArgument, Permanent
from wakeful.job.start_rules import function_requirement
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, MAX_OUTPUT, Launch, Launcher, truncate
from wakeful.launch.precheck import PrecheckResult, result_of_value
from wakeful.launch.user_code import NoThread, Threads
from wakeful.launch.verify import VerifyLaunch, verdict_of_value
from wakeful.logs import get_logger
from wakeful.run.outcome import AwaitingCallback, Failed, Outcome, Skipped, Succeeded
from wakeful.run.verification import Verdict
from wakeful.values.duration import LONGEST
from wakeful.values.json_value import Json

#: Returns the context manager of a call. A coroutine function enters it with `async with` if it can be.
HandlerContext = Callable[[], AbstractContextManager[object] | AbstractAsyncContextManager[object]]

#: A function that can be registered: `async def f(run)`, `async def f()`, `def f(run)`, `def f()`.
Function = Callable[..., object]

#: The most functions that run in threads at once, or the number of slots if that is larger: a run that waits
#: for a thread holds a slot, and its time runs.
DEFAULT_THREADS: Final = 32

_DONE: Final = Succeeded()
#: The fields of outcomes: their types, and the greatest number or length of a text.
_FIELDS: Final[Mapping[str, tuple[type, int]]] = {
    **dict.fromkeys(("output", "error", "evidence_error", "usage", "evidence"), (str, MAX_OUTPUT)),
    **dict.fromkeys(("permanent", "pause_job", "counted"), (bool, 1)),
    "reason": (str, 100),
    "response_code": (int, 999),
    "retry_after_ms": (int, LONGEST),
    "timeout_ms": (int, LONGEST),
    "handled": (type(None), 0),
}
#: What a function that verifies runs may take besides the run.
_OF_VERIFY: Final = ("output", "evidence")
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

log = get_logger("wakeful.launch.function")


_T = TypeVar("_T")


class RegisteredFunction(NamedTuple):
    """A function, and how it is called."""

    function: Callable[..., Any]
    #: whether it is a coroutine function
    awaited: bool
    #: whether it takes the run
    takes_run: bool


class FunctionLauncher(Launcher):
    """Calls functions.

    >>> launcher = FunctionLauncher()
    >>> async def greet(run):
    ...     return f"hello {run.payload['name']}"
    >>> launcher.register("greet", greet)
    >>> "greet" in launcher
    True
    """

    kind = "function"
    default_timeout_ms = DEFAULT_TIMEOUT_MS

    def __init__(self, threads: int = DEFAULT_THREADS, *, context: HandlerContext | None = None) -> None:
        #: in which each call runs; None: in none
        self.context = context
        self._functions: dict[str, RegisteredFunction] = {}
        self._capabilities: Mapping[str, int] = {}
        #: called when another function is registered
        self.on_capabilities_changed: Callable[[], object] = lambda: None
        #: the most functions that run in threads at once; set before the first call
        self.max_threads = threads
        self._threads: Threads | None = None

    def register(
        self, name: str, function: Function, *, replace: bool = False, arguments: bool = False
    ) -> None:
        """Register a function by the `name` of targets of kind `function`.

        Raises InvalidArgument if it needs other parameters than the run, unless it may take `arguments`, and
        AlreadyExists if another function has the name, unless `replace` is set.
        """
        takes_run = takes_run_parameter(name, function, only_run=not arguments)
        registered = RegisteredFunction(function, is_awaited(function), takes_run)
        known = self._functions.get(name)
        if known is not None and known.function is not function and not replace:
            raise AlreadyExists(f"a function '{name}' is registered already; give this one another name")
        self._functions[name] = registered
        if known is None:
            # A new mapping: functions may be registered in another thread.
            self._capabilities = {**self._capabilities, function_requirement(name): 0}
            self.on_capabilities_changed()

    def unregister(self, name: str) -> None:
        """Forget the function of that name."""
        del self._functions[name]
        forgotten = function_requirement(name)
        self._capabilities = {key: value for key, value in self._capabilities.items() if key != forgotten}
        self.on_capabilities_changed()

    def capabilities(self) -> Mapping[str, int]:
        """Return what runs of the registered functions require."""
        return self._capabilities

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    async def close(self) -> None:
        """Stop the threads. A thread whose function does not return cannot be stopped and is left behind."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def check(self, target: Mapping[str, Json]) -> None:
        """Raise InvalidArgument for an invalid target. The function may be in another process."""
        unknown = sorted(target.keys() - {"kind", "name", "arguments"})
        if unknown:
            raise InvalidArgument(
                f"target: a function target has no field '{unknown[0][:64]}'; it has name and arguments"
            )
        name = target.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidArgument(
                "target: a function target needs a name, such as {'kind': 'function', 'name': 'digest'}"
            )
        if not isinstance(target.get("arguments", False), bool):
            raise InvalidArgument("target: arguments: write true to pass the payload as arguments, or false")

    async def start(self, run: Launch) -> Outcome:
        """Call the function and return its outcome."""
        name = run.target.get("name")
        try:
            function, awaited, takes_run = self._functions[name]  # type: ignore[index]
        except (KeyError, TypeError):
            return self._not_registered(name)
        if run.target.get("arguments") is True:
            try:
                function, takes_run = _bind_arguments(function, run), False
            except TypeError as error:
                reason = f"the payload does not have the arguments of the function '{name}': {error}"
                return Failed(truncate(reason), permanent=True, reason="arguments")
        try:
            value = await self._call(RegisteredFunction(function, awaited, takes_run), run)
        except Permanent as error:
            return Failed(error_text(error), permanent=True, reason="permanent")
        except asyncio.CancelledError:
            raise  # the caller knows whether it has stopped this attempt
        except BaseException as error:
            return _failure(run, name, error)
        return _DONE if value is None else _outcome(value)

    async def precheck(self, run: Launch, precheck: Mapping[str, Json]) -> PrecheckResult:
        """Call the function of a precheck and return the result."""
        name = precheck.get("name")
        found = self._functions.get(name) if isinstance(name, str) else None
        if found is None:
            return self._not_registered(name)
        return await self._check(run, str(name), found, result_of_value)

    async def verify(self, run: VerifyLaunch, verify: Mapping[str, Json]) -> Verdict | Failed:
        """Call the function of a verification and return its verdict. It gets `output` and `evidence` too."""
        name = verify.get("name")
        found = self._functions.get(name) if isinstance(name, str) else None
        if found is None:
            return self._not_registered(name)
        given = {each: getattr(run, each) for each in _OF_VERIFY if each in _parameters(found.function)}
        if given:
            found = found._replace(function=partial(found.function, **given))
        return await self._check(run, str(name), found, verdict_of_value)

    async def _check(
        self, run: Launch, name: str, found: RegisteredFunction, read: Callable[[object], _T]
    ) -> _T | Failed:
        """Call the function of a precheck or verification, and read what it returns."""
        try:
            return read(await self._call(found, run))
        except Permanent as error:
            return Failed(error_text(error), permanent=True)
        except BaseException as error:  # a caller that cancels this does not read the result
            return _failure(run, name, error)

    async def _call(self, found: RegisteredFunction, run: Launch) -> object:
        function, awaited, takes_run = found
        if not awaited:
            return await self._in_thread(function, takes_run, run)
        if self.context is not None:
            return await await_in_context(partial(function, run) if takes_run else function, self.context)
        return await (function(run) if takes_run else function())

    async def _in_thread(self, function: Function, takes_run: bool, run: Launch) -> object:
        if self._threads is None:
            self._threads = Threads(self.max_threads)

        def warn_abandoned() -> None:
            log.warning(
                "function.abandoned",
                **run.log_fields,
                function=run.target.get("name"),
                reason="it was stopped or timed out, but a thread cannot be stopped: it runs on",
            )

        call: Callable[[], object] = partial(function, run) if takes_run else function
        if self.context is not None:
            call = partial(call_in_context, call, self.context)
        return await self._threads.run(call, warn_abandoned)

    def _not_registered(self, name: object) -> Failed:
        known = ", ".join(sorted(self._functions)[:20]) or "none"
        return Failed(
            truncate(f"no function '{name}' is registered in this process; known: {known}"),
            reason="not_registered",
            counted=False,
        )


def call_in_context(call: Callable[[], object], context: Callable[[], Any]) -> object:
    """Call a function of a user in its context."""
    with context():
        return call()


async def await_in_context(call: Callable[[], Any], context: Callable[[], Any]) -> object:
    """Await a coroutine function of a user in its context."""
    entered = context()
    if hasattr(entered, "__aenter__"):
        async with entered:
            return await call()
    with entered:
        return await call()


def _outcome(value: object) -> Outcome:
    if isinstance(value, str):
        return Succeeded(truncate(value))
    if isinstance(value, Succeeded | Failed | AwaitingCallback | Skipped):
        return _check_outcome(value)
    try:
        return Succeeded(truncate(json.dumps(value, ensure_ascii=False, separators=(",", ":"))))
    except (TypeError, ValueError, RecursionError):
        return Succeeded(truncate(_repr(value)))


def _check_outcome(outcome: Succeeded | Failed | AwaitingCallback | Skipped) -> Outcome:
    """Return an outcome of user code with texts that can be stored; a failure if its values are not valid.

    An outcome that cannot be written would never end its run.
    """
    texts: dict[str, Any] = {}
    for name, value in outcome._asdict().items():
        expected, limit = _FIELDS[name]
        if value is None and outcome._field_defaults.get(name, "") is None:
            continue
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            return Failed(f"its outcome is not valid: {name} is a value of the type {type(value).__name__}")
        if isinstance(value, int) and not 0 <= value <= limit:
            return Failed(f"its outcome is not valid: {name} is out of range")
        if isinstance(value, str):
            if name in ("usage", "evidence") and len(value) > limit:  # a part of it would not be JSON
                return Failed(f"its outcome is not valid: {name} is longer than {limit} characters")
            texts[name] = truncate(value, limit)
    return outcome._replace(**texts)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except BaseException as error:
        return f"<{type(value).__name__} that cannot be printed: {type(error).__name__}>"


def _failure(run: Launch, name: object, error: BaseException) -> Failed:
    if isinstance(error, NoThread):
        return function_not_started(error)
    log.warning("function.failed", **run.log_fields, function=name, exc_info=error)
    return Failed(error_text(error))


def function_not_started(error: NoThread) -> Failed:
    """Return the failure of a run whose function was not called: it does not count as an attempt."""
    return Failed(error.message, reason="not_started", counted=False)


def error_text(error: BaseException) -> str:
    """Return the error of a run for an exception that user code raised. `Permanent` has the whole message.

    >>> error_text(ValueError("no such customer")), error_text(TimeoutError())
    ('ValueError: no such customer', 'TimeoutError')
    >>> error_text(Permanent("no such customer")), error_text(Permanent(KeyError("customer")))
    ('no such customer', "Permanent: 'customer'")
    """
    message = getattr(error, "message", None)  # a subclass may have something else, or nothing
    if isinstance(error, Permanent) and isinstance(message, str):
        return truncate(message)
    try:
        text = str(error)
    except BaseException:
        text = ""
    return truncate(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def is_awaited(function: Function) -> bool:
    """Return whether it is an `async def`, or an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


def _bind_arguments(function: Function, run: Launch) -> Function:
    """Return the function with the members of the payload as arguments, and `run` if it takes one."""
    given = run.payload
    if given is not None and not isinstance(given, dict):
        raise TypeError("the payload is not an object")
    arguments: dict[str, object] = {**(given or {})}
    if "run" in _parameters(function):
        arguments["run"] = run
    inspect.signature(function).bind(**arguments)
    return partial(function, **arguments)


def takes_run_parameter(name: str, function: Function, *, only_run: bool = True) -> bool:
    """Return whether it takes the run. Raises InvalidArgument if it needs more and `only_run` is set."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(
            f"function '{name}' is a generator (it has a `yield`), so a call does nothing; return instead"
        )
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return True  # a function in C may have no signature; pass the run
    parameters = [each for each in parameters if each.name not in _OF_VERIFY]
    needed = [each for each in parameters if each.default is each.empty]
    positional = [each for each in needed if each.kind in _POSITIONAL]
    keywords = [each.name for each in needed if each.kind is each.KEYWORD_ONLY]
    if only_run and (len(positional) > 1 or keywords):
        names = ", ".join([each.name for each in positional[1:]] + keywords)
        raise InvalidArgument(
            f"function '{name}' needs {names} besides the run; write it as `async def {name}(run)`, "
            "and put the values into the payload"
        )
    if positional:
        return True
    return any(each.kind is each.VAR_POSITIONAL or each.name == "run" for each in parameters)


def _parameters(function: Function) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
