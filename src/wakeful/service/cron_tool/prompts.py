"""The texts for models: the description of the tool, its arguments, and advice on scheduling."""

from __future__ import annotations

from typing import Final

from wakeful.document.fields import DECLARED, OTHER, Field
from wakeful.job.job import Json
from wakeful.service.cron_tool.normalize_arguments import ACTIONS

ABOUT: Final = """\
Schedule your own work: you are woken at the time you set, with the message you wrote.

Actions:
- add: {"action":"add","job":{"name":"check-build","schedule":"in 20 minutes","message":"Look whether …"}}
- list: your jobs, and when each fires next; get: {"action":"get","jobId":"check-build"}, one job in full
- update: {"action":"update","jobId":"check-build","job":{"schedule":"every weekday at 9"}}
- pause: {"action":"pause","jobId":"check-build","until":"tomorrow at 9"}; resume
- remove: {"action":"remove","jobId":"check-build"}
- run: run a job now; runs: what became of the last runs, of one job or of all; status
- if you are an agent class: instances, one instance ("instance":"eu"), and \
{"action":"signal","signal":"report.generate","instance":"eu","data":{…}}

schedule is one of:
- once: "in 20 minutes", "tomorrow at 9", "2027-03-01T09:00", {"kind":"at","at":"2027-03-01T09:00","tz":"…"}
- again and again: "every 15m", {"kind":"every","everyMs":900000}
- by the calendar: "every weekday at 9", "0 9 * * 1-5", {"kind":"cron","expr":"0 9 * * 1-5","tz":"…"}
Name the time zone ("tz", such as "Europe/Berlin") when the hour matters.
In a run that a schedule started, you can add jobs that fire once, and only a few; ask a person for others.

The message must make sense by itself: when it wakes you, this conversation may be gone. Every answer says \
what time it is now; do not guess."""

INSTRUCTIONS: Final = (
    "The tool `cron` schedules work for later: reminders, follow-ups, things to look at again and again. "
    "The prompt `schedule-well` says how to do it well."
)

SCHEDULE_WELL: Final = """\
You can schedule work for yourself with the tool `cron`. Do it well:

1. Know the time before you say one. Every answer of the tool says what time it is. A time in the past is \
refused.
2. Say absolute times with their zone: {"schedule":"2027-03-01T09:00","tz":"Europe/Berlin"}. "Tomorrow at 9" \
is read on the clocks of `tz`, or of your own zone, and the answer says which instant that is: compare it \
with what was meant. Ask the user when you do not know their zone.
3. Choose the kind:
   - once, at a moment: `at`. It is deleted by itself when its run has succeeded.
   - so long after each other, whatever the clock shows: `every` ("every 15m").
   - on days and hours of the calendar: `cron` ("0 9 * * 1-5", or "every weekday at 9"), with a zone. It \
follows summer time; an interval does not.
4. Write a message that stands by itself. A later turn may have nothing of this conversation: say what to \
do, for whom, with which names, links and numbers, where the result goes, and when to stop.
5. Do not poll what can tell you. Where there is an event, a webhook or a job to come `after`, use that. \
Where you must look again and again, look seldom, give it an end (`endAt`, `maxRuns`), and remove the job as \
soon as what you waited for has happened. You may remove the job that you are running in.
6. Use `deleteAfterRun` for a recurring job that is over once a run of it has succeeded: a check that is \
tried until it finds something, and fails until then.
7. Mind the cost. Each run is a paid turn: an hourly job is 720 turns a month. Prefer \
one job that looks at many things to many jobs, and the slowest pace that does.
8. Clean up. `list` before you add, and `update` what is there rather than adding another like it. Remove \
what is no longer needed. Names say what a job is for: `check-build`, not `job-1`.
9. Say what you did: tell the user when it will fire, in their zone, and how to stop it."""

_WHEN: Final[dict[str, Json]] = {
    "anyOf": [{"type": "string"}, {"type": "object"}],
    "description": "when: 'in 20 minutes', 'tomorrow at 9', '2027-03-01T09:00', 'every 15m', "
    "'every weekday at 9', '0 9 * * 1-5', or an object with kind at, every or cron",
}


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _field(field: Field) -> Json:
    """The schema of a job field without bounds: values in other forms are coerced."""
    types = {"flag": "boolean", "number": "integer"}
    return {"type": types.get(field.kind.form, "string"), "description": field.spec.tool}


#: The fields of a job, as JSON Schema.
JOB: Final[dict[str, Json]] = {
    "schedule": _WHEN,
    **{field.name: _field(field) for field in (*OTHER, *DECLARED) if field.spec.tool},
    "payload": {"type": "object", "description": "data for the run, instead of a message"},
}

#: The arguments, as JSON Schema. It says what is best, and forbids nothing that is understood.
ARGUMENTS: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": [*ACTIONS], "description": "what to do"},
        "job": {
            "type": "object",
            "description": "the job, for add; the fields to change, for update",
            "properties": JOB,
        },
        "jobId": _text("the name or the id of the job, for all actions but add, list and status"),
        "agentId": _text("whose jobs; left out, your own"),
        "until": _text("pause: when the job resumes by itself, such as 'tomorrow at 9'"),
        "note": _text("pause: why"),
        "limit": {"type": "integer", "description": "how many jobs, runs or instances to list"},
        "includeDisabled": {"type": "boolean", "description": "list paused jobs too (true)"},
        "cursor": _text("the next page of a long list: the last name of the previous page"),
        "instance": _text("instance, signal: the instance of your agent; left out, 'default'"),
        "signal": _text("signal: its type, such as 'report.generate'"),
        "data": {"description": "signal: any JSON"},
        "mode": {"type": "string", "enum": ["force", "due"], "description": "run: always, or only if due"},
        "context": {
            "type": "object",
            "description": "where this conversation is: deliver, channel and to for a job that says none",
        },
    },
    "required": ["action"],
}

_DONE: Final[dict[str, Json]] = {"type": ["object", "null"], "additionalProperties": True}


def _object(properties: dict[str, Json], *required: str) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": True}


#: What is in every answer as JSON, with what the action was about.
CONTENT: Final[dict[str, Json]] = _object(
    {
        "now": _text("the current time, ISO 8601"),
        "nowMs": {"type": "integer", "description": "the current time, milliseconds since 1970"},
        "tz": _text("the zone of times that name none"),
        "job": _object(
            {
                "id": {"type": "string"},
                "name": {"type": "string"},
                "agentId": {"type": "string"},
                "enabled": {"type": "boolean"},
                "explain": _text("the schedule in words"),
                "nextAt": {"type": "string"},
                "nextAtMs": {"type": "integer"},
                "secret": _text("signs its webhook; not shown again"),
            },
            *("id", "name", "agentId", "enabled", "explain"),
        ),
        "next": _text("when the job fires next, in words"),
        "jobs": {
            "type": "array",
            "description": "list: the jobs, by name",
            "items": _object(
                {
                    "id": {"type": "string"},
                    "name": {"type": "string"},
                    "enabled": {"type": "boolean"},
                    "schedule": _text("in words"),
                    "nextAt": {"type": ["string", "null"]},
                    "next": _text("when it fires next, in words"),
                    "message": {"type": "string"},
                },
                *("id", "name", "enabled", "schedule", "nextAt", "next"),
            ),
        },
        "cursor": {
            "type": ["string", "null"],
            "description": "list: the cursor of the next page; null: none",
        },
        "run": {**_DONE, "description": "run: the run that was started; null: the job was not due"},
        "runs": {
            "type": "array",
            "description": "runs: newest first",
            "items": _object(
                {"id": {"type": "string"}, "state": {"type": "string"}, "trigger": {"type": "string"}},
                *("id", "state", "trigger"),
            ),
        },
        "instances": {
            "type": "array",
            "description": "instances: by id",
            "items": _object(
                {"id": {"type": "string"}, "status": {"type": "string"}, "waiting": {"type": "integer"}},
                *("id", "status", "waiting"),
            ),
        },
        "instance": _object(
            {"id": {"type": "string"}, "status": {"type": "string"}, "state": {"type": "object"}},
            *("id", "status"),
        ),
        "removed": _object({"id": {"type": "string"}, "name": {"type": "string"}}, "id", "name"),
        "status": {"type": "object", "description": "status: jobs and runs by state, and what comes next"},
        "error": _object({"code": {"type": "string"}, "message": {"type": "string"}}, "code", "message"),
    }
)
