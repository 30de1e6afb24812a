"""The migrations of the schema: numbered SQL files, one folder per database, applied in order.

`sqlite/0001_begin.sql` is number 1, named `begin`. A released file is never edited: the next change gets the
next number. A store applies all pending migrations in one transaction, under a lock that excludes other
processes, and records them in the table `schema_version`.

A migration is *breaking* unless its first line begins with `-- compatible:`. Code of an earlier schema cannot
use a database after a breaking migration, and can use it after a compatible one. `schema_version.breaking`
records which they were, for code that does not have the file. Code that is too old refuses to open the
database, and a running replica stops (`Store.beat`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from wakeful.errors import IncompatibleSchema

_FILE: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_COMPATIBLE: Final = "-- compatible:"


class Migration(NamedTuple):
    """One migration."""

    number: int
    name: str
    sql: str

    @property
    def breaking(self) -> bool:
        """Whether code of an earlier schema cannot use the database after this migration.

        >>> Migration(10, "colours", "-- compatible: adds a column with a default.").breaking
        False
        """
        return not self.sql.startswith(_COMPATIBLE)


def load(database: str) -> list[Migration]:
    """Return the migrations of a database (the name of its folder), numbered from 1 without a gap.

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
    """Return the migrations that a database at `version` does not have.

    >>> [step.number for step in pending([Migration(1, "begin", ""), Migration(2, "more", "")], 1)]
    [2]
    """
    return [step for step in steps if step.number > version]


def schema_error(required: int, newest: int) -> IncompatibleSchema | None:
    """Return the error if `required`, the newest breaking migration of a database, is newer than `newest`.

    >>> schema_error(required=9, newest=9)
    """
    if required <= newest:
        return None
    return IncompatibleSchema(
        f"the database has schema {required}, which a newer version of Wakeful installed; this version "
        f"supports schemas up to {newest}: upgrade it, or use another database"
    )


def check_schema(required: int, newest: int) -> None:
    """Raise IncompatibleSchema if `schema_error` returns one."""
    error = schema_error(required, newest)
    if error is not None:
        raise error
