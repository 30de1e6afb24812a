"""The texts for models: the description of the tool, its arguments, advice on scheduling, instants in words.

A model has no clock, so an instant has date, time, zone and distance from now.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from wakeful.cron import zone
from wakeful.document.fields import DECLARED, OTHER, Field
from wakeful.service.cron_tool.normalize_arguments import ACTIONS
from wakeful.values.duration import DAY, HOUR, MINUTE, SECOND, spell_duration
from wakeful.values.json_value import Json

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

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_THEN: Final = 2  # ticks after the next one


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


def now_in_words(now_ms: int, tz: str) -> str:
    """Return the current time, as ISO 8601 and in words.

    >>> now_in_words(1_803_924_000_000, "Europe/Berlin")
    'It is now 2027-03-01T19:00:00+01:00, that is Monday 1 March 2027 at 19:00 Europe/Berlin.'
    """
    return f"It is now {iso(now_ms, tz)}, that is {_day_and_time(_wall(now_ms, tz))} {tz}."


def iso(ms: int, tz: str) -> str:
    """Return an instant as ISO 8601 with the offset of the zone."""
    return _wall(ms, tz).isoformat(timespec="seconds")


def when_in_words(ms: int, now_ms: int, tz: str) -> str:
    """Return an instant relative to now.

    >>> when_in_words(1_803_974_400_000, 1_803_924_000_000, "Europe/Berlin")
    'tomorrow, Tuesday 2 March 2027 at 09:00 Europe/Berlin (in 14 hours)'
    >>> when_in_words(1_803_924_600_000, 1_803_924_000_000, "UTC")
    'today, Monday 1 March 2027 at 18:10 UTC (in 10 minutes)'
    """
    at, now = _wall(ms, tz), _wall(now_ms, tz)
    near = {-1: "yesterday, ", 0: "today, ", 1: "tomorrow, "}.get((at.date() - now.date()).days, "")
    return f"{near}{_day_and_time(at)} {tz} ({away(ms - now_ms)})"


def away(ms: int) -> str:
    """Return the distance from now, rounded.

    >>> away(5_400_000), away(50_400_000), away(-90_000), away(0)
    ('in 1 hour 30 minutes', 'in 14 hours', '1 minute 30 seconds ago', 'now')
    """
    length = abs(ms)
    steps = ((10 * MINUTE, SECOND), (10 * HOUR, MINUTE), (2 * DAY, HOUR))
    step = next((step for most, step in steps if length < most), DAY)
    rounded = (length + step // 2) // step * step
    if not rounded:
        return "now"
    return f"in {spell_duration(rounded)}" if ms > 0 else f"{spell_duration(rounded)} ago"


def next_in_words(job: Mapping[str, Json], now_ms: int) -> str:
    """Return when a job fires next, and after that; or why it does not fire.

    >>> paused = {"enabled": False, "tz": "UTC", "pausedUntil": "2027-03-01T19:00:00.000Z"}
    >>> next_in_words(paused, 1_803_924_000_000)
    'next: after it resumes by itself, today, Monday 1 March 2027 at 19:00 UTC (in 1 hour)'
    """
    tz, next_ms = str(job.get("tz") or "UTC"), job.get("nextAtMs")
    if not isinstance(next_ms, int):
        if job.get("enabled"):
            return f"next: {_lower(str(job.get('explain')))}"
        until = job.get("pausedUntil")
        if isinstance(until, str):
            until_ms = round(datetime.fromisoformat(until).timestamp() * 1000)
            return f"next: after it resumes by itself, {when_in_words(until_ms, now_ms, tz)}"
        return f"next: never, the job is not enabled ({job.get('disabledReason') or 'paused'})"
    text = f"next: {when_in_words(next_ms, now_ms, tz)}"
    ticks = job.get("nextTicks")
    later = [tick["atMs"] for tick in ticks if isinstance(tick, dict)] if isinstance(ticks, list) else []
    then = [_day_and_time(_wall(ms, tz)) for ms in later if isinstance(ms, int) and ms > next_ms][:_THEN]
    return f"{text}, then {' and '.join(then)}" if then else text


def _wall(ms: int, tz: str) -> datetime:
    return (_EPOCH + timedelta(milliseconds=ms)).astimezone(zone(tz).tzinfo)


def _day_and_time(at: datetime) -> str:
    clock = f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"
    return f"{_DAYS[at.weekday()]} {at.day} {_MONTHS[at.month - 1]} {at.year} at {clock}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
