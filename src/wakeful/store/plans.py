"""What planners and workers exchange with a store: due jobs, plans, and which runs to take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from wakeful.job.start_rules import Capabilities
from wakeful.run.run import NewRun
from wakeful.store.lane_shares import NOT_SHARED, LaneOccupancy

NO_SLOTS: Final[Mapping[str, int]] = MappingProxyType({})
#: The minimum time that a serial pull run has to be claimed once its turn comes.
TURN_MS: Final = 60_000
#: After how many decisions of a planning pass other work of the process continues.
DECISIONS_AT_ONCE: Final = 50


class DueJob(NamedTuple):
    """What planning and launching need of a due job, with its live runs."""

    id: str
    workspace: str
    agent: str
    name: str
    timing: str | None
    policy: str
    work: str
    payload: str | None
    anchor_ms: int
    #: for a paused job, when its pause ends
    next_ms: int
    run_count: int
    #: what the previous pass left for the next one (`CatchupState`)
    missed: int = 0
    spread_from_ms: int | None = None
    spread_until_ms: int | None = None
    #: of a paused job: when its pause ends, and whether its agent is active
    pause_until_ms: int | None = None
    agent_active: bool | None = None
    #: its encrypted webhook secret, and the one before it while it is still accepted
    secret: bytes | None = None
    old_secret: bytes | None = None
    old_secret_until_ms: int | None = None
    #: compact JSON of the state that the last precheck left, and its revision
    precheck_state: str | None = None
    precheck_revision: int = 0
    #: ticks that have a record (`JobRecord.decided`), separated by commas; None: there are none
    decided_ticks: str | None = None
    #: not columns of the job: ids of its runs that are running or between two attempts
    running: tuple[str, ...] = ()
    #: ids of its pending ticks; manual runs are never replaced by a tick
    waiting: tuple[str, ...] = ()

    @property
    def log_fields(self) -> dict[str, object]:
        """The fields of log events about this job."""
        return {"job_id": self.id, "job": self.name, "agent": self.agent, "workspace": self.workspace}


class LiveRuns(NamedTuple):
    """The ids of the live runs of a job: running or between two attempts, and waiting for their turn."""

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


class ManualRunPlan(NamedTuple):
    """What the overlap rule decided for a manual run: the run to add, and the runs that it replaces."""

    run: NewRun
    #: live runs to cancel, with the reason
    cancelled: tuple[tuple[str, str], ...] = ()


#: Decides how a manual run is added, given the live runs of its job.
ManualRunRule = Callable[[NewRun, LiveRuns], ManualRunPlan]


class CatchupState(NamedTuple):
    """What a planning pass leaves for the next one: see `planning.JobState.missed` and `planning.Spread`."""

    missed: int = 0
    spread_from_ms: int | None = None
    spread_until_ms: int | None = None


class JobPlan(NamedTuple):
    """What planning decided for one due job."""

    job_id: str
    #: the new cursor
    next_ms: int | None
    wake_ms: int | None
    run_count: int
    enabled: bool
    disabled_reason: str | None
    #: the runs of its ticks, in the order of the ticks
    runs: tuple[NewRun, ...]
    #: live runs to cancel, with the reason: replaced or superseded by a newer one
    cancelled: tuple[tuple[str, str], ...] = ()
    #: what is left for the next pass; None: unchanged
    catchup: CatchupState | None = None
    #: the ids of runs with missed ticks before them, and how many
    missed: tuple[tuple[str, int], ...] = ()
    #: the pause of the job has ended: `enabled` and `disabled_reason` apply again
    resumed: bool = False
    #: of a job that is over: its ticks that have a record (`JobRow.decided_ticks`); None: as before
    decided_ticks: str | None = None


class Planned(NamedTuple):
    """The result of a planning pass."""

    #: the number of due jobs that it claimed; if that is the limit, there may be more
    claimed: int
    #: the runs that were inserted, in the order of the plans
    runs: list[NewRun]
    #: a tick had a run already: nothing was written, and the next pass knows it
    repeat: bool = False


class TakeNext(NamedTuple):
    """Which runs to take in the transaction that writes outcomes."""

    #: the runs whose slot the next run of the same instance may use, with the lane of the slot
    lanes: Mapping[str, str]
    capabilities: Capabilities
    #: as in `Store.take`
    free: Mapping[str, int] = NO_SLOTS
    prefetch: Mapping[str, int] = NO_SLOTS
    usage: Mapping[str, LaneOccupancy] = NOT_SHARED
