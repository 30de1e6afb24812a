"""Tables, pages and lines of runs, which several commands show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wakeful.cli.output import Cell, escape, first_line, full_name, hide_default_agent, page, state, table
from wakeful.cli.times import clock_time, instant, moment, relative, relative_text, span
from wakeful.client.types import AttemptShape, EventShape, RunShape
from wakeful.run.reasons import reason_text

_LIVE: Final = ("pending", "retrying", "running")


def run_table(runs: Sequence[RunShape], now_ms: int, *, wide: bool = True) -> Table:
    """Return a table with a line per run, in the given order."""
    rows: list[list[Cell]] = [
        [
            Text(run["id"], "dim"),
            run["job"] or "—",
            run["agentId"],
            signal_text(run),
            state(run["state"]),
            relative(run["scheduledAtMs"], now_ms),
            duration_text(run),
            str(run["attempt"]),
            run["trigger"],
            reason_line(run),
        ]
        for run in runs
    ]
    hidden = [*hide_default_agent(runs), *([] if wide else ["TOOK", "ATTEMPT", "TRIGGER"])]
    hidden += [] if any(run.get("signal") for run in runs) else ["SIGNAL"]
    columns = "RUN JOB AGENT SIGNAL STATE WHEN TOOK ATTEMPT TRIGGER REASON".split()
    return table(columns, rows, hidden=hidden)


def run_page(run: RunShape, now_ms: int) -> list[RenderableType]:
    """Return a page with all fields of a run, and a table of its attempts."""
    scheduled = f"{moment(run['scheduledAtMs'], None)} ({relative(run['scheduledAtMs'], now_ms)})"
    by = f" by {run['triggeredBy']}" if run["triggeredBy"] else ""
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
    return [fields, "", attempt_table(attempts, now_ms)]


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


def attempt_table(attempts: Sequence[AttemptShape], now_ms: int) -> Table:
    """Return a table with a line per attempt."""
    rows: list[list[Cell]] = [
        [
            str(each["attempt"]),
            relative_text(each["startedAt"], now_ms),
            _length(each["startedAt"], each["finishedAt"]),
            str(each["responseCode"] or ""),
            Text(first_line(each["error"]), "red"),
        ]
        for each in attempts
    ]
    return table(["ATTEMPT", "STARTED", "TOOK", "HTTP", "ERROR"], rows)


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
