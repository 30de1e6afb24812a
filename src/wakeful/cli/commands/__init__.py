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
    "agents",
    "instances",
    "admin",
    "usage",
    "doctor",
)


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

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of the commands."""
        return list(self.commands)

    def command_rows(self, ctx: Context) -> Iterator[Row]:
        """Return a row for each command."""
        return ((each.panel, each.name, each.summary) for each in COMMANDS)
