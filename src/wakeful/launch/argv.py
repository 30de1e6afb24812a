"""What a command target says: the program and what it is told, judged before anybody thinks of running it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from wakeful.document.values import shown
from wakeful.errors import InvalidArgument
from wakeful.job import Json

#: How many texts there may be in argv, how many names in env, and how many bytes in both.
MAX_ARGUMENTS: Final = 256
MAX_ENV: Final = 256
MAX_BYTES: Final = 65_536

_FIELDS: Final = frozenset({"kind", "argv", "env", "cwd"})
_EXAMPLE: Final = '["/usr/local/bin/report", "--daily"]'
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Asked(NamedTuple):
    """What a target asks for: the program and what it is told, and what it finds around it."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None


def read_command(target: Mapping[str, Json]) -> Asked:
    """What a target asks for; InvalidArgument where it is written wrong."""
    unknown = sorted(target.keys() - _FIELDS)
    if unknown:
        raise InvalidArgument(f"target: a command has no field '{unknown[0][:64]}'; it has argv, env and cwd")
    asked = Asked(_argv(target.get("argv")), _env(target.get("env")), _cwd(target.get("cwd")))
    size = sum(len(text.encode()) + 1 for pair in asked.env.items() for text in pair)
    if size + sum(len(text.encode()) + 1 for text in asked.argv) > MAX_BYTES:
        raise InvalidArgument(
            f"target: argv and env have more than {MAX_BYTES} bytes; put into the payload what is long, and "
            "read it from stdin"
        )
    return asked


def _argv(value: Json) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidArgument(f"target: argv is a list, for there is no shell to split it; write {_EXAMPLE}")
    if not isinstance(value, list) or not value:
        raise InvalidArgument(f"target: a command needs an argv, such as {_EXAMPLE}")
    if len(value) > MAX_ARGUMENTS:
        raise InvalidArgument(f"target: argv has {len(value)} texts; at most {MAX_ARGUMENTS}")
    if value[0] == "":
        raise InvalidArgument(f"target: argv begins with the program, and it is empty; write {_EXAMPLE}")
    return tuple(_text("argv", each) for each in value)


def _env(value: Json) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > MAX_ENV:
        raise InvalidArgument(f"target: env is an object of at most {MAX_ENV} names, each with a text")
    for name in value:
        if not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"target: '{name[:64]}' is no name for env; it has letters, digits and _, and begins with no "
                "digit"
            )
    return {name: _text(f"env, {name[:64]}", each) for name, each in value.items()}


def _cwd(value: Json) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.startswith("/"):
        raise InvalidArgument("target: cwd is the whole path of a directory, such as '/srv/reports'")
    return _text("cwd", value)


def _text(where: str, value: Json) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"target: {where}: {shown(value)} is not text; put it in quotes")
    if "\x00" in value or not _encodes(value):
        raise InvalidArgument(
            f"target: {where}: no program can be given U+0000, or half of a pair; take it out"
        )
    return value


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
