"""`wakeful signal`."""

from __future__ import annotations

from typing import Annotated
from uuid import uuid4

import typer
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import AgentName, json_argument, now_ms, read_text
from wakeful.cli.commands.run import WaitOption, WaitTimeout, follow_until
from wakeful.cli.session import Session, command
from wakeful.cli.show.runs import run_page
from wakeful.client.types import RunShape
from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json

_SOURCE = "/cli"


def register(app: typer.Typer) -> None:
    """Register the command."""

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
        s: Session,
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
        content = await _data(stdin, data, data_file)
        if content is not None:
            event["data"] = content
        (sent,) = await s.out.wait_for(s.client.instances.send(s.named_agent(name), instance, [event]))
        if not wait:
            s.out.show(sent, *_lines(sent, f"{name}/{instance}"))
            return exit_codes.OK
        run = await follow_until(s, sent["id"], wait_s)
        s.out.show(run, "", *run_page(run, now_ms()))
        return exit_codes.OK if run["state"] == "succeeded" else exit_codes.NOT_DONE


async def _data(stdin: str | None, data: str | None, data_file: str | None) -> Json:
    if stdin not in (None, "-"):
        raise InvalidArgument(f"'{stdin}': write data as --data JSON; only - is an argument, for stdin")
    given = [each for each in (stdin, data, data_file) if each is not None]
    if len(given) > 1:
        raise InvalidArgument("give the data once: --data, --data-file, or - for stdin")
    if data is not None and data != "-":
        return await json_argument("--data", data)
    file = "-" if stdin is not None or data is not None else data_file
    return None if file is None else await json_argument("the data", await read_text(file))


def _lines(sent: RunShape, to: str) -> list[Text]:
    show = Text(f"show it with: wakeful runs {sent['id']}", "dim")
    if sent.get("duplicate"):
        before = f"{to} has received this signal before: run {sent['id']} is {sent['state']}"
        return [Text(before, "yellow"), show]
    return [Text(f"sent {sent['signal']} to {to}: run {sent['id']}", "green"), show]
