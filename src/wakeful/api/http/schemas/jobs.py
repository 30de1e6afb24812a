"""The schemas of jobs in requests and responses.

The schema of a plain field follows from its declaration; those of objects and lists are written here.
"""

from __future__ import annotations

from typing import Final

from wakeful import model
from wakeful.api.http.schemas.enums import named
from wakeful.api.http.schemas.parts import (
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
    WARNINGS,
    WHOLE,
    Schema,
    list_of,
    or_null,
    ref,
    request,
    response,
    schema_of,
    text,
    whole,
)
from wakeful.api.http.schemas.resources import schema_of_class
from wakeful.document.fields import DECLARED, MAX_URL, OTHER, RESPONSE_ONLY, WORKFLOW, Field
from wakeful.document.guards import LONGEST_NAME, MANUAL, MAX_NAMES
from wakeful.document.kinds import LONGEST_LABEL, MAX_LABELS, milliseconds
from wakeful.schedule.calendars import MAX_ENTRIES
from wakeful.schedule.schedules import LONGEST_TEXT, SHORTEST_INTERVAL_MS
from wakeful.service.jobs.job_query import CHOICES, MAX_LABEL_FILTERS
from wakeful.service.jobs.job_query import LONGEST as LONGEST_FILTER
from wakeful.service.jobs.job_selection import MAX_JOBS
from wakeful.service.jobs.jobs import MAX_BATCH, MOST_COUNTED
from wakeful.service.jobs.pauses import MAX_NOTE
from wakeful.values.duration import LONGEST
from wakeful.values.instants import LATEST_MS

_HTTP: Final = "^[hH][tT][tT][pP][sS]?://"
_TARGET: Final[Schema] = {
    "type": "object",
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
_SCHEDULE: Final[Schema] = {
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
_DELAY: Final = schema_of(milliseconds(1))
#: In requests, fields whose values are objects, lists or instants.
_REQUEST: Final[dict[str, Schema]] = {
    "schedule": _SCHEDULE,
    "startAt": TIME,
    "endAt": TIME,
    "exclude": {
        "anyOf": [TEXT, list_of(TEXT, MAX_ENTRIES)],
        "examples": [["2027-12-24/2028-01-01", "12-24/12-26", "weekends", "holidays:DE-BY"]],
    },
    "target": _TARGET,
    "precheck": {
        **OBJECT,
        "minProperties": 1,
        "examples": [{"kind": "webhook", "url": "https://example.com/anything-new"}],
    },
    "verify": {
        "anyOf": [
            {
                **OBJECT,
                "minProperties": 1,
                "examples": [
                    {"kind": "http", "url": "https://example.com/report.html", "newerThanMs": 60_000}
                ],
            },
            {"type": "string", "const": MANUAL},
        ],
    },
    "evidence": {
        "anyOf": [text(LONGEST_NAME, 1), list_of(text(LONGEST_NAME, 1), MAX_NAMES)],
        "examples": [["external_id", "result_url"]],
    },
    "budget": BUDGET,
    "backoff": request({"baseMs": _DELAY, "maxMs": _DELAY, "base": DURATION, "max": DURATION}),
    "after": {"anyOf": [SLUG, request({"job": SLUG, "on": ref("ChainOn"), "output": BOOLEAN}, "job")]},
    "labels": _LABELS,
    "tz": {"type": "string", "examples": ["Europe/Berlin"]},
    "payload": ANY,
    "webhookUrl": {"type": "string", "maxLength": MAX_URL, "pattern": _HTTP},
}
NORMAL_SCHEDULE: Final[Schema] = response(
    {"kind": ref("ScheduleKind"), "atMs": WHOLE, "everyMs": WHOLE, "expr": TEXT, "tz": TEXT},
    "atMs",
    "everyMs",
    "expr",
    "tz",
    about="The normal form: `at` has `atMs`, `every` has `everyMs`, `cron` has `expr`.",
)
#: In responses, fields whose values are objects, lists or instants.
_RESPONSE: Final[dict[str, Schema]] = {
    "schedule": NORMAL_SCHEDULE,
    "startAt": WHOLE,
    "endAt": WHOLE,
    "exclude": list_of(TEXT),
    "target": _TARGET,
    "precheck": OBJECT,
    "verify": OBJECT,
    "evidence": list_of(TEXT),
    "budget": OBJECT,
    "backoff": response({"baseMs": WHOLE, "maxMs": WHOLE}),
    "after": response({"job": SLUG, "on": ref("ChainOn"), "output": BOOLEAN}, "output"),
    "labels": _LABELS,
}


def _in_request(field: Field) -> Schema:
    schema = _REQUEST[field.name] if field.name in _REQUEST else named(schema_of(field.kind))
    return {**schema, "description": schema.get("description", field.doc)}


def _in_response(field: Field) -> Schema:
    schema: Schema
    if field.name in _RESPONSE:
        schema = _RESPONSE[field.name]
    elif field.kind.form in ("line", "text"):
        schema = TEXT
    else:
        schema = named(schema_of(field.kind))
    return or_null(schema) if field.nullable else schema


#: The fields of a job document in a request, by every name that they have.
DOCUMENT: Final[dict[str, Schema]] = {
    **{field.name: _in_request(field) for field in (*OTHER, *DECLARED)},
    "cron": {**_SCHEDULE, "description": "Short for `schedule`."},
    **{
        field.duration_name: {**DURATION, "description": f"`{field.name}` as a duration."}
        for field in DECLARED
        if field.duration_name
    },
}
_OPTIONAL: Final[dict[str, Schema]] = {
    **{name: or_null(schema) for name, schema in DOCUMENT.items()},
    "name": SLUG,
    **dict.fromkeys(RESPONSE_ONLY, READ_ONLY),
}
_JOB: Final[dict[str, Schema]] = {
    "id": ID,
    "workspace": SLUG,
    "agentId": SLUG,
    "name": SLUG,
    **{field.name: _in_response(field) for field in DECLARED},
    "tz": or_null(TEXT),
    "payload": ANY,
    "workflowId": TEXT,
    "version": WHOLE,
    "userId": or_null(TEXT),
    "enabled": BOOLEAN,
    "disabledReason": or_null(TEXT),
    "pauseNote": {**or_null(TEXT), "description": "Why it is paused."},
    "pausedUntil": {**or_null(INSTANT), "description": "When it resumes automatically."},
    "nextAt": or_null(INSTANT),
    "nextAtMs": or_null(WHOLE),
    "explain": {"type": "string", "description": "The schedule in words."},
    "runCount": WHOLE,
    "failures": {"type": "integer", "minimum": 0, "description": "Consecutive failed runs."},
    "revision": {**WHOLE, "description": "Increases with every edit; it is the ETag."},
    "createdAt": INSTANT,
    "createdBy": or_null(TEXT),
    "origin": {
        **or_null(response({"session": or_null(TEXT), "channel": or_null(TEXT), "to": or_null(TEXT)})),
        "description": "The conversation in which it was made.",
    },
    "depth": {
        **WHOLE,
        "description": "How many jobs in a row an agent made, each in a run of the one before.",
    },
    "updatedAt": INSTANT,
    "scheduleOrigin": ref("ScheduleOrigin"),
    "scheduleId": {"type": "string", "description": "Of a schedule of an instance: its `job_id`."},
}
#: what only workflow jobs and schedules of instances have
_SOME_ONLY: Final = (*(field.name for field in WORKFLOW), "scheduleOrigin", "scheduleId")
_TICKS: Final[Schema] = list_of(
    response(
        {"at": {"type": "string", "format": "date-time"}, "atMs": WHOLE}, about="A tick, in the job's zone."
    )
)

_PAUSE: Final[dict[str, Schema]] = {
    "note": {**or_null(text(MAX_NOTE)), "description": "Why it is paused."},
    "until": {**or_null(TIME), "description": "When it resumes automatically: a time, or as in 'in 2h'."},
}
_LABEL: Final[Schema] = text(sum(LONGEST_LABEL) + 1, 1)
_RUN: Final[dict[str, Schema]] = {
    "mode": ref("RunMode"),
    "payload": {"description": "Replaces the payload of the job."},
    "overlapPolicy": or_null(ref("OverlapPolicy")),
}
#: Which jobs an operation on several jobs is about.
_SELECTION: Final[dict[str, Schema]] = {
    "jobs": {
        **or_null(list_of(text(LONGEST_TEXT), MAX_JOBS)),
        "description": "The jobs: name, `agent/name` or id. Instead of a filter.",
    },
    "agent": {**or_null(TEXT), "description": "Only jobs of this agent; with `jobs`, the agent of names."},
    "label": {
        "description": "Only jobs with this label, or with all of these: `name=value`, or `name`.",
        "anyOf": [_LABEL, list_of(_LABEL, MAX_LABEL_FILTERS), {"type": "null"}],
    },
    "labels": {
        "description": "The same, as an object.",
        "anyOf": [{"type": "object", "additionalProperties": TEXT}, {"type": "null"}],
    },
    **{
        field: {**or_null(text(LONGEST_FILTER)), "description": about}
        for field, about in {
            "q": "Only jobs whose `agent/name` has this text.",
            "state": f"Only jobs in this state: {', '.join(CHOICES['state'])}.",
            "creator": f"Only jobs that were created by a {' or an '.join(CHOICES['creator'])}.",
            "createdBy": "Only jobs with this `createdBy`.",
            "schedule": f"Only jobs with this kind of schedule: {', '.join(CHOICES['schedule'])}.",
            "target": "Only jobs with this kind of target, such as `webhook`.",
        }.items()
    },
    "all": {**or_null(BOOLEAN), "description": "Every job; required if nothing else selects jobs."},
    "dryRun": {**or_null(BOOLEAN), "description": "Count the jobs and change nothing."},
}
_REF: Final[dict[str, Schema]] = {"id": ID, "agentId": SLUG, "name": SLUG}

_HAS_HOOK: Final[Schema] = {**BOOLEAN, "description": "Whether it has a trigger URL."}
_PRECHECK_STATE: Final[Schema] = {"description": "The state that its last precheck left, any JSON."}

SCHEMAS: Final[dict[str, Schema]] = {
    "Job": response(_JOB, *_SOME_ONLY, about="A job."),
    "JobWithTicks": response(
        {
            **_JOB,
            "nextTicks": _TICKS,
            "hook": _HAS_HOOK,
            "precheckState": _PRECHECK_STATE,
            "spent": SPENT,
            "lastRuns": list_of(ref("Run")),
            "warnings": WARNINGS,
        },
        *_SOME_ONLY,
        "warnings",
        "hook",
        "precheckState",
        "spent",
        "lastRuns",
        about="A job with its next 5 ticks; when it is read, with its last 5 runs, newest first.",
    ),
    "SkippedTick": response(
        {**_JOB, "nextTicks": _TICKS, "skipped": ref("Run")},
        *_SOME_ONLY,
        about="A job after its next tick was skipped, and the run that records that tick.",
    ),
    "Pause": request(_PAUSE),
    "BulkPause": request({**_SELECTION, **_PAUSE}, about="Which jobs to pause, why, and until when."),
    "BulkResume": request(_SELECTION, about="Which jobs to resume."),
    "BulkDelete": request(_SELECTION, about="Which jobs to delete."),
    "BulkRun": request({**_SELECTION, **_RUN}, about="Which jobs to run, and how."),
    "BulkRuns": response(
        {
            "dryRun": BOOLEAN,
            "count": {**WHOLE, "description": "How many jobs were run, or would be."},
            "jobs": list_of(response(_REF)),
            "runs": list_of(ref("Run")),
            "notDue": {**list_of(response(_REF)), "description": "With the mode `due`: no tick is due."},
            "errors": list_of(response({**_REF, "code": TEXT, "message": TEXT})),
        },
        about="The runs that were started, and the jobs that could not be run.",
    ),
    "BulkResult": response(
        {
            "dryRun": BOOLEAN,
            "count": {**WHOLE, "description": "How many jobs were changed, or would be."},
            "jobs": list_of(response({**_REF, "nextAt": or_null(INSTANT), "pausedUntil": or_null(INSTANT)})),
            "unchanged": {**WHOLE, "description": "How many selected jobs need no change."},
            "errors": list_of(response({**_REF, "code": TEXT, "message": TEXT})),
            "warnings": WARNINGS,
        },
        "warnings",
        about="The jobs that were changed, and those that could not be.",
    ),
    "DeletedJob": response({"warnings": WARNINGS}, about="What the deletion means for other jobs."),
    "SavedJob": response(
        {**_JOB, "nextTicks": _TICKS, "secret": SECRET, "warnings": WARNINGS},
        *_SOME_ONLY,
        "secret",
        "warnings",
        about="A saved job.",
    ),
    "Jobs": response(
        {
            "jobs": list_of(ref("Job")),
            "cursor": {
                **or_null(TEXT),
                "description": "Send it as `cursor` for the next page; null on the last.",
            },
            "count": {**WHOLE, "description": f"How many jobs match, at most {MOST_COUNTED}."},
            "hasMore": {**BOOLEAN, "description": "Whether more match than were counted."},
        },
        "count",
        "hasMore",
        about="A page of a list.",
    ),
    "JobDocument": request(_OPTIONAL, "name", about="A job; a null is the same as a missing field."),
    "JobBatch": request(
        {"jobs": {**list_of(ref("JobDocument")), "minItems": 1, "maxItems": MAX_BATCH}},
        "jobs",
        about="Jobs to create, all or none.",
    ),
    "SavedJobs": response({"jobs": list_of(ref("SavedJob"))}, about="Jobs that were created."),
    "NamedJobDocument": request(_OPTIONAL, about="A job; its name is in the path."),
    "JobPatch": request(_OPTIONAL, about="The fields to change; null resets a field to its default."),
    "RunRequest": request(_RUN),
    "Hook": schema_of_class(model.Hook),
    "NewHook": schema_of_class(
        model.Hook,
        "token",
        "url",
        about="A new trigger URL of a job.",
        others={"token": TEXT, "url": {"type": "string", "format": "uri"}},
    ),
    "Revisions": response({"revisions": list_of(schema_of_class(model.Revision))}),
    "SearchResult": response(
        {
            "jobs": list_of(response({**_REF, "enabled": BOOLEAN})),
            "agents": list_of(SLUG),
            "runs": list_of(
                response({"id": ID, "agentId": SLUG, "job": or_null(SLUG), "state": ref("RunState")})
            ),
        },
        about="What a search found: a few of each kind.",
    ),
    "HookRun": response(
        {"id": ID, "job": SLUG, "state": ref("RunState"), "trigger": ref("Trigger")},
        about="The run that a request to a trigger URL has started.",
    ),
    "Backfill": request(
        {
            "start": TIME,
            "end": TIME,
            "overlapPolicy": or_null(ref("BackfillOverlap")),
        },
        "start",
        "end",
    ),
    "Count": response({"count": WHOLE}),
}
