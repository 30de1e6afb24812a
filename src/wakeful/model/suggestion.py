"""Suggestions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from wakeful.model.enums import SuggestionStatus
from wakeful.values.json_value import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Better settings for a job, with the figures that speak for them."""

    id: str
    workspace: str
    agent: str
    job_id: str
    #: the name of the job when it was analyzed
    job: str
    #: `stagger_peak`, `widen_interval`, `raise_timeout`, `pause_failing`
    rule: str
    status: SuggestionStatus
    #: the suggestion in a sentence
    summary: str
    #: what the rule measured
    figures: Mapping[str, Json]
    #: the fields of the job to change, and their values before
    change: Mapping[str, Json]
    before: Mapping[str, Json]
    #: the version of the job when it was analyzed, or after it was changed
    job_version: int
    created_at: datetime
    #: when the figures were measured
    updated_at: datetime
    decided_at: datetime | None
    #: the user or key; `wakeful` for an automatic rollback
    decided_by: str | None
    evaluated_at: datetime | None
    #: of an applied one: the `verdict`, and the figure `before` and `after`
    evaluation: Mapping[str, Json] | None
