"""Tables and pages of agents, keys, the audit log and the server's status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from rich.table import Table
from rich.text import Text

from wakeful.cli.show.tables import Cell, compact, page, table
from wakeful.cli.times import instant, moment, relative, span
from wakeful.client.types import AgentShape, AuditShape, KeyShape
from wakeful.values.json_value import Json


def agent_table(agents: Sequence[AgentShape], now_ms: int) -> Table:
    """Return a table with a line per agent."""
    rows: list[list[Cell]] = [
        [
            Text(agent["name"], "bold"),
            Text("active", "green") if agent["active"] else Text("not active", "yellow"),
            agent["tz"] or "",
            "pull" if agent["target"] is None else compact(agent["target"]),
            agent["channel"] or "",
            _relative(agent["createdAt"], now_ms),
        ]
        for agent in agents
    ]
    return table(["AGENT", "STATE", "ZONE", "TARGET", "CHANNEL", "SINCE"], rows, elastic="TARGET")


def key_table(keys: Sequence[KeyShape], now_ms: int) -> Table:
    """Return a table with a line per key, without secrets."""
    rows: list[list[Cell]] = [
        [
            Text(key["id"], "dim"),
            key["name"],
            key["role"] + (f" {key['agent']}" if key["agent"] else ""),
            key["workspace"] or "all workspaces",
            _relative(key["createdAt"], now_ms),
            _relative(key["lastUsedAt"], now_ms) or "never",
            _key_state(key, now_ms),
        ]
        for key in keys
    ]
    return table(["KEY", "NAME", "ROLE", "WORKSPACE", "CREATED", "USED", "STATE"], rows, elastic="NAME")


def audit_table(entries: Sequence[AuditShape], now_ms: int) -> Table:
    """Return a table with a line per audit entry."""
    rows: list[list[Cell]] = [
        [
            str(entry["seq"]),
            _relative(entry["at"], now_ms),
            entry["actor"],
            Text(entry["action"], "bold"),
            entry["subject"],
            "" if entry["details"] in (None, {}) else compact(entry["details"]),
            entry["address"] or "",
        ]
        for entry in entries
    ]
    return table(["SEQ", "WHEN", "ACTOR", "ACTION", "SUBJECT", "DETAILS", "ADDRESS"], rows, elastic="DETAILS")


def status_page(url: str, status: Mapping[str, Json], slo: Mapping[str, Json]) -> Table:
    """Return a page with the server's status and its objectives."""
    next_ms, now_ms = status.get("nextAtMs"), status.get("nowMs")
    soon = None
    if isinstance(next_ms, int) and isinstance(now_ms, int):
        soon = f"{relative(next_ms, now_ms)} · {moment(next_ms, None, now_ms)}"
    return page(
        {
            "server": Text(url, "bold"),
            "version": f"{status.get('version')}, on {status.get('database')}",
            "engine": Text("running", "green") if status.get("engine") else Text("not running", "red"),
            "replicas": str(status.get("replicas")),
            "executors": str(status.get("executors")),
            "jobs": _counts(status.get("jobs")),
            "runs": _counts(status.get("runs")),
            "incidents": _incidents(status.get("incidents")),
            "next": soon,
            "dead letters": _objective(slo.get("deadLetterRatio"), lambda ratio: f"{ratio:.2%}"),
            "start delay": _objective(slo.get("dispatchLatencyMs"), lambda ms: span(round(ms))),
        }
    )


def agent_page(agent: AgentShape) -> Table:
    """Return a page with all fields of an agent."""
    return page(dict(_flat(cast(Mapping[str, Json], agent))))


def _counts(counts: Json) -> str | None:
    if not isinstance(counts, dict):
        return None
    return ", ".join(f"{number} {name}" for name, number in counts.items())


def _incidents(counts: Json) -> Text | None:
    """Return the numbers of incidents; red if one is open."""
    text = _counts(counts)
    if text is None or not isinstance(counts, dict):
        return None
    return Text(text, "red" if counts.get("open") else "")


def _objective(objective: Json, format_value: Callable[[float], str]) -> Text | None:
    """Return an objective's current value and its target."""
    if not isinstance(objective, dict) or not isinstance(target := objective.get("target"), int | float):
        return None
    value, below = objective.get("value"), f" (target: below {format_value(target)})"
    if not isinstance(value, int | float):
        return Text(f"no runs{below}", "dim")
    return Text(format_value(value), "green" if objective.get("ok") else "red").append(below, "dim")


def _flat(fields: Mapping[str, Json], prefix: str = "") -> list[tuple[str, str]]:
    flat: list[tuple[str, str]] = []
    for name, value in fields.items():
        if isinstance(value, dict):
            flat += _flat(value, f"{prefix}{name} ")
        elif isinstance(value, float):
            flat.append((prefix + name, f"{value:g}"))
        elif value is not None:
            flat.append((prefix + name, compact(value)))
    return flat


def _key_state(key: KeyShape, now_ms: int) -> Text:
    if key["revokedAt"]:
        return Text("revoked", "red")
    expires = instant(key["expiresAt"])
    if expires is not None and expires <= now_ms:
        return Text("expired", "yellow")
    return Text("valid" if expires is None else f"expires {relative(expires, now_ms)}", "green")


def _relative(text: str | None, now_ms: int) -> str:
    ms = instant(text)
    return "" if ms is None else relative(ms, now_ms)
