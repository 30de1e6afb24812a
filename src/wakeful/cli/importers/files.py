"""Find and read the files of an import."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from wakeful.cli.arguments import read_text
from wakeful.cli.importers.crontab import ignored_files, is_read_by_cron, read_crontab
from wakeful.cli.importers.entries import Place, Reading, Remark, joined
from wakeful.cli.importers.run import STDIN
from wakeful.errors import InvalidArgument

#: The files whose lines have a user, besides those of a directory.
_SYSTEM: Final = ("/etc/crontab", "/etc/cron.d/")


class StoreReader(Protocol):
    """A reader of a `jobs.json`."""

    def __call__(self, text: str, *, file: str) -> Reading:
        """Return the entries of the text."""
        ...


async def read_store_file(path: str, read: StoreReader) -> Reading:
    """Read a file of jobs; `~` is the home directory, `-` is stdin."""
    name = path if path == STDIN else str(await asyncio.to_thread(Path(path).expanduser))
    return read(await read_text(name), file=name)


async def read_crontabs(paths: Sequence[str], user_field: bool | None) -> Reading:
    """Read crontabs, and all crontabs of directories such as /etc/cron.d."""
    if STDIN in paths and sys.stdin.isatty():
        raise InvalidArgument("name a crontab file, or pipe one: crontab -l | wakeful import crontab -")
    if paths.count(STDIN) > 1:
        raise InvalidArgument("- is stdin; give it once")
    readings: list[Reading] = []
    for path in paths:
        if path != STDIN and await asyncio.to_thread(Path(path).is_dir):
            readings.append(await _directory(path, user_field is not False))
            continue
        system = path.startswith(_SYSTEM) if user_field is None else user_field
        readings.append(read_crontab(await read_text(path), user_field=system, file=path))
    return joined(readings)


async def _directory(path: str, user_field: bool) -> Reading:
    """Read the files of a directory that cron would read; a file that cannot be read is refused."""
    names = await asyncio.to_thread(_files, path)
    readings = [Reading(notes=tuple(ignored_files(path.rstrip("/"), names)))]
    for name in filter(is_read_by_cron, names):
        file = f"{path.rstrip('/')}/{name}"
        try:
            readings.append(read_crontab(await read_text(file), user_field=user_field, file=file))
        except InvalidArgument as error:
            why = error.message.removeprefix(f"{file}: ")
            readings.append(Reading(refused=(Remark(Place(file, "the whole file"), name, why),)))
    return joined(readings)


def _files(path: str) -> list[str]:
    try:
        return sorted(each.name for each in Path(path).iterdir() if each.is_file())
    except OSError as error:
        raise InvalidArgument(f"{path}: it cannot be read: {error.strerror}") from error
