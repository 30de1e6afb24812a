"""Keys: who somebody is, by what they carry. An API key (`wk_…`), or a token that somebody else has signed.

A key is 32 random bytes, shown once and kept as its hash. A token is a JWT with the claims `sub`, `role`,
`workspace` and, for an agent, `agent`, signed with the secret or by a key of the key set that the operator
names.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, Protocol

from wakeful.document.values import compact
from wakeful.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from wakeful.ids import new_id
from wakeful.job import check_slug
from wakeful.service.auth.access import ROLES, Principal, Role, permit
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.first_keys import apply_admin_key, make_first_key
from wakeful.settings import API_KEY
from wakeful.store.accounts import KeyRow
from wakeful.store.port import Store
from wakeful.stored_text import UNSTORABLE, is_storable

PREFIX: Final = "wk_"
#: How often the last use of a key is written at most.
_TOUCH_MS: Final = 60_000
#: For so long a key is taken at its word without a look: whoever is revoked may go on that long elsewhere.
_REMEMBERED_MS: Final = 1_000
_MOST: Final = 10_000
#: The latest instant at which a key can expire.
LATEST_EXPIRY_MS: Final = 253_000_000_000_000 - 1
_FIELDS: Final = frozenset({"name", "role", "agent", "expiresAt", "workspace"})


class Tokens(Protocol):
    """Reads tokens that somebody else has signed."""

    async def principal(self, token: str) -> Principal:
        """Who it says they are, or Unauthenticated."""
        ...


class KeyService:
    """Makes, shows, ends and recognises keys."""

    def __init__(self, store: Store, accounts: Accounts, tokens: Tokens | None) -> None:
        self._store = store
        self._accounts = accounts
        self._tokens = tokens
        self._known: dict[bytes, tuple[int, KeyRow]] = {}
        self._touched: dict[str, int] = {}
        self._touching: set[asyncio.Task[None]] = set()

    # --- who asks ------------------------------------------------------------------------------------

    async def authenticate(self, bearer: str | None, address: str | None = None) -> Principal:
        """Who carries this, or Unauthenticated with a sentence that tells nothing to a thief."""
        if not bearer:
            raise Unauthenticated("who are you? send 'Authorization: Bearer wk_…'")
        if API_KEY.fullmatch(bearer):
            row = await self._key(hashlib.sha256(bearer.encode()).digest())
            return Principal(f"key:{row.id}", _role(row.role), row.workspace, row.agent, address)
        if self._tokens is not None and bearer.count(".") == 2:
            principal = await self._tokens.principal(bearer)
            return Principal(principal.actor, principal.role, principal.workspace, principal.agent, address)
        raise Unauthenticated("this is no key; a key begins with wk_")

    async def _key(self, hash: bytes) -> KeyRow:
        now_ms = self._store.clock.now_ms()
        known = self._known.get(hash)
        if known is None or abs(now_ms - known[0]) >= _REMEMBERED_MS:
            row = await self._store.key_by_hash(hash)
            if row is None:
                raise Unauthenticated("nobody has this key; it may be another installation's")
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[hash] = known = now_ms, row
        row = known[1]
        if row.revoked_ms is not None:
            raise Unauthenticated("this key was revoked; ask for another")
        if row.expires_ms is not None and row.expires_ms <= now_ms:
            raise Unauthenticated("this key has expired; ask for another")
        self._touch(row, now_ms)
        return row

    def _touch(self, row: KeyRow, now_ms: int) -> None:
        if now_ms - self._touched.get(row.id, 0) < _TOUCH_MS:
            return
        if len(self._touched) >= _MOST:
            self._touched.clear()
        self._touched[row.id] = now_ms
        task = asyncio.get_running_loop().create_task(self._store.touch_keys([(row.id, now_ms)]))
        self._touching.add(task)
        task.add_done_callback(self._noted)

    def _noted(self, task: asyncio.Task[None]) -> None:
        self._touching.discard(task)
        if not task.cancelled():
            task.exception()  # that it could not be noted harms nobody

    async def close(self) -> None:
        """Wait for what is still being noted."""
        if self._touching:
            await asyncio.wait(self._touching)

    # --- keys ----------------------------------------------------------------------------------------

    async def create(
        self, principal: Principal, workspace: str | None, document: Mapping[str, object]
    ) -> tuple[KeyRow, str]:
        """A new key and its text, which is not shown again. For all workspaces where `workspace` is None.

        Nobody makes a key that may more than their own: one for all workspaces takes one for all workspaces.
        """
        if workspace is None:
            permit(principal, "operate", "default")
        else:
            await self._accounts.authorize(principal, "key", workspace)
        unknown = sorted(str(key)[:64] for key in document if key not in _FIELDS)
        if unknown:
            raise InvalidArgument(
                f"a key has no {', '.join(unknown)}; it has name, role, agent and expiresAt"
            )
        if document.get("workspace") not in (None, workspace):
            raise InvalidArgument("workspace: it is another than that of the path; leave it out")
        name, role, agent = document.get("name"), document.get("role"), document.get("agent")
        name = "key" if name in (None, "") else name
        if not isinstance(name, str) or len(name) > 200:
            raise InvalidArgument("name: write text of at most 200 characters")
        if not is_storable(name):
            raise InvalidArgument(f"name: {UNSTORABLE}")
        role = _role(role)
        if role == "agent":
            if workspace is None:
                raise PermissionDenied("an agent belongs to one workspace; make its key there")
            if not isinstance(agent, str):
                raise InvalidArgument("agent: a key of the role agent is for one agent; name it")
            check_slug(agent, "agent")
        elif agent is not None:
            raise InvalidArgument(f"agent: a key of the role {role} is for no single agent; leave it out")
        now_ms = self._store.clock.now_ms()
        text = PREFIX + secrets.token_urlsafe(32)
        row = KeyRow(
            id=new_id(now_ms),
            workspace=workspace,
            name=name,
            role=role,
            agent=agent if isinstance(agent, str) else None,
            hash=hashlib.sha256(text.encode()).digest(),
            created_ms=now_ms,
            created_by=principal.actor,
            expires_ms=_expiry(document.get("expiresAt"), now_ms),
            last_used_ms=None,
            revoked_ms=None,
        )
        told = compact({"role": role, "agent": row.agent, "name": name})
        await self._store.add_key(row, [principal.entry(workspace or "default", "key.create", row.id, told)])
        return row, text

    async def list(self, principal: Principal, workspace: str | None) -> list[KeyRow]:
        """The keys of a workspace; None: all there are.

        Whoever may in every workspace is shown the keys for all of them too.
        """
        if workspace is None:
            permit(principal, "operate", "default")
            return await self._store.keys(None)
        await self._accounts.authorize(principal, "key", workspace)
        if principal.workspace is not None:
            return await self._store.keys(workspace)
        return [row for row in await self._store.keys(None) if row.workspace in (workspace, None)]

    async def revoke(self, principal: Principal, workspace: str, key_id: str) -> None:
        """End a key, here at once and elsewhere within a second."""
        await self._accounts.authorize(principal, "key", workspace)
        # A key for all workspaces is ended only by another of its kind.
        known = await self._store.keys(workspace if principal.workspace is not None else None)
        mine = [row for row in known if row.id == key_id and row.workspace in (workspace, None)]
        entry = principal.entry(workspace, "key.revoke", key_id[:64])
        if not mine or not await self._store.revoke_key(key_id, self._store.clock.now_ms(), [entry]):
            raise NotFound(
                f"no key '{key_id[:64]}' that could be revoked; list the keys to see what there is"
            )
        self._known.pop(mine[0].hash, None)

    async def first_key(self) -> str | None:
        """The key of an installation that has none yet: an admin's, for every workspace. None: it has one."""
        return await make_first_key(self._store)

    async def apply_admin_key(self, text: str) -> Literal["valid", "revoked"]:
        """See that the key of `WAKEFUL_ADMIN_KEY` is there, unless it was revoked."""
        return await apply_admin_key(self._store, text)


def _role(value: object) -> Role:
    for role in ROLES:
        if value == role:
            return role
    raise InvalidArgument(f"role: write one of {', '.join(ROLES)}")


def _expiry(value: object, now_ms: int) -> int | None:
    if value is None:
        return None
    ms: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        ms = value
    elif isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            at = None
        if at is not None and at.tzinfo is not None:
            ms = round(at.timestamp() * 1000)
    if ms is None or not now_ms < ms <= LATEST_EXPIRY_MS:
        raise InvalidArgument("expiresAt: write an instant to come, such as '2030-01-01T00:00:00Z'")
    return ms
