"""`wakeful workers`: the processes that take runs."""

from __future__ import annotations

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli.arguments import now_ms
from wakeful.cli.session import Session, command
from wakeful.cli.show.operations import executor_table, worker_table


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(app, "workers", examples=("wakeful workers", "wakeful workers --json"), panel="Server")
    async def workers(s: Session) -> None:
        """Show the processes that take runs, and the executors that hold claimed runs.

        A worker is alive if its last heartbeat is less than 30 s old. Only the process that answers knows the
        slots of its lanes. Requires an admin's key.
        """
        found = await s.out.wait_for(s.client.operations.workers())
        now = now_ms()
        shown: list[RenderableType] = [Text("no workers", "yellow")]
        if found["workers"]:
            shown = [worker_table(found["workers"], now)]
        if found["executors"]:
            shown += ["", executor_table(found["executors"], now)]
        s.out.show(found, *shown)
