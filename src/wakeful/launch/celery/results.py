"""The tasks whose results are awaited, and what the state of a task means for its run. Pure.

A task is asked for after a tenth of the time for which it has been awaited, within bounds. So the result of a
short task is found at once, and many long tasks cost little. The caller has the clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from wakeful.launch.broker import Report
from wakeful.launch.function import error_text

#: The task was revoked, or expired before a worker started it.
REVOKED: Final = "revoked"
#: The state of a task whose result cannot be read.
UNREADABLE: Final = "UNREADABLE"
_LOST: Final = frozenset({"WorkerLostError"})
#: How much of the end of a traceback is kept.
_TRACEBACK: Final = 2_000
#: Seconds between two looks at a task, at the least and at the most.
SHORTEST_S: Final = 0.1
LONGEST_S: Final = 5.0
_SHARE: Final = 0.1


class TaskState(NamedTuple):
    """A task as its result backend has it."""

    #: `status`, `result` and `traceback`, as the backend decodes them
    meta: Mapping[str, Any]
    #: equal if nothing has changed
    fingerprint: object


def task_report(run_id: str, attempt: int, meta: Mapping[str, Any]) -> Report:
    """Return what the state of a task reports about its run.

    >>> task_report("r1", 1, {"status": "SUCCESS", "result": {"sum": 3}}).output
    '{"sum":3}'
    >>> failed = {"status": "FAILURE", "result": {"exc_type": "ValueError", "exc_message": ["no such user"]}}
    >>> task_report("r1", 1, failed).error
    'ValueError: no such user'
    >>> task_report("r1", 1, {"status": "STARTED"}).status
    'running'
    """
    try:
        return _read_state(run_id, attempt, meta)
    except Exception as error:  # of an object that the serializer of the app has made
        return _read_state(run_id, attempt, {"status": UNREADABLE, "result": error_text(error)})


def _read_state(run_id: str, attempt: int, meta: Mapping[str, Any]) -> Report:
    status, result = meta.get("status"), meta.get("result")
    if status == "SUCCESS":
        return Report(run_id, attempt, "succeeded", output=_output(result))
    if status == "FAILURE":
        kind, message = _exception(result)
        traceback = meta.get("traceback")
        return Report(
            run_id,
            attempt,
            "failed",
            output=traceback[-_TRACEBACK:] if isinstance(traceback, str) else None,
            error=": ".join(filter(None, (kind, message))) or "the task failed",
            permanent=kind == "Permanent",
            reason="lost" if kind in _LOST else None,
        )
    if status == UNREADABLE:  # it may have succeeded: it is not executed again
        error = f"the result of the task cannot be read: {result}; let the Celery app accept its content"
        return Report(run_id, attempt, "failed", error=error, permanent=True, reason="bad_response")
    if status == "REVOKED":
        _, message = _exception(result)
        why = f" ({message})" if message and message != REVOKED else ""
        return Report(
            run_id, attempt, "failed", error=f"the task was revoked{why}", permanent=True, reason=REVOKED
        )
    return Report(run_id, attempt, "running")


def _output(result: object) -> str | None:
    if result is None or isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # a serializer other than JSON
        return repr(result)


def _exception(result: object) -> tuple[str, str]:
    """Return the type and the message of an exception, as text."""
    if isinstance(result, BaseException):
        return type(result).__name__, str(result)
    if not isinstance(result, Mapping):
        return "", "" if result is None else str(result)
    message = result.get("exc_message")
    parts = message if isinstance(message, list | tuple) else [message]
    return str(result.get("exc_type") or ""), " ".join(str(each) for each in parts if each not in (None, ""))


class Awaited(NamedTuple):
    """A task whose run awaits its result."""

    run_id: str
    attempt: int
    task_id: str


class Sighting(NamedTuple):
    """What asking for a task found."""

    #: whether its state differs from that of the last look
    changed: bool
    #: whether this process sent it
    own: bool


class _Watched:
    __slots__ = ("awaited", "due", "fingerprint", "own", "since")

    def __init__(self, awaited: Awaited, now: float, own: bool) -> None:
        self.awaited = awaited
        self.since = now
        self.due = now + SHORTEST_S
        self.own = own
        #: of the state that was seen last
        self.fingerprint: object = None


class Tracker:
    """The awaited tasks by their id.

    >>> tracker = Tracker()
    >>> tracker.add(Awaited("r1", 1, "key-1"), now=100.0, own=True)
    >>> tracker.due(100.0), tracker.due(100.2)
    ([], [Awaited(run_id='r1', attempt=1, task_id='key-1')])
    >>> tracker.next_due()
    100.1
    """

    def __init__(self) -> None:
        self._tasks: dict[str, _Watched] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, awaited: Awaited, now: float, *, own: bool) -> None:
        """Await a task, which this process sent (`own`) or another one."""
        known = self._tasks.get(awaited.task_id)
        if known is None:
            self._tasks[awaited.task_id] = _Watched(awaited, now, own)
        else:
            known.own = known.own or own

    def drop(self, task_id: str) -> None:
        """Await a task no longer."""
        self._tasks.pop(task_id, None)

    def of_run(self, run_id: str) -> list[Awaited]:
        """Return the awaited tasks of a run."""
        return [each.awaited for each in self._tasks.values() if each.awaited.run_id == run_id]

    def due(self, now: float) -> list[Awaited]:
        """Return the tasks that are to be asked for now, those that wait longest first."""
        found = sorted((each for each in self._tasks.values() if each.due <= now), key=lambda each: each.due)
        return [each.awaited for each in found]

    def next_due(self) -> float | None:
        """Return when the next task is to be asked for; None: no task is awaited."""
        return min((each.due for each in self._tasks.values()), default=None)

    def record_query(self, task_id: str, now: float, fingerprint: object) -> Sighting | None:
        """Record that a task was asked for. None: it is no longer awaited."""
        watched = self._tasks.get(task_id)
        if watched is None:
            return None
        watched.due = now + min(max(_SHARE * (now - watched.since), SHORTEST_S), LONGEST_S)
        changed = fingerprint != watched.fingerprint
        watched.fingerprint = fingerprint
        return Sighting(changed, watched.own)

    def postpone(self, task_id: str, until: float) -> None:
        """Ask for a task again then."""
        if task_id in self._tasks:
            self._tasks[task_id].due = until

    def forget_state(self, task_id: str) -> None:
        """Have the next look at a task find its state changed: it was not reported."""
        if task_id in self._tasks:
            self._tasks[task_id].fingerprint = object()

    def missing(self, awaiting: Iterable[str], before: float) -> list[Awaited]:
        """Return the tasks that were added before then, and are not among these task ids."""
        known = set(awaiting)
        return [
            each.awaited
            for task_id, each in self._tasks.items()
            if task_id not in known and each.since <= before
        ]
