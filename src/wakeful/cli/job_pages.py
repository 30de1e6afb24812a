"""Tables and pages of jobs, which several commands show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wakeful.cli.output import Cell, compact, hide_default_agent, page, table
from wakeful.cli.times import instant, moment, relative, relative_text
from wakeful.client.types import AgentShape, JobShape

#: Fields that have their own line, or are not shown.
_SHOWN = frozenset(
    "id workspace agentId name enabled disabledReason pauseNote pausedUntil schedule tz target payload "
    "message description labels nextAt nextAtMs explain runCount failures revision createdAt "
    "updatedAt nextTicks secret".split()
)


def job_table(jobs: Sequence[JobShape], now_ms: int, *, wide: bool = True) -> Table:
    """Return a table with a line per job; the agent's column only if an agent is not `default`."""
    rows: list[list[Cell]] = [
        [
            Text(job["name"], "bold"),
            job["agentId"],
            # The column NEXT shows the zone if it shows the time; else WHEN does.
            job["explain"].removesuffix(f" ({job['tz']})") if wide else job["explain"],
            next_at(job, now_ms, clock=wide),
            target(job),
            str(job["runCount"]),
            status(job),
        ]
        for job in jobs
    ]
    hidden = [*hide_default_agent(jobs), *([] if wide else ["TARGET", "RUNS"])]
    columns = ["NAME", "AGENT", "WHEN", "NEXT", "TARGET", "RUNS", "STATE"]
    return table(columns, rows, elastic="WHEN", hidden=hidden)


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
            "payload": job["payload"],
            "description": job["description"],
            "labels": ", ".join(f"{key}={value}" for key, value in sorted(job["labels"].items())),
            "runs": f"{job['runCount']} scheduled{failing}",
            "trigger URL": "yes" if job.get("hook") else None,
            "precheck state": job.get("precheckState"),
            "changed": relative_text(job["updatedAt"], now_ms) + f" (revision {job['revision']})",
            "id": Text(job["id"], "dim"),
            **others,
        }
    )


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
