"""Tables, pages and lines of jobs and runs, which several commands show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wakeful.cli.output import (
    Cell,
    compact,
    escape,
    first_line,
    full_name,
    page,
    state,
    table,
)
from wakeful.cli.tables import AGENT, Column, ResourceTable
from wakeful.cli.times import clock_time, instant, moment, relative, relative_text, span
from wakeful.client.types import AgentShape, AttemptShape, EventShape, JobShape, RunShape
from wakeful.job.target_kinds import describe_target
from wakeful.run.run import reason_text
from wakeful.values.json_value import Json

#: Fields that have their own line, or are not shown.
_SHOWN = frozenset(
    "id workspace agentId name enabled disabledReason pauseNote pausedUntil schedule tz target payload "
    "message description labels nextAt nextAtMs explain runCount failures revision createdAt "
    "updatedAt nextTicks secret".split()
)
_LIVE: Final = ("pending", "retrying", "running")


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
    hidden = [] if wide else ["TARGET", "RUNS"]
    if all(job["agentId"] == "default" for job in jobs):
        hidden.append("AGENT")
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
            "subscription": _subscription(job.get("subscription")),
            "precheck state": job.get("precheckState"),
            "you may": ", ".join(job["may"]) or "read it" if "may" in job else None,
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


def changed_fields(old: JobShape, new: JobShape) -> dict[str, tuple[Json, Json]]:
    """Return the old and the new value of each field that differs between two states of a job."""
    from wakeful.document.definition import DEFINITION

    before, after = cast(Mapping[str, Json], old), cast(Mapping[str, Json], new)
    names = (*DEFINITION, "enabled")
    return {
        name: (before.get(name), after.get(name)) for name in names if differs(before, name, after.get(name))
    }


def differs(before: Mapping[str, Json], name: str, value: Json) -> bool:
    """Return whether a field of a document has another value. In Python, 1 equals true; not in JSON."""
    old = before.get(name)
    return name not in before or old != value or repr(old) != repr(value)


def _subscription(state: Json) -> str | None:
    """Return the state of a subscription in a line."""
    if not isinstance(state, dict):
        return None
    error = f": {state['error']}" if state["error"] else ""
    last = f", last event {state['lastEventAt']}" if state["lastEventAt"] else ""
    return f"{state['state']} by {state['delivery']}{last}{error}"


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
    return describe_target(target)


RUNS: Final = ResourceTable[RunShape](
    Column("RUN", "id", "dim"),
    Column("JOB", lambda run, _: run["job"] or "—"),
    AGENT,
    Column("SIGNAL", lambda run, _: signal_text(run), hidden_if=""),
    Column("STATE", lambda run, _: state("verifying" if run.get("verifying") else run["state"])),
    Column("WHEN", lambda run, now_ms: relative(run["scheduledAtMs"], now_ms)),
    Column("TOOK", lambda run, _: duration_text(run), wide=True),
    Column("ATTEMPT", "attempt", wide=True),
    Column("TRIGGER", "trigger", wide=True),
    Column("REASON", lambda run, _: reason_line(run)),
)


def run_page(run: RunShape, now_ms: int) -> list[RenderableType]:
    """Return a page with all fields of a run, and a table of its attempts."""
    scheduled = f"{moment(run['scheduledAtMs'], None)} ({relative(run['scheduledAtMs'], now_ms)})"
    by = f" by {run['triggeredByName'] or run['triggeredBy']}" if run["triggeredBy"] else ""
    fields = page(
        {
            "run": Text(run["id"], "bold"),
            "job": run["job"],
            "agent": f"{run['agentId']} in {run['workspace']}",
            "state": state(run["state"]).append(_more_state(run)),
            "reason": reason_text(run["reason"], run["responseCode"]) or None,
            "waiting for": run.get("waitingFor"),
            "scheduled": scheduled,
            "covers": f"{run['covers']} ticks, until {run['untilAt']}" if run["covers"] > 1 else None,
            "trigger": run["trigger"] + by,
            "took": duration_text(run),
            "attempt": str(run["attempt"]),
            "next attempt": relative_text(run["dueAt"], now_ms) if run["state"] == "retrying" else None,
            "worker": run["worker"],
            "lane": run["lane"],
            "replay of": run["replayOf"],
            "signal": _signal(run),
            "payload": run["payload"],
            "context": run.get("context"),
            "response": None if run["responseCode"] is None else f"HTTP {run['responseCode']}",
            "output": run["output"],
            "requires": run.get("requires") if run["state"] in _LIVE else None,
            "emitted": run.get("emitted") or None,
            "error": None if run["error"] is None else Text(run["error"], "red"),
            "delivery": _delivery(run),
            "usage": run["usage"],
            "evidence": run.get("evidence") or None,
            "key": Text(run["idempotencyKey"], "dim"),
        }
    )
    attempts = run.get("attempts") or []
    if not attempts:
        return [fields]
    return [fields, "", ATTEMPTS.render(attempts, now_ms)]


def _more_state(run: RunShape) -> str:
    if run["dead"]:
        return ", a dead letter"
    return ", not verified yet" if run.get("verifying") else ""


def _signal(run: RunShape) -> str | None:
    """Return the type of a signal and the instance that handles it."""
    return f"{run['signal']} to instance {run['instance']}" if run.get("instance") else None


def _delivery(run: RunShape) -> str | None:
    """Return the state of the delivery, if one was requested."""
    if run["delivery"] == "not_requested":
        return None
    why = run["deliveryError"]
    return run["delivery"] if why is None else f"{run['delivery']}: {why}"


ATTEMPTS: Final = ResourceTable[AttemptShape](
    Column("ATTEMPT", "attempt"),
    Column("STARTED", "startedAt"),
    Column("TOOK", lambda each, _: _length(each["startedAt"], each["finishedAt"])),
    Column("HTTP", lambda each, _: str(each["responseCode"] or "")),
    Column("ERROR", lambda each, _: Text(first_line(each["error"]), "red")),
)


def progress_line(run: RunShape) -> Text:
    """Return one line with the current state of a run."""
    line = state(run["state"])
    if waiting := run.get("waitingFor"):
        line.append(f": {escape(waiting).plain}", "dim")
    elif run["state"] == "running":
        line.append(f" (attempt {run['attempt']})", "dim")
    elif run["state"] == "retrying":
        line.append(f" after attempt {run['attempt']}: {escape(first_line(run['error']))}", "dim")
    elif length := duration_text(run):
        line.append(f" in {length}", "dim")
    return line


def event_line(event: EventShape, tz: str) -> Text:
    """Return one line about a run that has started or ended, with the time of the day in a zone."""
    run = event["run"]
    at = clock_time(instant(event["at"]) or 0, tz)
    if run is None:
        return Text(f"{at}  {event['type']}", "dim")
    line = Text(f"{at}  ", "dim")
    name = full_name(run["agentId"], run["job"] or signal_text(run) or "wake")
    line.append(escape(name).plain, "bold").append("  ")
    if event["type"] == "run.started":  # the run may have ended since
        line.append_text(state("running")).append(f" (attempt {run['attempt']})", "dim")
    else:
        line.append_text(progress_line(run))
        said = reason_line(run).plain or first_line(run["output"])
        if said and run["state"] != "retrying":  # its progress contains the error
            line.append(f": {escape(said).plain}")
    return line.append(f"  {run['id']}", "dim")


def signal_text(run: RunShape) -> str:
    """Return the type of a signal and the instance that handles it; empty for another run."""
    return f"{run['signal']} → {run['instance']}" if run.get("signal") else ""


def duration_text(run: RunShape) -> str:
    """Return how long a finished run took."""
    return _length(run["startedAt"], run["finishedAt"])


def reason_line(run: RunShape) -> Text:
    """Return the error or the reason of a run."""
    reason, error = run["reason"], run["error"]
    if error:
        return Text(first_line(error), "red")
    if waiting := run.get("waitingFor"):
        return Text(first_line(waiting), "dim")
    if run.get("verifying"):
        return Text("not verified yet", "yellow")
    covers = f"{run['covers']} ticks, " if run["covers"] > 1 else ""
    return Text(f"{covers}{reason_text(reason)}".removesuffix(", "), "dim")


def _length(start: str | None, end: str | None) -> str:
    started, finished = instant(start), instant(end)
    return "" if started is None or finished is None else span(max(0, finished - started))
