"""The schemas of jobs in requests and responses, and of what is known before a job is saved.

The schema of a plain field follows from its declaration; those of objects and lists are written here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wakeful import model
from wakeful.api.http.schemas.enums import named
from wakeful.api.http.schemas.parts import (
    ANY,
    BOOLEAN,
    BUDGET,
    DURATION,
    OBJECT,
    READ_ONLY,
    SECRET,
    SLUG,
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
from wakeful.document.fields import DECLARED, MAX_URL, OTHER, RESPONSE_ONLY, Field
from wakeful.document.guards import LONGEST_NAME, MANUAL, MAX_NAMES
from wakeful.document.kinds import LONGEST_LABEL, MAX_LABELS, milliseconds
from wakeful.model import job as model_job
from wakeful.model import operations
from wakeful.schedule.calendars import MAX_ENTRIES
from wakeful.schedule.schedules import LONGEST_TEXT, SHORTEST_INTERVAL_MS
from wakeful.service.jobs import schedule_previews, target_tests
from wakeful.service.jobs.job_batches import MAX_BATCH
from wakeful.service.jobs.job_query import CHOICES, MAX_JOBS, MAX_LABEL_FILTERS
from wakeful.service.jobs.job_query import LONGEST as LONGEST_FILTER
from wakeful.service.jobs.jobs import MOST_COUNTED
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
    "on": request({"server": SLUG, "event": TEXT, "arguments": OBJECT}, "server", "event"),
    "labels": _LABELS,
    "tz": {"type": "string", "examples": ["Europe/Berlin"]},
    "payload": ANY,
    "webhookUrl": {"type": "string", "maxLength": MAX_URL, "pattern": _HTTP},
}
#: In responses, fields whose values are objects.
_RESPONSE: Final[dict[str, Schema]] = {
    "target": or_null(_TARGET),
    "backoff": response({"baseMs": WHOLE, "maxMs": WHOLE}),
    "after": or_null(response({"job": SLUG, "on": ref("ChainOn"), "output": BOOLEAN}, "output")),
    "labels": _LABELS,
    "skipped": ref("Run"),
    "origin": or_null(response({"session": or_null(TEXT), "channel": or_null(TEXT), "to": or_null(TEXT)})),
}


def _in_request(field: Field) -> Schema:
    schema = _REQUEST[field.name] if field.name in _REQUEST else named(schema_of(field.kind))
    return {**schema, "description": schema.get("description", field.doc)}


def _in_response(field: Field) -> Schema:
    schema = named(schema_of(field.kind))
    return or_null(schema) if field.nullable else schema


#: The fields of a job document in a request, by every name that they have.
DOCUMENT: Final[dict[str, Schema]] = {
    **{field.name: _in_request(field) for field in (*OTHER, *DECLARED)},
    "cron": {**_SCHEDULE, "description": "Short for `schedule`."},
    "scheduleText": {"type": "string", "description": "Short for a `schedule` in words."},
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
#: The forms of fields with bounds or words.
_BOUNDED: Final = ("flag", "number", "duration", "choice", "slug")
#: The schemas of a job in responses: plain fields have the bounds of their declaration.
_OTHERS: Final[dict[str, Schema]] = {
    **{field.name: _in_response(field) for field in DECLARED if field.kind.form in _BOUNDED},
    **_RESPONSE,
}
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
            "internal": "`hide`: without the jobs that Wakeful creates for itself, such as heartbeats.",
        }.items()
    },
    "all": {**or_null(BOOLEAN), "description": "Every job; required if nothing else selects jobs."},
    "dryRun": {**or_null(BOOLEAN), "description": "Count the jobs and change nothing."},
}
_NAMED_JOB: Final[Schema] = or_null(text(LONGEST_TEXT))


def _job(*extras: str, optional: Iterable[str] = (), about: str) -> Schema:
    return schema_of_class(model.Job, *extras, optional=optional, about=about, others=_OTHERS)


SCHEMAS: Final[dict[str, Schema]] = {
    "Job": _job(about="A job."),
    "EventChallenge": response({"challenge": TEXT}, about="The challenge of a verification, as it was sent."),
    "JobWithTicks": _job(
        "next_ticks",
        "hook",
        "precheck_state",
        "subscription",
        "spent",
        "last_runs",
        "warnings",
        optional=("hook", "precheckState", "subscription", "spent", "lastRuns", "warnings"),
        about="A job with its next 5 ticks; when it is read, with its last 5 runs, newest first.",
    ),
    "SkippedTick": _job(
        "next_ticks",
        "skipped",
        about="A job after its next tick was skipped, and the run that records that tick.",
    ),
    "Pause": request(_PAUSE),
    "BulkPause": request({**_SELECTION, **_PAUSE}, about="Which jobs to pause, why, and until when."),
    "BulkResume": request(_SELECTION, about="Which jobs to resume."),
    "BulkDelete": request(_SELECTION, about="Which jobs to delete."),
    "BulkRun": request({**_SELECTION, **_RUN}, about="Which jobs to run, and how."),
    "BulkResult": schema_of_class(model.BulkResult, "warnings", optional=("warnings",)),
    "DeletedJob": response({"warnings": WARNINGS}, about="What the deletion means for other jobs."),
    "SavedJob": _job(
        "next_ticks", "secret", "warnings", optional=("secret", "warnings"), about="A saved job."
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
    "CreatedJob": response(
        {**schema_of_class(model_job.JobId)["properties"], "secret": SECRET, "warnings": WARNINGS},
        "secret",
        "warnings",
        about="What a caller does not know of a job that was created with others.",
    ),
    "SavedJobs": response(
        {"jobs": list_of({"anyOf": [ref("SavedJob"), ref("CreatedJob")]})}, about="Jobs that were created."
    ),
    "NamedJobDocument": request(_OPTIONAL, about="A job; its name is in the path."),
    "JobPatch": request(_OPTIONAL, about="The fields to change; null resets a field to its default."),
    "RunRequest": request(_RUN),
    "NewHook": schema_of_class(
        model.Hook,
        "token",
        "url",
        about="A new trigger URL of a job.",
        others={"token": TEXT, "url": {"type": "string", "format": "uri"}},
    ),
    "Revisions": response({"revisions": list_of(schema_of_class(model.Revision))}),
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
    "SchedulePreviewRequest": request(
        {
            **{name: or_null(DOCUMENT[name]) for name in schedule_previews.FIELDS},
            "agentId": {**or_null(SLUG), "description": "The agent of the job; it may have a default zone."},
            "job": {**_NAMED_JOB, "description": "The job that the schedule is for: its name or id."},
            "count": {
                **or_null(whole(1, schedule_previews.MAX_TICKS)),
                "description": f"How many ticks; {schedule_previews.DEFAULT_TICKS} by default.",
            },
        }
    ),
    "TargetTestRequest": request(
        {
            **{name: or_null(DOCUMENT[name]) for name in target_tests.FIELDS},
            "job": {
                **_NAMED_JOB,
                "description": "A job, whose secret signs the request. Fields that are left out are those of "
                "the job.",
            },
        }
    ),
    "TargetTest": schema_of_class(operations.TargetTest, "secret", optional=("secret",)),
    "JobDraft": request(
        dict.fromkeys((*DOCUMENT, *RESPONSE_ONLY), ANY),
        about="The document of a job, which need not be valid yet.",
    ),
}
