"""The fields of a job as Python programs write them: what an editor offers, and what a type checker checks.

They are those of a job document, in Python's spelling; `wakeful.document` reads them, and says what is wrong
with one. A field that is left out, or None, has its default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypedDict

from wakeful.calendars import Calendar
from wakeful.cron import DstGap, DstOverlap
from wakeful.policy import Catchup, OnLost, Overlap
from wakeful.schedule import Schedule
from wakeful.target import Target

#: `"0 9 * * 1-5"`, `"@daily"`, `"every 15m"`, `"in 20m"`, an ISO 8601 time, a datetime (once), a timedelta
#: (an interval), or a mapping such as `{"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Berlin"}`.
ScheduleLike = str | datetime | timedelta | Schedule | Mapping[str, object]
#: `"30s"`, `"1h30m"`, or a timedelta.
Duration = str | timedelta
#: Whatever JSON can say.
JsonLike = Mapping[str, object] | Sequence[object] | str | int | float | bool | None
#: Milliseconds since 1970, an ISO 8601 time, or a datetime; without a zone of its own, in the job's.
Instant = int | str | datetime


class JobOptions(TypedDict, total=False):
    """What a job may say beside when and where."""

    #: False: it is created paused. An upsert leaves a pause as it is
    enabled: bool
    #: any JSON; a webhook sends it verbatim, a function finds it in `run.payload`
    payload: JsonLike
    #: short for the payload `{"message": …}`: what the agent is told
    message: str | None
    description: str | None
    labels: Mapping[str, str] | None

    #: what a tick becomes while a run before it is under way (`skip`)
    overlap_policy: Overlap | None
    #: how many runs may wait, with `overlap_policy="queue"` (100)
    max_queued: int | None
    #: what becomes of ticks that were missed while nobody was awake (`none`)
    catchup_policy: Catchup | None
    #: nothing older is caught up with (24 h)
    catchup_window: Duration | None
    #: how late a tick may be and is not yet missed (60 s)
    misfire_grace: Duration | None
    #: each tick fires up to so much earlier or later, the same on every replica (0)
    jitter: Duration | None

    #: how often a run is tried (5)
    max_attempts: int | None
    #: the first wait and the longest: `{"base": "2s", "max": "30s"}`
    backoff: Mapping[str, object] | None
    #: how long one attempt may take (10 min; a webhook 30 s)
    timeout: Duration | None
    #: how long a run waits for an executor to claim it (1 h)
    claim_timeout: Duration | None
    #: what becomes of a run whose worker died: tried again, or failed where it must not start twice
    on_lost: OnLost | None
    #: disable the job when so many of its runs in a row have failed
    disable_after: int | None

    #: no tick before this one, and none after that one
    start_at: Instant | None
    end_at: Instant | None
    #: so many runs and no more
    max_runs: int | None
    #: delete the job when its run has succeeded (an `at` job is, unless this says False)
    delete_after_run: bool | None
    #: days without ticks: `"2027-12-24"`, `"2027-12-24/2028-01-01"`, `"holidays:DE-BY"`
    exclude: str | Sequence[str] | Calendar | None
    #: what the spring gap and the autumn overlap do to a fixed time (`run_after`, `first`)
    dst_gap: DstGap | None
    dst_overlap: DstOverlap | None

    #: fire when a run of another job ends: its name, or `{"job": "extract", "on": "failed"}`
    after: str | Mapping[str, str] | None
    #: whose concurrency limit its runs count towards (`cron`)
    lane: str | None

    stateless: bool | None
    deliver: bool | None
    channel: str | None
    to: str | None
    wake_heartbeat: bool | None
    #: its runs start within these hours of its zone, and at no others: `"08:00-22:00"`
    active_hours: str | None
    #: who says before each launch whether there is anything to do: `{"kind": "function", "name": …}`,
    #: `{"kind": "webhook", "url": …}` or `{"kind": "command", "argv": […]}`
    precheck: Mapping[str, object] | None
    #: how much its runs may use on one day (UTC): `{"tokens_per_day": 200_000, "cost_per_day": 5}`
    budget: Mapping[str, object] | None


class JobFields(JobOptions, total=False):
    """What a job may say."""

    #: when it fires; a job that fires `after` another needs none
    schedule: ScheduleLike | None
    #: an IANA zone such as `"Europe/Berlin"`, where the schedule does not name one
    tz: str | None
    #: where its runs go: a `Webhook`, a `Function`, a `Command`, or a mapping with a `kind`
    target: Target | Mapping[str, object] | None
    #: short for a webhook target
    webhook_url: str | None
    workflow_id: str | None
    version: int | None
    user_id: str | None


class JobPatch(JobFields, total=False):
    """What can be changed about a job; None puts a field back to its default."""

    #: its new name
    name: str
