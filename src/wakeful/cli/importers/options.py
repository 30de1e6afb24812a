"""The options that all import commands share."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from wakeful.cli.arguments import CreateAgent
from wakeful.errors import InvalidArgument

_OPTIONS: Final = {
    "url": (
        Annotated[str | None, typer.Option("--url", help="the webhook that the jobs call")],
        None,
    ),
    "target": (
        Annotated[str | None, typer.Option("--target", metavar="JSON", help="the target of the jobs")],
        None,
    ),
    "tz": (
        Annotated[
            str | None,
            typer.Option("--tz", help="the zone of schedules that name none (default: this machine's)"),
        ],
        None,
    ),
    "source": (
        Annotated[
            str | None,
            typer.Option(
                "--source",
                metavar="NAME",
                help="the identity of the input (default: host and path): "
                "importing it again changes only its own jobs",
            ),
        ],
        None,
    ),
    "paused": (Annotated[bool, typer.Option("--paused", help="create new jobs paused")], False),
    "dry_run": (
        Annotated[bool, typer.Option("--dry-run", help="have the server check the jobs without saving them")],
        False,
    ),
    "create_agent": (CreateAgent, False),
}
_AS_COMMANDS: Final = Annotated[
    bool,
    typer.Option("--as-commands", help="the server runs the commands itself; WAKEFUL_COMMANDS must allow it"),
]


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The values of the shared options."""

    url: str | None = None
    target: str | None = None
    tz: str | None = None
    source: str | None = None
    paused: bool = False
    dry_run: bool = False
    create_agent: bool = False
    as_commands: bool = False

    def __post_init__(self) -> None:
        if bool(self.url) + bool(self.target) + self.as_commands > 1:
            raise InvalidArgument("--url, --target and --as-commands exclude each other; give one of them")
        if self.source is not None and not self.source.strip():
            raise InvalidArgument("--source is empty; give a name such as web1-crontab")


def import_options(*, commands: bool) -> list[inspect.Parameter]:
    """Return the shared options as parameters; with `commands`, also --as-commands."""
    options = dict(_OPTIONS)
    if commands:
        options = {"as_commands": (_AS_COMMANDS, False), **options}
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, keyword, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
