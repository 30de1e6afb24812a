"""`wakeful help`, `version` and `completion`: the command line itself."""

from __future__ import annotations

import platform
from typing import Annotated, Final

import typer
from rich.text import Text

from wakeful.cli.session import Afterwards, CliSession, command
from wakeful.errors import InvalidArgument
from wakeful.values.package import VERSION

_PANEL: Final = "Command line"
_SHELLS: Final = ("bash", "zsh", "fish", "powershell", "pwsh")
#: The variable that asks the command for completions.
_VARIABLE: Final = "_WAKEFUL_COMPLETE"


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "help",
        examples=("wakeful help", "wakeful help add", "wakeful help keys create"),
        panel=_PANEL,
        calls_server=False,
    )
    async def show_help(
        s: CliSession,
        words: Annotated[
            list[str] | None, typer.Argument(metavar="COMMAND", help="the command; without it, all commands")
        ] = None,
    ) -> Afterwards:
        """Show the help of a command, as `--help` after it does."""
        from wakeful.cli.main import main

        return lambda: main([*(words or ()), "--help"])

    @command(app, "version", examples=("wakeful version",), panel=_PANEL, calls_server=False)
    async def version(s: CliSession) -> None:
        """Show the version of this command line, and of Python. `wakeful status` shows the server's."""
        python = platform.python_version()
        s.out.show({"version": VERSION, "python": python}, Text(f"wakeful {VERSION} (Python {python})"))

    @command(
        app,
        "completion",
        examples=("wakeful completion bash", "wakeful completion zsh --install"),
        panel=_PANEL,
        calls_server=False,
    )
    async def completion(
        s: CliSession,
        shell: Annotated[str, typer.Argument(metavar="SHELL", help=f"one of {', '.join(_SHELLS)}")],
        install: Annotated[
            bool, typer.Option("--install", help="add it to the start files of the shell instead")
        ] = False,
    ) -> None:
        """Print the script that completes commands, options and job names in a shell.

        `--install-completion` does the same for the shell that runs it.
        """
        from typer import _completion_shared as scripts  # no public name takes a shell

        if shell not in _SHELLS:
            raise InvalidArgument(f"'{shell[:64]}' is not one of {', '.join(_SHELLS)}")
        if install:
            _, path = scripts.install(shell=shell, prog_name="wakeful", complete_var=_VARIABLE)
            shown = Text(f"completion for {shell} is in {path}; open a new terminal to use it", "green")
            s.out.show({"shell": shell, "file": str(path)}, shown)
            return
        script = scripts.get_completion_script(prog_name="wakeful", complete_var=_VARIABLE, shell=shell)
        s.out.show({"shell": shell, "script": script}, Text(script))
