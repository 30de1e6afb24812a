"""`wakeful chat`: a conversation with an agent in the terminal.

On a terminal, messages are read while turns run, so that `/stop` can stop one. What is answered is read from
the history of the session when the event stream says that a run of the agent has ended: so answers of jobs
and of other people's messages are shown too. Without a terminal, each line of stdin is a message, and the
next one is sent when its turn has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Final

import typer
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import AgentName, now_ms, read_stdin
from wakeful.cli.commands.messages import STATES, history_entry, wait_for_turn
from wakeful.cli.commands.run import SLOW_S, follow, run_exit_code
from wakeful.cli.output import escape
from wakeful.cli.pages import progress_line
from wakeful.cli.session import CliSession, command
from wakeful.client.types import EventShape, HistoryEntryShape, RunShape
from wakeful.errors import NotFound, WakefulError
from wakeful.run.run import reason_text

_MAIN: Final = "main"
_QUIT: Final = ("/quit", "/exit")
_HISTORY: Final = "/history"
#: How many entries of the history are shown at the beginning, and how many are read after a turn.
_SHOWN: Final = 10
_READ: Final = 50
_PROMPT: Final = "> "
_CLEAR_LINE: Final = "\r\x1b[K"
_TYPES: Final = ("run.started", "run.finished")


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "chat",
        examples=(
            "wakeful chat writer",
            "wakeful chat writer --session telegram:123456789",
            "wakeful chat writer -m 'How is the draft?'",
        ),
        panel="Runs",
    )
    async def chat(
        s: CliSession,
        name: AgentName,
        session: Annotated[str, typer.Option("--session", help="the session (default: main)")] = _MAIN,
        message: Annotated[
            str | None,
            typer.Option("--message", "-m", metavar="TEXT", help="send this message, print the answer, end"),
        ] = None,
    ) -> int:
        """Talk to an agent: show the history, send messages, and show the answers.

        `/stop` stops the running turn, `/stopall` all turns, `/history` shows the history again, and `/quit`
        or Ctrl-D ends. Without a terminal, each line of stdin is a message. With --json, each turn is printed
        as a line with the JSON of its run.
        """
        agent = s.named_agent(name)
        if message is not None:
            return await _say(s, agent, session, message)
        if s.out.as_json or not sys.stdin.isatty():
            return await _say_lines(s, agent, session)
        with contextlib.suppress(asyncio.CancelledError):  # Ctrl-C
            await _Conversation(s, agent, session).hold()
        return exit_codes.OK


# --- without a terminal -------------------------------------------------------------------------------


async def _say(s: CliSession, agent: str, session: str, message: str) -> int:
    """Send a message, wait for its turn, and print the answer."""
    receipt = await s.out.wait_for(s.client.send_message(agent, message=message, session=session))
    if receipt["state"] in ("dropped", "stopped"):
        stopped = receipt["stopped"] or receipt["dropped"]
        text = "stopped" if receipt["state"] == "stopped" and stopped else STATES[receipt["state"]][0]
        s.out.show_line(receipt, Text(text))
        return exit_codes.NOT_DONE if receipt["state"] == "dropped" else exit_codes.OK
    run_id = receipt["runId"]
    if run_id is None:
        later = None
        if not s.out.stderr.is_terminal:
            note = "the message waits in the queue of its session"
            later = asyncio.get_running_loop().call_later(SLOW_S, s.out.note, note)
        try:
            run_id = await s.out.wait_for(wait_for_turn(s, agent, receipt), "waiting for the turn")
        finally:
            if later is not None:
                later.cancel()
    run = await follow(s, run_id, quiet=True)
    s.out.show_line(run, _answer(run))
    return run_exit_code(run)


async def _say_lines(s: CliSession, agent: str, session: str) -> int:
    """Send each line of stdin as a message. The exit code is that of the last turn that did not succeed."""
    code = exit_codes.OK
    while line := await read_stdin(sys.stdin.readline):
        if line.strip() in _QUIT:
            break
        if line.strip():
            code = await _say(s, agent, session, line.rstrip("\n")) or code
    return code


def _answer(run: RunShape) -> Text:
    if run["state"] == "succeeded":
        return escape(run["output"] or "")
    why = run["error"] or reason_text(run["reason"])
    return Text(f"{run['state']}: {escape(why).plain}".removesuffix(": "), "red")


# --- on a terminal ------------------------------------------------------------------------------------


class _Conversation:
    """An interactive conversation: lines from the terminal, and events from the server."""

    def __init__(self, s: CliSession, agent: str, session: str) -> None:
        self._s = s
        self._agent = agent
        self._session = session
        #: the last entry of the history that was shown
        self._seen = 0
        #: the messages that were sent here
        self._sent: set[str] = set()
        self._connected = asyncio.Event()

    async def hold(self) -> None:
        """Show the history, then send what is typed and show what happens, until the input ends."""
        lines = _Lines()
        following = asyncio.create_task(self._follow())
        following.add_done_callback(lambda _: lines.end())
        connected = asyncio.create_task(self._connected.wait())
        try:
            await self._s.out.wait_for(
                asyncio.wait((following, connected), return_when=asyncio.FIRST_COMPLETED)
            )
            if not following.done():
                await self._show_history()
                self._print(Text("/stop stops the turn, /history shows the history, Ctrl-D ends", "dim"))
            async for line in lines.read():
                if line.strip() in _QUIT:
                    break
                await self._handle_line(line)
                self._prompt()
            if following.done():
                following.result()  # why the events have ended
        finally:
            for task in (following, connected):
                task.cancel()
            await asyncio.gather(following, connected, return_exceptions=True)

    async def _handle_line(self, line: str) -> None:
        if not line.strip():
            return
        try:
            if line.strip() == _HISTORY:
                await self._show_history()
                return
            receipt = await self._s.client.send_message(self._agent, message=line, session=self._session)
        except WakefulError as error:
            self._print(Text(f"{error}", "red"))
            return
        if receipt["id"] is not None:
            self._sent.add(receipt["id"])
        if receipt["state"] == "dropped" or (receipt["state"] == "stopped" and not receipt["stopped"]):
            self._print(Text(*STATES[receipt["state"]]))

    async def _follow(self) -> None:
        """Show turns as they start and end, and new entries of the history."""

        def on_connection(connected: bool) -> None:
            if connected:
                self._connected.set()
            else:
                self._print(Text("the connection to the server is lost; reconnecting", "yellow"))

        events = self._s.client.events(
            agent=self._agent, types=_TYPES, patience=math.inf, on_connection=on_connection
        )
        async with contextlib.aclosing(events):
            async for event in events:
                try:
                    await self._show_event(event)
                except WakefulError as error:  # the stream goes on when the server is back
                    self._print(Text(f"{error}; /history shows the history", "red"))

    async def _show_event(self, event: EventShape) -> None:
        run = event["run"]
        if run is None:  # events were lost: the history has what was answered
            await self._show_new(())
            return
        payload = run["payload"]
        said = payload if isinstance(payload, dict) and payload.get("session") == self._session else None
        if event["type"] == "run.started":
            if said is not None and run["state"] == "running":
                self._print(Text("… ", "dim").append_text(progress_line(run)))
            return
        messages = said.get("messages") if said is not None else None
        own = isinstance(messages, list) and self._sent.issuperset(str(each) for each in messages)
        shown = await self._show_new([run["id"]] if own else ())
        if said is None:
            return
        if run["state"] != "succeeded":
            self._print(_answer(run))
        elif not shown:
            self._print(Text("it has no answer", "dim"))

    async def _show_history(self) -> None:
        entries = await self._entries(_SHOWN)
        if not entries:
            self._print(Text("no history yet", "dim"))
        self._show(entries)

    async def _show_new(self, own_runs: Sequence[str]) -> bool:
        """Show the entries that are new, without what was typed here. Return whether there are any."""
        new = [each for each in await self._entries(_READ) if each["sequence"] > self._seen]
        self._show([each for each in new if each["role"] != "user" or each["runId"] not in own_runs])
        self._seen = max([self._seen, *(each["sequence"] for each in new)])
        return any(each["role"] == "assistant" for each in new)

    async def _entries(self, limit: int) -> list[HistoryEntryShape]:
        """Return the newest entries of the history, oldest first."""
        try:
            found = await self._s.client.get_session(self._agent, self._session, limit=limit)
        except NotFound:
            await self._s.client.get_agent(self._agent)  # an unknown agent is an error
            return []
        return found["history"][::-1]

    def _show(self, entries: Sequence[HistoryEntryShape]) -> None:
        for entry in entries:
            self._print(history_entry(entry, now_ms()))
            self._seen = max(self._seen, entry["sequence"])

    def _print(self, text: Text) -> None:
        """Print above the line that is being typed."""
        sys.stdout.write(_CLEAR_LINE)
        self._s.out.say(text)
        self._prompt()

    def _prompt(self) -> None:
        sys.stdout.write(_PROMPT)
        sys.stdout.flush()


class _Lines:
    """The lines that are typed. The terminal is read in the event loop, which stays responsive."""

    def __init__(self) -> None:
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()

    def end(self) -> None:
        """Yield no more lines."""
        self._chunks.put_nowait(b"")

    async def read(self) -> AsyncIterator[str]:
        """Yield the lines, until the input ends."""
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        loop.add_reader(descriptor, lambda: self._chunks.put_nowait(os.read(descriptor, 65_536)))
        rest = b""
        try:
            while chunk := await self._chunks.get():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line.decode("utf-8", "replace")
        finally:
            loop.remove_reader(descriptor)
