"""The schemas of jobs: what is shown of one, and what is taken for one."""

from __future__ import annotations

from typing import Final

from wakeful.api.http.schemas.parts import (
    ACTIVE_HOURS,
    ANY,
    BOOLEAN,
    BUDGET,
    DURATION,
    ID,
    INSTANT,
    OBJECT,
    READ_ONLY,
    SECRET,
    SLUG,
    SPENT,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    document,
    list_of,
    or_null,
    page_of,
    ref,
    shape,
    taken,
    text,
    whole,
)
from wakeful.calendars import MAX_ENTRIES
from wakeful.document.fields import ABOUT, POLICY, TIMING, WORK
from wakeful.document.target import MAX_URL, WORKFLOW
from wakeful.document.values import LONGEST_LABEL, MAX_DESCRIPTION, MAX_LABELS, Bounded, milliseconds
from wakeful.duration import LONGEST
from wakeful.schedule import LATEST_MS, LONGEST_TEXT, SHORTEST_INTERVAL_MS
from wakeful.service.jobs.pauses import MAX_NOTE

#: What each field of a document takes, by its name.
_TAKEN: Final[dict[str, Schema]] = {
    field.name: taken(field.read)
    for field in (*TIMING, *WORK, *POLICY, *ABOUT)
    if isinstance(field.read, Bounded)
}
_HTTP: Final = "^[hH][tT][tT][pP][sS]?://"
_TARGET: Final[Schema] = {
    "type": "object",
    "description": "Where its runs go; what else is in it depends on the kind.",
    "properties": {"kind": ref("TargetKind")},
    "required": ["kind"],
    "examples": [{"kind": "webhook", "url": "https://example.com/hook"}],
}
_LABELS: Final[Schema] = {
    "type": "object",
    "maxProperties": MAX_LABELS,
    "propertyNames": {"minLength": 1, "maxLength": LONGEST_LABEL[0], "pattern": r"\S"},
    "additionalProperties": text(LONGEST_LABEL[1]),
}
_SCHEDULE: Final[Schema] = shape(
    {"kind": ref("ScheduleKind"), "atMs": WHOLE, "everyMs": WHOLE, "expr": TEXT, "tz": TEXT},
    "atMs",
    "everyMs",
    "expr",
    "tz",
    says="The normal form: `at` has `atMs`, `every` has `everyMs`, `cron` has `expr`.",
)
_SCHEDULE_GIVEN: Final[Schema] = {
    "description": "When it fires: '0 9 * * 1-5', '@daily', 'every 15m', 'in 20m', an ISO 8601 time, or the "
    "same as an object with a kind.",
    "anyOf": [
        {"type": "string", "maxLength": LONGEST_TEXT, "examples": ["0 9 * * 1-5", "every 15m"]},
        {
            "type": "object",
            "properties": {
                "kind": ref("ScheduleKind"),
                "atMs": or_null(whole(0, LATEST_MS)),
                "at": or_null(text(LONGEST_TEXT)),
                "everyMs": or_null(whole(SHORTEST_INTERVAL_MS, LONGEST)),
                "every": or_null(text(LONGEST_TEXT)),
                "expr": or_null(text(LONGEST_TEXT)),
                "tz": or_null(TEXT),
            },
            "required": ["kind"],
            "examples": [{"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Europe/Berlin"}],
        },
    ],
}
_BACKOFF: Final[Schema] = shape({"baseMs": WHOLE, "maxMs": WHOLE})
_BACKOFF_GIVEN: Final[Schema] = document(
    {"baseMs": taken(milliseconds(1)), "maxMs": taken(milliseconds(1)), "base": DURATION, "max": DURATION}
)
_AFTER: Final[Schema] = shape({"job": SLUG, "on": ref("ChainOn")})

#: The policies and the rest, which are taken as they are shown.
_PLAIN: Final[dict[str, Schema]] = {
    "dstGap": ref("DstGap"),
    "dstOverlap": ref("DstOverlap"),
    "stateless": BOOLEAN,
    "deliver": BOOLEAN,
    "wakeHeartbeat": BOOLEAN,
    "lane": SLUG,
    "overlapPolicy": ref("OverlapPolicy"),
    "maxQueued": _TAKEN["maxQueued"],
    "catchupPolicy": ref("CatchupPolicy"),
    "catchupWindowMs": _TAKEN["catchupWindowMs"],
    "misfireGraceMs": _TAKEN["misfireGraceMs"],
    "jitterMs": _TAKEN["jitterMs"],
    "maxAttempts": _TAKEN["maxAttempts"],
    "maxRuns": _TAKEN["maxRuns"],
    "onLost": ref("OnLost"),
    "disableAfter": _TAKEN["disableAfter"],
    "deleteAfterRun": BOOLEAN,
}
#: Of those, what is null where nothing was said.
_OPEN: Final = ("dstGap", "dstOverlap", "maxRuns", "disableAfter")

_JOB: Final[dict[str, Schema]] = {
    "id": ID,
    "workspace": SLUG,
    "agentId": SLUG,
    "name": SLUG,
    "schedule": or_null(_SCHEDULE),
    "startAt": or_null(WHOLE),
    "endAt": or_null(WHOLE),
    "exclude": or_null(list_of(TEXT)),
    "tz": or_null(TEXT),
    "target": or_null(_TARGET),
    "message": or_null(TEXT),
    "channel": or_null(TEXT),
    "to": or_null(TEXT),
    "activeHours": or_null(TEXT),
    "precheck": or_null(OBJECT),
    "budget": or_null(OBJECT),
    **{name: or_null(schema) if name in _OPEN else schema for name, schema in _PLAIN.items()},
    "backoff": _BACKOFF,
    "timeoutMs": or_null(WHOLE),
    "claimTimeoutMs": or_null(WHOLE),
    "after": or_null(_AFTER),
    "description": TEXT,
    "labels": _LABELS,
    "payload": ANY,
    "workflowId": TEXT,
    "version": WHOLE,
    "userId": or_null(TEXT),
    "enabled": BOOLEAN,
    "disabledReason": or_null(TEXT),
    "pauseNote": {**or_null(TEXT), "description": "Why it is paused."},
    "pausedUntil": {**or_null(INSTANT), "description": "When it resumes by itself."},
    "nextAt": or_null(INSTANT),
    "nextAtMs": or_null(WHOLE),
    "explain": {"type": "string", "description": "The schedule in words."},
    "runCount": WHOLE,
    "failures": {"type": "integer", "minimum": 0, "description": "Runs in a row that failed."},
    "revision": {**WHOLE, "description": "Goes up with every edit; the ETag is this."},
    "createdAt": INSTANT,
    "createdBy": or_null(TEXT),
    "updatedAt": INSTANT,
}
_WORKFLOW_ONLY: Final = ("workflowId", "version", "userId")
_TICKS: Final[Schema] = list_of(
    shape({"at": {"type": "string", "format": "date-time"}, "atMs": WHOLE}, says="A tick, in the job's zone.")
)
_DOCUMENT: Final[dict[str, Schema]] = {
    "name": SLUG,
    "agentId": SLUG,
    "enabled": BOOLEAN,
    "schedule": _SCHEDULE_GIVEN,
    "cron": {**_SCHEDULE_GIVEN, "description": "Short for `schedule`."},
    "tz": {"type": "string", "description": "An IANA zone.", "examples": ["Europe/Berlin"]},
    "startAt": TIME,
    "endAt": TIME,
    "exclude": {
        "description": "Days and hours without ticks.",
        "anyOf": [TEXT, list_of(TEXT, MAX_ENTRIES)],
        "examples": [["2027-12-24/2028-01-01", "12-24/12-26", "weekends", "holidays:DE-BY"]],
    },
    "target": _TARGET,
    "webhookUrl": {
        "type": "string",
        "description": "Short for a webhook `target`.",
        "maxLength": MAX_URL,
        "pattern": _HTTP,
    },
    "workflowId": taken(WORKFLOW["workflowId"]),
    "version": taken(WORKFLOW["version"]),
    "userId": taken(WORKFLOW["userId"]),
    "payload": {"description": "Any JSON, up to 64 KB; a webhook sends it verbatim."},
    "message": {**_TAKEN["message"], "description": 'Short for the payload {"message": …}.'},
    "channel": _TAKEN["channel"],
    "to": _TAKEN["to"],
    "activeHours": ACTIVE_HOURS,
    "precheck": {
        **OBJECT,
        "minProperties": 1,
        "description": "Who says before each launch whether there is anything to do.",
        "examples": [{"kind": "webhook", "url": "https://example.com/anything-new"}],
    },
    "budget": BUDGET,
    **_PLAIN,
    "timeoutMs": _TAKEN["timeoutMs"],
    "claimTimeoutMs": _TAKEN["claimTimeoutMs"],
    **{
        name: {**DURATION, "description": "The field with Ms, as a duration."}
        for name in ("timeout", "claimTimeout", "catchupWindow", "misfireGrace", "jitter")
    },
    "backoff": _BACKOFF_GIVEN,
    "after": {
        "description": "Fire when a run of this job ends.",
        "anyOf": [SLUG, document({"job": SLUG, "on": ref("ChainOn")}, "job")],
    },
    "description": text(MAX_DESCRIPTION),
    "labels": _LABELS,
}
#: What a job is shown with beside: a document that was read may come back as it is, and these say nothing.
_SHOWN: Final = (
    "id", "workspace", "disabledReason", "nextAt", "nextAtMs", "explain", "runCount", "failures", "revision",
    "createdAt", "createdBy", "updatedAt", "nextTicks", "spent", "pauseNote", "pausedUntil", "lastRuns",
)  # fmt: skip
_OPTIONAL: Final[dict[str, Schema]] = {
    **{name: or_null(schema) for name, schema in _DOCUMENT.items()},
    "name": SLUG,
    **dict.fromkeys(_SHOWN, READ_ONLY),
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Job": shape(_JOB, *_WORKFLOW_ONLY, says="A job."),
    "JobWithTicks": shape(
        {**_JOB, "nextTicks": _TICKS, "spent": SPENT, "lastRuns": list_of(ref("Run"))},
        *_WORKFLOW_ONLY,
        "spent",
        "lastRuns",
        says="A job with its next 5 ticks; when it is read, with its last 5 runs, newest first.",
    ),
    "SkippedTick": shape(
        {**_JOB, "nextTicks": _TICKS, "skipped": ref("Run")},
        *_WORKFLOW_ONLY,
        says="A job after its next tick was skipped, and the run that records that tick.",
    ),
    "Pause": document(
        {
            "note": {**or_null(text(MAX_NOTE)), "description": "Why it is paused."},
            "until": {**or_null(TIME), "description": "When it resumes by itself: a time, or as in 'in 2h'."},
        }
    ),
    "SavedJob": shape(
        {**_JOB, "nextTicks": _TICKS, "secret": SECRET},
        *_WORKFLOW_ONLY,
        "secret",
        says="A job as it was saved.",
    ),
    "Jobs": page_of("jobs", "Job"),
    "JobDocument": document(_OPTIONAL, "name", says="What a job is to be; null says nothing."),
    "NamedJobDocument": document(_OPTIONAL, says="What a job is to be; its name is in the path."),
    "JobPatch": document(_OPTIONAL, says="What is to change; null puts a field back to its default."),
    "RunRequest": document(
        {
            "mode": ref("RunMode"),
            "payload": {"description": "Instead of the job's own."},
            "overlapPolicy": or_null(ref("OverlapPolicy")),
        }
    ),
    "Backfill": document({"start": TIME, "end": TIME}, "start", "end"),
    "Count": shape({"count": WHOLE}),
}
