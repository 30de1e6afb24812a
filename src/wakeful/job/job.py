"""The job: its definition and its state.

A definition is a value. Two equal definitions describe the same job: `upsert` compares them to see whether
anything has changed. It has three parts with different consumers: the planner reads the *timing* and the
*policy*, the launcher reads the *work*. Each attribute with a `FieldSpec` declares a job field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, NamedTuple

from wakeful.cron import DstGap, DstOverlap
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.job.policy import DEFAULT_POLICY, FieldSpec, Policy
from wakeful.job.target_kinds import EVENT, LINKED_KINDS, find_kind
from wakeful.schedule.calendars import NOTHING, Calendar
from wakeful.schedule.schedules import At, CronSchedule, Schedule
from wakeful.schedule.ticks import Ticks
from wakeful.values.bounded_cache import MB, bounded_cache
from wakeful.values.json_value import Json as Json

ChainOn = Literal["succeeded", "failed", "finished"]
Continuity = Literal["output", "session", "none"]
ScheduleOrigin = Literal[
    "declared",  # in the `schedules` of an agent class
    "dynamic",  # set by a handler with `SetCron`
]

MAX_NAME: Final = 64
#: The instance of an agent class that receives what does not name one.
DEFAULT_INSTANCE: Final = "default"
#: The job of the wakes and turns of an agent with a target of its own: it has no ticks, but what every launch
#: needs, such as a signing secret.
WAKE_JOB: Final = "woken-by-hand"
#: The job of the heartbeat of an agent.
HEARTBEAT_JOB: Final = "heartbeat"
#: The disabled reason of a job whose agent is not active.
AGENT_INACTIVE: Final = "agent_inactive"
#: The longest chain of jobs (`after`), and of follow-up runs that one run causes.
MAX_CHAIN: Final = 100
#: The characters of a name, as a regular expression.
SLUG: Final = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_SLUG: Final = re.compile(SLUG)


class StaleJob(FailedPrecondition):
    """A job is not at the version that a request expects."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Which ticks a job has. The anchor of an interval is not part of it: the job has that."""

    schedule: Annotated[
        Schedule,
        FieldSpec(
            "When the job fires: [any of these forms](../concepts/time.md#schedules). Required unless there "
            "is `after`. `cron` is another name for it.",
            section="schedule",
        ),
    ]
    start_ms: Annotated[
        int | None,
        FieldSpec(
            "No tick before this time: ISO 8601, or milliseconds since 1970.",
            section="schedule",
            name="startAt",
        ),
    ] = None
    end_ms: Annotated[
        int | None,
        FieldSpec(
            "No tick after this time.",
            section="schedule",
            name="endAt",
            tool="no run after this time, such as 2027-03-31T00:00",
        ),
    ] = None
    exclude: Annotated[
        Calendar,
        FieldSpec(
            "[Days and hours without ticks](../how-to/exclude.md), such as `2027-12-24`, "
            "`2027-12-24/2028-01-01` or `holidays:DE-BY`.",
            section="schedule",
        ),
    ] = NOTHING
    dst_gap: Annotated[
        DstGap,
        FieldSpec("What happens to a fixed time in the hour that DST skips in spring.", section="schedule"),
    ] = "run_after"
    dst_overlap: Annotated[
        DstOverlap,
        FieldSpec("When a fixed time fires in the hour that DST repeats in autumn.", section="schedule"),
    ] = "first"

    def ticks(self, anchor_ms: int) -> Ticks:
        """Return the ticks. Without an interval they do not depend on the anchor, and jobs share them."""
        return _ticks(self, 0 if isinstance(self.schedule, CronSchedule | At) else anchor_ms)


@bounded_cache(8 * MB, lambda ticks, *_: ticks.size)
def _ticks(timing: Timing, anchor_ms: int) -> Ticks:
    return Ticks(
        timing.schedule,
        anchor_ms,
        timing.start_ms,
        timing.end_ms,
        timing.exclude,
        timing.dst_gap,
        timing.dst_overlap,
    )


@dataclass(frozen=True, slots=True)
class Chain:
    """`after`: fire when a run of another job of the same agent ends with this result."""

    job: str
    on: ChainOn = "succeeded"
    #: whether a follow-up run carries the output of the run before it, as `context.upstream`
    output: bool = False


class Origin(NamedTuple):
    """The conversation in which a job was made."""

    #: the session; None if it was made outside of one
    session: str | None = None
    #: the channel and the recipient there
    channel: str | None = None
    to: str | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What a launcher needs: the target of a run and what the run carries."""

    target: Annotated[
        Mapping[str, Json] | None,
        FieldSpec(
            f"Where its runs go: an object with a `kind`, {LINKED_KINDS}. `null`: the target of its agent, "
            "else `pull`.",
            section="target",
        ),
    ] = None
    payload: Json = None
    message: Annotated[
        str | None,
        FieldSpec(
            'The text for the agent. Without a payload, the payload is `{"message": …}`.',
            section="target",
            flags=("--message", "-m"),
            tool="what to do then, understandable without this conversation",
        ),
    ] = None
    stateless: Annotated[
        bool,
        FieldSpec(
            "Start each run without a conversation, as with `continuity: none`; a function target reads it "
            "as `run.stateless`.",
            section="target",
        ),
    ] = False
    continuity: Annotated[
        Continuity | None,
        FieldSpec(
            "[What a `chat` run continues](../how-to/chat.md#continuity): the previous answer of the job, "
            "its history, or nothing. `null`: as its target says, else `output`.",
            section="target",
        ),
    ] = None
    deliver: Annotated[
        bool,
        FieldSpec(
            "Send the output of each successful run to a channel.",
            section="delivery",
            tool="send the output of its runs to a channel",
        ),
    ] = False
    channel: Annotated[
        str | None,
        FieldSpec("The channel. `null`: the channel of its agent.", section="delivery", tool="which channel"),
    ] = None
    to: Annotated[
        str | None,
        FieldSpec(
            "The recipient, if the channel takes one. `null`: the recipient of its agent.",
            section="delivery",
            high=1024,
            tool="the recipient on that channel",
        ),
    ] = None
    wake_heartbeat: Annotated[
        bool,
        FieldSpec(
            "[Trigger the heartbeat of the agent](../how-to/heartbeats.md#wake-it-after-a-success) when a "
            "run succeeds."
        ),
    ] = False
    lane: Annotated[
        str,
        FieldSpec(
            "The concurrency limit that its runs count towards. A lane that no process has is refused, "
            "unless the target is `pull`.",
            section="target",
        ),
    ] = "cron"
    active_hours: Annotated[
        str | None,
        FieldSpec(
            "[Its runs start only within these hours](../how-to/heartbeats.md#active-hours) of `tz`: "
            "`08:00-22:00`, or `22:00-06:00` over midnight."
        ),
    ] = None
    precheck: Annotated[
        Mapping[str, Json] | None,
        FieldSpec(
            '[A check before each launch whether there is work](../how-to/precheck.md): `{"kind": '
            '"function", "name": …}`, `{"kind": "webhook", "url": …}` or `{"kind": "command", "argv": […]}`.'
        ),
    ] = None
    verify: Annotated[
        Mapping[str, Json] | None,
        FieldSpec(
            "[A check after each launch whether the work was done](../how-to/verify.md): an object with a "
            "`kind`, `http`, `function`, `webhook`, `command` or `manual`."
        ),
    ] = None
    evidence: Annotated[
        tuple[str, ...],
        FieldSpec(
            "[Fields that a success must bring](../how-to/verify.md#evidence), such as "
            '`["external_id", "result_url"]`.'
        ),
    ] = ()
    budget: Annotated[
        Mapping[str, Json] | None,
        FieldSpec(
            "[How much its runs may use](../how-to/guardrails.md#budgets) per day (UTC), and each run: "
            '`{"tokensPerDay": …, "costPerDay": …, "tokensPerRun": …, "costPerRun": …}`.'
        ),
    ] = None
    trigger_url: Annotated[
        bool,
        FieldSpec(
            "`true`: the job needs no `schedule` and no `after`; [its trigger URL](../how-to/trigger-url.md) "
            "and manual runs start it.",
            section="schedule",
        ),
    ] = False
    on: Annotated[
        Mapping[str, Json] | None,
        FieldSpec(
            "[Fire for each event of an MCP server](../how-to/on-event.md) that the operator has configured: "
            '`{"server": "crm", "event": "ticket.created", "arguments": {"queue": "billing"}}`.',
            section="schedule",
        ),
    ] = None
    #: the time zone of `active_hours`
    hours_tz: str | None = None
    #: whether the target is the agent's and not in the job's document
    inherited: bool = False
    #: `output` of the job's `after`
    after_output: bool = False
    #: the conversation in which the job was made
    origin: Origin | None = None
    #: how many jobs in a row an agent made for itself, up to this one; 0: a person made it
    depth: int = 0

    @property
    def own_target(self) -> Mapping[str, Json] | None:
        """The target in the job's own document, if any."""
        return None if self.inherited else self.target

    @property
    def pulled(self) -> bool:
        """Whether its runs wait for a claim: there is no target, or no target behind a workflow."""
        target = self.final_target
        return target is None or target.get("kind") == "pull"

    @property
    def instance(self) -> str | None:
        """The instance of an agent class that handles its runs; None if the target is not an agent class.

        >>> Work({"kind": "agent"}).instance
        'default'
        """
        target = self.final_target
        if target is None or target.get("kind") != "agent":
            return None
        return str(target.get("instance") or DEFAULT_INSTANCE)

    @property
    def awaits_callback(self) -> bool:
        """Whether its runs are completed by a request after their launch (`completion: "callback"`).

        >>> Work({"kind": "webhook", "url": "https://a.example", "completion": "callback"}).awaits_callback
        True
        """
        target = self.final_target
        return target is not None and target.get("completion") == "callback"

    @property
    def broker(self) -> str | None:
        """The kind of its target if that is a broker, whose workers report the results; else None.

        >>> Work({"kind": "queue", "subject": "reports"}).broker
        'queue'
        """
        kind = find_kind(self.final_target)
        return kind.name if kind is not None and kind.is_broker else None

    @property
    def only_sends(self) -> bool:
        """Whether an attempt only sends a request or a message: nothing of the user runs in its process.

        >>> Work({"kind": "webhook", "url": "https://a.example"}).only_sends
        True
        >>> Work({"kind": "event", "subscription": "sub_1"}).only_sends
        True
        """
        target = self.final_target
        kind = find_kind(target)
        sends = target is not None and target["kind"] == EVENT if kind is None else kind.only_sends
        return sends and self.precheck is None

    @property
    def final_target(self) -> Mapping[str, Json] | None:
        """The target that executes a run: for a workflow, its `to`."""
        target = self.target
        if target is not None and target.get("kind") == "workflow":
            to = target.get("to")
            return to if isinstance(to, dict) else None
        return target

    @property
    def body(self) -> Json:
        """What is sent: the payload, else the message."""
        if self.payload is None and self.message is not None:
            return {"message": self.message}
        return self.payload


#: The work of a job that specifies none.
NO_WORK: Final = Work()


@dataclass(frozen=True, slots=True)
class Definition:
    """A job as it is written: without its state and history."""

    name: str
    #: None for a job that only another one (`after`), an event, its trigger URL or a person starts
    timing: Timing | None
    policy: Policy = DEFAULT_POLICY
    work: Work = field(default_factory=Work)
    after: Annotated[
        Chain | None,
        FieldSpec(
            "[Fire after another job](../how-to/chains.md) of the same agent: its name, or "
            '`{"job": …, "on": "succeeded" | "failed" | "finished", "output": true}`. With `output`, the run '
            "carries the output of the run before it.",
            section="schedule",
        ),
    ] = None
    description: Annotated[
        str, FieldSpec("What the job is for.", section="target", tool="what the job is for")
    ] = ""
    labels: Annotated[Mapping[str, str], FieldSpec("Up to 32 names with text values.", section="target")] = (
        field(default_factory=dict)
    )


class ScheduleKey(NamedTuple):
    """The identity of a schedule of an instance: ids of declared and dynamic schedules never collide."""

    instance_id: str
    origin: ScheduleOrigin
    schedule_id: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A stored job: its definition, its owner and its state."""

    id: str
    workspace: str
    agent: str
    definition: Definition
    enabled: bool
    anchor_ms: int
    next_ms: int | None
    wake_ms: int | None
    created_ms: int
    updated_ms: int
    run_count: int = 0
    failures: int = 0
    version: int = 1
    #: why it is not enabled, if it was not paused: "max_runs", "failed", "gone" …
    disabled_reason: str | None = None
    #: who created it: `role:actor`, as in `admin:key:1f`; empty if not recorded
    created_by: str = ""
    #: of a paused job: the reason, and when it resumes
    pause_note: str | None = None
    pause_until_ms: int | None = None
    #: of a schedule of an instance: its identity
    schedule_key: ScheduleKey | None = None
    #: ticks that have a record and may lie at or after the cursor of a resumed or edited job, in their order
    decided: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The name in the definition."""
        return self.definition.name

    @property
    def ticks(self) -> Ticks | None:
        """The ticks, or None for a job without a schedule."""
        timing = self.definition.timing
        return timing.ticks(self.anchor_ms) if timing else None

    @property
    def open_ticks(self) -> Ticks | None:
        """The ticks without those that have a record already."""
        ticks = self.ticks
        return ticks.without(self.decided) if ticks else None

    def has_tick(self, at_ms: int) -> bool:
        """Return whether the job is enabled and has a tick at this instant."""
        return self.enabled and self.ticks is not None and self.ticks.next(at_ms - 1) == at_ms


def choose_anchor(definition: Definition, now_ms: int, old: JobRecord | None = None) -> int:
    """Return the anchor: the start, else the old anchor if the interval is unchanged, else now."""
    timing = definition.timing
    if timing is None:
        return now_ms
    if timing.start_ms is not None:
        return timing.start_ms
    before = old.definition.timing if old else None
    if old is None or before is None or before.start_ms is not None:
        return now_ms
    # The zone only matters for excluded days: an interval is the same in every zone.
    unchanged = replace(before.schedule, tz=None) == replace(timing.schedule, tz=None)
    return old.anchor_ms if unchanged else now_ms


def inherit(work: Work, agent_target: Mapping[str, Json] | None) -> Work:
    """Return the work with its effective target: its own, else the agent's, else None, which means `pull`.

    A target that was inherited before is replaced by the agent's current one.

    >>> hook = {"kind": "webhook", "url": "https://a.example"}
    >>> inherit(Work(message="hello"), hook).target == hook
    True
    >>> inherit(inherit(Work(message="hello"), hook), None) == Work(message="hello")
    True
    >>> inherit(Work({"kind": "pull"}), hook).target
    {'kind': 'pull'}
    """
    if work.own_target is not None:
        return work
    return replace(work, target=agent_target, inherited=agent_target is not None)


def is_slug(text: str) -> bool:
    """Return whether this is a valid name of a job, an agent or a workspace.

    >>> is_slug("daily-report"), is_slug("Daily report")
    (True, False)
    """
    return len(text) <= MAX_NAME and _SLUG.fullmatch(text) is not None


def check_slug(text: str, what: str = "name") -> str:
    """Return `text` if it is a valid name of a job, an agent or a workspace, else raise InvalidArgument.

    >>> check_slug("daily-report")
    'daily-report'
    """
    if not is_slug(text):
        raise InvalidArgument(
            f"{what}: '{text[:80]}' is not a slug; use lowercase letters, digits and inner hyphens, "
            f"at most {MAX_NAME} in all, such as 'daily-report'"
        )
    return text


def check_version(name: str, version: int, expected: int | None) -> None:
    """Raise StaleJob if a job is not at the version that a request expects."""
    if expected is not None and version != expected:
        raise StaleJob(f"job '{name}' has changed: it is at version {version}, not {expected}; read it again")


class InvalidChain(InvalidArgument):
    """A job would come after itself, or at the end of too long a chain."""


def check_chain(name: str, after: Mapping[str, str | None]) -> None:
    """Raise InvalidChain if a job comes after itself, or at the end of too long a chain.

    `after` has each existing job of the chain with the job that it comes after.

    >>> check_chain("third", {"third": "second", "second": "first"})
    >>> check_chain("first", {"first": "second", "second": "first"})
    Traceback (most recent call last):
    ...
    wakeful.job.job.InvalidChain: after: 'first', which comes after 'second', which comes after 'first': ...
    """
    path, last = {name: None}, name
    while (before := after.get(last)) is not None:
        if before in path:
            chain = ", which comes after ".join(f"'{each}'" for each in [*path, before])
            raise InvalidChain(
                f"after: {chain}: the chain would never end; let one of them have a schedule instead"
            )
        path[before], last = None, before
        if len(path) > MAX_CHAIN:
            raise InvalidChain(f"after: '{name}' ends a chain of more than {MAX_CHAIN} jobs; shorten it")
