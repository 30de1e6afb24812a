"""Sign-in to the dashboard: sessions, one-time links, and the limits of failed sign-ins.

- `web_sessions`: one row per session (`WebSessionRow`), by the SHA-256 of its token, with its key.
- `sign_in_links`: links that are not used yet (`SignInLinkRow`), by the SHA-256 of their token.
- `sign_in_limits`: for each client address with failed sign-ins, when its allowance is full again.

The tokens are not stored. All of it is in the database, so that any replica serves any request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from wakeful.store.accounts import KeyRow
from wakeful.store.audit import AuditEntry


class WebSessionRow(NamedTuple):
    """A sign-in session."""

    #: SHA-256 of the token
    hash: bytes
    key_id: str
    created_ms: int
    #: the last request, to the minute
    seen_ms: int
    #: when it ends if there is no further request
    expires_ms: int
    #: the client's address at sign-in
    address: str | None

    @property
    def id(self) -> str:
        """Names the session in responses; the token does not follow from it."""
        return self.hash[:8].hex()


class SignInLinkRow(NamedTuple):
    """A one-time link to sign in."""

    #: SHA-256 of the token
    hash: bytes
    key_id: str
    created_ms: int
    expires_ms: int


class WebSessionStore(Protocol):
    """The part of a store that holds sign-in sessions."""

    async def add_web_session(self, row: WebSessionRow, entries: Sequence[AuditEntry] = ()) -> None:
        """Add a session."""
        ...

    async def web_session(self, hash: bytes) -> tuple[WebSessionRow, KeyRow] | None:
        """Return the session with that hash and its key; the session or the key may have ended."""
        ...

    async def web_sessions(self, key_id: str, now_ms: int, limit: int) -> list[WebSessionRow]:
        """Return the sessions of a key that have not expired, the last used first."""
        ...

    async def touch_web_session(self, hash: bytes, seen_ms: int, expires_ms: int) -> None:
        """Record a request of a session. An instant before the stored one is ignored."""
        ...

    async def delete_web_session(self, row: WebSessionRow, entries: Sequence[AuditEntry] = ()) -> bool:
        """Delete a session. False: there is none."""
        ...

    async def delete_web_sessions(self, key_id: str, entries: Sequence[AuditEntry] = ()) -> int:
        """Delete all sessions and links of a key. Returns the number of sessions."""
        ...

    async def add_sign_in_link(self, row: SignInLinkRow, entries: Sequence[AuditEntry] = ()) -> None:
        """Add a link."""
        ...

    async def take_sign_in_link(self, hash: bytes, now_ms: int) -> KeyRow | None:
        """Delete the link and return its key. None: unknown, expired, or another request has used it."""
        ...

    async def sign_in_limits(self, addresses: Sequence[str]) -> Mapping[str, int]:
        """Return when the allowances of these addresses are full again; without those that are full."""
        ...

    async def count_failed_sign_in(
        self, addresses: Sequence[str], now_ms: int, later: Callable[[str, int], int]
    ) -> None:
        """Move the instant of each address to what `later(address, instant)` returns.

        Concurrent calls are applied one after the other, so that none is lost.
        """
        ...

    async def prune_web_sessions(self, now_ms: int) -> int:
        """Delete expired sessions and links, and full allowances. Returns the number of sessions."""
        ...
