"""Jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from wakeful.cron import DstGap, DstOverlap
from wakeful.job import Chain, Json
from wakeful.model.enums import CatchupPolicy, OverlapPolicy
from wakeful.model.run import Run
from wakeful.policy import Backoff, OnLost
from wakeful.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job: its definition and its state."""

    id: str
    workspace: str
    agent: str
    name: str
    #: False: it is paused, or it ended; see `disabled_reason`
    enabled: bool
    #: why it is not enabled: `paused`, `max_runs`, `failed`, `gone` …
    disabled_reason: str | None
    #: why it is paused
    pause_note: str | None
    #: when it resumes by itself
    paused_until: datetime | None

    #: None for a job that only fires `after` another
    schedule: Schedule | None
    #: the IANA zone of the schedule
    tz: str | None
    #: the schedule in words
    explain: str
    #: no tick is earlier
    start_at: datetime | None
    #: no tick is later
    end_at: datetime | None
    #: days without ticks
    exclude: tuple[str, ...]
    #: what happens to a fixed time in the spring gap; None without a schedule
    dst_gap: DstGap | None
    #: what happens to a fixed time in the autumn overlap; None without a schedule
    dst_overlap: DstOverlap | None
    #: fires when a run of that job ends
    after: Chain | None

    #: its own target with its `kind`; None: the target of its agent
    target: Mapping[str, Json] | None
    payload: Json
    message: str | None
    #: its runs start without the history of the session
    stateless: bool
    #: its output is delivered to a channel
    deliver: bool
    channel: str | None
    to: str | None
    #: a success fires the heartbeat of its agent
    wake_heartbeat: bool
    lane: str
    #: the hours in which its runs start, such as `08:00-22:00`
    active_hours: str | None
    #: what decides before each launch whether there is work
    precheck: Mapping[str, Json] | None
    #: the most that its runs may use in a day
    budget: Mapping[str, Json] | None

    overlap_policy: OverlapPolicy
    max_queued: int
    catchup_policy: CatchupPolicy
    catchup_window: timedelta
    misfire_grace: timedelta
    jitter: timedelta
    max_attempts: int
    backoff: Backoff
    #: per attempt; None: the default of its target
    timeout: timedelta | None
    max_runs: int | None
    #: what happens to a run whose worker died
    on_lost: OnLost
    #: disable it after so many failed runs in a row
    disable_after: int | None
    delete_after_run: bool
    #: how long a run waits for an executor to claim it
    claim_timeout: timedelta

    description: str
    labels: Mapping[str, str]

    #: its next tick; None: there is none, or it is paused
    next_at: datetime | None
    #: how many ticks became runs
    run_count: int
    #: how many runs in a row failed
    failures: int
    #: increases with each edit; `update` takes it as `if_version`
    revision: int
    created_at: datetime
    #: role and name of its creator, such as `admin:key:1f`; None: not recorded
    created_by: str | None
    updated_at: datetime

    #: of a workflow job: the workflow, its version and its user
    workflow_id: str | None = None
    version: int | None = None
    user_id: str | None = None

    #: its next 5 ticks; not in lists
    next_ticks: tuple[datetime, ...] = ()
    #: its last 5 runs, newest first; only in `get`
    last_runs: tuple[Run, ...] = ()
    #: what its runs used today, such as tokens and cost; only in `get`
    spent: Mapping[str, Json] | None = None
    #: the run that records the skipped tick; only in `skip_next`
    skipped: Run | None = None
    #: its new webhook secret, shown once; only in `create`, `upsert`, `update` and `rotate_secret`
    secret: str | None = field(default=None, repr=False)
    #: whether this call created it; only in `create` and `upsert`
    created: bool = False
