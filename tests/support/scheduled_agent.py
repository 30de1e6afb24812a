"""An agent with two declared schedules, whose other schedules are set and cancelled by signals."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.support.agent_world import handled
from wakeful import Agent, CancelCron, Schedule, SetCron, SetState, Signal, Stop, Wakeful, on
from wakeful.model import Run

NEW_YORK = "America/New_York"
FIVE_MINUTES, TEN_MINUTES = "*/5 * * * *", "*/10 * * * *"


class MyAgent(Agent):
    """Counts ticks. What depends on the state at run time is set and cancelled by signals."""

    name = "my-agent"
    state: ClassVar[Any] = {"tick_count": 0, "last_cleanup": None}
    schedules: ClassVar[Any] = [
        Schedule(FIVE_MINUTES, "heartbeat.tick", job_id="heartbeat"),
        Schedule("@daily", "cleanup.run", job_id="cleanup", tz=NEW_YORK),
    ]
    max_attempts = 1

    @on("heartbeat.tick")
    async def heartbeat(self, signal, ctx):
        return SetState(tick_count=ctx.state["tick_count"] + 1)

    @on("cleanup.run")
    async def cleanup(self, signal, ctx):
        return SetState(last_cleanup=ctx.scheduled_at.isoformat())

    @on("cron.set")
    async def set_cron(self, signal, ctx):
        given = {"signal": "heartbeat.tick", "job_id": "heartbeat", **signal.data}
        return [SetState(asked=True), SetCron(**given), "set"]

    @on("cron.cancel")
    async def cancel_cron(self, signal, ctx):
        return CancelCron(**signal.data)

    @on("agent.stop")
    async def stop(self, signal, ctx):
        return Stop()


async def cron_set(app: Wakeful, expr: str, **more: object) -> Run:
    """Let the agent set a schedule."""
    return await handled(app, "my-agent", Signal("cron.set", {"expr": expr, **more}))


async def cron_cancel(app: Wakeful, job_id: str, **more: object) -> Run:
    """Let the agent cancel a schedule."""
    return await handled(app, "my-agent", Signal("cron.cancel", {"job_id": job_id, **more}))
