"""Migrations of the schema: numbered SQL files, a folder for each database, forward only.

`sqlite/0001_begin.sql` is number 1, named `begin`. A released file is never edited: a change is a new number.
The table `schema_version` records which migrations a database has had. This module loads the files; a store
applies those that are pending, in one transaction and under a lock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from wakeful.errors import FailedPrecondition

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


class Migration(NamedTuple):
    """One step of the schema."""

    number: int
    name: str
    sql: str


def load(database: str) -> list[Migration]:
    """Return the migrations for this database (the name of its folder), numbered from 1 without gaps.

    >>> load("sqlite")[0].name
    'begin'
    """
    found = []
    for file in files(__name__).joinpath(database).iterdir():
        match = _FILE.fullmatch(file.name)
        if match:
            found.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    found.sort()
    numbers = [step.number for step in found]
    if not found or numbers != list(range(1, len(found) + 1)):
        raise RuntimeError(f"the migrations for {database} are not numbered 1, 2, 3 and on: {numbers}")
    return found


def pending(steps: Sequence[Migration], version: int) -> list[Migration]:
    """Return the migrations that a database at `version` needs. Raise FailedPrecondition if it is newer.

    >>> [step.number for step in pending([Migration(1, "begin", ""), Migration(2, "more", "")], 1)]
    [2]
    """
    newest = steps[-1].number
    if version > newest:
        raise FailedPrecondition(
            f"the database has schema {version}, and this Wakeful knows schemas up to {newest}: "
            f"a newer Wakeful has migrated it; upgrade this one, or use another database"
        )
    return [step for step in steps if step.number > version]
