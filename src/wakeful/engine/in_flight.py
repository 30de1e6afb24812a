"""A run that this worker holds, from the moment it is marked running until its outcome is written."""

from __future__ import annotations

import asyncio
import math

from wakeful.job import NO_WORK, Work
from wakeful.launch.port import Launch, Launcher
from wakeful.outcome import Failed
from wakeful.policy import Policy


class InFlight:
    """One attempt in this worker's hands."""

    __slots__ = (
        "deadline", "ended", "failed_attempts", "lane", "launch", "launcher", "policy", "started_ms", "task",
        "verdict", "work",
    )  # fmt: skip

    def __init__(
        self,
        launch: Launch,
        policy: Policy,
        lane: str,
        launcher: Launcher,
        work: Work = NO_WORK,
        failed_attempts: int = 0,
    ) -> None:
        self.launch = launch
        self.policy = policy
        self.work = work
        self.lane = lane
        self.launcher = launcher
        #: how many attempts of the run before this one failed and count
        self.failed_attempts = failed_attempts
        self.started_ms = launch.fire_ms
        #: when it has had its time, by the event loop's clock, which nobody sets
        self.deadline = math.inf
        #: whether its attempt is over, and only its outcome is still to be written
        self.ended = False
        #: who is at it
        self.task: asyncio.Task[None] | None = None
        #: why it was cut short: a failure to record, or a word where there is nothing for us to write
        self.verdict: Failed | str | None = None

    def cut_short(self) -> bool:
        """Whether somebody has ended it."""
        return self.verdict is not None
