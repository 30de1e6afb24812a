"""`wakeful inbox`: list what waits for a person, approve, reject."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.text import Text

from wakeful.cli.arguments import Cursor, Limit, now_ms
from wakeful.cli.output import first_line, print_error
from wakeful.cli.session import CliSession, command
from wakeful.cli.tables import AGENT, Column, ResourceTable
from wakeful.cli.times import relative_text
from wakeful.client.types import InboxItemShape
from wakeful.errors import InvalidArgument, WakefulError

_USAGE: Final = "write `wakeful inbox`, or `wakeful inbox approve ITEM …` or `reject ITEM …`"
_VERBS: Final = ("approve", "reject")


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "inbox",
        examples=(
            "wakeful inbox",
            "wakeful inbox --kind approval,verification",
            "wakeful inbox approve approval:01980000-0000-7000-8000-000000000000@3",
            "wakeful inbox reject verification:01980000-0000-7000-8000-000000000000@1 --reason 'no total'",
        ),
        panel="Jobs",
    )
    async def inbox(
        s: CliSession,
        words: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[approve|reject] ITEM…",
                help="what to decide, and the items as listed, with @VERSION: not if they changed",
            ),
        ] = None,
        kind: Annotated[
            str | None,
            typer.Option(
                "--kind", help="verification, approval, suggestion or incident, several with commas"
            ),
        ] = None,
        reason: Annotated[str | None, typer.Option("--reason", help="with approve or reject: why")] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> None:
        """Show what waits for a person, approve it or reject it.

        Runs to confirm, jobs of agents to approve, suggestions, and new incidents.
        """
        if words:
            verb, *ids = words
            if verb not in _VERBS or not ids or kind is not None:
                raise InvalidArgument(_USAGE)
            await _decide(s, verb, ids, reason)
            return
        if reason is not None:
            raise InvalidArgument("--reason works with `approve` and `reject` only")
        found = await s.out.wait_for(
            s.client.list_inbox(kind=kind, agent=s.agent, limit=limit, cursor=cursor)
        )
        none = Text("nothing waits for a person", "green")
        s.out.show_page("items", found, ITEMS.render(found, now_ms(), wide=s.out.wide), none=none)
        if any(item["may"] for item in found):
            s.out.say(Text("decide with: wakeful inbox approve ITEM, or reject ITEM", "dim"))


async def _decide(s: CliSession, verb: str, ids: list[str], reason: str | None) -> None:
    """Decide about each item; the first error is raised after all of them."""
    request = s.client.approve_item if verb == "approve" else s.client.reject_item
    decisions, lines = [], []
    failed: WakefulError | None = None
    for item_id in ids:
        try:
            name, version = _read_item(item_id)
            done = await s.out.wait_for(request(name, reason=reason, version=version))
        except WakefulError as error:
            if len(ids) > 1:
                print_error(f"{item_id}: {error.message}")
            failed = failed or error
        else:
            decisions.append(done)
            lines.append(Text(f"{item_id} is {done['state']}", "green" if verb == "approve" else "yellow"))
    if decisions:
        s.out.show(decisions[0] if len(ids) == 1 else {"decisions": decisions}, *lines)
    if failed is not None:
        raise failed


def _read_item(text: str) -> tuple[str, int | None]:
    """Return the id of an item and the version that is decided about; None: whatever it is by then."""
    item_id, at, version = text.partition("@")
    if at and not (version.isascii() and version.isdigit() and len(version) < 10):
        raise InvalidArgument(f"'{text[:64]}': copy the item from `wakeful inbox`")
    return item_id, int(version) if at else None


def _name(item: InboxItemShape) -> str:
    """Return what names an item in the command: its id, and the version that is shown."""
    return item["id"] if item["version"] is None else f"{item['id']}@{item['version']}"


ITEMS: Final = ResourceTable[InboxItemShape](
    Column("ITEM", lambda item, _: _name(item), "dim"),
    AGENT,
    Column("WHAT", "title", "bold"),
    Column("SINCE", lambda item, now_ms: relative_text(item["since"], now_ms)),
    Column("UNTIL", lambda item, now_ms: relative_text(item["until"], now_ms)),
    Column("DETAIL", lambda item, _: first_line(item["detail"]), wide=True),
    elastic=["DETAIL", "WHAT"],
)
