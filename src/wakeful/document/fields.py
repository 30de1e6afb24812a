"""The fields of a job document: what each is called, how it is read, and how it is written again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from wakeful.calendars import stored_exclude
from wakeful.cron import DstGap, DstOverlap
from wakeful.document.guards import budget, precheck
from wakeful.document.values import (
    Reader,
    after,
    backoff,
    choice,
    description,
    exclude,
    flag,
    hours,
    labels,
    milliseconds,
    slug,
    text,
    whole,
)
from wakeful.duration import DAY
from wakeful.job import Json
from wakeful.policy import Backoff, Catchup, OnLost, Overlap
from wakeful.schedule import schedule_from_json

MAX_MESSAGE: Final = 65536
_MANY: Final = 1_000_000_000


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its name in JSON, the attribute it becomes, and the way there and back.

    `read` judges what somebody wrote, and is None where that takes more than the value itself; `restore`
    takes back what `write` wrote.
    """

    name: str
    attr: str
    read: Reader | None
    write: Callable[[Any], Json] = _same
    restore: Callable[[Any], Any] = _same


def _object(value: Mapping[str, Json] | None) -> Json:
    return None if value is None else dict(value)


TIMING: Final = (
    Field("schedule", "schedule", None, lambda schedule: schedule.to_json(), schedule_from_json),
    Field("startAt", "start_ms", None),
    Field("endAt", "end_ms", None),
    Field("exclude", "exclude", exclude, lambda calendar: calendar.to_json(), stored_exclude),
    Field("dstGap", "dst_gap", choice(DstGap)),
    Field("dstOverlap", "dst_overlap", choice(DstOverlap)),
)
WORK: Final = (
    Field("target", "target", None, _object),
    Field("message", "message", text(MAX_MESSAGE)),
    Field("stateless", "stateless", flag),
    Field("deliver", "deliver", flag),
    Field("channel", "channel", text(255)),
    Field("to", "to", text(1024)),
    Field("wakeHeartbeat", "wake_heartbeat", flag),
    Field("lane", "lane", slug("lane")),
    Field("activeHours", "active_hours", hours),
    Field("precheck", "precheck", precheck, _object),
    Field("budget", "budget", budget, _object),
)
#: and what is kept beside it, that no document says so: whose target it is, and which zone its hours are of
STORED_WORK: Final = (*WORK, Field("inherited", "inherited", None), Field("hoursTz", "hours_tz", None))
POLICY: Final = (
    Field("overlapPolicy", "overlap", choice(Overlap)),
    Field("maxQueued", "max_queued", whole(1, 10_000)),
    Field("catchupPolicy", "catchup", choice(Catchup)),
    Field("catchupWindowMs", "catchup_window_ms", milliseconds(0)),
    # With less grace than an engine sleeps, every tick would be found missed.
    Field("misfireGraceMs", "misfire_grace_ms", milliseconds(1000)),
    Field("jitterMs", "jitter_ms", milliseconds(0, DAY)),
    Field("maxAttempts", "max_attempts", whole(1, 100)),
    Field(
        "backoff",
        "backoff",
        backoff,
        lambda value: {"baseMs": value.base_ms, "maxMs": value.max_ms},
        lambda value: Backoff(value["baseMs"], value["maxMs"]),
    ),
    Field("timeoutMs", "timeout_ms", milliseconds(1)),
    Field("maxRuns", "max_runs", whole(1, _MANY)),
    Field("onLost", "on_lost", choice(OnLost)),
    Field("disableAfter", "disable_after", whole(1, _MANY)),
    Field("deleteAfterRun", "delete_after_run", flag),
    Field("claimTimeoutMs", "claim_timeout_ms", milliseconds(1)),
)
ABOUT: Final = (
    Field("after", "after", after, lambda value: value and {"job": value.job, "on": value.on}),
    Field("description", "description", description),
    Field("labels", "labels", labels, dict),
)
