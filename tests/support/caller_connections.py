"""Connections of programs that use Wakeful in their own transactions, with one interface for all drivers."""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import aiosqlite
import asyncpg
import psycopg
import psycopg2  # type: ignore[import-untyped]
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as async_sqlalchemy

from wakeful import Job, Run, Wakeful

T = TypeVar("T")


class CallerConnection(ABC):
    """A connection of a program, in a transaction or not."""

    def __init__(self, database: str) -> None:
        self.url = database
        self.path = database.removeprefix("sqlite:///")
        #: what is given as `connection`
        self.given: Any = None

    @abstractmethod
    async def begin(self) -> None:
        """Connect, and begin a transaction."""

    @abstractmethod
    async def execute(self, statement: str) -> None: ...
    @abstractmethod
    async def commit(self) -> None: ...
    @abstractmethod
    async def rollback(self) -> None: ...
    @abstractmethod
    async def close(self) -> None: ...

    async def enqueue(self, app: Wakeful, function: Callable[..., Any], *args: Any, **options: Any) -> Run:
        return await app.enqueue(function, *args, connection=self.given, **options)

    async def create(self, app: Wakeful, name: str, **fields: Any) -> Job:
        return await app.jobs.create(name, connection=self.given, **fields)

    async def upsert(self, app: Wakeful, name: str, **fields: Any) -> Job:
        return await app.jobs.upsert(name, connection=self.given, **fields)

    async def run(self, app: Wakeful, name: str, **options: Any) -> Run | None:
        run: Run | None = await app.jobs.run(name, connection=self.given, **options)
        return run


class Asyncpg(CallerConnection):
    async def begin(self) -> None:
        self.given = self.given or await asyncpg.connect(self.url)
        self._transaction = self.given.transaction()
        await self._transaction.start()

    async def execute(self, statement: str) -> None:
        await self.given.execute(statement)

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def close(self) -> None:
        await self.given.close()


class AsyncPsycopg(CallerConnection):
    async def begin(self) -> None:
        self.given = self.given or await psycopg.AsyncConnection.connect(self.url)

    async def execute(self, statement: str) -> None:
        await self.given.execute(statement)

    async def commit(self) -> None:
        await self.given.commit()

    async def rollback(self) -> None:
        await self.given.rollback()

    async def close(self) -> None:
        await self.given.close()


class AsyncSession(CallerConnection):
    """A session of SQLAlchemy."""

    def engine(self) -> async_sqlalchemy.AsyncEngine:
        return async_sqlalchemy.create_async_engine(
            "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(self.url)
        )

    async def begin(self) -> None:
        if self.given is None:
            self._engine = self.engine()
            self.given = async_sqlalchemy.AsyncSession(self._engine)

    async def execute(self, statement: str) -> None:
        await self.given.execute(sqlalchemy.text(statement))

    async def commit(self) -> None:
        await self.given.commit()

    async def rollback(self) -> None:
        await self.given.rollback()

    async def close(self) -> None:
        await self.given.close()
        await self._engine.dispose()


class AsyncConnection(AsyncSession):
    """A connection of SQLAlchemy, by psycopg."""

    def engine(self) -> async_sqlalchemy.AsyncEngine:
        connect = psycopg.AsyncConnection.connect
        return async_sqlalchemy.create_async_engine(
            "postgresql+psycopg://", async_creator=lambda: connect(self.url)
        )

    async def begin(self) -> None:
        if self.given is None:
            self._engine = self.engine()
            self.given = await self._engine.connect()


class AiosqliteSession(AsyncSession):
    """A session of SQLAlchemy on SQLite."""

    def engine(self) -> async_sqlalchemy.AsyncEngine:
        return async_sqlalchemy.create_async_engine(f"sqlite+aiosqlite:///{self.path}")


class Aiosqlite(CallerConnection):
    async def begin(self) -> None:
        self.given = self.given or await aiosqlite.connect(self.path)

    async def execute(self, statement: str) -> None:
        await self.given.execute(statement)

    async def commit(self) -> None:
        await self.given.commit()

    async def rollback(self) -> None:
        await self.given.rollback()

    async def close(self) -> None:
        await self.given.close()


class Sqlite(CallerConnection):
    """A connection of `sqlite3` in the thread of the event loop."""

    async def begin(self) -> None:
        self.given = self.given or sqlite3.connect(self.path)

    async def execute(self, statement: str) -> None:
        self.given.execute(statement)

    async def commit(self) -> None:
        self.given.commit()

    async def rollback(self) -> None:
        self.given.rollback()

    async def close(self) -> None:
        self.given.close()


class Blocking(CallerConnection):
    """A connection that blocks, in a thread of its own."""

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self._thread = ThreadPoolExecutor(1)

    async def _call(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def connect(self) -> Any:
        return psycopg.connect(self.url)

    async def begin(self) -> None:
        if self.given is None:
            self.given = await self._call(self.connect)

    async def execute(self, statement: str) -> None:
        await self._call(lambda: self.given.execute(statement))

    async def commit(self) -> None:
        await self._call(lambda: self.given.commit())

    async def rollback(self) -> None:
        await self._call(lambda: self.given.rollback())

    async def close(self) -> None:
        await self._call(lambda: self.given.close())
        self._thread.shutdown()

    async def enqueue(self, app: Wakeful, function: Callable[..., Any], *args: Any, **options: Any) -> Run:
        enqueue = app.sync.enqueue
        return (await self._call(lambda: enqueue(function, *args, connection=self.given, **options))).run

    async def create(self, app: Wakeful, name: str, **fields: Any) -> Job:
        return await self._call(lambda: app.sync.jobs.create(name, connection=self.given, **fields))

    async def upsert(self, app: Wakeful, name: str, **fields: Any) -> Job:
        return await self._call(lambda: app.sync.jobs.upsert(name, connection=self.given, **fields))

    async def run(self, app: Wakeful, name: str, **options: Any) -> Run | None:
        return await self._call(lambda: app.sync.jobs.run(name, connection=self.given, **options))


class Psycopg2(Blocking):
    def connect(self) -> Any:
        return psycopg2.connect(self.url)

    async def execute(self, statement: str) -> None:
        await self._call(lambda: self.given.cursor().execute(statement))


class BlockingSqlite(Blocking):
    def connect(self) -> Any:
        return sqlite3.connect(self.path)


class BlockingSession(Blocking):
    """A session of SQLAlchemy."""

    def connect(self) -> Any:
        engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(self.url))
        return orm.Session(engine)

    async def execute(self, statement: str) -> None:
        await self._call(lambda: self.given.execute(sqlalchemy.text(statement)))

    async def close(self) -> None:
        engine = self.given.get_bind()
        await self._call(lambda: self.given.close())
        await self._call(lambda: engine.dispose())
        self._thread.shutdown()


class BlockingSqliteSession(BlockingSession):
    def connect(self) -> Any:
        return orm.Session(sqlalchemy.create_engine(f"sqlite:///{self.path}"))


POSTGRES: list[type[CallerConnection]] = [
    Asyncpg,
    AsyncPsycopg,
    AsyncSession,
    AsyncConnection,
    Blocking,
    BlockingSession,
    Psycopg2,
]
SQLITE: list[type[CallerConnection]] = [
    Sqlite,
    Aiosqlite,
    AiosqliteSession,
    BlockingSqlite,
    BlockingSqliteSession,
]
