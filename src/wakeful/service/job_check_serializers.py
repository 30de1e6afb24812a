"""The JSON of what is known about a job before it is saved: its schedule, its target, its texts."""

from __future__ import annotations

from wakeful.forecast.preview import PeakAdvice, offset_text
from wakeful.model.codec import JsonObject
from wakeful.service.jobs.job_snippets import Snippets
from wakeful.service.jobs.schedule_previews import PreviewedSchedule
from wakeful.service.row_codec import instant
from wakeful.service.serializers import explain_job
from wakeful.values.json_value import Json


def serialize_preview(found: PreviewedSchedule) -> JsonObject:
    """Return the preview of a schedule. Instants are in its zone."""
    timing = found.definition.timing
    schedule: Json = None if timing is None else {**timing.schedule.to_json()}  # type: ignore[dict-item]
    ticks: list[Json] = [
        {
            "at": instant(tick.at_ms, found.tz),
            "atMs": tick.at_ms,
            "offset": offset_text(tick.offset),
            "dst": tick.effect,
            "note": tick.note,
        }
        for tick in found.ticks.ticks
    ]
    changes: list[Json] = [
        {
            "at": instant(change.at_ms, found.tz),
            "atMs": change.at_ms,
            "before": offset_text(change.before),
            "after": offset_text(change.after),
            "skipped": change.skipped,
            "note": change.note,
        }
        for change in found.ticks.changes
    ]
    return {
        "schedule": schedule,
        "text": found.text,
        "tz": found.tz,
        "explain": explain_job(found.definition),
        "ticks": ticks,
        "clockChanges": changes,
        "peak": None if found.peak is None else _peak(found.peak, found.tz),
    }


def _peak(peak: PeakAdvice, tz: str) -> JsonObject:
    return {
        "message": peak.message,
        "at": instant(peak.at_ms, tz),
        "starts": peak.starts,
        "quietAt": instant(peak.quiet_ms, tz),
        "quietStarts": peak.quiet_starts,
        "schedule": peak.schedule,
        "jitter": peak.jitter,
    }


def serialize_snippets(texts: Snippets) -> JsonObject:
    """Return the texts that create a job."""
    return {**texts._asdict()}
