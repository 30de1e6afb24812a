"""The handlers of a worker, by the names of jobs: how they are called, and what they return as a report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from wakeful.errors import AlreadyExists, Permanent
from wakeful.launch.function import (
    Function,
    RegisteredFunction,
    error_text,
    is_awaited,
    takes_run_parameter,
)
from wakeful.launch.port import MAX_OUTPUT, truncate
from wakeful.launch.user_code import NoThread, Threads, isolate
from wakeful.logs import get_logger
from wakeful.model import Run
from wakeful.values.json_value import Json

#: The most reports of one request, and the most bytes of their JSON: the server accepts 256 KB.
MAX_REPORTS: Final = 100
MAX_BYTES: Final = 200_000

log = get_logger("wakeful.remote")


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a run, for a handler that reports more than its output.

    >>> Result("sent", usage={"tokens": 512}, evidence={"external_id": "inv-17"}).error is None
    True
    """

    #: text, or a value that is stored as JSON; of 16 KB
    output: object = None
    #: what it used, such as tokens and cost
    usage: Mapping[str, object] | None = None
    #: what shows that the work was done, such as `external_id`
    evidence: Mapping[str, object] | None = None
    #: why it failed; None: it succeeded
    error: str | None = None
    #: of a failure: a retry cannot succeed
    permanent: bool = False
    #: of a failure: whether it counts as an attempt; False: the work was not started, and is tried again
    counted: bool = True


def result_of_value(value: object) -> Result:
    """Return the result for the return value of a handler.

    >>> result_of_value({"sent": 3}).output
    {'sent': 3}
    """
    return value if isinstance(value, Result) else Result(value)


def result_of_error(error: BaseException) -> Result:
    """Return the result for an exception of a handler.

    >>> result_of_error(ValueError("no such customer")).error
    'ValueError: no such customer'
    >>> left = result_of_error(Permanent("the customer has left"))
    >>> left.error, left.permanent
    ('the customer has left', True)
    """
    return Result(error=error_text(error), permanent=isinstance(error, Permanent))


def run_report(run_id: str, attempt: int, result: Result) -> dict[str, Json]:
    """Return the report of a run.

    >>> run_report("r1", 2, Result({"sent": 3}))
    {'id': 'r1', 'attempt': 2, 'status': 'succeeded', 'output': '{"sent":3}'}
    >>> run_report("r1", 2, Result(error="no", permanent=True))
    {'id': 'r1', 'attempt': 2, 'status': 'failed', 'error': 'no', 'permanent': True}
    """
    report: dict[str, Json] = {"id": run_id, "attempt": attempt, "status": "succeeded"}
    if result.output is not None:
        report["output"] = truncate(_text(result.output))
    if result.error is not None:
        report |= {"status": "failed", "error": truncate(result.error)}
        if result.permanent:
            report["permanent"] = True
        elif not result.counted:
            report["counted"] = False
    try:
        for name, value in (("usage", result.usage), ("evidence", result.evidence)):
            if value is not None:
                report[name] = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return unreportable(report, f"{name} is not JSON: {error}")
    return report


def unreportable(report: Mapping[str, Json], why: str) -> dict[str, Json]:
    """Return the report of a failure, in place of one that the server cannot accept.

    >>> unreportable(
    ...     {"id": "r1", "attempt": 2, "status": "succeeded", "evidence": {}}, "evidence: it is empty"
    ... )
    {'id': 'r1', 'attempt': 2, 'status': 'failed', 'error': 'its outcome was refused: evidence: it is empty'}
    """
    error = truncate(f"its outcome was refused: {why}")
    return {"id": report["id"], "attempt": report["attempt"], "status": "failed", "error": error}


def batches(reports: Iterable[dict[str, Json]]) -> Iterator[list[dict[str, Json]]]:
    """Split reports into requests that the server accepts.

    >>> [len(batch) for batch in batches([{"id": str(number)} for number in range(250)])]
    [100, 100, 50]
    """
    batch: list[dict[str, Json]] = []
    size = 0
    for report in reports:
        length = len(json.dumps(report))
        if batch and (len(batch) == MAX_REPORTS or size + length > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(report)
        size += length
    if batch:
        yield batch


def _text(output: object) -> str:
    """Return text as it is, another value as JSON or, if that cannot represent it, as `repr`."""
    if isinstance(output, str):
        return output[:MAX_OUTPUT]
    try:
        return json.dumps(output, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return repr(output)


class Handlers:
    """Functions by the names of jobs (`digest`, or `agent/digest`), and one for all other runs."""

    def __init__(self, threads: int) -> None:
        self._by_name: dict[str, RegisteredFunction] = {}
        self._default: RegisteredFunction | None = None
        self._max_threads = threads
        self._threads: Threads | None = None

    def add(self, name: str | None, function: Function) -> None:
        """Register the handler of a name; None: of all runs without one."""
        handler = RegisteredFunction(
            function, is_awaited(function), takes_run_parameter(name or "handler", function)
        )
        if name is None:
            if self._default is not None:
                raise AlreadyExists("there is a handler already; give this function the name of its job")
            self._default = handler
        elif name in self._by_name:
            raise AlreadyExists(f"there is a function '{name}' already; give this one another name")
        else:
            self._by_name[name] = handler

    async def call(self, run: Run) -> Result:
        """Call the handler of a run. An exception is its result; only a cancellation of the caller is raised.

        A handler that does not end within a few seconds after its cancellation is abandoned.
        """
        handler = self._find(run)
        if handler is None:
            known = ", ".join(sorted(self._by_name)[:20]) or "none"
            return Result(error=f"this worker has no function for '{run.job}'; known: {known}")
        results: list[Result] = []

        def warn_abandoned() -> None:
            log.warning("remote.abandoned", run_id=run.id, job=run.job, attempt=run.attempt)

        async def call() -> None:
            args = (run,) if handler.takes_run else ()
            if handler.awaited:
                value = await handler.function(*args)
            else:
                value = await self._in_thread(handler.function, args, warn_abandoned)
            results.append(result_of_value(value))

        try:
            await isolate(call, abandoned=warn_abandoned)
        except asyncio.CancelledError:
            if not results:  # else it has returned after its cancellation
                raise
        except BaseException as error:
            return self._failure(run, error)
        return results[0]

    def close(self) -> None:
        """Stop the idle threads."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def _find(self, run: Run) -> RegisteredFunction | None:
        own = self._by_name.get(f"{run.agent}/{run.job}") or self._by_name.get(run.job or "")
        return own or self._default

    async def _in_thread(
        self, function: Callable[..., object], args: tuple[Run, ...], abandoned: Callable[[], None]
    ) -> object:
        if self._threads is None:
            self._threads = Threads(self._max_threads)
        return await self._threads.run(lambda: function(*args), abandoned)

    @staticmethod
    def _failure(run: Run, error: BaseException) -> Result:
        if isinstance(error, NoThread):
            return Result(error=error.message, counted=False)
        log.warning("remote.handler_failed", run_id=run.id, job=run.job, attempt=run.attempt, exc_info=error)
        return result_of_error(error)
