"""The tasks whose results are awaited, and when to ask for each of them next. Pure: the caller has the clock.

A task is asked for after a tenth of the time for which it has been awaited, within bounds. So the result of a
short task is found at once, and many long tasks cost little.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

#: Seconds between two looks at a task, at the least and at the most.
SHORTEST_S: Final = 0.1
LONGEST_S: Final = 5.0
_SHARE: Final = 0.1


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

    def asked(self, task_id: str, now: float, fingerprint: object) -> Sighting | None:
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
