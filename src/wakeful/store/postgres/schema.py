"""Creates and migrates the schema of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import asyncpg

from wakeful.errors import FailedPrecondition
from wakeful.store.migrations import Migration, check_schema, pending
from wakeful.store.postgres.address import Address
from wakeful.store.postgres.connect import Raw

_HAS_SCHEMA: Final = "SELECT to_regnamespace(quote_ident($1)) IS NOT NULL"
_HAS_VERSIONS: Final = "SELECT to_regclass(quote_ident($1) || '.schema_version') IS NOT NULL"
_VERSION: Final = 'SELECT coalesce(max(version), 0) FROM "{schema}".schema_version'
#: how often a migration is tried: it can end in a deadlock with replicas of the version before it
_TRIES: Final = 10
#: how long a migration may take, for large tables
_MIGRATION_S: Final = 3_600
#: the limits of the role or the database are meant for short statements
_NO_TIMEOUTS: Final = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0"
_LOCK_SCHEMA: Final = "SELECT pg_advisory_xact_lock(hashtextextended('wakeful.' || $1, 0))"
_CREATE_SCHEMA: Final = 'CREATE SCHEMA "{schema}"'
_CREATE_VERSION: Final = """
    SET LOCAL search_path = "{schema}";
    CREATE TABLE IF NOT EXISTS schema_version (
        version integer NOT NULL PRIMARY KEY, name text NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"""
_ADD_VERSION: Final = "INSERT INTO schema_version (version, name) VALUES ($1, $2)"
_ADD_LATER_INDEX: Final = "INSERT INTO pending_indexes (name, statement) VALUES ($1, $2)"
_MARK_COMPATIBLE: Final = "UPDATE schema_version SET breaking = false WHERE version = $1"
#: the newest breaking migration; the column exists from schema 9 on
_REQUIRED_SCHEMA: Final = 'SELECT max(version) FROM "{schema}".schema_version WHERE breaking'
#: schemas of earlier versions do not have it
_HAS_PENDING_TABLE: Final = "SELECT to_regclass(quote_ident($1) || '.pending_indexes') IS NOT NULL"
_HAS_PENDING: Final = 'SELECT EXISTS (SELECT FROM "{schema}".pending_indexes)'

#: What happens if another application has its tables in the schema.
_FOREIGN: Final = (
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
)


async def prepare_schema(connection: Raw, address: Address, steps: Sequence[Migration]) -> None:
    """Create or migrate the schema. FailedPrecondition: the role may not, or the schema is another's."""
    try:
        await migrate(connection, address.schema, steps)
    except asyncpg.InsufficientPrivilegeError as error:
        raise FailedPrecondition(
            f"the schema '{address.schema}' of {address.masked} must be brought up to date, "
            f"and this user may not ({error}): grant it CREATE on the database, or ask its owner"
        ) from error
    except _FOREIGN as error:
        raise FailedPrecondition(
            f"the schema '{address.schema}' of {address.masked} has tables of another application ({error}): "
            "name another schema with ?schema= in the address"
        ) from error


async def migrate(connection: Raw, schema: str, steps: Sequence[Migration]) -> None:
    """Apply the pending migrations, all or none, under a lock. Some indexes are left to `index_builder`.

    IncompatibleSchema: the database has a breaking migration that is not among them.
    """
    installed = await installed_schema(connection, schema)
    if installed is not None:
        if installed > steps[-1].number:
            required = await connection.fetchval(_REQUIRED_SCHEMA.format(schema=schema))
            check_schema(required or 0, steps[-1].number)
        if not pending(steps, installed):
            return  # needs neither a lock nor the right to create
    for tried in range(1, _TRIES + 1):
        try:
            return await _apply(connection, schema, steps)
        except asyncpg.DeadlockDetectedError:
            if tried == _TRIES:
                raise


async def _apply(connection: Raw, schema: str, steps: Sequence[Migration]) -> None:
    async with connection.transaction():
        await connection.execute(_NO_TIMEOUTS)
        # Another process may hold the lock as long as its migration takes.
        await connection.execute(_LOCK_SCHEMA, schema, timeout=_MIGRATION_S)
        if not await connection.fetchval(_HAS_SCHEMA, schema):
            await connection.execute(_CREATE_SCHEMA.format(schema=schema))
        await connection.execute(_CREATE_VERSION.format(schema=schema))
        installed = await installed_schema(connection, schema)  # another process may have applied some
        for step in pending(steps, installed or 0):
            script = step.script if installed else step.complete_script
            # asyncpg fails on a file without a statement
            await connection.execute(f"SELECT 1; {script}", timeout=_MIGRATION_S)
            for index in step.later_indexes if installed else ():
                await connection.execute(_ADD_LATER_INDEX, *index)
            await connection.execute(_ADD_VERSION, step.number, step.name)
            if not step.breaking:
                await connection.execute(_MARK_COMPATIBLE, step.number)


async def installed_schema(connection: Raw, schema: str) -> int | None:
    """Return the newest migration of the schema; None if it has no table of them."""
    if not await connection.fetchval(_HAS_VERSIONS, schema):
        return None
    return int(await connection.fetchval(_VERSION.format(schema=schema)))


async def has_pending(connection: Raw, schema: str) -> bool:
    """Return whether migrations have left indexes for later."""
    if not await connection.fetchval(_HAS_PENDING_TABLE, schema):
        return False
    return bool(await connection.fetchval(_HAS_PENDING.format(schema=schema)))
