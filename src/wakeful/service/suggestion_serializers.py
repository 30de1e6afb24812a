"""Suggestions as JSON."""

from __future__ import annotations

import json

from wakeful.evolution.suggestion import Suggestion, describe
from wakeful.service.serializers import JsonObject, instant


def serialize_suggestion(suggestion: Suggestion) -> JsonObject:
    """Return a suggestion."""
    figures, change = json.loads(suggestion.figures), json.loads(suggestion.change)
    return {
        "id": suggestion.id,
        "workspace": suggestion.workspace,
        "agentId": suggestion.agent,
        "jobId": suggestion.job_id,
        "job": suggestion.job_name,
        "rule": suggestion.rule,
        "status": suggestion.status,
        "summary": describe(suggestion.rule, figures, change),
        "figures": figures,
        "change": change,
        "before": json.loads(suggestion.before),
        "jobVersion": suggestion.job_version,
        "createdAt": instant(suggestion.created_ms),
        "updatedAt": instant(suggestion.updated_ms),
        "decidedAt": instant(suggestion.decided_ms),
        "decidedBy": suggestion.decided_by,
        "evaluatedAt": instant(suggestion.evaluated_ms),
        "evaluation": None if suggestion.evaluation is None else json.loads(suggestion.evaluation),
    }
