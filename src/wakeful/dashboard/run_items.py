"""Runs as lists and pages show them: an entry of a list, and the timeline of one run. Pure.

The timeline has the plan, the attempts, the verification, the delivery, and what follows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from wakeful.dashboard.formats import STATES, at, duration, shorten, state_word, trigger_word
from wakeful.run.run import reason_text
from wakeful.run.usage import Spent, parse_usage
from wakeful.service.auth.actor_names import actor_name
from wakeful.service.runs.run_details import AttemptDetails, AttemptRequest, RunDetails, RunView
from wakeful.service.serializers import explain_job
from wakeful.values.ids import is_id

Tone = Literal["", "success", "failure", "active", "warning"]
_TONES: Final[dict[str, Tone]] = {
    "succeeded": "success",
    "failed": "failure",
    "cancelled": "warning",
    "skipped": "warning",
    "missed": "warning",
}
_WAITING: Final = {
    "pending": "Waiting",
    "running": "Running",
    "retrying": "Waiting for the next attempt",
}
_DELIVERIES: Final[dict[str, tuple[Tone, str]]] = {
    "pending": ("active", "Delivery is pending"),
    "delivered": ("success", "Delivered"),
    "suppressed": ("", "Not delivered: the answer asked for silence"),
    "failed": ("failure", "Delivery failed"),
    "unknown": ("warning", "Delivery unknown: it may have arrived, so it is not sent again"),
}


class RunItem(NamedTuple):
    """A run in a list."""

    run: RunView
    #: the state, with `verifying` for a run whose work is being verified
    state: str
    reason: str
    trigger: str
    #: who or what triggered it; `by_run`: it is a run
    by: str | None
    by_run: bool
    #: how late it started; None: not known any more, because it was retried
    delay_ms: int | None
    duration_ms: int | None
    spent: Spent | None
    #: the beginning of its output, or of its error
    preview: str


def run_item(run: RunView, now_ms: int) -> RunItem:
    """Return a run as a list shows it."""
    ended = run.finished_ms if run.finished_ms is not None else now_ms if run.state == "running" else None
    started = run.started_ms
    return RunItem(
        run,
        "verifying" if run.verifying else run.state,
        reason_text(run.reason, run.response_code) if run.state not in ("pending", "running") else "",
        trigger_word(run.trigger),
        run.triggered_by,
        is_id(run.triggered_by),
        _delay(run),
        None if started is None or ended is None else max(0, ended - started),
        parse_usage(run.usage),
        shorten(run.error if run.error and run.state != "succeeded" else run.output, 160),
    )


def _delay(run: RunView) -> int | None:
    """Return how late a run started. Of a retried run, only the last start is known here."""
    if run.started_ms is None or (run.failed_attempts and run.attempt > 1):
        return None
    return max(0, run.started_ms - run.fire_ms)


def run_items(runs: Iterable[RunView], now_ms: int) -> list[RunItem]:
    """Return runs as a list shows them."""
    return [run_item(run, now_ms) for run in runs]


def bar_title(item: RunItem) -> str:
    """Return the tooltip of a run in a chart."""
    parts = [f"{state_word(item.state)} {at(item.run.scheduled_ms)}"]
    if item.duration_ms is not None:
        parts.append(duration(item.duration_ms))
    if item.reason:
        parts.append(item.reason)
    return ", ".join(parts)


class Step(NamedTuple):
    """One entry of the timeline."""

    title: str
    at_ms: int | None = None
    tone: Tone = ""
    text: str = ""
    #: names and values
    facts: tuple[tuple[str, str], ...] = ()
    #: names and texts to show in boxes
    boxes: tuple[tuple[str, str], ...] = ()
    #: a run to link to, and what it is
    link: tuple[str, str] | None = None
    error: str | None = None
    advice: str | None = None
    request: AttemptRequest | None = None


def timeline(details: RunDetails) -> list[Step]:
    """Return the steps of a run, in order."""
    steps = [_plan_step(details)]
    steps += _precheck(details)
    steps += [_attempt(details, each) for each in details.attempts]
    steps += _verification(details)
    steps += _end(details)
    steps += _delivery(details)
    return steps


def _plan_step(details: RunDetails) -> Step:
    run, job = details.run, details.job
    facts: list[tuple[str, str]] = []
    if run.triggered_by is not None and details.cause is None:
        facts.append(("By", actor_name(run.triggered_by) or run.triggered_by))
    if run.fire_ms != run.scheduled_ms:
        away = run.fire_ms - run.scheduled_ms
        which = "later" if away > 0 else "earlier"
        facts.append(("Moved", f"{duration(abs(away))} {which} (jitter or catch-up)"))
    if run.missed:
        facts.append(("Missed before it", f"{run.missed} {'tick' if run.missed == 1 else 'ticks'}"))
    if run.instance is not None:
        facts.append(("Instance", run.instance))
        facts.append(("Signal", run.signal or ""))
    link: tuple[str, str] | None = None
    text = trigger_word(run.trigger)
    if run.trigger == "schedule" and job is not None:
        text = explain_job(job.definition)
    if details.replay_of is not None:
        link = (details.replay_of.id, "Replay of run")
    elif details.cause is not None:
        of = f" of {details.cause.job_name}" if details.cause.job_name else ""
        link = (details.cause.id, f"After run{of}")
    return Step("Planned", run.scheduled_ms, text=text, facts=tuple(facts), link=link)


def _precheck(details: RunDetails) -> list[Step]:
    run = details.run
    if run.reason == "precheck":
        return [Step("Precheck: nothing to do", tone="warning", text=run.output or "")]
    if run.precheck is None:
        return []
    boxes = (("Context", run.context),) if run.context is not None else ()
    once = bool(json.loads(run.precheck).get("once"))
    text = "The job is disabled when this run succeeds (once)." if once else ""
    return [Step("Precheck: there is work", tone="success", text=text, boxes=boxes)]


def _attempt(details: RunDetails, each: AttemptDetails) -> Step:
    run, attempt = details.run, each.attempt
    facts: list[tuple[str, str]] = []
    first = each is details.attempts[0]
    if first and attempt.started_ms is not None:
        facts.append(("Delay", duration(max(0, attempt.started_ms - run.fire_ms))))
    ended = attempt.finished_ms
    if attempt.started_ms is not None and ended is not None:
        facts.append(("Duration", duration(ended - attempt.started_ms)))
    if attempt.worker:
        facts.append(("Executor" if run.is_pull else "Worker", attempt.worker))
    if attempt.response_code is not None:
        facts.append(("Response", f"HTTP {attempt.response_code}"))
    if each.cause is not None:
        facts.append(("Cause", each.cause))
    tone: Tone = "failure" if attempt.error is not None else "active"
    boxes: tuple[tuple[str, str], ...] = ()
    if each.last and run.state in _TONES:
        tone = _TONES[run.state]
    output = attempt.output or (run.output if each.last else None)
    if output and run.reason != "precheck":
        boxes = (("Response" if attempt.error else "Output", output),)
    return Step(
        f"Attempt {attempt.attempt}",
        attempt.started_ms,
        tone,
        facts=tuple(facts),
        boxes=boxes,
        error=attempt.error,
        advice=each.advice,
        request=each.request,
    )


def _verification(details: RunDetails) -> list[Step]:
    run, verification = details.run, details.verification
    boxes = (("Evidence", run.evidence),) if run.evidence else ()
    if verification is not None:
        kind = str(json.loads(verification.verify).get("kind"))
        facts: list[tuple[str, str]] = [("Check", "a person confirms it" if kind == "manual" else kind)]
        if verification.tries:
            facts.append(("Tries", str(verification.tries)))
        return [Step("Verification", verification.reported_ms, "active", "", tuple(facts), boxes)]
    if run.reason == "unverified":
        return [Step("Not verified", run.finished_ms, "failure", boxes=boxes)]
    return [Step("Evidence", tone="success", boxes=boxes)] if boxes else []


def _end(details: RunDetails) -> list[Step]:
    run = details.run
    if run.state in _WAITING:
        title = _WAITING[run.state]
        waiting = details.waiting or ""
        return [Step(title, None, "active", waiting[:1].upper() + waiting[1:])]
    covers = f", for {run.covers} ticks" if run.covers > 1 else ""
    text = reason_text(run.reason, run.response_code) if run.state != "succeeded" else ""
    if run.state == "failed" and run.dead:
        text = f"{text}. It is a dead letter until it is replayed or discarded.".removeprefix(". ")
    boxes = (("Signals that it emitted", run.emitted),) if run.emitted else ()
    error = run.error if not details.attempts else None
    title, tone = STATES[run.state] + covers, _TONES[run.state]
    return [Step(title, run.finished_ms, tone, text, boxes=boxes, error=error)]


def _delivery(details: RunDetails) -> list[Step]:
    run = details.run
    if run.delivery not in _DELIVERIES:
        return []
    tone, title = _DELIVERIES[run.delivery]
    return [Step(title, tone=tone, error=run.delivery_error)]
