"""Authentication by API key (`wk_…`) or by a signed token, the management of keys, and the first admin key.

A key is 32 random bytes, returned once and stored as a hash. A token is a JWT with the claims `sub`, `role`,
`workspace` and, for an agent, `agent`. The first key is created at the first start, or set by the operator.
Both are decided in one transaction, so that replicas that start together on an empty database create one key.
"""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from wakeful.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from wakeful.job.job import check_slug
from wakeful.logs import get_logger
from wakeful.service.auth.access import LOCAL, ROLES, Principal, Role, check_person, permit
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.actor_names import remember_name
from wakeful.service.recent_values import RecentValues
from wakeful.settings import API_KEY
from wakeful.settings import PREFIX as SETTING_PREFIX
from wakeful.store.accounts import KEYS_TOPIC, KeyChange
from wakeful.store.accounts import KeyRow as KeyRow
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import Keyed
from wakeful.store.port import Store
from wakeful.values.bounded_cache import MB
from wakeful.values.ids import new_id
from wakeful.values.json_value import compact
from wakeful.values.stored_text import UNSTORABLE, is_storable

if TYPE_CHECKING:
    from wakeful.service.auth.jwt_auth import JwtTokens  # imports PyJWT and its ciphers

PREFIX: Final = "wk_"
#: The shortest time between two writes of the last use of a key.
_TOUCH_MS: Final = 60_000
_MOST: Final = 10_000
#: The latest instant at which a key can expire.
LATEST_EXPIRY_MS: Final = 253_000_000_000_000 - 1
_FIELDS: Final = frozenset({"name", "role", "agent", "expiresAt", "workspace"})

#: The principal that creates the key of `WAKEFUL_ADMIN_KEY`.
OPERATOR: Final = Principal(f"setting:{SETTING_PREFIX}ADMIN_KEY", "admin", None)

log = get_logger("wakeful.service")


class KeyService:
    """Authenticates callers; creates, lists and revokes keys."""

    def __init__(self, store: Store, accounts: Accounts, tokens: JwtTokens | None) -> None:
        self._store = store
        self._accounts = accounts
        self._tokens = tokens
        #: by hash
        self._known: RecentValues[bytes, KeyRow] = RecentValues(store, 8 * MB)
        self._touched: dict[str, int] = {}
        self._writes = BackgroundWrites()
        listen_to_keys(store, self.forget)

    # --- authentication ------------------------------------------------------------------------------

    async def authenticate(
        self, bearer: str | None, address: str | None = None, run_id: str | None = None
    ) -> Principal:
        """Return the principal of a key or token, or raise Unauthenticated.

        `run_id` is the run that makes the call; it is checked where it matters.
        """
        principal = await self._authenticate(bearer, address)
        return replace(principal, run_id=run_id) if run_id else principal

    async def _authenticate(self, bearer: str | None, address: str | None) -> Principal:
        if not bearer:
            raise Unauthenticated("no credentials: send 'Authorization: Bearer wk_…'")
        if API_KEY.fullmatch(bearer):
            return key_principal(await self.key(bearer), address)
        if self._tokens is not None and bearer.count(".") == 2:
            principal = await self._tokens.principal(bearer)
            return Principal(principal.actor, principal.role, principal.workspace, principal.agent, address)
        raise _not_a_key(bearer)

    async def key(self, text: str) -> KeyRow:
        """Return the row of a valid key, or raise Unauthenticated."""
        if not API_KEY.fullmatch(text):
            raise _not_a_key(text)
        hash, now_ms = hashlib.sha256(text.encode()).digest(), self._store.clock.now_ms()
        row = await self._known.get(hash, partial(self._read, hash))
        check_key(row, now_ms)
        self.touch(row, now_ms)
        return row

    async def _read(self, hash: bytes) -> KeyRow:
        row = await self._store.key_by_hash(hash)
        if row is None:
            raise Unauthenticated("this key is unknown; it may belong to another installation")
        remember_name(f"key:{row.id}", row.name)
        return row

    def forget(self, key_id: str | None = None) -> None:
        """Read this key again, or all: it was revoked, maybe by another process."""
        self._known.forget_all(lambda hash, row: key_id in (None, row.id))

    def touch(self, row: KeyRow, now_ms: int) -> None:
        """Record that a key was used, at most once a minute."""
        if now_ms - self._touched.get(row.id, 0) < _TOUCH_MS:
            return
        if len(self._touched) >= _MOST:
            self._touched.clear()
        self._touched[row.id] = now_ms
        self._writes.start(self._store.touch_keys([(row.id, now_ms)]))

    async def close(self) -> None:
        """Wait for pending writes of the time of last use."""
        await self._writes.close()

    # --- keys ----------------------------------------------------------------------------------------

    async def create(
        self,
        principal: Principal,
        workspace: str | None,
        document: Mapping[str, object],
        *,
        keyed: Keyed[tuple[KeyRow, str]] | None = None,
    ) -> tuple[KeyRow, str]:
        """Create a key; return it and its text, which is not stored. `workspace` None: all workspaces.

        A key for all workspaces can only be created with such a key, and none in a run.
        """
        if workspace is None:
            permit(principal, "operate", "default")
        else:
            await self._accounts.authorize(principal, "key", workspace)
        check_person(principal, "create a key")  # its calls would have no bounds
        unknown = sorted(str(key)[:64] for key in document if key not in _FIELDS)
        if unknown:
            raise InvalidArgument(
                f"a key has no {', '.join(unknown)}; it has name, role, agent and expiresAt"
            )
        if document.get("workspace") not in (None, workspace):
            raise InvalidArgument("workspace: it differs from the workspace of the path; leave it out")
        name, role, agent = document.get("name"), document.get("role"), document.get("agent")
        name = "key" if name in (None, "") else name
        if not isinstance(name, str) or len(name) > 200:
            raise InvalidArgument("name: write text of at most 200 characters")
        if not is_storable(name):
            raise InvalidArgument(f"name: {UNSTORABLE}")
        role = _role(role)
        if role == "agent":
            if workspace is None:
                raise PermissionDenied("an agent belongs to one workspace; create its key there")
            if not isinstance(agent, str):
                raise InvalidArgument("agent: a key of the role agent is bound to one agent; name it")
            check_slug(agent, "agent")
        elif agent is not None:
            raise InvalidArgument(f"agent: a key of the role {role} is not bound to an agent; leave it out")
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
        details = compact({"role": role, "agent": row.agent, "name": name})
        entry = principal.entry(workspace or "default", "key.create", row.id, details)
        response: Keyed[None] | None = keyed.of(lambda _: (row, text)) if keyed else None
        await self._store.add_key(row, [entry], response)
        remember_name(f"key:{row.id}", row.name)
        return row, text

    async def list(self, principal: Principal, workspace: str | None) -> list[KeyRow]:
        """List the keys of a workspace; None: all keys.

        A principal of all workspaces also sees the keys for all workspaces.
        """
        if workspace is None:
            permit(principal, "operate", "default")
            found = await self._store.keys(None)
        else:
            await self._accounts.authorize(principal, "key", workspace)
            found = await self._store.keys(workspace)
            if principal.workspace is None:
                found = [*await self._store.global_keys(), *found]
        await self._accounts.names.load(row.created_by for row in found)
        return found

    async def assistants(self, principal: Principal, workspace: str) -> builtins.list[KeyRow]:
        """List the assistants that the caller connected and did not revoke."""
        await self._accounts.authorize(principal, "read", workspace)
        rows = await self._store.keys(workspace)
        mine = [row for row in rows if row.client is not None and row.created_by == principal.actor]
        return [row for row in mine if row.revoked_ms is None and principal.is_person]

    async def revoke(self, principal: Principal, workspace: str, key_id: str) -> None:
        """Revoke a key: at once, in other processes on one SQLite file within a second.

        Whoever connected an assistant may revoke it; other keys take an admin.
        """
        mine = [row for row in await self.assistants(principal, workspace) if row.id == key_id]
        if not mine:  # a key for all workspaces can only be revoked with such a key
            await self._accounts.authorize(principal, "key", workspace)
            mine = [row for row in await self.list(principal, workspace) if row.id == key_id]
        entry = principal.entry(workspace, "key.revoke", key_id[:64])
        if not mine or not await self._store.revoke_key(key_id, self._store.clock.now_ms(), [entry]):
            raise NotFound(f"no key '{key_id[:64]}' that can be revoked; list the keys to see their ids")
        self.forget(key_id)

    async def first_key(self) -> str | None:
        """Create the first key of the installation, an admin's for all workspaces; None if a key exists."""
        if await self._store.keys(None):
            return None
        text = PREFIX + secrets.token_urlsafe(32)
        row = _admin_key(self._store, text, "first", LOCAL)

        def decide(known: Sequence[KeyRow]) -> KeyChange:
            return KeyChange() if known else KeyChange(row, entries=[_creation_entry(row, LOCAL)])

        return text if await self._store.change_keys(decide) else None

    async def apply_admin_key(self, text: str) -> Literal["valid", "revoked"]:
        """Create the key of `WAKEFUL_ADMIN_KEY` if it is missing, and revoke the keys of earlier settings.

        A revoked key stays revoked: a replica that starts with an old setting changes nothing.
        """
        if not API_KEY.fullmatch(text):
            raise InvalidArgument(f"{SETTING_PREFIX}ADMIN_KEY: write wk_ and 43 letters, digits, - or _")
        row = _admin_key(self._store, text, f"{SETTING_PREFIX}ADMIN_KEY", OPERATOR)

        def decide(known: Sequence[KeyRow]) -> KeyChange:
            if any(each.hash == row.hash for each in known):
                return KeyChange()
            old = [each for each in known if each.created_by == OPERATOR.actor and each.revoked_ms is None]
            revoked = [OPERATOR.entry("default", "key.revoke", each.id) for each in old]
            return KeyChange(row, tuple(each.id for each in old), [_creation_entry(row, OPERATOR), *revoked])

        known = await self._store.key_by_hash(row.hash)
        if known is None:
            await self._store.change_keys(decide)
            known = await self._store.key_by_hash(row.hash)
        if known is not None and known.revoked_ms is not None:
            log.warning("key.revoked", setting=f"{SETTING_PREFIX}ADMIN_KEY", key_id=known.id)
            return "revoked"
        return "valid"


def check_key(row: KeyRow, now_ms: int) -> None:
    """Raise Unauthenticated for a key that was revoked or has expired."""
    if row.revoked_ms is not None:
        raise Unauthenticated("this key was revoked; get another one")
    if row.expires_ms is not None and row.expires_ms <= now_ms:
        raise Unauthenticated("this key has expired; get another one")


def key_principal(row: KeyRow, address: str | None) -> Principal:
    """Return the principal of a key."""
    person = row.created_by if row.client is not None else None
    return Principal(
        f"key:{row.id}", _role(row.role), row.workspace, row.agent, address, client=row.client, person=person
    )


def _not_a_key(text: str) -> Unauthenticated:
    if text.startswith(PREFIX):
        return Unauthenticated("this key is not complete or not valid; copy all of it, as it was created")
    return Unauthenticated("this is not an API key; a key begins with wk_")


def listen_to_keys(store: Store, forget: Callable[[str | None], None]) -> None:
    """Call `forget` with the id of a key that was revoked, or whose sessions ended; None: of any key."""

    def on_notification(topic: str) -> None:
        kind, _, key_id = topic.partition(":")
        if kind == KEYS_TOPIC:
            forget(key_id or None)

    store.listen(on_notification)


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
        raise InvalidArgument("expiresAt: write an instant in the future, such as '2030-01-01T00:00:00Z'")
    return ms


def _admin_key(store: Store, text: str, name: str, principal: Principal) -> KeyRow:
    now_ms = store.clock.now_ms()
    return KeyRow(
        id=new_id(now_ms),
        workspace=None,
        name=name,
        role="admin",
        agent=None,
        hash=hashlib.sha256(text.encode()).digest(),
        created_ms=now_ms,
        created_by=principal.actor,
        expires_ms=None,
        last_used_ms=None,
        revoked_ms=None,
    )


def _creation_entry(row: KeyRow, principal: Principal) -> AuditEntry:
    details = compact({"role": row.role, "agent": row.agent, "name": row.name})
    return principal.entry("default", "key.create", row.id, details)


class BackgroundWrites:
    """Runs writes as tasks. They are best effort: an error is ignored."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, write: Coroutine[Any, Any, None]) -> None:
        """Start a write."""
        task = asyncio.get_running_loop().create_task(write)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def close(self) -> None:
        """Wait for the writes in progress."""
        if self._tasks:
            await asyncio.wait(self._tasks)
