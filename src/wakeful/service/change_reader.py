"""Reads which things changed from rows of the changelog: a few columns of each, in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from wakeful.service.change_summary import Change
from wakeful.store.changelog import SUGGESTION, ChangeRow
from wakeful.store.port import Store

#: How many runs are read at once.
_RUNS: Final = 1_000


async def read_changes(
    store: Store, rows: Sequence[ChangeRow], after: int, until: int | None = None
) -> list[Change]:
    """Return the changes in these rows after a number, up to another one. Deleted runs are left out."""
    run_ids: dict[str, None] = {}
    incident_ids: dict[str, None] = {}
    suggestion_ids: dict[str, None] = {}
    for row in rows:
        if row.kind.startswith("incident."):
            incident_ids.update(dict.fromkeys(row.items))
        elif row.kind == SUGGESTION:
            suggestion_ids.update(dict.fromkeys(row.items))
        elif row.kind != "job.changed":
            run_ids.update(dict.fromkeys(row.items))
    ids = list(run_ids)
    runs = {
        run.id: run
        for start in range(0, len(ids), _RUNS)
        for run in await store.run_changes(ids[start : start + _RUNS])
    }
    incidents = {each.id: each for each in await store.incidents_by_ids(list(incident_ids))}
    suggestions = {each.id: each for each in await store.suggestions_by_ids(list(suggestion_ids))}
    changes: list[Change] = []
    for row in rows:
        kind = row.kind
        items = [
            item
            for seq, item in enumerate(row.items, row.first)
            if seq > after and (until is None or seq <= until)
        ]
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
        else:
            changes += [
                Change(kind, run.workspace, run.agent, run.id, run.job_id, run.state)
                for run in filter(None, map(runs.get, items))
            ]
        await asyncio.sleep(0)  # a row has up to a thousand changes
    return changes
