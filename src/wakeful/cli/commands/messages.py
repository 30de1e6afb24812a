"""`wakeful signal`, `say` and `sessions`: what agents are sent, and their conversations."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final
from uuid import uuid4

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import AgentName, Cursor, Limit, check_given, json_argument, now_ms, read_text
from wakeful.cli.commands.run import WaitOption, WaitTimeout, follow, follow_until, show_finished
from wakeful.cli.output import escape, page
from wakeful.cli.session import CliSession, command
from wakeful.cli.tables import Column, ResourceTable
from wakeful.cli.times import relative_text
from wakeful.client.types import HistoryEntryShape, ReceiptShape, RunShape, SessionShape
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.values.json_value import Json

_PANEL: Final = "Runs"
_POLL_S: Final = 0.2
_SOURCE = "/cli"
#: What the state of a message means, and its colour.
STATES: Final = {
    "waiting": ("queued; its turn starts soon", "green"),
    "started": ("its turn has started", "green"),
    "dropped": ("dropped: the queue of this session is full", "yellow"),
    "stopped": ("nothing to stop: no turn is running", "yellow"),
}


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "signal",
        examples=(
            "wakeful signal daily-report report.generate --wait",
            "wakeful signal daily-report report.generate --instance eu --data '{\"month\": 3}'",
            "wakeful signal billing invoice.paid --id invoice-17 --source /shop --data-file invoice.json",
            "wakeful signal daily-report report.generate -",
        ),
        panel="Runs",
    )
    async def signal(
        s: CliSession,
        name: AgentName,
        type_: Annotated[
            str, typer.Argument(metavar="TYPE", help="the type of the signal, such as report.generate")
        ],
        stdin: Annotated[
            str | None, typer.Argument(metavar="-", help="- reads the data, any JSON, from stdin")
        ] = None,
        instance: Annotated[
            str, typer.Option("--instance", "-i", help="the instance; it is created if it does not exist")
        ] = "default",
        data: Annotated[
            str | None,
            typer.Option("--data", "-d", metavar="JSON", help="the data, any JSON; @file reads a file"),
        ] = None,
        data_file: Annotated[
            str | None, typer.Option("--data-file", metavar="FILE", help="a file with the data, any JSON")
        ] = None,
        id_: Annotated[
            str | None,
            typer.Option(
                "--id",
                help="signals with the same id and source are handled once (default: a new id)",
            ),
        ] = None,
        source: Annotated[
            str, typer.Option("--source", metavar="URI", help="where the signal comes from")
        ] = _SOURCE,
        subject: Annotated[str | None, typer.Option("--subject", help="what the signal is about")] = None,
        wait: WaitOption = False,
        wait_s: WaitTimeout = None,
    ) -> int:
        """Send a signal to an instance of an agent: a CloudEvent that becomes a run."""
        event: dict[str, Json] = {
            "specversion": "1.0",
            "id": str(uuid4()) if id_ is None else id_,
            "source": source,
            "type": type_,
        }
        if subject is not None:
            event["subject"] = subject
        content = await _read_data(stdin, data, data_file)
        if content is not None:
            event["data"] = content
        (sent,) = await s.out.wait_for(s.client.send_events(s.named_agent(name), instance, [event]))
        if not wait:
            s.out.show(sent, *_sent_lines(sent, f"{name}/{instance}"))
            return exit_codes.OK
        return show_finished(s, await follow_until(s, sent["id"], wait_s))

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
        s: CliSession,
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
            s.client.send_message(
                s.named_agent(name), message=message, session=session, channel=channel, to=to
            )
        )
        text, colour = STATES[receipt["state"]]
        if receipt["stopped"] or (receipt["state"] == "stopped" and receipt["dropped"]):
            text, colour = "stopped", "green"
        if not wait or receipt["state"] in ("dropped", "stopped"):
            s.out.show(receipt, Text(text, colour), *_details(receipt))
            return exit_codes.NOT_DONE if receipt["state"] == "dropped" else exit_codes.OK
        return show_finished(s, await follow(s, receipt["runId"] or await wait_for_turn(s, name, receipt)))

    @command(
        app,
        "sessions",
        examples=(
            "wakeful sessions writer",
            "wakeful sessions writer telegram:123456789",
            "wakeful sessions writer telegram:123456789 --delete",
        ),
        panel="Runs",
    )
    async def sessions(
        s: CliSession,
        name: Annotated[
            str | None, typer.Argument(metavar="AGENT", help="the agent's name (default: default)")
        ] = None,
        session: Annotated[
            str | None, typer.Argument(metavar="SESSION", help="show this session with its history")
        ] = None,
        delete: Annotated[
            bool, typer.Option("--delete", help="delete the session with its history; stop its turns")
        ] = False,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> None:
        """Show the sessions of an agent, or one of them with what was said and answered."""
        check_given("AGENT", name)
        agent = s.named_agent(name or s.agent or "default")
        if delete:
            if session is None:
                raise InvalidArgument(
                    "--delete: name the session too: wakeful sessions AGENT SESSION --delete"
                )
            await s.out.wait_for(s.client.delete_session(agent, session))
            s.out.show({"deleted": session}, Text(f"deleted the session {session} of {agent}", "green"))
            return
        if session is not None:
            found = await s.out.wait_for(s.client.get_session(agent, session, limit=limit, cursor=cursor))
            s.out.show(found, *session_page(found, now_ms()))
            if found["cursor"]:
                s.out.say(Text("older entries exist; raise --limit to show them", "dim"))
            return
        listed = await s.out.wait_for(s.client.list_sessions(agent, limit=limit, cursor=cursor))
        s.out.show_page("sessions", listed, SESSIONS.render(listed, now_ms()))


async def _read_data(stdin: str | None, data: str | None, data_file: str | None) -> Json:
    if stdin not in (None, "-"):
        raise InvalidArgument(f"'{stdin}': write data as --data JSON; only - is an argument, for stdin")
    given = [each for each in (stdin, data, data_file) if each is not None]
    if len(given) > 1:
        raise InvalidArgument("give the data once: --data, --data-file, or - for stdin")
    if data is not None and data != "-":
        return await json_argument("--data", data)
    file = "-" if stdin is not None or data is not None else data_file
    return None if file is None else await json_argument("the data", await read_text(file))


def _sent_lines(sent: RunShape, to: str) -> list[Text]:
    show = Text(f"show it with: wakeful runs {sent['id']}", "dim")
    if sent.get("duplicate"):
        before = f"{to} has received this signal before: run {sent['id']} is {sent['state']}"
        return [Text(before, "yellow"), show]
    return [Text(f"sent {sent['signal']} to {to}: run {sent['id']}", "green"), show]


def _details(receipt: ReceiptShape) -> list[Text]:
    lines = []
    if receipt["runId"]:
        lines.append(Text(f"show it with: wakeful runs {receipt['runId']}", "dim"))
    if receipt["stopped"]:
        lines.append(Text(f"stopped: {', '.join(receipt['stopped'])}", "dim"))
    if receipt["dropped"]:
        lines.append(Text(f"messages dropped: {receipt['dropped']}", "dim"))
    return lines


async def wait_for_turn(s: CliSession, agent: str, receipt: ReceiptShape) -> str:
    """Wait until the message is part of a turn, and return the turn's run id."""
    while True:
        # The queue before the runs: a turn that starts in between is then found among the runs.
        queued = (await s.client.get_session(agent, receipt["session"], limit=1))["messages"]
        for run in await s.client.list_all_runs(agent=agent, limit=50):
            payload = run["payload"]
            messages = payload.get("messages") if isinstance(payload, dict) else None
            if isinstance(messages, list) and receipt["id"] in messages:
                return run["id"]
        if not queued:
            raise FailedPrecondition("the message was dropped from the queue")
        await asyncio.sleep(_POLL_S)


def _context(session: SessionShape) -> str:
    return "" if session["context"] is None else f"{session['context']:.0%}"


def _channel(session: SessionShape) -> str:
    return " ".join(filter(None, (session["channel"], session["to"])))


SESSIONS: Final = ResourceTable[SessionShape](
    Column("SESSION", "name", "bold"),
    Column("QUEUED", "messages"),
    Column("RUNNING", lambda session, _: ", ".join(session["turns"])),
    Column("CONTEXT", lambda session, _: _context(session)),
    Column("CHANNEL", lambda session, _: _channel(session)),
    Column("LAST USED", "updatedAt"),
    elastic=["RUNNING"],
)


def session_page(session: SessionShape, now_ms: int) -> list[RenderableType]:
    """Return a page with the state of a session, and its history, oldest first."""
    fields = page(
        {
            "session": Text(session["name"], "bold"),
            "queued": f"{session['messages']} messages" if session["messages"] else None,
            "running": ", ".join(session["turns"]),
            "context": _context(session),
            "channel": _channel(session),
            "last used": relative_text(session["updatedAt"], now_ms),
        }
    )
    if not session["history"]:
        return [fields, "", Text("no history", "dim")]
    history = [history_entry(entry, now_ms) for entry in reversed(session["history"])]
    return [fields, *(each for entry in history for each in ("", entry))]


def history_entry(entry: HistoryEntryShape, now_ms: int) -> Text:
    """Return an entry of a history: a line that says who and when, and the text."""
    who = entry["role"] if entry["job"] is None else f"{entry['role']}, job {entry['job']}"
    colour = "cyan" if entry["role"] == "user" else "green"
    line = Text(who, f"bold {colour}").append(f"  {relative_text(entry['at'], now_ms)}\n", "not bold dim")
    return line.append(escape(entry["content"]).plain, "not bold default")
