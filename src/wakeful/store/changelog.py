"""The changelog: which runs, jobs, incidents, suggestions and instances changed, in order.

A transaction writes one row for each kind of thing that it changed (more for large transactions). Each change
has a number. Numbers start at 1 and have no gaps, and a smaller one never becomes visible after a larger one.
So a reader that continues after the last number it saw misses nothing and sees nothing twice. Old rows are
pruned; a reader detects that by the first number it gets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import ismethod
from typing import Final, Literal, NamedTuple
from uuid import UUID
from weakref import WeakMethod

from wakeful.logs import get_logger
from wakeful.run.inbox import InboxKind
from wakeful.run.incidents import Incident, IncidentEvent
from wakeful.run.run import NewRun
from wakeful.store.audit import AuditEntry

WaitingKind = Literal["inbox.approval", "inbox.suggestion", "inbox.incident"]
Kind = (
    Literal["run.started", "run.finished", "run.retrying", "job.changed", "signal.emitted"]
    | Literal["suggestion.changed", "instance.changed", "verification.requested", "budget.exhausted"]
    | IncidentEvent
    | WaitingKind
)
#: The kind of rows of runs that are over.
FINISHED: Final = "run.finished"
#: The kind of rows of runs whose attempt ended and that start again. Readers get them as `FINISHED`.
RETRYING: Final = "run.retrying"
#: The kind of rows of suggestions.
SUGGESTION: Final = "suggestion.changed"
#: The kind of rows of instances that a person or a program added, paused, resumed, stopped or changed. What
#: their signals change is in the log as runs.
INSTANCE: Final = "instance.changed"
#: The kinds of rows of runs that wait for a person to verify them, and of caps that are reached (`block_id`).
#: The events of MCP have them; `inbox.item_added` says the former too.
VERIFICATION_REQUESTED: Final = "verification.requested"
BUDGET_EXHAUSTED: Final = "budget.exhausted"
#: The kinds of rows of what began to wait for a person (`wakeful.run.inbox`). Their items are ids of runs,
#: jobs, suggestions or incidents.
WAITING: Final[Mapping[InboxKind, Kind]] = {
    "verification": VERIFICATION_REQUESTED,
    "approval": "inbox.approval",
    "suggestion": "inbox.suggestion",
    "incident": "inbox.incident",
}
#: The topics for runs that may start: in workers, and in executors that claim them. Text order matters to
#: statements that return one of them: the first is the greater one.
RUNS: Final = "runs"
PULL_RUNS: Final = "pull_runs"
#: The maximum number of changes in a row, so that a reader of a few rows gets a few thousand changes.
PAGE: Final = 1_000

log = get_logger("wakeful.store")


class ChangedJob(NamedTuple):
    """A job that was created, changed or deleted; with its name, since its row may be gone."""

    id: str
    workspace: str
    agent: str
    name: str


class ChangeRow(NamedTuple):
    """Changes of one kind in one transaction, numbered from `first` in the order of `items`."""

    first: int
    kind: str
    at_ms: int
    #: ids of runs, incidents, suggestions or instances; for jobs, the fields of `ChangedJob` between tabs
    items: tuple[str, ...]

    @property
    def last(self) -> int:
        """The number of its last change."""
        return self.first + len(self.items) - 1

    def jobs(self) -> list[ChangedJob]:
        """Return the jobs of a row of the kind `job.changed`."""
        return [ChangedJob(*item.split("\t", 3)) for item in self.items]


class Listeners:
    """What is called with each topic that is published. A method is dropped with its object."""

    def __init__(self) -> None:
        self._found: list[Callable[[], Callable[[str], None] | None]] = []

    def add(self, listener: Callable[[str], None]) -> None:
        """Call this from now on."""
        alive = [found for found in self._found if found() is not None]
        self._found = [*alive, WeakMethod(listener) if ismethod(listener) else lambda: listener]

    def notify(self, topics: Iterable[str]) -> None:
        """Call each with each topic. An error of one is logged: the transaction is committed."""
        for topic in topics:
            for found in self._found:
                try:
                    if (listener := found()) is not None:
                        listener(topic)
                except Exception:
                    log.exception("store.notification_failed", topic=topic)


class TransactionEvents:
    """What a transaction publishes when it commits: topics for listeners, and changes for the changelog."""

    __slots__ = ("_changes", "_topics", "audit_heads", "cancelled", "entries", "exposed")

    def __init__(self) -> None:
        self._topics: dict[str, None] = {}
        #: how many runs of mailboxes the transaction exposed and did not take itself
        self.exposed = 0
        self._changes: dict[Kind, dict[str, None]] = {}
        #: cancelled runs: run, job, reason
        self.cancelled: list[tuple[str, str | None, str]] = []
        #: audit entries that are written with the changes, and by workspace the number and hash of the last
        self.entries: Sequence[AuditEntry] = ()
        self.audit_heads: Mapping[str, tuple[int, str]] = {}

    def publish(self, topic: str) -> None:
        """Publish this topic."""
        self._topics[topic] = None

    def publish_pending(self, runs: Iterable[NewRun]) -> None:
        """Publish that those of these runs that are pending wait: for a worker, or for an executor."""
        for topic in {PULL_RUNS if run.is_pull else RUNS for run in runs if run.state == "pending"}:
            self.publish(topic)

    @property
    def topics(self) -> list[str]:
        """The topics to publish."""
        return list(self._topics if self.exposed <= 0 else {**self._topics, "runs": None})

    def record_started(self, run_ids: Iterable[str]) -> None:
        """Record that these runs are running."""
        self._note("run.started", run_ids)

    def record_ended(self, run_ids: Iterable[str]) -> None:
        """Record that these runs are over. Each run is recorded once."""
        self._note(FINISHED, run_ids)

    def record_retried(self, run_ids: Iterable[str]) -> None:
        """Record that an attempt of each of these runs ended, and that the runs start again."""
        self._note(RETRYING, run_ids)

    def record_inserted(self, runs: Iterable[NewRun]) -> None:
        """Record that these runs were inserted; some are running or finished from the start."""
        started, ended = [], []
        for run in runs:
            state = run.state
            if state == "running":
                started.append(run.id)
            elif state != "pending" and state != "retrying":
                ended.append(run.id)
        self._note("run.started", started)
        self._note(FINISHED, ended)

    def record_changed_jobs(self, jobs: Iterable[Iterable[str]]) -> None:
        """Record that these jobs (id, workspace, agent, name) were created, changed or deleted."""
        self._note("job.changed", ["\t".join(job) for job in jobs])

    def record_suggestions(self, suggestion_ids: Iterable[str]) -> None:
        """Record that these suggestions were added or changed."""
        self._note(SUGGESTION, suggestion_ids)

    def record_instances(self, instance_ids: Iterable[str]) -> None:
        """Record that these instances were added or changed, other than by their signals."""
        self._note(INSTANCE, instance_ids)

    def record_waiting(self, kind: InboxKind, ids: Iterable[str]) -> None:
        """Record that these began to wait for a person: jobs, suggestions or incidents."""
        self._note(WAITING[kind], ids)

    def record_emitted(self, run_ids: Iterable[str]) -> None:
        """Record that signals of these runs went out (`RunView.emitted`)."""
        self._note("signal.emitted", run_ids)

    def record_fact(self, kind: Literal["verification.requested", "budget.exhausted"], item: str) -> None:
        """Record something else that happened."""
        self._note(kind, [item])

    def record_incident(self, incident: Incident, kinds: Iterable[IncidentEvent]) -> None:
        """Record what happened to this incident."""
        for kind in kinds:
            self._note(kind, [incident.id])
            if kind == "incident.opened":
                self.record_waiting("incident", [incident.id])

    def _note(self, kind: Kind, items: Iterable[str]) -> None:
        noted = dict.fromkeys(items)
        if noted:
            self._changes.setdefault(kind, {}).update(noted)

    @property
    def any_ended(self) -> bool:
        """Whether any attempt or run ended."""
        return FINISHED in self._changes or RETRYING in self._changes

    def log_cancelled(self) -> None:
        """Log the runs that were cancelled. Called after the commit."""
        for run_id, job_id, reason in self.cancelled:
            log.info("run.cancelled", run_id=run_id, job_id=job_id, reason=reason)

    def log(self) -> list[tuple[str, int, str]]:
        """Return the rows for the changelog: kind, count, and items, one per line."""
        rows: list[tuple[str, int, str]] = []
        for kind, noted in self._changes.items():
            items = list(noted)
            for start in range(0, len(items), PAGE):
                page = items[start : start + PAGE]
                rows.append((kind, len(page), "\n".join(page)))
        return rows


def block_id(day: int, workspace: str, agent: str, job: str, cap: str) -> str:
    """Return what names a reached cap in the changelog. It has the form of an id, as all items have."""
    names = "\n".join((str(day), workspace, agent, job, cap))
    return str(UUID(bytes=hashlib.sha256(names.encode()).digest()[:16]))


#: The topic that says that a claim is over begins so.
CLAIM_OVER: Final = "claim:"


def claim_topic(workspace: str, worker: str, claim_id: str) -> str:
    """Return the topic that says that a claim is over: its executor does not wait for it any more.

    >>> claim_topic("default", "laptop-1", "7")
    'claim:442ac55280a11c617d5c423f93733a2c'
    """
    names = "\n".join((workspace, worker, claim_id))
    return CLAIM_OVER + hashlib.sha256(names.encode()).hexdigest()[:32]
