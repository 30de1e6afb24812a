"""The job: what is to happen when. Its definition is what people write; the rest is what time makes of it.

A definition is a value: two deployments of the same definition are equal, which is how `upsert` knows
that nothing has changed. It is kept in three parts, because they are used by different people: the
*timing* and the *policy* by the planner, the *work* by the launcher.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from wakeful.bounded_cache import MB, bounded_cache
from wakeful.calendars import NOTHING, Calendar
from wakeful.cron import DstGap, DstOverlap
from wakeful.errors import InvalidArgument
from wakeful.policy import DEFAULT_POLICY, Policy
from wakeful.schedule import At, CronSchedule, Schedule
from wakeful.ticks import Ticks

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
ChainOn = Literal["succeeded", "failed", "finished"]

MAX_NAME: Final = 64
#: Why a job is not enabled whose agent is not active.
AGENT_INACTIVE: Final = "agent_inactive"
_SLUG: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Timing:
    """Which ticks a job has, all but the anchor of an interval, which is the job's own."""

    schedule: Schedule
    start_ms: int | None = None
    end_ms: int | None = None
    exclude: Calendar = NOTHING
    dst_gap: DstGap = "run_after"
    dst_overlap: DstOverlap = "first"

    def ticks(self, anchor_ms: int) -> Ticks:
        """The ticks; those that need no anchor are worked out once and shared by all who have this timing."""
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
    """`after`: fire when a run of another job of the same agent ends in this way."""

    job: str
    on: ChainOn = "succeeded"


@dataclass(frozen=True, slots=True)
class Work:
    """What a launcher needs: where the run goes and what it carries."""

    target: Mapping[str, Json] | None = None
    payload: Json = None
    message: str | None = None
    lane: str = "cron"
    stateless: bool = False
    deliver: bool = False
    channel: str | None = None
    to: str | None = None
    wake_heartbeat: bool = False
    #: who says before each launch whether there is anything to do
    precheck: Mapping[str, Json] | None = None
    #: how much its runs may use on one day (UTC)
    budget: Mapping[str, Json] | None = None
    #: at which hours of the day its runs start, and on the clocks of which zone; None: at any
    active_hours: str | None = None
    hours_tz: str | None = None
    #: whether the target is not the job's own but its agent's: nobody wrote it into the document
    inherited: bool = False

    @property
    def own_target(self) -> Mapping[str, Json] | None:
        """The target that the job itself names, if it does."""
        return None if self.inherited else self.target

    @property
    def pulled(self) -> bool:
        """Whether its runs wait for an executor to claim them: they have no target, or nothing behind it."""
        target = self._final_target
        return target is None or target.get("kind") == "pull"

    @property
    def awaits_callback(self) -> bool:
        """Whether its runs are completed from outside after their launch (`completion: "callback"`).

        >>> Work({"kind": "webhook", "url": "https://a.example", "completion": "callback"}).awaits_callback
        True
        """
        target = self._final_target
        return target is not None and target.get("completion") == "callback"

    @property
    def _final_target(self) -> Mapping[str, Json] | None:
        """Where a run ends up: for a workflow, where it is handed on to."""
        target = self.target
        if target is not None and target.get("kind") == "workflow":
            to = target.get("to")
            return to if isinstance(to, dict) else None
        return target

    @property
    def body(self) -> Json:
        """What is sent: the payload, or where there is only a message, that."""
        if self.payload is None and self.message is not None:
            return {"message": self.message}
        return self.payload


#: What nothing is said of.
NO_WORK: Final = Work()


@dataclass(frozen=True, slots=True)
class Definition:
    """What somebody wrote: a job without its history."""

    name: str
    #: None for a job that only ever fires after another (`after`)
    timing: Timing | None
    policy: Policy = DEFAULT_POLICY
    work: Work = field(default_factory=Work)
    after: Chain | None = None
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


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
    #: why it is not enabled, where nobody paused it: "max_runs", "failed", "gone" …
    disabled_reason: str | None = None
    #: who created it: `role:actor`, as in `admin:key:1f`; '' where that was not recorded
    created_by: str = ""
    #: of a paused job: why, and until when
    pause_note: str | None = None
    pause_until_ms: int | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    @property
    def ticks(self) -> Ticks | None:
        """Its ticks, or None for a job that has no schedule of its own."""
        timing = self.definition.timing
        return timing.ticks(self.anchor_ms) if timing else None

    def has_tick(self, at_ms: int) -> bool:
        """Whether it is enabled and this instant is one of its ticks."""
        return self.enabled and self.ticks is not None and self.ticks.next(at_ms - 1) == at_ms


def anchor_of(definition: Definition, now_ms: int, old: JobRecord | None = None) -> int:
    """The instant an interval counts from: its start, else what it was while the interval stays, else now."""
    timing = definition.timing
    if timing is None:
        return now_ms
    if timing.start_ms is not None:
        return timing.start_ms
    before = old.definition.timing if old else None
    if old is None or before is None or before.start_ms is not None:
        return now_ms
    # The zone says which days are excluded; an interval is the same in all of them.
    stays = replace(before.schedule, tz=None) == replace(timing.schedule, tz=None)
    return old.anchor_ms if stays else now_ms


def inherit(work: Work, agent_target: Mapping[str, Json] | None) -> Work:
    """The work with the target that its runs go to: its own, else its agent's, else none, which is `pull`.

    What was inherited before counts for nothing: whatever the agent has now takes its place.

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


def check_slug(text: str, what: str = "name") -> str:
    """`text`, if it can be the name of a job, an agent or a workspace.

    >>> check_slug("daily-report")
    'daily-report'
    """
    if not _SLUG.fullmatch(text) or len(text) > MAX_NAME:
        raise InvalidArgument(
            f"{what}: '{text[:80]}' is not a slug; use lowercase letters, digits and inner hyphens, "
            f"at most {MAX_NAME} in all, such as 'daily-report'"
        )
    return text
