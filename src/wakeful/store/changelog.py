"""What a store tells whoever watches: what has changed, how much there is, and how late it was.

**Changes** are a log, a row for each kind of thing that a transaction changed, written in that transaction.
Each change has a number; numbers begin at 1, have no gap, and a smaller one is never seen after a larger one
was: whoever remembers the last number it saw and asks for what came after it misses nothing and sees nothing
twice. Old rows are pruned; who asks for what is gone sees it by the first number that comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from wakeful.store.rows import JobRow, RunRow, RunView

Kind = Literal["run.started", "run.finished", "job.changed"]
#: So many changes share a row at most: a reader that takes a few rows takes a few thousand runs.
PAGE: Final = 1_000


class ChangedJob(NamedTuple):
    """A job that was made, changed or deleted: by name too, for its row may be gone."""

    id: str
    workspace: str
    agent: str
    name: str


class ChangeRow(NamedTuple):
    """Changes of one kind, made together. The numbers go up from `first`, in the order of what is named."""

    first: int
    kind: str
    at_ms: int
    #: ids of runs; of jobs, what `ChangedJob` holds, with tabs between
    items: tuple[str, ...]

    @property
    def last(self) -> int:
        """The number of its last change."""
        return self.first + len(self.items) - 1

    def jobs(self) -> list[ChangedJob]:
        """The jobs, where it is about jobs."""
        return [ChangedJob(*item.split("\t", 3)) for item in self.items]


class TransactionEvents:
    """What a transaction has to say if it commits: topics to whoever listens now, changes for the log."""

    __slots__ = ("_changes", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, None] = {}
        self._changes: dict[Kind, dict[str, None]] = {}

    def __call__(self, topic: str) -> None:
        """Announce this."""
        self.topics[topic] = None

    def started(self, run_ids: Iterable[str]) -> None:
        """These runs are running now."""
        self._note("run.started", run_ids)

    def ended(self, run_ids: Iterable[str]) -> None:
        """An attempt at each of these is over, and mostly the run with it; or it was cancelled."""
        self._note("run.finished", run_ids)

    def born(self, runs: Iterable[RunRow]) -> None:
        """These runs were written: some begin as running, and some are over from the start."""
        started, ended = [], []
        for run in runs:
            state = run[9]
            if state == "running":
                started.append(run[0])
            elif state != "pending" and state != "retrying":
                ended.append(run[0])
        self._note("run.started", started)
        self._note("run.finished", ended)

    def changed(self, jobs: Iterable[Iterable[str]]) -> None:
        """These jobs (id, workspace, agent, name) were made, changed or deleted."""
        self._note("job.changed", ["\t".join(job) for job in jobs])

    def _note(self, kind: Kind, items: Iterable[str]) -> None:
        noted = dict.fromkeys(items)
        if noted:
            self._changes.setdefault(kind, {}).update(noted)

    @property
    def any_ended(self) -> bool:
        """Whether any attempt or run is over."""
        return "run.finished" in self._changes

    def log(self) -> list[tuple[str, int, str]]:
        """The rows for the log: kind, how many, and what, a line each."""
        rows: list[tuple[str, int, str]] = []
        for kind, noted in self._changes.items():
            items = list(noted)
            for start in range(0, len(items), PAGE):
                page = items[start : start + PAGE]
                rows.append((kind, len(page), "\n".join(page)))
        return rows


class WorkspaceStats(NamedTuple):
    """How much there is in a workspace."""

    active_jobs: int
    paused_jobs: int
    #: how many runs are pending, retrying and running; none where there is none
    live: dict[str, int]
    #: the next tick of all its jobs
    next_ms: int | None
    #: how many executors hold its runs
    executors: int = 0


class RecentRun(NamedTuple):
    """What is measured of a run."""

    state: str
    trigger: str
    attempt: int
    fire_ms: int
    started_ms: int | None


class Backlog(NamedTuple):
    """What waits, in all workspaces together."""

    dead_letters: int
    #: by lane, how many runs are due and not yet taken
    due: dict[str, int]


class ChangelogStore(Protocol):
    """The part of a store that only looks on."""

    #: which database it is: `sqlite` or `postgresql`
    kind: str
    #: whether `listen` also reports the changes of other processes on the same database
    notifies_other_processes: bool

    async def changes(self, after: int, limit: int = 20) -> list[ChangeRow]:
        """The rows of the log that hold a number above `after`, in order, at most `limit` of them.

        The first may begin before it. One that begins later than `after + 1`: what was between is pruned.
        None: nothing has happened since, or `after` is no number of this log.
        """
        ...

    async def last_change(self) -> int:
        """The number of the newest change; 0: there was none yet."""
        ...

    async def prune_changes(self, before_ms: int, limit: int) -> int:
        """Delete up to `limit` rows of the log that are older, but never the newest. Returns how many."""
        ...

    async def runs_by_ids(self, ids: Sequence[str]) -> list[RunView]:
        """Those of these runs that there are, in any order."""
        ...

    async def jobs_by_ids(self, ids: Sequence[str]) -> list[JobRow]:
        """Those of these jobs that there are and that are not deleted, in any order."""
        ...

    async def census(self, workspace: str) -> WorkspaceStats:
        """How much there is in a workspace."""
        ...

    async def recent_runs(self, workspace: str, since_ms: int, limit: int) -> list[RecentRun]:
        """The newest runs of a workspace that were made since then."""
        ...

    async def backlog(self, now_ms: int) -> Backlog:
        """What waits."""
        ...

    async def workers(self, since_ms: int) -> list[str]:
        """The names of the workers that have beaten since then."""
        ...
