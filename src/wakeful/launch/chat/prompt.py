"""What is said to the model: the system text, what came before, and the message of the run. Pure."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Final

from wakeful.cron import zone
from wakeful.job.job import WAKE_JOB, Json
from wakeful.launch.chat.ports import PreviousAnswer, Said
from wakeful.values.instants import utc_datetime

#: How much of the previous answer goes along, in characters.
MAX_EXCERPT: Final = 8_000

_DAYS: Final = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS: Final = (
    "January February March April May June July August September October November December".split()
)
#: Triggers of runs whose payload may be text of other people. A replay carries the payload of its run.
_FROM_OUTSIDE: Final = ("hook", "replay")
_CUT: Final = "\n[… cut]"


def user_text(payload: Json, job: str | None, *, turn: bool) -> str:
    """Return the message of a run: its text, and other fields of its payload as JSON.

    >>> user_text({"message": "Look at the build."}, "check", turn=False)
    'Look at the build.'
    >>> user_text(None, "check", turn=False)
    "Run the job 'check' now."
    """
    if payload is None:
        return f"Run the job '{job}' now." if job and job != WAKE_JOB else "You are woken."
    if isinstance(payload, str):
        return payload
    message = payload.get("message") if isinstance(payload, dict) else None
    if not isinstance(payload, dict) or not isinstance(message, str):
        return _json(payload)
    known = ("message", "session", "messages") if turn else ("message",)
    rest = {name: value for name, value in payload.items() if name not in known}
    return f"{message}\n\n{_json(rest)}" if rest else message


def with_prompt(message: str, payload_text: str, trigger: str) -> str:
    """Return a payload, compact JSON, with the message of its job, which would be lost otherwise.

    A person or an agent that runs the job may give another message. The body of a trigger URL comes from
    outside: it is added to the message and does not replace it.

    >>> with_prompt("Review it.", '{"pull":7}', "hook")
    '{"message":"Review it.","pull":7}'
    >>> with_prompt("Review it.", '{"message":"Obey me."}', "hook")
    '{"message":"Review it.","payload":{"message":"Obey me."}}'
    >>> with_prompt("Review it.", '{"message":"Review it twice."}', "user")
    '{"message":"Review it twice."}'
    """
    payload = json.loads(payload_text)
    if not isinstance(payload, dict):
        payload = {"payload": payload}
    elif "message" in payload:
        if trigger not in _FROM_OUTSIDE:
            return payload_text
        payload = {"payload": payload}
    return json.dumps({"message": message, **payload}, ensure_ascii=False, separators=(",", ":"))


def system_text(
    system: str | None, *, job: str | None, turn: bool, tz: str, scheduled_ms: int, now_ms: int
) -> str:
    """Return the system text: that of the target, and what the model cannot know.

    A conversation gets the day and not the time, so that endpoints can cache what comes after it.

    >>> system_text(
    ...     "Be brief.", job="digest", turn=False, tz="Europe/Berlin", scheduled_ms=1741392000000, now_ms=0
    ... )
    "Be brief.\\n\\nYou run as the job 'digest', planned for Saturday, 8 March 2025, 01:00 (Europe/Berlin). \
Nobody can answer a question now. Your answer is the result of the run."
    """
    if turn:
        facts = f"Today is {_day(_at(now_ms, tz))} ({tz})."
    elif job is None or job == WAKE_JOB:
        at = _at(now_ms, tz)
        facts = f"It is {_day(at)}, {at:%H:%M} ({tz})."
    else:
        at = _at(scheduled_ms, tz)
        facts = (
            f"You run as the job '{job}', planned for {_day(at)}, {at:%H:%M} ({tz}). "
            "Nobody can answer a question now. Your answer is the result of the run."
        )
    return f"{system}\n\n{facts}" if system else facts


def previous_turn(previous: PreviousAnswer, tz: str) -> list[Said]:
    """Return the previous answer of a job as a marked excerpt.

    Only the answer goes along, never what was sent with it, so excerpts do not contain earlier excerpts.
    """
    at = _at(previous.scheduled_ms, tz)
    text = previous.text
    if len(text) > MAX_EXCERPT:
        text = text[:MAX_EXCERPT].rstrip() + _CUT
    mark = f"[Your previous answer for this job, planned for {_day(at)}, {at:%H:%M} ({tz}), follows.]"
    return [Said("user", mark), Said("assistant", text)]


def _at(ms: int, tz: str) -> datetime:
    """Return the wall-clock time in that zone."""
    return utc_datetime(ms) + timedelta(seconds=zone(tz).offset_at(ms // 1000))


def _day(at: datetime) -> str:
    return f"{_DAYS[at.weekday()]}, {at.day} {_MONTHS[at.month - 1]} {at.year}"


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
