"""The migrations of the schema: numbered SQL files, one folder per database, applied in order.

`sqlite/0001_begin.sql` is number 1, named `begin`. A released file is never edited: the next change gets the
next number. A store applies all pending migrations in one transaction, under a lock that excludes other
processes, and records them in the table `schema_version`.

A migration is *breaking* unless its first line begins with `-- compatible:`. Code of an earlier schema cannot
use a database after a breaking migration, and can use it after a compatible one. `schema_version.breaking`
records which they were, for code that does not have the file. Code that is too old refuses to open the
database, and a running replica stops (`Store.beat`).

An index of a large table is written as `CREATE INDEX CONCURRENTLY` in the file for PostgreSQL. A database
with data gets it after the migration, while replicas read and write (`store/postgres/index_builder.py`);
until then the statements that need it are slow. A migration that drops such an index also deletes its row of
`pending_indexes`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from wakeful.errors import IncompatibleSchema

_FILE: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_COMPATIBLE: Final = "-- compatible:"
_LATER: Final = re.compile(r"^CREATE INDEX CONCURRENTLY (\w+)\s[^;]+;", re.MULTILINE)


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

    @property
    def complete_script(self) -> str:
        """What it does to an empty database."""
        return _LATER.sub(lambda found: found[0].replace(" CONCURRENTLY", "", 1), self.sql)

    @property
    def script(self) -> str:
        """What it does in its transaction to a database with data."""
        return _LATER.sub("", self.sql)

    @property
    def later_indexes(self) -> list[tuple[str, str]]:
        """The names and statements of the indexes that are built after it.

        >>> Migration(9, "x", "CREATE INDEX CONCURRENTLY runs_x ON runs (x);").later_indexes
        [('runs_x', 'CREATE INDEX CONCURRENTLY runs_x ON runs (x)')]
        """
        return [(found[1], found[0].removesuffix(";")) for found in _LATER.finditer(self.sql)]


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
