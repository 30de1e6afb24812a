"""The facade for sign-in sessions, one-time links and limits of failed sign-ins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from wakeful.store.accounts import KeyRow, key_topic
from wakeful.store.audit import AuditEntry, always
from wakeful.store.sql import web_sessions
from wakeful.store.sql.base import Recorded, SqlBase
from wakeful.store.web_sessions import SignInLinkRow, WebSessionRow

D = TypeVar("D")


class SqlWebSessions(SqlBase[D]):
    """Sign-in sessions in an SQL database. Each method is that of `port.Store`."""

    async def add_web_session(self, row: WebSessionRow, entries: Sequence[AuditEntry] = ()) -> None:
        await self._record(Recorded(entries, always), self._shared(web_sessions.add_session), row)

    async def web_session(self, hash: bytes) -> tuple[WebSessionRow, KeyRow] | None:
        return await self._read(web_sessions.web_session, hash)

    async def web_sessions(self, key_id: str, now_ms: int, limit: int) -> list[WebSessionRow]:
        return await self._read(web_sessions.sessions, key_id, now_ms, limit)

    async def touch_web_session(self, hash: bytes, seen_ms: int, expires_ms: int) -> None:
        await self._driver.write(self._shared(web_sessions.touch_session), hash, seen_ms, expires_ms)

    async def delete_web_session(self, row: WebSessionRow, entries: Sequence[AuditEntry] = ()) -> bool:
        delete = self._shared(web_sessions.delete_session, key_topic(row.key_id))
        return await self._record(Recorded(entries), delete, row.hash)

    async def delete_web_sessions(self, key_id: str, entries: Sequence[AuditEntry] = ()) -> int:
        delete = self._shared(web_sessions.delete_sessions, key_topic(key_id))
        return await self._record(Recorded(entries), delete, key_id)

    async def add_sign_in_link(self, row: SignInLinkRow, entries: Sequence[AuditEntry] = ()) -> None:
        await self._record(Recorded(entries, always), self._shared(web_sessions.add_link), row)

    async def take_sign_in_link(self, hash: bytes, now_ms: int) -> KeyRow | None:
        return await self._driver.write(self._shared(web_sessions.take_link), hash, now_ms)

    async def sign_in_limits(self, addresses: Sequence[str]) -> Mapping[str, int]:
        return await self._read(web_sessions.limits, addresses)

    async def count_failed_sign_in(
        self, addresses: Sequence[str], now_ms: int, later: Callable[[str, int], int]
    ) -> None:
        await self._driver.write(self._shared(web_sessions.count_failure), addresses, now_ms, later)

    async def prune_web_sessions(self, now_ms: int) -> int:
        return await self._driver.write(self._shared(web_sessions.prune), now_ms)
