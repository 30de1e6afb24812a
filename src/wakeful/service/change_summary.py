"""Summaries of changes: what a coalesced event contains, read from the changelog, and the figures with it.

A summary is bounded: counts, and at most `LISTED` ids of each kind. A longer list is cut, and its name is in
`many`: any thing of that kind may have changed. Figures of workspaces and agents are shared by all that show
them and read about once a second.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from wakeful.engine.rescuer import LEASE_MS
from wakeful.model.codec import JsonObject
from wakeful.run.run import RunState
from wakeful.service.row_codec import instant
from wakeful.store.changelog import INSTANCE, SUGGESTION, WAITING, ChangeRow
from wakeful.store.port import Store
from wakeful.store.stats import LiveFigures

#: How many ids of each kind a summary lists, and where its counts of runs end.
LISTED: Final = 500
COUNTED: Final = 100_000
_FINAL: Final = frozenset(state.value for state in RunState if state.terminal)
#: The figures of an event, and the fields of `LiveFigures`.
FIGURES: Final = {
    "running": "running",
    "pending": "pending",
    "retrying": "retrying",
    "deadLetters": "dead_letters",
    "openIncidents": "open_incidents",
    "acknowledgedIncidents": "acknowledged_incidents",
    "inbox": "inbox",
    "workers": "workers",
    "nextTickMs": "next_tick_ms",
}

#: What began to wait and is in the log as a job, a suggestion or an incident too.
_WITH_OTHERS: Final = frozenset(WAITING.values()) - {WAITING["verification"]}

#: How many runs are read at once.
_RUNS: Final = 1_000

#: How long figures are used, in seconds.
KEPT_S: Final = 0.9
#: Reading figures takes at most this part of the time of the process; with many scopes they are used longer.
_SHARE: Final = 1 / 20
#: After so many seconds without use, figures are dropped.
_UNUSED_S: Final = 60.0


class Change(NamedTuple):
    """One change of a run, a job, an incident or a suggestion."""

    #: `run.started`, `run.finished`, `signal.emitted`, `job.changed`, `suggestion.changed` or one of the
    #: incident events
    kind: str
    workspace: str
    agent: str
    #: the id of the run, the job, the incident, the suggestion or the instance
    id: str
    job_id: str | None
    #: the state of a run when the change is read
    state: str = ""


class Scope(NamedTuple):
    """A workspace, or one of its agents."""

    workspace: str
    #: None: all agents
    agent: str | None

    def includes(self, change: Change) -> bool:
        """Return whether the change is of this workspace and agent."""
        return change.workspace == self.workspace and (self.agent is None or change.agent == self.agent)


class ChangeSummary:
    """Collects the changes of one workspace or agent."""

    __slots__ = (
        "_agents",
        "_finished",
        "_incidents",
        "_jobs",
        "_kinds",
        "_many",
        "_runs",
        "_started",
        "_suggestions",
    )

    def __init__(self) -> None:
        self._started: set[str] = set()
        self._finished: dict[str, str] = {}
        self._jobs: dict[str, None] = {}
        self._agents: dict[str, None] = {}
        self._runs: dict[str, None] = {}
        self._incidents: dict[str, None] = {}
        self._suggestions: dict[str, None] = {}
        self._kinds: set[str] = set()
        self._many: set[str] = set()

    def __bool__(self) -> bool:
        """Return whether anything changed."""
        return bool(self._kinds)

    def add(self, change: Change) -> None:
        """Add a change. A run counts once as started, and once in its final state."""
        self._note("agents", self._agents, change.agent)
        if change.job_id is not None:
            self._note("jobs", self._jobs, change.job_id)
        if change.kind == "job.changed":
            self._kinds.add("jobs")
        elif change.kind.startswith("incident."):
            self._kinds.add("incidents")
            self._note("incidents", self._incidents, change.id)
        elif change.kind == WAITING["verification"]:
            self._kinds.add("inbox")
        elif change.kind == SUGGESTION:
            self._kinds.add("suggestions")
            self._note("suggestions", self._suggestions, change.id)
        elif change.kind == INSTANCE:
            self._kinds.add("instances")
        else:
            self._kinds.add("runs")
            self._note("runs", self._runs, change.id)
            if change.kind == "run.started" and len(self._started) < COUNTED:
                self._started.add(change.id)
            elif change.kind == "run.finished" and change.state in _FINAL and len(self._finished) < COUNTED:
                self._finished[change.id] = change.state

    def _note(self, name: str, noted: dict[str, None], item: str) -> None:
        if item in noted:
            return
        if len(noted) < LISTED:
            noted[item] = None
        else:
            self._many.add(name)

    def to_json(self) -> JsonObject:
        """Return the fields of the event that describe the changes."""
        finished = Counter(self._finished.values())
        return {
            "runs": {"started": len(self._started), "finished": dict(sorted(finished.items()))},
            "changed": {
                "jobs": list(self._jobs),
                "agents": list(self._agents),
                "runs": list(self._runs),
                "incidents": list(self._incidents),
                "suggestions": list(self._suggestions),
            },
            "many": [*sorted(self._many)],
            "kinds": [*sorted(self._kinds)],
        }


def by_scope(changes: Iterable[Change], scopes: Iterable[Scope]) -> dict[Scope, list[Change]]:
    """Return the changes in each of these scopes. The time does not depend on the number of scopes.

    >>> run = Change("run.started", "acme", "ops", "r1", None)
    >>> [len(found) for found in by_scope([run], [Scope("acme", None), Scope("acme", "tidy")]).values()]
    [1, 0]
    """
    found: dict[Scope, list[Change]] = {scope: [] for scope in scopes}
    for change in changes:
        for agent in (None, change.agent):
            in_scope = found.get(Scope(change.workspace, agent))
            if in_scope is not None:
                in_scope.append(change)
    return found


def summarize(changes: Iterable[Change], scope: Scope) -> ChangeSummary:
    """Return the summary of the changes in this scope."""
    summary = ChangeSummary()
    for change in changes:
        if scope.includes(change):
            summary.add(change)
    return summary


def figures_to_json(figures: LiveFigures) -> JsonObject:
    """Return the figures, and in `more` the names of those whose real value may be higher."""
    return {
        "figures": {name: getattr(figures, field) for name, field in FIGURES.items()},
        "more": [name for name, field in FIGURES.items() if field in figures.more],
    }


def event_json(
    seq: int, scope: Scope, now_ms: int, summary: ChangeSummary, figures: LiveFigures
) -> JsonObject:
    """Return the data of a coalesced event."""
    return {
        "seq": seq,
        "type": "changes",
        "at": instant(now_ms),
        "nowMs": now_ms,
        "workspace": scope.workspace,
        "agentId": scope.agent,
        **summary.to_json(),
        **figures_to_json(figures),
    }


async def read_changes(
    store: Store, rows: Sequence[ChangeRow], after: int, until: int | None = None
) -> list[Change]:
    """Return the changes in these rows after a number, up to another one. Deleted runs are left out."""
    run_ids: dict[str, None] = {}
    incident_ids: dict[str, None] = {}
    suggestion_ids: dict[str, None] = {}
    instance_ids: dict[str, None] = {}
    for row in rows:
        if row.kind.startswith("incident."):
            incident_ids.update(dict.fromkeys(row.items))
        elif row.kind == SUGGESTION:
            suggestion_ids.update(dict.fromkeys(row.items))
        elif row.kind == INSTANCE:
            instance_ids.update(dict.fromkeys(row.items))
        elif row.kind != "job.changed" and row.kind not in _WITH_OTHERS:
            run_ids.update(dict.fromkeys(row.items))
    ids = list(run_ids)
    runs = {
        run.id: run
        for start in range(0, len(ids), _RUNS)
        for run in await store.run_changes(ids[start : start + _RUNS])
    }
    incidents = {each.id: each for each in await store.incidents_by_ids(list(incident_ids))}
    suggestions = {each.id: each for each in await store.suggestions_by_ids(list(suggestion_ids))}
    views = await store.instances_by_ids(list(instance_ids)) if instance_ids else ()
    instances = {view.row.id: view.row for view in views}
    changes: list[Change] = []
    for row in rows:
        kind = row.kind
        items = [
            item
            for seq, item in enumerate(row.items, row.first)
            if seq > after and (until is None or seq <= until)
        ]
        if kind in _WITH_OTHERS:
            continue
        if kind == "job.changed":
            changes += [
                Change(kind, job.workspace, job.agent, job.id, job.id)
                for job in row._replace(items=tuple(items)).jobs()
            ]
        elif kind.startswith("incident."):
            changes += [
                Change(kind, each.workspace, each.agent, each.id, each.job_id)
                for each in filter(None, map(incidents.get, items))
            ]
        elif kind == SUGGESTION:
            changes += [
                Change(kind, each.workspace, each.agent, each.id, each.job_id)
                for each in filter(None, map(suggestions.get, items))
            ]
        elif kind == INSTANCE:
            changes += [
                Change(kind, each.workspace, each.agent, each.id, None)
                for each in filter(None, map(instances.get, items))
            ]
        else:
            changes += [
                Change(kind, run.workspace, run.agent, run.id, run.job_id, run.state)
                for run in filter(None, map(runs.get, items))
            ]
        await asyncio.sleep(0)  # a row has up to a thousand changes
    return changes


class _Kept:
    """The figures of a scope."""

    def __init__(self) -> None:
        self.value: LiveFigures | None = None
        self.read_at = 0.0
        #: how long the last read took, in seconds
        self.took_s = 0.0
        self.lock = asyncio.Lock()


class FigureCache:
    """Reads figures, and keeps them for a short time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[Scope, _Kept] = {}

    async def get(self, scope: Scope) -> LiveFigures:
        """Return the figures of a scope."""
        kept = self._kept.setdefault(scope, _Kept())
        async with kept.lock:
            longest = max(KEPT_S, sum(each.took_s for each in self._kept.values()) / _SHARE)
            if kept.value is not None and time.monotonic() - kept.read_at < longest:
                return kept.value
            began = time.monotonic()
            kept.value = await self._store.live_figures(*scope, self._store.clock.now_ms() - LEASE_MS)
            kept.read_at = time.monotonic()
            kept.took_s = kept.read_at - began
            self._drop_unused(kept.read_at - max(_UNUSED_S, 2 * longest))
            return kept.value

    def _drop_unused(self, before: float) -> None:
        for scope, kept in list(self._kept.items()):
            if kept.read_at < before and not kept.lock.locked():
                del self._kept[scope]
