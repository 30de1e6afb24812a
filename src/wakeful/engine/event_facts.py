"""The facts of the changelog that are MCP events.

A fact is read some time after its change. What an event says is what its run, incident or job says then.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from wakeful.job.self_scheduling import APPROVAL
from wakeful.job.start_rules import BudgetBlock
from wakeful.run.incidents import Incident
from wakeful.run.usage import utc_day
from wakeful.signal.event_catalog import EVENTS, is_event_job
from wakeful.signal.mcp_events import MAX_MESSAGE, McpEvent, event_id
from wakeful.store.changelog import BUDGET_EXHAUSTED, FINISHED, VERIFICATION_REQUESTED, ChangeRow, block_id
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, RunView
from wakeful.values.instants import iso_utc
from wakeful.values.json_value import Json, compact

_INCIDENTS: Final = ("incident.opened", "incident.recovered")
_EMITTED: Final = "signal.emitted"
_OF_RUNS: Final = (FINISHED, _EMITTED, VERIFICATION_REQUESTED)
#: What is left out of an event that would be too large.
_LARGE: Final = ("data", "output", "error")
#: About how many changes are read at once.
_CHANGES: Final = 1_000


class Fact(NamedTuple):
    """Something that happened."""

    #: its number in the changelog
    seq: int
    name: str
    at_ms: int
    workspace: str
    #: what happened to what: with the number and the name it is the id of the event
    key: str
    data: Mapping[str, Json]

    def to_event(self) -> McpEvent:
        """Return the event, without its large texts if it would be too large."""
        at, data = iso_utc(self.at_ms), dict(self.data)
        if len(compact(data).encode("utf-8", "replace")) > MAX_MESSAGE - 2_048:
            data = {**{name: data[name] for name in data if name not in _LARGE}, "truncated": True}
        return McpEvent(event_id(self.name, self.key, self.seq), self.name, at, data, str(self.seq))


def first_rows(rows: Sequence[ChangeRow], names: Container[str]) -> Sequence[ChangeRow]:
    """Return the first of these rows: at least one, and not many changes that are events of these names.

    Each of them is read, and may have a long output.
    """
    count = 0
    for number, row in enumerate(rows):
        count += len(row.items) if _is_relevant(row, names) else 0
        if number and count > _CHANGES:
            return rows[:number]
    return rows


def _is_relevant(row: ChangeRow, names: Container[str]) -> bool:
    return row.kind in names or (row.kind == "job.changed" and "approval.requested" in names)


async def read_facts(
    store: Store, rows: Sequence[ChangeRow], after: int, names: Container[str] = EVENTS
) -> list[Fact]:
    """Return the facts of these rows with a number above `after`, in order, of events of these names."""
    rows = [row for row in rows if _is_relevant(row, names)]
    runs = {run.id: run for run in await store.runs_by_ids(_items(rows, _OF_RUNS))}
    incidents = {each.id: each for each in await store.incidents_by_ids(_items(rows, _INCIDENTS))}
    changed = [job.id for row in rows if row.kind == "job.changed" for job in row.jobs()]
    jobs = {job.id: job for job in await store.jobs_by_ids(changed)} if changed else {}
    ran = sorted({run.job_id for run in runs.values() if run.job_id is not None})
    labels = await store.job_labels(ran) if ran else {}
    days = {utc_day(row.at_ms) for row in rows if row.kind == BUDGET_EXHAUSTED}
    blocks = {block_id(*block[:5]): block for day in days for block in await store.budget_blocks(day)}
    facts = (fact for row in rows for fact in _facts(row, runs, incidents, jobs, blocks, labels))
    return [fact for fact in facts if fact.seq > after and fact.name in names]


def _items(rows: Sequence[ChangeRow], kinds: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(item for row in rows if row.kind in kinds for item in row.items))


def _facts(
    row: ChangeRow,
    runs: Mapping[str, RunView],
    incidents: Mapping[str, Incident],
    jobs: Mapping[str, JobRow],
    blocks: Mapping[str, BudgetBlock],
    labels: Mapping[str, str],
) -> Iterator[Fact]:
    for seq, item in enumerate(row.items, row.first):
        run, incident, block = runs.get(item), incidents.get(item), blocks.get(item)
        if row.kind == "job.changed":
            yield from _job_facts(seq, row.at_ms, item, jobs)
        elif block is not None:
            whose: dict[str, Json] = {"agent": block.agent or None, "jobId": block.job or None}
            data = {**whose, "cap": block.cap, "most": block.most}
            yield Fact(seq, row.kind, row.at_ms, block.workspace, item, data)
        elif row.kind in _INCIDENTS and incident is not None:
            yield Fact(seq, row.kind, row.at_ms, incident.workspace, item, _incident_data(incident))
        elif row.kind in _OF_RUNS and run is not None and not is_event_job(run.job_name):
            about = _run_data(run, labels.get(run.job_id or "", "{}"))
            if row.kind != _EMITTED:
                yield Fact(seq, row.kind, row.at_ms, run.workspace, item, about)
                continue
            for number, signal in enumerate(json.loads(run.emitted or "[]")):
                sent = {"type": signal.get("type"), "data": signal.get("data"), "id": signal.get("id")}
                sender = {name: about[name] for name in ("agent", "job", "runId")}
                data = {**sent, **sender, "instance": run.instance}
                yield Fact(seq, _EMITTED, row.at_ms, run.workspace, f"{item}:{number}", data)


def _job_facts(seq: int, at_ms: int, item: str, jobs: Mapping[str, JobRow]) -> Iterator[Fact]:
    job_id, workspace, agent, name = item.split("\t", 3)
    if is_event_job(name):
        return
    job = jobs.get(job_id)
    data: dict[str, Json] = {"jobId": job_id, "job": name, "agent": agent}
    yield Fact(seq, "job.changed", at_ms, workspace, job_id, {**data, "deleted": job is None})
    if job is not None and job.disabled_reason == APPROVAL:
        yield Fact(seq, "approval.requested", at_ms, workspace, job_id, data)


def _run_data(run: RunView, labels: str) -> dict[str, Json]:
    return {
        "runId": run.id,
        "job": run.job_name,
        "agent": run.agent,
        "state": run.state,
        "reason": run.reason,
        "trigger": run.trigger,
        "scheduledAt": iso_utc(run.scheduled_ms),
        "finishedAt": None if run.finished_ms is None else iso_utc(run.finished_ms),
        "output": run.output,
        "error": run.error,
        "labels": json.loads(labels),
    }


def _incident_data(incident: Incident) -> dict[str, Json]:
    return {
        "incidentId": incident.id,
        "job": incident.job_name,
        "agent": incident.agent,
        "cause": incident.cause,
        "error": incident.error,
        "state": incident.state,
        "failedRuns": incident.failed_runs,
        "openedAt": iso_utc(incident.opened_ms),
        "runId": incident.last_run_id,
    }
