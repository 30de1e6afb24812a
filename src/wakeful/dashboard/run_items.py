"""Runs as lists and pages show them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from wakeful.dashboard.formats import at, duration, shorten, state_word, trigger_word
from wakeful.run.reasons import reason_text
from wakeful.run.usage import Spent, usage_of
from wakeful.service.runs.run_details import RunView
from wakeful.values.ids import is_id


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
        usage_of(run.usage),
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
