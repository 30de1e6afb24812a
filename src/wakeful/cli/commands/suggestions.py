"""`wakeful suggestions`: list, show, apply, dismiss, roll back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from wakeful.cli.arguments import Limit, OfJob, now_ms, read_verb
from wakeful.cli.output import page
from wakeful.cli.session import CliSession, command
from wakeful.cli.tables import AGENT, Column, ResourceTable
from wakeful.cli.times import moment_text
from wakeful.client.types import SuggestionShape
from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json

_USAGE: Final = (
    "give one suggestion: `wakeful suggestions SUGGESTION`, or with `apply`, `dismiss` or `rollback`"
)
#: The statuses that the list shows unless the command names others.
_CURRENT: Final = "open"
_STATUSES: Final = {"open": "yellow", "applied": "green", "rolled_back": "red"}


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
        s: CliSession,
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
        job: OfJob = None,
        limit: Limit = 50,
    ) -> None:
        """Show the suggestions for jobs, show one, or apply, dismiss or roll back one.

        An agent with `evolution: suggest` is analyzed once a day. Nothing changes until a person applies it.
        """
        verb, suggestion_id = read_verb(words, ("apply", "dismiss", "rollback"), _USAGE)
        if suggestion_id is not None:
            if status is not None or job is not None:
                raise InvalidArgument("--status and --job work for the list only")
            request = {
                None: s.client.get_suggestion,
                "apply": s.client.apply_suggestion,
                "dismiss": s.client.dismiss_suggestion,
                "rollback": s.client.roll_back_suggestion,
            }[verb]
            found = await s.out.wait_for(request(suggestion_id))
            s.out.show(found, suggestion_page(found, now_ms()))
            return
        statuses = None if status == "all" else _CURRENT if status is None else status
        agent, job = s.split_filter(job)
        listed = await s.out.wait_for(
            s.client.list_suggestions(status=statuses, agent=agent, job=job, limit=limit)
        )
        if not listed:
            await s.check_filter(agent, job)
        none = Text("no suggestions" if status else "no open suggestions", "green")
        s.out.show_page(
            "suggestions", listed, SUGGESTIONS.render(listed, now_ms(), wide=s.out.wide), none=none
        )
        if any(each["status"] == "open" for each in listed):
            s.out.say(Text("apply one with: wakeful suggestions apply SUGGESTION", "dim"))


def suggestion_status(suggestion: SuggestionShape) -> Text:
    """Return the status of a suggestion in its colour."""
    status = suggestion["status"]
    return Text(status.replace("_", " "), _STATUSES.get(status, "dim"))


SUGGESTIONS: Final = ResourceTable[SuggestionShape](
    Column("SUGGESTION", "id", "dim"),
    Column("JOB", "job", "bold"),
    AGENT,
    Column("RULE", "rule"),
    Column("STATUS", lambda suggestion, _: suggestion_status(suggestion)),
    Column("CREATED", "createdAt"),
    Column("SUMMARY", "summary", wide=True),
    elastic=["SUMMARY", "RULE"],
)


def suggestion_page(suggestion: SuggestionShape, now_ms: int) -> Table:
    """Return a page with all fields of a suggestion."""
    by = suggestion["decidedByName"] or suggestion["decidedBy"]
    decided = moment_text(suggestion["decidedAt"], now_ms)
    evaluation = suggestion["evaluation"]
    return page(
        {
            "suggestion": Text(suggestion["id"], "bold"),
            "job": suggestion["job"],
            "agent": f"{suggestion['agentId']} in {suggestion['workspace']}",
            "rule": suggestion["rule"],
            "status": suggestion_status(suggestion),
            "summary": suggestion["summary"],
            "change": _fields(suggestion["change"]),
            "before": _fields(suggestion["before"]),
            "figures": _fields(suggestion["figures"]),
            "created": moment_text(suggestion["createdAt"], now_ms),
            "measured": moment_text(suggestion["updatedAt"], now_ms),
            "decided": decided and (f"{decided}, by {by}" if by else decided),
            "evaluated": moment_text(suggestion["evaluatedAt"], now_ms),
            "evaluation": None if evaluation is None else _fields(evaluation),
        }
    )


def _fields(values: Mapping[str, Json]) -> str:
    return ", ".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in values.items()
    )
