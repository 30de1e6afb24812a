"""`wakeful channels`: list, test."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli.arguments import now_ms
from wakeful.cli.exit_codes import NOT_DONE, OK
from wakeful.cli.help import DefaultCommandGroup
from wakeful.cli.session import Session, command, command_group
from wakeful.cli.show.operations import channel_table, delivery_table
from wakeful.cli.show.tables import escaped
from wakeful.cli.times import span

#: What the outcome of a test message means, and its colour.
_OUTCOMES: Final = {
    "accepted": ("the service accepted the message", "green"),
    "not_sent": ("the message was not sent", "red"),
    "unknown": ("the message may have arrived: the service did not respond", "yellow"),
}


def register(app: typer.Typer) -> None:
    """Register the commands."""
    group = command_group(
        app,
        "channels",
        "Channels that output and alerts go to: list, test.",
        panel="Administration",
        cls=DefaultCommandGroup,
    )

    @command(group, "list", examples=("wakeful channels list", "wakeful channels list --json"))
    async def list_channels(s: Session) -> None:
        """Show the channels and the recent deliveries. `list` may be left out. Requires an admin's key."""
        found = await s.out.wait_for(s.client.operations.channels())
        shown: list[RenderableType] = [Text("no channels; set WAKEFUL_CHANNEL_NAME on the server", "dim")]
        if found["channels"]:
            shown = [channel_table(found["channels"])]
        if found["deliveries"]:
            shown += ["", delivery_table(found["deliveries"], now_ms())]
        s.out.show(found, *shown)

    @command(
        group,
        "test",
        examples=("wakeful channels test team-ops", "wakeful channels test telegram --to 12345678"),
    )
    async def test(
        s: Session,
        name: Annotated[str, typer.Argument(metavar="NAME", help="the channel's name")],
        to: Annotated[
            str | None, typer.Option("--to", help="the recipient, if the channel takes one")
        ] = None,
    ) -> int:
        """Send a test message and wait for the result. The exit code is 0 only if it is accepted.

        At most six a minute for each channel. Requires an admin's key.
        """
        result = await s.out.wait_for(s.client.operations.test_channel(name, to), "waiting for the service")
        text, colour = _OUTCOMES[result["outcome"]]
        why = f": {escaped(result['error']).plain}" if result["error"] else ""
        s.out.show(result, Text(f"{text}{why} ({span(result['durationMs'])})", colour))
        return OK if result["outcome"] == "accepted" else NOT_DONE
