"""The commands, one file per command or group.

A module registers its commands with `register(app)`. It is imported when one of them is used. `index.py` has
what the list of commands shows without an import; `make generate` writes it from the help of the commands.

To add a command, write it in a module of this directory. If the module is new, add it to MODULES. Then run
`make generate`.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

import typer
from typer.main import get_group

from wakeful.cli.commands.index import COMMANDS
from wakeful.cli.help import HelpGroup, Row

if TYPE_CHECKING:
    from typer._click.core import Command, Context

#: The modules, in the order of the help text.
MODULES: Final = (
    "demo",
    "serve",
    "executor",
    "server",
    "jobs",
    "edit",
    "job_state",
    "targets",
    "run",
    "runs",
    "messages",
    "chat",
    "preview",
    "apply",
    "import_jobs",
    "dead_letters",
    "incidents",
    "suggestions",
    "inbox",
    "agents",
    "instances",
    "admin",
    "usage",
    "doctor",
    "backup",
    "about",
)

_DELETE: Final = "`wakeful delete NAME` deletes a job"
_SHOW: Final = "`wakeful show NAME` shows a job, and `wakeful runs RUN` a run"
_RUN: Final = "`wakeful run NAME` runs a job now"
#: Words of other command lines, each with the command that does the same here.
_HINTS: Final = {
    **dict.fromkeys(("rm", "remove", "del"), _DELETE),
    **dict.fromkeys(("get", "describe", "info", "inspect"), _SHOW),
    **dict.fromkeys(
        ("logs", "log"), "`wakeful runs NAME` shows the runs of a job, and `wakeful tail` follows all runs"
    ),
    **dict.fromkeys(("ls", "ps", "jobs"), "`wakeful list` shows the jobs"),
    **dict.fromkeys(("create", "new", "schedule"), "`wakeful add NAME --schedule '0 9 * * *'` adds a job"),
    **dict.fromkeys(("update", "set", "change"), "`wakeful edit NAME` changes a job"),
    **dict.fromkeys(("enable", "unpause"), "`wakeful resume NAME` resumes a job"),
    **dict.fromkeys(("disable", "suspend"), "`wakeful pause NAME` pauses a job"),
    **dict.fromkeys(("trigger", "exec", "fire"), _RUN),
    "start": f"{_RUN}, and `wakeful serve` starts a server",
    "server": "`wakeful serve` starts a server",
    "kill": "`wakeful stop RUN` stops a running run",
    "retry": "`wakeful replay RUN` runs a dead letter again",
    "next": "`wakeful preview NAME` shows the next ticks of a job",
    "login": "set WAKEFUL_URL and WAKEFUL_KEY; `wakeful open` signs in to the dashboard",
    "dump": "`wakeful backup FILE` backs up the database",
}


def load(module: str) -> MutableMapping[str, Command]:
    """Import a module and return its commands by name."""
    app = typer.Typer(rich_markup_mode=None)
    import_module(f"{__name__}.{module}").register(app)
    return get_group(app).commands


class LazyCommands(MutableMapping[str, "Command"]):
    """The commands by name, each imported when it is read."""

    def __init__(self) -> None:
        self._loaded: dict[str, Command] = {}
        self._modules = {each.name: each.module for each in COMMANDS}

    def __getitem__(self, name: str) -> Command:
        if name not in self._loaded:
            self._loaded.update(load(self._modules[name]))
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __setitem__(self, name: str, command: Command) -> None:
        raise TypeError("commands are registered in their module")

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands are registered in their module")


class LazyGroup(HelpGroup):
    """All commands. Its help comes from the index."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**{**settings, "commands": None})  # type: ignore[arg-type]
        self.commands = LazyCommands()

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Return the command; the error for a word of another command line names the one to use."""
        word = args[0]
        if word in _HINTS and not ctx.resilient_parsing:
            ctx.fail(f"there is no command '{word}': {_HINTS[word]}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of the commands."""
        return list(self.commands)

    def command_rows(self, ctx: Context) -> Iterator[Row]:
        """Return a row for each command."""
        return ((each.panel, each.name, each.summary) for each in COMMANDS)
