"""The `wakeful` command: its subcommands, and how errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated, Protocol, runtime_checkable

import typer

from wakeful.cli import exit_codes
from wakeful.cli.commands import LazyGroup
from wakeful.cli.help import WIDTH, OutputLost, write_out
from wakeful.errors import WakefulError
from wakeful.values.package import VERSION

app = typer.Typer(
    name="wakeful",
    cls=LazyGroup,
    help="Cron for AI agents: a durable scheduler that keeps its jobs and runs in a database.",
    epilog=exit_codes.HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
)


@runtime_checkable
class _UsageError(Protocol):
    """The errors that Typer raises for wrong arguments."""

    exit_code: int

    def format_message(self) -> str: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. An error is printed as one sentence on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if arguments[0] in ("serve", "worker", "migrate"):
        from wakeful.cli.serve_options import add_default_wait, keep_early_log

        arguments = add_default_wait(arguments)
        keep_early_log(arguments)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # `<&-`, `>&-`, `2>&-`
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # for terminals whose encoding has no '…'
            stream.reconfigure(errors="replace")
    try:
        code = app(arguments, prog_name="wakeful", standalone_mode=False)
    except WakefulError as error:
        _print_error(error.message)
        return exit_codes.exit_code(error)
    except typer.Abort:
        return exit_codes.INTERRUPTED
    except OutputLost as error:
        _print_error(str(error))
        return exit_codes.NOT_DONE
    except Exception as error:
        if not isinstance(error, _UsageError):
            raise
        if message := error.format_message():
            if arguments[0] == "add" and "extra argument" in message:
                message += "; a schedule is an option: wakeful add NAME --schedule 'every 15m'"
            _print_error(f"{message} (see 'wakeful --help', or --help after a command)")
        return error.exit_code
    return code if isinstance(code, int) else exit_codes.OK


def _print_error(sentence: str) -> None:
    from wakeful.cli.output import print_error  # Rich: only with an error

    print_error(sentence)


def _version(requested: bool) -> None:
    if requested:
        write_out(f"wakeful {VERSION}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Cron for AI agents: a durable scheduler that keeps its jobs and runs in a database."""
