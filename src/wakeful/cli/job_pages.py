"""Tables and pages of jobs, which several commands show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wakeful.cli.output import Cell, compact, page, table
from wakeful.cli.times import instant, moment, relative, relative_text
from wakeful.client.types import AgentShape, JobShape
from wakeful.values.json_value import Json

#: Fields that have their own line, or are not shown.
_SHOWN = frozenset(
    "id workspace agentId name enabled disabledReason pauseNote pausedUntil schedule tz target payload "
    "message description labels nextAt nextAtMs explain runCount failures revision createdAt "
    "updatedAt nextTicks secret".split()
)


def job_table(jobs: Sequence[JobShape], now_ms: int, *, wide: bool = True) -> Table:
    """Return a table with a line per job; the agent's column only if an agent is not `default`."""
    several = any(job["agentId"] != "default" for job in jobs)
    columns = ["NAME", *(["AGENT"] if several else []), "WHEN", "NEXT"]
    columns += ["TARGET", "RUNS", "STATE"] if wide else ["STATE"]
    rows: list[list[Cell]] = []
    for job in jobs:
        # The column NEXT shows the zone if it shows the time; else WHEN does.
        when = job["explain"].removesuffix(f" ({job['tz']})") if wide else job["explain"]
        soon = next_at(job, now_ms, clock=wide)
        rest: list[Cell] = [target(job), str(job["runCount"])] if wide else []
        agent: list[Cell] = [job["agentId"]] if several else []
        rows.append([Text(job["name"], "bold"), *agent, when, soon, *rest, status(job)])
    return table(columns, rows, elastic="WHEN")


def job_page(job: JobShape, now_ms: int) -> Table:
    """Return a page with the fields of a job that differ from the defaults."""
    rest = cast(Mapping[str, object], job)
    from wakeful.document.definition import default_fields  # not needed by every command

    defaults = default_fields()
    others = {
        name: compact(value)
        for name, value in rest.items()
        if name not in _SHOWN and name in defaults and value != defaults[name]
    }
    failing = f", {job['failures']} failed in a row" if job["failures"] else ""
    return page(
        {
            "name": Text(job["name"], "bold"),
            "agent": f"{job['agentId']} in {job['workspace']}",
            "state": status(job),
            "when": job["explain"],
            "next": next_at(job, now_ms),
            "target": target(job),
            "schedule": f"{job.get('scheduleOrigin')}, id {job['scheduleId']}"
            if "scheduleId" in job
            else None,
            "message": job["message"],
            "payload": None if job["payload"] is None else compact(job["payload"]),
            "description": job["description"],
            "labels": ", ".join(f"{key}={value}" for key, value in sorted(job["labels"].items())),
            "runs": f"{job['runCount']} scheduled{failing}",
            "trigger URL": "yes" if job.get("hook") else None,
            "precheck state": _state(job.get("precheckState")),
            "changed": relative_text(job["updatedAt"], now_ms) + f" (revision {job['revision']})",
            "id": Text(job["id"], "dim"),
            **others,
        }
    )


def _state(state: Json) -> str | None:
    return None if state is None else compact(state)


def ticks(job: JobShape, now_ms: int) -> list[RenderableType]:
    """Return the next ticks, a line each."""
    found = job.get("nextTicks") or []
    if not found:
        return [Text("no next tick" if job["enabled"] else "no next tick: the job is disabled", "dim")]
    lines: list[RenderableType] = [Text("next ticks", "bold")]
    for tick in found:
        line = Text(f"  {moment(tick['atMs'], job['tz'])}")
        lines.append(line.append(f"  {relative(tick['atMs'], now_ms)}", "dim"))
    return lines


def secret(job: JobShape | AgentShape) -> list[RenderableType]:
    """Return the lines that show a new secret, if the response has one."""
    text = job.get("secret")
    if not text:
        return []
    return [
        Text("secret  ", "bold").append(text, "green"),
        Text("        store it in the receiver of the webhook: it is not shown again", "dim"),
    ]


def next_at(job: JobShape, now_ms: int, *, clock: bool = True) -> Text:
    """Return the next tick relative to now, and in the job's zone."""
    ms = job["nextAtMs"]
    if ms is None:
        return Text("—", "dim")
    away = Text(relative(ms, now_ms))
    return away.append(f" · {moment(ms, job['tz'], now_ms)}", "dim") if clock else away


def status(job: JobShape) -> Text:
    """Return whether a job is on, and the reason if it is not."""
    if not job["enabled"]:
        reason = (job["disabledReason"] or "paused").replace("_", " ")
        if reason != "paused":
            return Text(f"off: {reason}", "yellow")
        end, note = instant(job["pausedUntil"]), job["pauseNote"]
        until = "" if end is None else f" until {moment(end, job['tz'])}"
        return Text(f"paused{until}{f': {note}' if note else ''}", "yellow")
    return Text(f"on, failing ({job['failures']})", "red") if job["failures"] else Text("on", "green")


def target(job: JobShape) -> str:
    """Return the kind of a job's target and where it points."""
    target = job["target"]
    if target is None:
        return "agent's target"
    if target.get("kind") == "agent" and target.get("signal"):
        return f"agent {target['signal']} → {target.get('instance') or 'default'}"
    if target.get("kind") == "chat":
        return f"chat {target.get('model')} at {target.get('url')}"
    argv = target.get("argv")
    program = argv[0] if isinstance(argv, list) and argv else None
    detail = target.get("url") or target.get("name") or target.get("workflowId") or program
    return f"{target.get('kind')} {detail or ''}".rstrip()
