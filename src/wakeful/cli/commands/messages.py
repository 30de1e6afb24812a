"""Speaking to agents: `say`, `sessions`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import now_ms
from wakeful.cli.commands.running import follow
from wakeful.cli.session import Session, command
from wakeful.cli.show.admin import session_table
from wakeful.cli.show.runs import run_page
from wakeful.client.types import ReceiptShape
from wakeful.errors import FailedPrecondition

_PANEL: Final = "Runs"
_LOOK_S: Final = 0.2
_WORDS: Final = {
    "waiting": ("it waits; its turn begins soon", "green"),
    "started": ("its turn has begun", "green"),
    "dropped": ("it was dropped: too much waits in this session", "yellow"),
    "stopped": ("nothing goes on that it should end", "yellow"),
}

AgentName = Annotated[str, typer.Argument(metavar="AGENT", help="the agent's name")]


def register(app: typer.Typer) -> None:
    """Put these commands on the app."""

    @command(app, "say", panel=_PANEL)
    async def say(
        s: Session,
        name: AgentName,
        message: Annotated[str, typer.Argument(metavar="MESSAGE", help="what is said; /stop, /stopall")],
        session: Annotated[
            str | None, typer.Option("--session", help="which conversation; main, if none is named")
        ] = None,
        wait: Annotated[
            bool, typer.Option("--wait", "-w", help="follow its turn; the exit code is 0 only if it succeeds")
        ] = False,
    ) -> int:
        """Say something to an agent."""
        receipt = await s.out.ask(s.client.agents.say(name, message, session=session))
        words, colour = _WORDS[receipt["state"]]
        if receipt["stopped"] or (receipt["state"] == "stopped" and receipt["dropped"]):
            words, colour = "stopped", "green"
        if not wait or receipt["state"] in ("dropped", "stopped"):
            s.out.show(receipt, Text(words, colour), *_aside(receipt))
            return exit_codes.NOT_DONE if receipt["state"] == "dropped" else exit_codes.OK
        over = await follow(s, receipt["runId"] or await _turn(s, name, receipt))
        s.out.show(over, "", *run_page(over, now_ms()))
        return exit_codes.OK if over["state"] == "succeeded" else exit_codes.NOT_DONE

    @command(app, "sessions", panel=_PANEL)
    async def sessions(s: Session, name: AgentName) -> None:
        """Show the conversations of an agent: what waits in each, and what is under way."""
        found = await s.out.ask(s.client.agents.sessions(name, limit=500))
        s.out.show({"sessions": list(found)}, session_table(found, now_ms()))


def _aside(receipt: ReceiptShape) -> list[Text]:
    said = []
    if receipt["runId"]:
        said.append(Text(f"follow it with: wakeful runs {receipt['runId']}", "dim"))
    if receipt["stopped"]:
        said.append(Text(f"stopped: {', '.join(receipt['stopped'])}", "dim"))
    if receipt["dropped"]:
        said.append(Text(f"messages that nobody will read: {receipt['dropped']}", "dim"))
    return said


async def _turn(s: Session, agent: str, receipt: ReceiptShape) -> str:
    """The turn that the message becomes part of, once there is one."""
    while True:
        # First whether it waits: what is taken in between is found among the runs.
        there = await s.client.agents.sessions(agent, limit=500)
        waits = {each["name"]: each["messages"] for each in there}.get(receipt["session"], 1)
        for run in await s.client.runs.of(agent).list(limit=50):
            payload = run["payload"]
            said = payload.get("messages") if isinstance(payload, dict) else None
            if isinstance(said, list) and receipt["id"] in said:
                return run["id"]
        if not waits:
            raise FailedPrecondition("nobody will read it: it was dropped while it waited")
        await asyncio.sleep(_LOOK_S)
