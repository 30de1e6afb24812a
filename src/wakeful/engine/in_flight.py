"""A run in this worker: from when it is marked running until its outcome is written."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from wakeful.job.job import Work
from wakeful.job.policy import Policy
from wakeful.launch.port import Launch, Launcher
from wakeful.run.outcome import Failed
from wakeful.store.lane_shares import Owner

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class InFlight:
    """One attempt that this worker holds: its `Launch`, with the slot, task and lease in this process."""

    __slots__ = (
        "deadline", "ended", "failed_attempts", "follows", "holds_slot", "lane", "launch", "launcher",
        "policy", "prefetched", "span", "started_ms", "stop_reason", "suspect", "task", "waiting",
        "weight", "work",
    )  # fmt: skip

    def __init__(
        self,
        launch: Launch,
        policy: Policy,
        lane: str,
        launcher: Launcher,
        work: Work,
        failed_attempts: int = 0,
    ) -> None:
        self.launch = launch
        self.policy = policy
        self.work = work
        self.lane = lane
        self.launcher = launcher
        #: how many earlier attempts of the run failed and count
        self.failed_attempts = failed_attempts
        self.started_ms = launch.fire_ms
        #: when the attempt times out, or a prefetched run is given back, by the clock of the event loop
        self.deadline = math.inf
        #: how many runs of the same instance used its slot before it, without a pause
        self.follows = 0
        #: whether the slot stays taken until the outcome is written: for the next run of its instance
        self.holds_slot = False
        #: whether it was claimed before a slot was free, and its start is not recorded yet
        self.prefetched = False
        #: whether an earlier attempt was lost together with other runs of its worker
        self.suspect = False
        #: whether it has no slot yet
        self.waiting = False
        #: the weight of its workspace in the lane
        self.weight = 1.0
        #: whether the attempt is over; its outcome may still have to be written
        self.ended = False
        #: the task that runs the attempt
        self.task: asyncio.Task[None] | None = None
        #: with tracing, the span of the launch until it ends
        self.span: Span | None = None
        #: why the attempt was stopped: a failure to record, or a word if this worker must write nothing
        self.stop_reason: Failed | str | None = None

    @property
    def owner(self) -> Owner:
        """The workspace and agent."""
        return self.launch.workspace, self.launch.agent

    @property
    def stopped(self) -> bool:
        """Whether the attempt was stopped before it ended by itself."""
        return self.stop_reason is not None
