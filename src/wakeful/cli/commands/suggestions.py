"""`wakeful suggestions`: list, show, apply, dismiss, roll back."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.text import Text

from wakeful.cli.arguments import Limit, now_ms
from wakeful.cli.session import Session, command
from wakeful.cli.show.suggestions import suggestion_page, suggestion_table
from wakeful.errors import InvalidArgument

_VERBS: Final = ("apply", "dismiss", "rollback")
#: The statuses that the list shows unless the command names others.
_CURRENT: Final = ("open",)


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "suggestions",
        examples=(
            "wakeful suggestions",
            "wakeful suggestions --status all --job digest",
            "wakeful suggestions 01980000-0000-7000-8000-000000000000",
            "wakeful suggestions apply 01980000-0000-7000-8000-000000000000",
        ),
        panel="Jobs",
    )
    async def suggestions(
        s: Session,
        words: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[apply|dismiss|rollback] SUGGESTION",
                help="a suggestion's id, and what to do with it",
            ),
        ] = None,
        status: Annotated[
            str | None,
            typer.Option(
                "--status",
                help="open, applied, dismissed, rolled_back or withdrawn, several with commas, or all "
                "(default: open)",
            ),
        ] = None,
        job: Annotated[str | None, typer.Option("--job", help="only of this job: its name or id")] = None,
        limit: Limit = 50,
    ) -> None:
        """Show the suggestions for jobs, show one, or apply, dismiss or roll back one.

        An agent with `evolution: suggest` is analyzed once a day. Nothing changes until a person applies it.
        """
        verb, suggestion_id = _read(words or [])
        rest = s.client.suggestions
        if suggestion_id is not None:
            if status is not None or job is not None:
                raise InvalidArgument("--status and --job work for the list only")
            call = rest.get(suggestion_id) if verb is None else rest.decide(suggestion_id, verb)
            found = await s.out.wait_for(call)
            s.out.show(found, suggestion_page(found, now_ms()))
            return
        statuses = () if status == "all" else _CURRENT if status is None else status.split(",")
        listed = await s.out.wait_for(rest.list(statuses=statuses, agent=s.agent, job=job, limit=limit))
        none = Text("no suggestions" if status else "no open suggestions", "green")
        shown = suggestion_table(listed, now_ms(), wide=s.out.wide) if listed else none
        s.out.show({"suggestions": listed, "cursor": listed.cursor}, shown)
        if any(each["status"] == "open" for each in listed):
            s.out.say(Text("apply one with: wakeful suggestions apply SUGGESTION", "dim"))


def _read(words: list[str]) -> tuple[str | None, str | None]:
    """Return what to do, if anything, and the id of the suggestion."""
    verb = words[0] if words and words[0] in _VERBS else None
    ids = words if verb is None else words[1:]
    if len(ids) > 1 or (verb is not None and not ids):
        raise InvalidArgument(
            "give one suggestion: `wakeful suggestions SUGGESTION`, or with `apply`, `dismiss` or `rollback`"
        )
    return verb, ids[0] if ids else None
