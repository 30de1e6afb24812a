"""`wakeful say`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import AgentName, now_ms
from wakeful.cli.commands.run import follow
from wakeful.cli.session import Session, command
from wakeful.cli.show.runs import run_page
from wakeful.client.types import ReceiptShape
from wakeful.errors import FailedPrecondition

_PANEL: Final = "Runs"
_POLL_S: Final = 0.2
#: What the state of a message means, and its colour.
STATES: Final = {
    "waiting": ("queued; its turn starts soon", "green"),
    "started": ("its turn has started", "green"),
    "dropped": ("dropped: the queue of this session is full", "yellow"),
    "stopped": ("nothing to stop: no turn is running", "yellow"),
}


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "say",
        examples=(
            "wakeful say writer 'How is the draft?' --wait",
            "wakeful say writer /stop --session main",
        ),
        panel=_PANEL,
    )
    async def say(
        s: Session,
        name: AgentName,
        message: Annotated[
            str, typer.Argument(metavar="MESSAGE", help="the message; /stop and /stopall stop turns")
        ],
        session: Annotated[str | None, typer.Option("--session", help="the session (default: main)")] = None,
        channel: Annotated[
            str | None,
            typer.Option("--channel", help="the channel that it comes from: jobs made there deliver there"),
        ] = None,
        to: Annotated[str | None, typer.Option("--to", help="the recipient on that channel")] = None,
        wait: Annotated[
            bool,
            typer.Option("--wait", "-w", help="wait for the turn; the exit code is 0 only if it succeeds"),
        ] = False,
    ) -> int:
        """Send a message to an agent."""
        receipt = await s.out.wait_for(
            s.client.agents.say(s.named_agent(name), message, session=session, channel=channel, to=to)
        )
        text, colour = STATES[receipt["state"]]
        if receipt["stopped"] or (receipt["state"] == "stopped" and receipt["dropped"]):
            text, colour = "stopped", "green"
        if not wait or receipt["state"] in ("dropped", "stopped"):
            s.out.show(receipt, Text(text, colour), *_details(receipt))
            return exit_codes.NOT_DONE if receipt["state"] == "dropped" else exit_codes.OK
        run = await follow(s, receipt["runId"] or await turn_of(s, name, receipt))
        s.out.show(run, "", *run_page(run, now_ms()))
        return exit_codes.OK if run["state"] == "succeeded" else exit_codes.NOT_DONE


def _details(receipt: ReceiptShape) -> list[Text]:
    lines = []
    if receipt["runId"]:
        lines.append(Text(f"show it with: wakeful runs {receipt['runId']}", "dim"))
    if receipt["stopped"]:
        lines.append(Text(f"stopped: {', '.join(receipt['stopped'])}", "dim"))
    if receipt["dropped"]:
        lines.append(Text(f"messages dropped: {receipt['dropped']}", "dim"))
    return lines


async def turn_of(s: Session, agent: str, receipt: ReceiptShape) -> str:
    """Wait until the message is part of a turn, and return the turn's run id."""
    while True:
        # The queue before the runs: a turn that starts in between is then found among the runs.
        sessions = await s.client.agents.sessions(agent, limit=500)
        queued = {each["name"]: each["messages"] for each in sessions}.get(receipt["session"], 1)
        for run in await s.client.runs.of(agent).list(limit=50):
            payload = run["payload"]
            messages = payload.get("messages") if isinstance(payload, dict) else None
            if isinstance(messages, list) and receipt["id"] in messages:
                return run["id"]
        if not queued:
            raise FailedPrecondition("the message was dropped from the queue")
        await asyncio.sleep(_POLL_S)
