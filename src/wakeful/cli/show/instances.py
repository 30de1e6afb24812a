"""Tables and pages of instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wakeful.cli.show.jobs import job_table
from wakeful.cli.show.tables import Cell, compact, first_line, page, table
from wakeful.cli.times import instant, moment, relative
from wakeful.client.types import InstanceShape

_STATUS: Final = {"active": "green", "paused": "yellow", "blocked": "red", "stopped": "magenta"}


def instance_table(instances: Sequence[InstanceShape], now_ms: int) -> Table:
    """Return a table with a line per instance, in the given order."""
    rows: list[list[Cell]] = [
        [
            Text(each["id"], "bold"),
            each["agentId"],
            status(each),
            str(each["waiting"]),
            Text(each["runId"] or "", "dim"),
            _relative(each["handledAt"], now_ms),
            first_line(each["note"]),
        ]
        for each in instances
    ]
    return table(["INSTANCE", "AGENT", "STATUS", "WAITING", "RUN", "LAST SIGNAL", "NOTE"], rows)


def instance_page(instance: InstanceShape, now_ms: int) -> list[RenderableType]:
    """Return a page with all fields of an instance, and a table of its schedules."""
    error = instance.get("stateError")
    fields = page(
        {
            "instance": Text(instance["id"], "bold"),
            "agent": f"{instance['agentId']} in {instance['workspace']}",
            "status": status(instance),
            "note": instance["note"],
            "waiting": f"{instance['waiting']} (wakeful runs --agent {instance['agentId']} --instance "
            f"{instance['id']} --state pending)"
            if instance["waiting"]
            else "0",
            "run": instance["runId"],
            "last signal": _moment(instance["handledAt"], now_ms),
            "hibernated": _moment(instance["hibernatedAt"], now_ms),
            "created": _moment(instance["createdAt"], now_ms),
            "class version": str(instance["version"]) if instance["version"] else "none: initial state",
            "revision": str(instance["revision"]),
            "state": _state(instance),
            "state error": None if error is None else Text(error, "red"),
        }
    )
    schedules = instance.get("schedules") or []
    return [fields, "", job_table(schedules, now_ms)] if schedules else [fields]


def status(instance: InstanceShape) -> Text:
    """Return the status of an instance in its colour."""
    return Text(instance["status"], _STATUS.get(instance["status"], ""))


def _state(instance: InstanceShape) -> str | None:
    if "state" not in instance:
        return "only an admin sees it"
    state = instance["state"]
    return None if state is None else compact(state)


def _relative(text: str | None, now_ms: int) -> str:
    ms = instant(text)
    return "" if ms is None else relative(ms, now_ms)


def _moment(text: str | None, now_ms: int) -> str | None:
    ms = instant(text)
    return None if ms is None else f"{moment(ms, None)} ({relative(ms, now_ms)})"
