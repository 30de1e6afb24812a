"""Suggestions: better settings for a job, with the figures that speak for them. A person decides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, get_args

from wakeful.values.duration import spell_duration
from wakeful.values.json_value import Json
from wakeful.values.plural import plural

RuleName = Literal["stagger_peak", "widen_interval", "raise_timeout", "pause_failing"]
RULES: Final[tuple[RuleName, ...]] = get_args(RuleName)

SuggestionStatus = Literal[
    "open",  # waits for a decision
    "applied",
    "dismissed",  # a person does not want it
    "rolled_back",  # it was applied, and the job has its earlier settings again
    "withdrawn",  # the figures no longer support it, or its job was changed or deleted
]
SUGGESTION_STATUSES: Final[tuple[SuggestionStatus, ...]] = get_args(SuggestionStatus)

#: The figure that each rule wants to lower.
FIGURE: Final[Mapping[RuleName, str]] = {
    "stagger_peak": "startDelayMs",
    "widen_interval": "overlapShare",
    "raise_timeout": "lostMsPerRun",
    "pause_failing": "failedPerDay",
}


class Suggestion(NamedTuple):
    """A suggestion. The fields are the columns of `suggestions`."""

    id: str
    workspace: str
    agent: str
    job_id: str
    job_name: str
    rule: RuleName
    status: SuggestionStatus
    #: compact JSON: what the rule measured, the fields to change, and the same fields before
    figures: str
    change: str
    before: str
    #: the version of the job: when it was analyzed, or after it was changed
    job_version: int
    created_ms: int
    #: when the figures were measured
    updated_ms: int
    decided_ms: int | None = None
    #: the user or key; `wakeful` for an automatic rollback
    decided_by: str | None = None
    evaluated_ms: int | None = None
    #: compact JSON: the verdict, and the figure before and after
    evaluation: str | None = None

    @property
    def figure(self) -> float:
        """The figure that it is meant to lower, as it was measured."""
        return float(json.loads(self.figures)[FIGURE[self.rule]])


def describe(rule: RuleName, figures: Mapping[str, Json], change: Mapping[str, Json]) -> str:
    """Return a suggestion as a sentence.

    >>> figures = {"failed": 12, "days": 6.5, "failedPerDay": 1.85}
    >>> describe("pause_failing", figures, {"enabled": False})
    'All 12 runs of the last 6.5 days failed; pause the job.'
    """
    get = {**figures, **change}.get
    if rule == "stagger_peak":
        return (
            f"It fires together with {_number(get('peakJobs'), -1)} other jobs, and starts "
            f"{_duration(get('peakDelayMs'))} late on average; a jitter of {_duration(get('jitterMs'))} "
            "spreads its starts."
        )
    if rule == "widen_interval":
        return (
            f"{_number(get('overlapped'))} of {_number(get('ticks'))} ticks overlapped with an earlier run; "
            f"an interval of {_duration(get('newIntervalMs'))} instead of {_duration(get('intervalMs'))} "
            "leaves time for each run."
        )
    if rule == "raise_timeout":
        return (
            f"{_number(get('timedOut'))} of {_number(get('runs'))} runs ended at the timeout of "
            f"{_duration(get('currentTimeoutMs'))}; allow {_duration(get('timeoutMs'))}."
        )
    return f"All {_number(get('failed'))} runs of the last {_days(get('days'))} failed; pause the job."


def _number(value: Json, add: int = 0) -> str:
    return str(round(value) + add) if isinstance(value, int | float) else "?"


def _duration(value: Json) -> str:
    if not isinstance(value, int | float):
        return "?"
    rounded = round(value) if value < 1000 else round(value / 1000) * 1000
    return spell_duration(rounded)


def _days(value: Json) -> str:
    if not isinstance(value, int | float):
        return "?"
    return plural(int(value), "day") if value == int(value) else f"{value:g} days"
