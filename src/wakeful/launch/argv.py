"""Reads and validates command targets: argv, env and cwd."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from wakeful.document.values import shown
from wakeful.errors import InvalidArgument
from wakeful.job.job import Json

#: The most arguments in argv, names in env, and bytes in both.
MAX_ARGUMENTS: Final = 256
MAX_ENV: Final = 256
MAX_BYTES: Final = 65_536

_FIELDS: Final = frozenset({"kind", "argv", "env", "cwd"})
_EXAMPLE: Final = '["/usr/local/bin/report", "--daily"]'
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Command(NamedTuple):
    """A command: the program and its arguments, environment and directory."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None


def read_command(target: Mapping[str, Json]) -> Command:
    """Return the command of a target. Raises InvalidArgument."""
    unknown = sorted(target.keys() - _FIELDS)
    if unknown:
        raise InvalidArgument(f"target: a command has no field '{unknown[0][:64]}'; it has argv, env and cwd")
    command = Command(_argv(target.get("argv")), _env(target.get("env")), _cwd(target.get("cwd")))
    size = sum(len(text.encode()) + 1 for pair in command.env.items() for text in pair)
    if size + sum(len(text.encode()) + 1 for text in command.argv) > MAX_BYTES:
        raise InvalidArgument(
            f"target: argv and env have more than {MAX_BYTES} bytes; put long values into the payload, "
            "which the program reads from stdin"
        )
    return command


def _argv(value: Json) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidArgument(f"target: argv is a list: there is no shell to split it; write {_EXAMPLE}")
    if not isinstance(value, list) or not value:
        raise InvalidArgument(f"target: a command needs an argv, such as {_EXAMPLE}")
    if len(value) > MAX_ARGUMENTS:
        raise InvalidArgument(f"target: argv has {len(value)} arguments; at most {MAX_ARGUMENTS} are allowed")
    if value[0] == "":
        raise InvalidArgument(f"target: argv starts with the program, which is empty; write {_EXAMPLE}")
    return tuple(_text("argv", each) for each in value)


def _env(value: Json) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > MAX_ENV:
        raise InvalidArgument(f"target: env is an object with at most {MAX_ENV} names and text values")
    for name in value:
        if not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"target: '{name[:64]}' is not a name for env; use letters, digits and _, and no digit first"
            )
    return {name: _text(f"env, {name[:64]}", each) for name, each in value.items()}


def _cwd(value: Json) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.startswith("/"):
        raise InvalidArgument("target: cwd is the absolute path of a directory, such as '/srv/reports'")
    return _text("cwd", value)


def _text(where: str, value: Json) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"target: {where}: {shown(value)} is not text; put it in quotes")
    if "\x00" in value or not _encodes(value):
        raise InvalidArgument(
            f"target: {where}: remove U+0000 and lone surrogates; no program can receive them"
        )
    return value


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
