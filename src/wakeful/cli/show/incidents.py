"""Tables and pages of incidents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from wakeful.cli.show.tables import Cell, first_line, page, table
from wakeful.cli.times import instant, moment, relative
from wakeful.client.types import IncidentShape

_STATES: Final = {"open": "red", "acknowledged": "yellow", "recovered": "green", "closed": "dim"}


def incident_table(incidents: Sequence[IncidentShape], now_ms: int, *, wide: bool = True) -> Table:
    """Return a table with a line per incident, in the given order."""
    several = any(incident["agentId"] != "default" for incident in incidents)
    columns = ["INCIDENT", "JOB", *(["AGENT"] if several else []), "STATE", "CAUSE", "RUNS", "OPENED"]
    columns += ["LAST FAILED", "ERROR"] if wide else []
    rows: list[list[Cell]] = []
    for incident in incidents:
        agent: list[Cell] = [incident["agentId"]] if several else []
        last: list[Cell] = [_relative(incident["lastFailedAt"], now_ms), first_line(incident["error"])]
        rows.append(
            [
                Text(incident["id"], "dim"),
                Text(incident["job"], "bold"),
                *agent,
                incident_state(incident),
                incident["cause"],
                str(incident["failedRuns"]),
                _relative(incident["openedAt"], now_ms),
                *(last if wide else []),
            ]
        )
    return table(columns, rows, elastic="ERROR" if wide else "CAUSE")


def incident_page(incident: IncidentShape, now_ms: int) -> Table:
    """Return a page with all fields of an incident."""
    by = incident["acknowledgedBy"]
    acknowledged = _moment(incident["acknowledgedAt"], now_ms)
    recovered = _moment(incident["recoveredAt"], now_ms)
    closed = _moment(incident["closedAt"], now_ms)
    return page(
        {
            "incident": Text(incident["id"], "bold"),
            "job": incident["job"],
            "agent": f"{incident['agentId']} in {incident['workspace']}",
            "state": incident_state(incident),
            "cause": incident["cause"],
            "error": None if incident["error"] is None else Text(incident["error"], "red"),
            "opened": _moment(incident["openedAt"], now_ms),
            "reopened": f"{incident['reopened']} times" if incident["reopened"] else None,
            "last failed": _moment(incident["lastFailedAt"], now_ms),
            "failed runs": str(incident["failedRuns"]),
            "first run": incident["firstRunId"],
            "last run": incident["lastRunId"],
            "alert": _moment(incident["alertedAt"], now_ms),
            "reminder": _moment(incident["remindedAt"], now_ms),
            "acknowledged": acknowledged and f"{acknowledged}, by {by}",
            "note": incident["note"],
            "recovered": recovered and f"{recovered}, by run {incident['recoveredByRunId']}",
            "closed": closed and f"{closed}: {(incident['closedReason'] or '').replace('_', ' ')}",
        }
    )


def incident_state(incident: IncidentShape) -> Text:
    """Return the state of an incident in its colour."""
    return Text(incident["state"], _STATES.get(incident["state"], ""))


def _moment(text: str | None, now_ms: int) -> str | None:
    ms = instant(text)
    return None if ms is None else f"{moment(ms, None)} ({relative(ms, now_ms)})"


def _relative(text: str | None, now_ms: int) -> str:
    ms = instant(text)
    return "" if ms is None else relative(ms, now_ms)
