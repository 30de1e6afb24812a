"""Jobs, as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wakeful.cli.show.tables import Cell, compact, page, table
from wakeful.cli.times import instant, moment, relative
from wakeful.client.types import AgentShape, JobShape
from wakeful.document import Defaults, read_definition, write_definition

#: What has a line of its own, or is nobody's business on a screen.
_TOLD = frozenset(
    "id workspace agentId name enabled disabledReason pauseNote pausedUntil schedule tz target payload "
    "message description labels nextAt nextAtMs explain runCount failures revision createdAt "
    "updatedAt nextTicks secret".split()
)
#: A job that says nothing but when: what is as it is here goes without saying.
_DEFAULTS = write_definition(
    read_definition({"name": "a", "schedule": "every 1h"}, now_ms=0, defaults=Defaults())
)


def job_table(jobs: Sequence[JobShape], now_ms: int, *, wide: bool = True) -> Table:
    """Jobs, a line each; whose they are only where they are not all `default`'s."""
    several = any(job["agentId"] != "default" for job in jobs)
    columns = ["NAME", *(["AGENT"] if several else []), "WHEN", "NEXT"]
    columns += ["TARGET", "RUNS", "STATE"] if wide else ["STATE"]
    rows: list[list[Cell]] = []
    for job in jobs:
        # The zone stands beside the clock, and where there is no room for one, in the words.
        when = job["explain"].removesuffix(f" ({job['tz']})") if wide else job["explain"]
        soon = next_at(job, now_ms, clock=wide)
        rest: list[Cell] = [target(job), str(job["runCount"])] if wide else []
        whose: list[Cell] = [job["agentId"]] if several else []
        rows.append([Text(job["name"], "bold"), *whose, when, soon, *rest, standing(job)])
    return table(columns, rows, elastic="WHEN")


def job_page(job: JobShape, now_ms: int) -> Table:
    """All there is to say of a job, but what is at its default."""
    rest = cast(Mapping[str, object], job)
    others = {
        name: compact(value)
        for name, value in rest.items()
        if name not in _TOLD and name in _DEFAULTS and value != _DEFAULTS[name]
    }
    failing = f", {job['failures']} failed in a row" if job["failures"] else ""
    return page(
        {
            "name": Text(job["name"], "bold"),
            "agent": f"{job['agentId']} in {job['workspace']}",
            "state": standing(job),
            "when": job["explain"],
            "next": next_at(job, now_ms),
            "target": target(job),
            "message": job["message"],
            "payload": None if job["payload"] is None else compact(job["payload"]),
            "description": job["description"],
            "labels": ", ".join(f"{key}={value}" for key, value in sorted(job["labels"].items())),
            "runs": f"{job['runCount']} by its schedule{failing}",
            "changed": _ago(job["updatedAt"], now_ms) + f" (revision {job['revision']})",
            "id": Text(job["id"], "dim"),
            **others,
        }
    )


def ticks(job: JobShape, now_ms: int) -> list[RenderableType]:
    """Its next ticks, a line each."""
    found = job.get("nextTicks") or []
    if not found:
        return [Text("it does not fire any more" if job["enabled"] else "it does not fire: it is off", "dim")]
    lines: list[RenderableType] = [Text("fires next", "bold")]
    for tick in found:
        line = Text(f"  {moment(tick['atMs'], job['tz'])}")
        lines.append(line.append(f"  {relative(tick['atMs'], now_ms)}", "dim"))
    return lines


def secret(job: JobShape | AgentShape) -> list[RenderableType]:
    """The secret, where there is one: it is shown this once."""
    text = job.get("secret")
    if not text:
        return []
    return [
        Text("secret  ", "bold").append(text, "green"),
        Text("        keep it where the webhook is received; it is not shown again", "dim"),
    ]


def next_at(job: JobShape, now_ms: int, *, clock: bool = True) -> Text:
    """When it fires next: how far away, and on its own clock."""
    ms = job["nextAtMs"]
    if ms is None:
        return Text("—", "dim")
    away = Text(relative(ms, now_ms))
    return away.append(f" · {moment(ms, job['tz'], now_ms)}", "dim") if clock else away


def standing(job: JobShape) -> Text:
    """Whether it is on, and why not."""
    if not job["enabled"]:
        reason = (job["disabledReason"] or "paused").replace("_", " ")
        if reason != "paused":
            return Text(f"off: {reason}", "yellow")
        end, note = instant(job["pausedUntil"]), job["pauseNote"]
        until = "" if end is None else f" until {moment(end, job['tz'])}"
        return Text(f"paused{until}{f': {note}' if note else ''}", "yellow")
    return Text(f"on, failing ({job['failures']})", "red") if job["failures"] else Text("on", "green")


def target(job: JobShape) -> str:
    """Where its runs go, in a few words."""
    where = job["target"]
    if where is None:
        return "agent's own"
    kind = str(where.get("kind"))
    argv = where.get("argv")
    program = argv[0] if isinstance(argv, list) and argv else None
    what = where.get("url") or where.get("name") or where.get("workflowId") or where.get("subject") or program
    return f"{kind} {what or ''}".rstrip()


def _ago(text: str | None, now_ms: int) -> str:
    ms = instant(text)
    return "" if ms is None else relative(ms, now_ms)
