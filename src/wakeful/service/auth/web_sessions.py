"""Sign-in sessions of the dashboard.

A person signs in at an issuer (`openid`), with an API key, or with a one-time link that was created with the
key. The browser gets a random token in a cookie and never stores the key. The database has only the SHA-256
of the token. A session may do what its owner may do, a key or a person, and ends with it: a key revoked on
another replica ends its sessions within a second.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from wakeful.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from wakeful.logs import get_logger
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.actor_names import remember_name
from wakeful.service.auth.keys import BackgroundWrites, KeyService, check_key, key_principal, listen_to_keys
from wakeful.service.auth.people import NoGrant, PersonRow, person_principal
from wakeful.service.auth.rate_limits import SignInLimits
from wakeful.service.recent_values import RecentValues
from wakeful.settings.oidc import ANY
from wakeful.store.accounts import KeyRow
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.sql.people import PERSON
from wakeful.store.sql.web_sessions import SignInLinkRow, WebSessionRow
from wakeful.values.bounded_cache import MB
from wakeful.values.json_value import Json, compact

#: How long a one-time link works.
LINK_MS: Final = 5 * 60_000
LINK_PREFIX: Final = "wl_"
_LINK: Final = re.compile(LINK_PREFIX + r"[A-Za-z0-9_-]{43}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")
#: The shortest time between two writes of the last request of a session.
_TOUCH_MS: Final = 60_000
_MOST: Final = 10_000
#: The most sessions of a key that a list shows.
_MOST_LISTED: Final = 100
_KEY_ACTOR: Final = "key:"

log = get_logger("wakeful.sign_in")


class SignIn(NamedTuple):
    """A new session. The token is not stored."""

    token: str
    principal: Principal
    #: seconds until it ends in any case
    max_age_s: int


class SignInLink(NamedTuple):
    """A new one-time link. The token is not stored."""

    token: str
    expires_ms: int


class WebSessions:
    """Signs people in and out, and authenticates the requests of their browsers."""

    def __init__(
        self,
        store: Store,
        accounts: Accounts,
        keys: KeyService,
        limits: SignInLimits,
        *,
        idle_ms: int,
        max_ms: int,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._keys = keys
        self._limits = limits
        self._idle_ms, self._max_ms = idle_ms, max_ms
        #: by hash: the session and its owner
        self._known: RecentValues[bytes, tuple[WebSessionRow, KeyRow | PersonRow]] = RecentValues(
            store, 8 * MB
        )
        self._touched: dict[bytes, int] = {}
        self._writes = BackgroundWrites()
        listen_to_keys(store, self.forget)

    # --- signing in -------------------------------------------------------------------------------

    async def sign_in(self, credential: str, address: str | None = None) -> SignIn:
        """Start a session with an API key or the token of a one-time link.

        Unauthenticated: it is not valid; RateLimited: too many attempts from this address have failed.
        """
        credential = credential.strip()
        if not credential:
            raise InvalidArgument("enter an API key; it begins with wk_")
        await self._limits.check(address)
        by_link = credential.startswith(LINK_PREFIX)
        try:
            key = await (self._take_link(credential) if by_link else self._keys.key(credential))
        except Unauthenticated as error:
            log.warning("sign_in.failed", address=address, reason=error.message)
            await self._limits.count(address)
            raise
        return await self._start(key, address, "link" if by_link else "key")

    async def _take_link(self, token: str) -> KeyRow:
        now_ms = self._store.clock.now_ms()
        key = await self._store.take_sign_in_link(_hash(token), now_ms) if _LINK.fullmatch(token) else None
        if key is None:
            raise Unauthenticated(
                "this link was used already or has expired; 'wakeful open' prints a new one"
            )
        check_key(key, now_ms)
        return key

    async def _start(self, key: KeyRow, address: str | None, how: str) -> SignIn:
        token, now_ms = secrets.token_urlsafe(32), self._store.clock.now_ms()
        principal = key_principal(key, address)
        expires_ms = now_ms + min(self._idle_ms, self._max_ms)
        row = WebSessionRow(_hash(token), key.id, now_ms, now_ms, expires_ms, address)
        details = compact({"session": row.id, "by": how})
        await self._store.add_web_session(
            row, [principal.entry(_workspace(principal), "key.sign-in", key.id, details)]
        )
        return SignIn(token, principal, self._max_ms // 1_000)

    async def sign_in_person(
        self, person: Callable[[], Awaitable[PersonRow]], address: str | None = None
    ) -> SignIn:
        """Start a session of the person that `person` returns; Unauthenticated counts as a failed sign-in."""
        await self._limits.check(address)
        try:
            found = await person()
        except Unauthenticated as error:
            log.warning("sign_in.failed", address=address, reason=error.message)
            await self._limits.count(address)
            raise
        except NoGrant as error:
            await self._end_access(error.person, address)
            raise
        token, now_ms = secrets.token_urlsafe(32), self._store.clock.now_ms()
        principal = person_principal(found, address)
        expires_ms = now_ms + min(self._idle_ms, self._max_ms)
        row = WebSessionRow(_hash(token), found.actor, now_ms, now_ms, expires_ms, address)
        entries = []
        for place in sorted({_workspace(principal), *principal.workspaces} - {ANY}):
            roles = found.grants.items()
            here: dict[str, Json] = {name: role for name, role in roles if name in (ANY, place)}
            details = compact({"session": row.id, "name": found.name, "grants": here})
            entries.append(principal.entry(place, "person.sign-in", found.actor, details))
        await self._store.sign_in_person(found, row, entries)
        remember_name(found.actor, found.name)
        self.forget(found.actor)
        return SignIn(token, principal, self._max_ms // 1_000)

    async def _end_access(self, person: PersonRow | None, address: str | None) -> None:
        """End the sessions of a person who has lost all roles, and what was connected with OAuth."""
        if person is None or await self._store.person(person.id) is None:
            return
        entry = AuditEntry("default", person.actor, "person.lose-access", person.actor, "{}", address)
        await self._store.end_access_of_person(person, [entry])
        self.forget(person.actor)

    async def create_link(self, principal: Principal) -> SignInLink:
        """Create a one-time link that signs in with the key of the principal."""
        key_id = principal.actor.removeprefix(_KEY_ACTOR)
        if key_id == principal.actor or principal.run_id is not None:
            raise PermissionDenied("a sign-in link is created with an API key (wk_…), outside of a run")
        token, now_ms = LINK_PREFIX + secrets.token_urlsafe(32), self._store.clock.now_ms()
        row = SignInLinkRow(_hash(token), key_id, now_ms, now_ms + LINK_MS)
        entry = principal.entry(principal.workspace or "default", "key.sign-in-link", key_id)
        await self._store.add_sign_in_link(row, [entry])
        return SignInLink(token, row.expires_ms)

    # --- requests ---------------------------------------------------------------------------------

    async def authenticate(
        self, token: str, address: str | None = None, workspace: str | None = None
    ) -> Principal:
        """Return the principal of a session, which is that of its owner, or raise Unauthenticated.

        A person with roles in several workspaces has that of the workspace of the request.
        """
        if not _TOKEN.fullmatch(token):
            raise _session_over()
        hash, now_ms = _hash(token), self._store.clock.now_ms()
        row, owner = await self._known.get(hash, partial(self._read, hash))
        if self._is_over(row, now_ms):
            raise _session_over()
        if isinstance(owner, KeyRow):
            check_key(owner, now_ms)
            self._keys.touch(owner, now_ms)
        self._touch(row, now_ms)
        return _principal(owner, address, workspace)

    async def _read(self, hash: bytes) -> tuple[WebSessionRow, KeyRow | PersonRow]:
        found = await self._store.web_session(hash) or await self._store.person_session(hash)
        if found is None:
            raise _session_over()
        row, owner = found
        if isinstance(owner, PersonRow):
            if not owner.grants:
                raise _session_over()
            remember_name(owner.actor, owner.name)
        return row, owner

    def _is_over(self, row: WebSessionRow, now_ms: int) -> bool:
        """Return whether a session has ended. Shorter limits apply to sessions that exist, too.

        One that was used in the future ends: while the clock was wrong, nothing limited how long it lasts.
        """
        ends_ms = min(row.expires_ms, row.seen_ms + self._idle_ms, row.created_ms + self._max_ms)
        return not row.seen_ms - self._idle_ms <= now_ms < ends_ms

    def _touch(self, row: WebSessionRow, now_ms: int) -> None:
        if now_ms - max(row.seen_ms, self._touched.get(row.hash, 0)) < _TOUCH_MS:
            return
        if len(self._touched) >= _MOST:
            self._touched.clear()
        self._touched[row.hash] = now_ms
        expires_ms = min(now_ms + self._idle_ms, row.created_ms + self._max_ms)
        self._writes.start(self._store.touch_web_session(row.hash, now_ms, expires_ms))

    # --- signing out ------------------------------------------------------------------------------

    async def sign_out(self, token: str, address: str | None = None) -> None:
        """End a session. One that has ended is no error."""
        hash = _hash(token)
        found = await self._store.web_session(hash) or await self._store.person_session(hash)
        self._forget(hash)
        if found is not None:
            row, owner = found
            principal = _principal(owner, address)
            entry = principal.entry(
                _workspace(principal),
                _action(row.key_id, "sign-out"),
                row.key_id,
                compact({"session": row.id}),
            )
            await self._store.delete_web_session(row, [entry])

    async def list(self, principal: Principal, workspace: str, key_id: str) -> list[WebSessionRow]:
        """Return the sessions of a key, the last used first: for admins, and for the key itself."""
        await self._permit(principal, workspace, key_id)
        now_ms = self._store.clock.now_ms()
        rows = await self._store.web_sessions(key_id, now_ms, _MOST_LISTED)
        return [row for row in rows if not self._is_over(row, now_ms)]

    async def end(self, principal: Principal, workspace: str, key_id: str, session_id: str) -> None:
        """End one session of a key: for admins, and for the key itself."""
        for row in await self.list(principal, workspace, key_id):
            if row.id == session_id:
                entry = principal.entry(
                    workspace, _action(key_id, "sign-out"), key_id, compact({"session": row.id})
                )
                if await self._store.delete_web_session(row, [entry]):
                    self._forget(row.hash)
                    return
        raise NotFound(f"no session '{session_id[:64]}' of this key; it may have ended")

    async def end_own(self, principal: Principal) -> int:
        """End all sessions and sign-in links of the principal's key; returns how many sessions."""
        return await self._end_all(principal, _workspace(principal), principal.actor.removeprefix(_KEY_ACTOR))

    async def end_all(self, principal: Principal, workspace: str, key_id: str) -> int:
        """End all sessions and sign-in links of a key; returns how many sessions."""
        await self._permit(principal, workspace, key_id)
        return await self._end_all(principal, workspace, key_id)

    async def _end_all(self, principal: Principal, workspace: str, key_id: str) -> int:
        entry = principal.entry(workspace, _action(key_id, "sign-out-everywhere"), key_id)
        ended = await self._store.delete_web_sessions(key_id, [entry])
        self.forget(key_id)
        return ended

    async def _permit(self, principal: Principal, workspace: str, key_id: str) -> None:
        if principal.actor in (key_id, _KEY_ACTOR + key_id):
            await self._accounts.authorize(principal, "read", workspace)
        elif all(row.id != key_id for row in await self._keys.list(principal, workspace)):
            raise NotFound(f"no key '{key_id[:64]}'; list the keys to see their ids")

    def forget(self, key_id: str | None = None) -> None:
        """Read the sessions of this owner again, or all: they may have ended in another process."""
        self._known.forget_all(lambda hash, known: key_id in (None, known[0].key_id))

    def _forget(self, hash: bytes) -> None:
        self._known.forget(hash)
        self._touched.pop(hash, None)

    async def close(self) -> None:
        """Wait for pending writes of the time of the last request."""
        await self._writes.close()


def csrf_token(token: str) -> str:
    """Return what a page of the session sends with each change. It follows from the token of the session.

    >>> csrf_token("a") == csrf_token("a"), csrf_token("a") == csrf_token("b")
    (True, False)
    """
    return hmac.new(token.encode(), b"wakeful csrf", hashlib.sha256).hexdigest()


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _principal(owner: KeyRow | PersonRow, address: str | None, workspace: str | None = None) -> Principal:
    if isinstance(owner, KeyRow):
        return key_principal(owner, address)
    return person_principal(owner, address, workspace)


def _action(owner: str, what: str) -> str:
    """Return the name of an action on sessions of a key or person in the audit log.

    >>> _action("person:7", "sign-out"), _action("7", "sign-out")
    ('person.sign-out', 'key.sign-out')
    """
    return f"person.{what}" if owner.startswith(PERSON) else f"key.{what}"


def _workspace(principal: Principal) -> str:
    """Return the workspace whose audit log has the entries of a key or person."""
    return principal.workspace or "default"


def _session_over() -> Unauthenticated:
    return Unauthenticated("this session has ended; sign in again")
