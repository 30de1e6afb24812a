"""The help texts as plain text in sections, and the values of options; both without slow imports.

Typer's own help imports Rich and its Markdown renderer, which takes longer than the rest of `--help`. Typer
also builds a Pydantic adapter for every option of a command, given or not: that imports Pydantic and takes a
third of the time of a short command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from wakeful.cli import exit_codes

if TYPE_CHECKING:
    from typer._click.core import Command, Context, Parameter
    from typer._click.formatting import HelpFormatter

#: (section, name, text)
Row = tuple[str, str, str]

#: The widest help text, in columns.
WIDTH: Final = 110


class QuickCoercion:
    """Accepts absent values, defaults and text as they are; leaves the rest to Typer."""

    def __init__(self, annotation: object) -> None:
        self._annotation = annotation

    def coerce(self, value: object, param: Any, ctx: Context) -> object:
        """Return the value for the command."""
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        if many and self._annotation == list[str] and isinstance(value, list | tuple):
            return list(value)
        if not many and isinstance(self._annotation, type) and type(value) is self._annotation:
            return value
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def coerce_quickly(params: list[Parameter]) -> list[Parameter]:
    """Return the parameters with a quick coercion, if this version of Typer builds adapters for them."""
    for param in params:
        descriptor = getattr(param, "type_descriptor", None)
        if descriptor is not None and getattr(param, "_runtime_param", True) is None:
            param._runtime_param = QuickCoercion(descriptor.annotation)  # type: ignore[attr-defined]
    return params


class OutputLost(Exception):
    """The output cannot be written, as of a full disk."""


def write_out(text: str) -> bool:
    """Write to stdout. Returns whether someone reads it: if not, the rest of the output is dropped."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise OutputLost(f"the output cannot be written: {error.strerror}") from error
        return False
    return True


def _show_help(ctx: Context, param: Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        write_out(f"{ctx.get_help()}\n")
        raise typer.Exit


def _quiet(option: TyperOption | None) -> TyperOption | None:
    """Return the option --help so that a reader of a pipe that has enough is no error: Typer exits with 1."""
    if option is not None:
        option.callback = _show_help
    return option


class HelpCommand(TyperCommand):
    """A command whose help groups the options by panel."""

    def get_help_option(self, ctx: Context) -> TyperOption | None:
        """Return the option --help."""
        return _quiet(super().get_help_option(ctx))

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Return the arguments and options."""
        return coerce_quickly(super().get_params(ctx))

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the arguments and options."""
        write_sections(formatter, parameter_rows(self, ctx))

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the examples, and where the exit codes are listed."""
        write_epilog(self.epilog, formatter)
        formatter.write("\nThe exit code 0 means success; `wakeful --help` lists the others.\n")


class HelpGroup(TyperGroup):
    """A group whose help groups the options and commands by panel."""

    def get_help_option(self, ctx: Context) -> TyperOption | None:
        """Return the option --help."""
        return _quiet(super().get_help_option(ctx))

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Return the arguments and options."""
        return coerce_quickly(super().get_params(ctx))

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the options; print the help if there are no arguments."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            write_out(f"{ctx.get_help()}\n")
            raise typer.Exit(exit_codes.USAGE)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the commands, then the options."""
        write_sections(formatter, [*self.command_rows(ctx), *parameter_rows(self, ctx)])

    def command_rows(self, ctx: Context) -> Iterable[Row]:
        """Return a row for each command."""
        for name, command in self.commands.items():
            if not command.hidden:
                yield panel(command) or "Commands", name, summary(command)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the exit codes."""
        write_epilog(self.epilog, formatter)


class DefaultCommandGroup(HelpGroup):
    """A group that runs its command `list` if none is named: `wakeful instances --status paused`."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the options; insert `list` if there is no command."""
        if not ctx.resilient_parsing and not self._has_command(args):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def _has_command(self, args: list[str]) -> bool:
        if not args or args[0] in ("--help", "-h"):
            return bool(args)
        if args[0] in self.commands:
            return True
        words = [word for word in args[:2] if not word.startswith("-")]
        listed = any(each.param_type_name == "argument" for each in self.commands["list"].params)
        # A word that `list` does not take, and two words, are a mistyped command.
        return not args[0].startswith("-") and (not listed or len(words) > 1)


def write_epilog(text: str | None, formatter: HelpFormatter) -> None:
    """Write a text as it is, without wrapping its lines."""
    if text:
        formatter.write(f"\n{text}\n")


def summary(command: Command) -> str:
    """Return the first sentence of a command's help."""
    text = " ".join((command.help or "").partition("\n\n")[0].split())
    sentence, more, _ = text.partition(". ")
    return f"{sentence}." if more else text


def panel(command: object) -> str:
    """Return the panel of a command or parameter; empty if it has none."""
    return str(getattr(command, "rich_help_panel", None) or "")


def parameter_rows(command: Command, ctx: Context) -> list[Row]:
    """Return a row for each argument and option, those without a panel first."""
    rows = []
    for each in command.get_params(ctx):
        record = each.get_help_record(ctx)
        if record is not None:
            plain = "Arguments" if each.param_type_name == "argument" else "Options"
            rows.append((panel(each) or plain, *record))
    order = {"Arguments": 0, "Options": 1}
    return sorted(rows, key=lambda row: order.get(row[0], 2))


def write_sections(formatter: HelpFormatter, rows: Iterable[Row]) -> None:
    """Write the rows under a heading for each section."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for section, name, text in rows:
        sections.setdefault(section, []).append((name, text))
    for section, lines in sections.items():
        with formatter.section(section):
            formatter.write_dl(lines)
