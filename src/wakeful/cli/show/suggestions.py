"""Tables and pages of suggestions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from wakeful.cli.show.tables import Cell, page, table
from wakeful.cli.times import instant, moment, relative
from wakeful.client.types import SuggestionShape
from wakeful.values.json_value import Json

_STATUSES: Final = {"open": "yellow", "applied": "green", "rolled_back": "red"}


def suggestion_table(suggestions: Sequence[SuggestionShape], now_ms: int, *, wide: bool = True) -> Table:
    """Return a table with a line per suggestion, in the given order."""
    several = any(each["agentId"] != "default" for each in suggestions)
    columns = ["SUGGESTION", "JOB", *(["AGENT"] if several else []), "RULE", "STATUS", "CREATED"]
    columns += ["SUMMARY"] if wide else []
    rows: list[list[Cell]] = []
    for each in suggestions:
        agent: list[Cell] = [each["agentId"]] if several else []
        created = instant(each["createdAt"])
        rows.append(
            [
                Text(each["id"], "dim"),
                Text(each["job"], "bold"),
                *agent,
                each["rule"],
                suggestion_status(each),
                "" if created is None else relative(created, now_ms),
                *([each["summary"]] if wide else []),
            ]
        )
    return table(columns, rows, elastic="SUMMARY" if wide else "RULE")


def suggestion_page(suggestion: SuggestionShape, now_ms: int) -> Table:
    """Return a page with all fields of a suggestion."""
    by = suggestion["decidedBy"]
    decided = _moment(suggestion["decidedAt"], now_ms)
    evaluation = suggestion["evaluation"]
    return page(
        {
            "suggestion": Text(suggestion["id"], "bold"),
            "job": suggestion["job"],
            "agent": f"{suggestion['agentId']} in {suggestion['workspace']}",
            "rule": suggestion["rule"],
            "status": suggestion_status(suggestion),
            "summary": suggestion["summary"],
            "change": _fields(suggestion["change"]),
            "before": _fields(suggestion["before"]),
            "figures": _fields(suggestion["figures"]),
            "created": _moment(suggestion["createdAt"], now_ms),
            "measured": _moment(suggestion["updatedAt"], now_ms),
            "decided": decided and (f"{decided}, by {by}" if by else decided),
            "evaluated": _moment(suggestion["evaluatedAt"], now_ms),
            "evaluation": None if evaluation is None else _fields(evaluation),
        }
    )


def suggestion_status(suggestion: SuggestionShape) -> Text:
    """Return the status of a suggestion in its colour."""
    status = suggestion["status"]
    return Text(status.replace("_", " "), _STATUSES.get(status, "dim"))


def _fields(values: Mapping[str, Json]) -> str:
    return ", ".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in values.items()
    )


def _moment(text: str | None, now_ms: int) -> str | None:
    ms = instant(text)
    return None if ms is None else f"{moment(ms, None)} ({relative(ms, now_ms)})"
