"""The JSON of groups of dead letters."""

from __future__ import annotations

from wakeful.job.job import Json
from wakeful.model.codec import JsonObject
from wakeful.service.row_codec import instant
from wakeful.service.runs.dead_letters import DeadLetterGroups


def serialize_groups(found: DeadLetterGroups) -> JsonObject:
    """Return groups of dead letters."""
    groups: list[Json] = [
        {
            "agentId": group.agent,
            "jobId": group.job_id,
            "job": group.job_name,
            "cause": group.cause,
            "count": group.runs,
            "firstFailedAt": instant(group.first_ms),
            "lastFailedAt": instant(group.last_ms),
            "newestRunId": group.newest_id,
            "error": group.error,
        }
        for group in found.groups
    ]
    return {"groups": groups, "counted": found.scanned, "more": found.more}
