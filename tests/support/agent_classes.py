"""Agent classes for tests of the interfaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from wakeful import Agent, Context, Emit, Schedule, SetState, Signal, Wakeful, on


class Report(Agent):
    """An agent that counts its reports."""

    name = "report"
    state: ClassVar[Mapping[str, Any]] = {"count": 0}
    schedules = (Schedule("0 6 * * *", "report.generate", job_id="daily", tz="America/New_York"),)
    max_attempts = 1
    mailbox = 5

    @on("report.generate")
    async def generate(self, signal: Signal, ctx: Context) -> list[object]:
        """Count, and say that the report is ready."""
        count = ctx.state["count"] + 1
        return [SetState(count=count), Emit(Signal("report.ready", {"count": count})), f"report {count}"]


class Painter(Agent):
    """An agent without schedules."""

    name = "painter"

    @on("*")
    async def paint(self, signal: Signal, ctx: Context) -> None:
        """Do nothing."""


def with_classes(app: Wakeful) -> Wakeful:
    """Return the app with both classes registered."""
    app.agent(Report)
    app.agent(Painter)
    return app


def event(id: str = "1", type: str = "report.generate", **fields: object) -> dict[str, object]:
    """Return a CloudEvent."""
    return {"specversion": "1.0", "id": id, "source": "/tests", "type": type, **fields}
