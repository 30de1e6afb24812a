"""The fields of a job as keyword arguments, for editors and type checkers.

They are the fields of a job document in snake_case; `wakeful.document` reads them. A field that is left out,
or None, has its default. To change a generated part, change the declaration of the field and run
`make generate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypedDict

from wakeful.job.targets import Target
from wakeful.schedule.calendars import Calendar
from wakeful.schedule.schedules import Schedule

#: `"0 9 * * 1-5"`, `"@daily"`, `"every 15m"`, `"in 20m"`, an ISO 8601 time, a datetime (once), a timedelta
#: (an interval), or a mapping such as `{"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Berlin"}`.
ScheduleLike = str | datetime | timedelta | Schedule | Mapping[str, object]
#: `"30s"`, `"1h30m"`, or a timedelta.
Duration = str | timedelta
#: Any JSON.
JsonLike = Mapping[str, object] | Sequence[object] | str | int | float | bool | None
#: Milliseconds since 1970, an ISO 8601 time, or a datetime; without an offset, in the zone of the job.
Instant = int | str | datetime


class JobOptions(TypedDict, total=False):
    """The fields of a job, except for its schedule and its target."""

    # generated: job-options
    #: No tick before this time: ISO 8601, or milliseconds since 1970.
    start_at: Instant | None
    #: No tick after this time.
    end_at: Instant | None
    #: Days and hours without ticks, such as `2027-12-24`, `2027-12-24/2028-01-01` or `holidays:DE-BY`.
    exclude: str | Sequence[str] | Calendar | None
    #: What happens to a fixed time in the hour that DST skips in spring. Default: 'run_after'.
    dst_gap: Literal["run_after", "skip"] | None
    #: When a fixed time fires in the hour that DST repeats in autumn. Default: 'first'.
    dst_overlap: Literal["first", "second", "both"] | None
    #: The text for the agent.
    message: str | None
    #: Start each run without a conversation, as with `continuity: none`; a function target reads it as
    #: `run.stateless`. Default: False.
    stateless: bool | None
    #: What a `chat` run continues: the previous answer of the job, its history, or nothing.
    continuity: Literal["output", "session", "none"] | None
    #: Send the output of each successful run to a channel. Default: False.
    deliver: bool | None
    #: The channel.
    channel: str | None
    #: The recipient, if the channel takes one.
    to: str | None
    #: Trigger the heartbeat of the agent when a run succeeds. Default: False.
    wake_heartbeat: bool | None
    #: The concurrency limit that its runs count towards. Default: 'cron'.
    lane: str | None
    #: Its runs start only within these hours of `tz`: `08:00-22:00`, or `22:00-06:00` over midnight.
    active_hours: str | None
    #: A check before each launch whether there is work: `{"kind": "function", "name": …}`, `{"kind":
    #: "webhook", "url": …}` or `{"kind": "command", "argv": […]}`.
    precheck: Mapping[str, object] | None
    #: A check after each launch whether the work was done: an object with a `kind`, `http`, `function`,
    #: `webhook`, `command` or `manual`.
    verify: str | Mapping[str, object] | None
    #: Fields that a success must bring, such as `["external_id", "result_url"]`.
    evidence: str | Sequence[str] | None
    #: How much its runs may use per day (UTC), and each run: `{"tokensPerDay": …, "costPerDay": …,
    #: "tokensPerRun": …, "costPerRun": …}`.
    budget: Mapping[str, object] | None
    #: `true`: the job needs no `schedule` and no `after`; its trigger URL and manual runs start it.
    #: Default: False.
    trigger_url: bool | None
    #: Fire for each event of an MCP server that the operator has configured: `{"server": "crm", "event":
    #: "ticket.created", "arguments": {"queue": "billing"}}`.
    on: Mapping[str, object] | None
    #: What happens to a tick while an earlier run is active. Default: 'skip'.
    overlap_policy: Literal["allow", "skip", "queue", "queue_one", "replace"] | None
    #: How many runs may wait with the overlap policy `queue`. Default: 100.
    max_queued: int | None
    #: What happens to ticks that were missed. Default: 'none'.
    catchup_policy: Literal["none", "latest", "fire_immediately", "spread"] | None
    #: Ticks that are older than this are not caught up. Default: '1d'.
    catchup_window: Duration | None
    #: How late a tick may start before it counts as missed. Default: '1m'.
    misfire_grace: Duration | None
    #: Each start moves by a random time up to this, earlier or later. Default: '0s'.
    jitter: Duration | None
    #: After this number of failed attempts a run has failed. Default: 5.
    max_attempts: int | None
    #: The first and the longest delay between attempts; `base` and `max` take durations.
    backoff: Mapping[str, object] | None
    #: How long an attempt may take.
    timeout: Duration | None
    #: After this number of scheduled runs the job is disabled.
    max_runs: int | None
    #: What happens to a run whose worker died. Default: 'retry'.
    on_lost: Literal["retry", "fail"] | None
    #: How often a run may be lost together with other runs before each further loss counts as a failed
    #: attempt. Default: 3.
    lost_limit: int | None
    #: After this number of consecutive failed runs the job is disabled.
    disable_after: int | None
    #: Delete the job when a run succeeds. Default: False.
    delete_after_run: bool | None
    #: How long a `pull` run waits for a claim before it fails. Default: '1h'.
    claim_timeout: Duration | None
    #: Fire after another job of the same agent: its name, or `{"job": …, "on": "succeeded" | "failed" |
    #: "finished", "output": true}`.
    after: str | Mapping[str, str | bool] | None
    #: What the job is for.
    description: str | None
    #: Up to 32 names with text values.
    labels: Mapping[str, str] | None
    #: `false`: the job is created paused.
    enabled: bool
    #: Any JSON, up to 64 KB; sent as it is.
    payload: JsonLike
    # generated: end


class JobFields(JobOptions, total=False):
    """The fields of a job."""

    # generated: job-fields
    #: When the job fires: any of these forms.
    schedule: ScheduleLike | None
    #: Where its runs go: an object with a `kind`, `webhook`, `function`, `agent`, `command`, `chat`,
    #: `queue`, `celery`, `workflow`, `echo` or `pull`.
    target: Target | Mapping[str, object] | None
    #: An IANA time zone such as `Europe/Berlin`.
    tz: str | None
    #: Short for a webhook `target`; not shown in responses.
    webhook_url: str | None
    #: Short for a workflow `target`: its id.
    workflow_id: str | None
    #: Short for a workflow `target`: its version.
    version: int | None
    #: Short for a workflow `target`: the user it runs for.
    user_id: str | None
    # generated: end


class JobPatch(JobFields, total=False):
    """The fields of a job that can be changed; None resets a field to its default."""

    #: The new name.
    name: str
