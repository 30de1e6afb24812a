"""Backs up the database of a server, and the key file of its webhook secrets."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from wakeful.errors import AlreadyExists
from wakeful.launch.secrets import SUFFIX
from wakeful.store.backup import ShowProgress, back_up, copy_file
from wakeful.store.connect import sqlite_path


class BackupFiles(NamedTuple):
    """The files of a backup."""

    file: Path
    size: int
    #: the copy of the key file; None: the database has none
    key_file: Path | None


def back_up_database(url: str, file: Path, show_progress: ShowProgress) -> BackupFiles:
    """Write a backup of a database to `file`, and its key file, if it has one, beside it."""
    if not file.name:  # `.` or `/`
        raise AlreadyExists(
            f"'{file}' is a folder; give the name of a new file, such as '{file / 'backup.db'}'"
        )
    copied_key = file.with_name(f"{file.name}{SUFFIX}")
    source = sqlite_path(url)
    key = None if source is None else Path(f"{source}{SUFFIX}")
    if key is not None and key.exists() and copied_key.exists():  # before the copy, which takes long
        raise AlreadyExists(f"'{copied_key}' exists; a backup replaces no file, so give another name")
    done = back_up(url, file, show_progress)
    # After the database: a copy that has secrets has their key.
    if key is None or not key.exists():
        return BackupFiles(done.file, done.size, None)
    copy_file(key, copied_key)
    return BackupFiles(done.file, done.size, copied_key)
