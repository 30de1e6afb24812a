"""The access of assistants that people connect with OAuth: approvals, authorization codes and tokens.

A person approves a client for a workspace and a role, at most with the rights that they have. The client
exchanges the code for an access token of an hour and a refresh token of 30 days, each for one resource. The
grant is a key of that role without a text of its own: it is listed and revoked like any key, and ends with
the key of the person. The protocol (PKCE, redirect addresses, errors) is that of the library of MCP.

A refresh token is exchanged once. If it comes again, somebody has copied it, and the grant is revoked. Within
`GRACE_MS` it is a repetition: two processes of the client, or a response that was lost.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final, NamedTuple

from wakeful.errors import InvalidArgument, PermissionDenied, Unauthenticated
from wakeful.job.job import check_slug
from wakeful.service.auth.access import Principal, Role, grantable_roles
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.actor_names import remember_name
from wakeful.service.auth.keys import KeyService, check_key, key_principal, listen_to_keys
from wakeful.service.auth.rate_limits import RateLimited, RateLimiter, limited_address
from wakeful.service.recent_values import RecentValues
from wakeful.store.accounts import KeyRow
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.sql.oauth import KnownToken, OAuthClientRow, OAuthCodeRow
from wakeful.store.sql.oauth import OAuthTokenRow as OAuthTokenRow
from wakeful.store.sql.people import SIGN_IN_LASTS_MS, may_give
from wakeful.values.bounded_cache import MB
from wakeful.values.ids import new_id
from wakeful.values.json_value import compact
from wakeful.values.stored_text import clean_text, is_storable

CODE_MS: Final = 60_000
ACCESS_MS: Final = 3_600_000
#: The grant ends if it is not refreshed for so long.
REFRESH_MS: Final = 30 * 86_400_000
#: How long a refresh token may come again.
GRACE_MS: Final = 30_000
ACCESS_PREFIX: Final = "wa_"
_REFRESH_PREFIX: Final = "wr_"
_CODE_PREFIX: Final = "wc_"
_TOKEN: Final = re.compile(r"w[acr]_[A-Za-z0-9_-]{43}")
_LONGEST_NAME: Final = 200
_LONGEST_ID: Final = 500
#: per client address and process
REGISTRATIONS_PER_MINUTE: Final = 20
#: per grant and process
REFRESHES_PER_MINUTE: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What a client asked for, and a person approved."""

    #: as in the request of the client
    redirect_uri: str
    redirect_uri_given: bool
    code_challenge: str
    resource: str
    #: the name that the client gives itself, and the host of the address that gets the code
    name: str
    host: str
    #: what the person chose
    workspace: str
    role: Role
    agent: str | None = None
    #: the person
    owner: str = ""
    address: str | None = None


class NewTokens(NamedTuple):
    """New tokens, which are not stored."""

    access: str
    refresh: str


class OAuthService:
    """Approves clients, issues tokens and authenticates their calls."""

    def __init__(self, store: Store, accounts: Accounts, keys: KeyService) -> None:
        self._store = store
        self._accounts = accounts
        self._keys = keys
        #: by hash: access tokens
        self._known: RecentValues[bytes, KnownToken] = RecentValues(store, 8 * MB)
        self._refreshes = RateLimiter[str](REFRESHES_PER_MINUTE)
        self._registrations = RateLimiter[str](REGISTRATIONS_PER_MINUTE)
        listen_to_keys(store, self._forget)

    # --- clients and approvals -----------------------------------------------------------------------

    async def client(self, client_id: str) -> OAuthClientRow | None:
        """Return a client that registered, or that a person approved."""
        is_id = len(client_id) <= _LONGEST_ID and is_storable(client_id)
        return await self._store.oauth_client(client_id) if is_id else None

    def count_registration(self, address: str | None) -> None:
        """Raise RateLimited if there were too many registrations from this address."""
        wait_s = self._registrations.take(limited_address(address), self._store.clock.now_ms())
        if wait_s:
            raise RateLimited(f"too many clients register from this address; try again in {wait_s} s", wait_s)

    async def register(self, client_id: str, document: str) -> None:
        """Add a client. Until a person approves it, it gives way to newer ones when there are too many."""
        await self._store.add_oauth_client(OAuthClientRow(client_id, document, self._store.clock.now_ms()))

    async def approve(self, principal: Principal, client_id: str, document: str, approval: Approval) -> str:
        """Return the code of an approval. PermissionDenied: the person may not give these rights."""
        check_approver(principal)
        await self._accounts.authorize(principal, "read", approval.workspace, approval.agent)
        if approval.role not in grantable_roles(principal):
            raise PermissionDenied(
                f"a key of the role '{principal.role}' may not give the role '{approval.role}'"
            )
        if (approval.role == "agent") != (approval.agent is not None):
            raise InvalidArgument("agent: name the agent for the role agent, and none for another role")
        if approval.agent is not None:
            check_slug(approval.agent, "agent")
        now_ms, code = self._store.clock.now_ms(), _CODE_PREFIX + secrets.token_urlsafe(32)
        request = asdict(approval) | {"owner": principal.actor, "address": principal.address}
        row = OAuthCodeRow(_hash(code), client_id, compact(request), now_ms, now_ms + CODE_MS)
        await self._store.add_oauth_code(row, OAuthClientRow(client_id, document, now_ms, now_ms))
        return code

    # --- codes and tokens ----------------------------------------------------------------------------

    async def find_approval(self, code: str, client_id: str) -> Approval | None:
        """Return what a code of the client is for; None: it is not valid.

        If it was exchanged before, somebody has copied it: the grant is revoked.
        """
        row = await self._store.oauth_code(_hash(code)) if _TOKEN.fullmatch(code) else None
        if row is None or row.client_id != client_id:
            return None
        approval = Approval(**json.loads(row.request))
        if row.key_id is not None:
            await self._revoke(row.key_id, approval.workspace, "its code was used twice")
            return None
        return approval if self._store.clock.now_ms() < row.expires_ms else None

    async def exchange_code(self, code: str, client_id: str, approval: Approval) -> NewTokens | None:
        """Create the grant and its first tokens. None: the code or the access of the person has ended."""
        now_ms = self._store.clock.now_ms()
        key = KeyRow(
            id=new_id(now_ms),
            workspace=approval.workspace,
            name=clean_text(approval.name).strip()[:_LONGEST_NAME] or approval.host,
            role=approval.role,
            agent=approval.agent,
            hash=secrets.token_bytes(32),  # of no text
            created_ms=now_ms,
            created_by=approval.owner,
            expires_ms=now_ms + REFRESH_MS,
            last_used_ms=None,
            revoked_ms=None,
            client=approval.host,
        )
        details = {"role": key.role, "agent": key.agent, "name": key.name, "client": key.client}
        entry = AuditEntry(
            approval.workspace,
            approval.owner,
            "key.create",
            key.id,
            compact({**details, "clientId": client_id, "redirectUri": approval.redirect_uri}),
            approval.address,
        )
        tokens, rows = _new_tokens(key.id, client_id, approval.resource, now_ms)
        if not await self._store.exchange_oauth_code(_hash(code), key, rows, [entry]):
            return None
        try:
            await self.authenticate(tokens.access, approval.resource)
        except Unauthenticated:  # the access of the person has ended since the approval
            await self._revoke(key.id, key.workspace, "the access of its creator has ended")
            return None
        remember_name(f"key:{key.id}", key.name)
        return tokens

    async def find_token(self, text: str, client_id: str | None = None) -> OAuthTokenRow | None:
        """Return a token of the client, or of any, that can be used; None: it cannot.

        If it is a refresh token that was used before, somebody has copied it: the grant is revoked.
        """
        known = await self._store.oauth_token(_hash(text)) if _TOKEN.fullmatch(text) else None
        if known is None or client_id not in (None, known.row.client_id):
            return None
        now_ms = self._store.clock.now_ms()
        try:
            _check(known, now_ms)
        except Unauthenticated:
            return None
        if not may_exchange(known.row, now_ms):
            await self._revoke(known.key.id, known.key.workspace, "its refresh token was used twice")
            return None
        return known.row

    async def refresh(self, row: OAuthTokenRow) -> NewTokens | None:
        """Exchange a refresh token. None: another request did, and not just now."""
        now_ms = self._store.clock.now_ms()
        wait_s = self._refreshes.take(row.key_id, now_ms)
        if wait_s:
            raise RateLimited(f"this assistant refreshes too often; try again in {wait_s} s", wait_s)
        tokens, rows = _new_tokens(row.key_id, row.client_id, row.resource, now_ms)
        may = partial(may_exchange, now_ms=now_ms)
        return tokens if await self._store.exchange_oauth_token(row.hash, may, rows) else None

    async def revoke(self, row: OAuthTokenRow) -> None:
        """Revoke the grant of a token: its client asks for it."""
        known = await self._store.oauth_token(row.hash)
        if known is not None:
            await self._revoke(known.key.id, known.key.workspace, "its client ended it")

    async def _revoke(self, key_id: str, workspace: str | None, reason: str) -> None:
        details = compact({"reason": reason})
        entry = AuditEntry(workspace or "default", f"key:{key_id}", "key.revoke", key_id, details, None)
        await self._store.revoke_key(key_id, self._store.clock.now_ms(), [entry])
        self._keys.forget(key_id)
        self._forget(key_id)

    # --- calls ---------------------------------------------------------------------------------------

    async def authenticate(self, token: str, resource: str, address: str | None = None) -> Principal:
        """Return the principal of an access token for this resource, or raise Unauthenticated."""
        if not _TOKEN.fullmatch(token):
            raise _no_token()
        hash, now_ms = _hash(token), self._store.clock.now_ms()
        known = await self._known.get(hash, partial(self._read, hash))
        if known.row.kind != "access" or known.row.resource != resource:
            raise Unauthenticated(f"this token is not for {resource}; connect the assistant again")
        _check(known, now_ms)
        self._keys.touch(known.key, now_ms)
        return key_principal(known.key, address)

    async def _read(self, hash: bytes) -> KnownToken:
        known = await self._store.oauth_token(hash)
        if known is None:
            raise _no_token()
        return known

    def _forget(self, key_id: str | None) -> None:
        self._known.forget_all(
            lambda hash, known: (
                key_id in (None, known.key.id, known.key.created_by)
                or known.key.created_by == f"key:{key_id}"
            )
        )


def check_approver(principal: Principal) -> None:
    """Raise PermissionDenied unless the principal is a person, who may connect assistants."""
    if not principal.is_person or principal.client is not None:
        raise PermissionDenied("only a person connects an assistant; sign in with a key that is no agent's")


def may_exchange(row: OAuthTokenRow, now_ms: int) -> bool:
    """Return whether a refresh token was not used yet, or just now."""
    return row.used_ms is None or abs(now_ms - row.used_ms) < GRACE_MS


def _check(known: KnownToken, now_ms: int) -> None:
    """Raise Unauthenticated if a token, its grant or the key of the person has ended."""
    if not known.row.created_ms - GRACE_MS <= now_ms < known.row.expires_ms:
        raise Unauthenticated("this token has expired; refresh it")
    check_key(known.key, now_ms)
    key = known.key
    if known.owner is not None and key.created_by == f"key:{known.owner.id}":
        check_key(known.owner, now_ms)
    elif key.created_by.startswith("key:") or not _may_still_give(known, now_ms):
        raise Unauthenticated("the person who connected this assistant does not have this access any more")


def _may_still_give(known: KnownToken, now_ms: int) -> bool:
    """Return whether a person may give what the key of an assistant has, as of a recent sign-in.

    The issuer says at a sign-in what a person may do, and nothing when the person must not sign in any more.
    """
    key, roles = known.key, json.loads(known.grants or "{}")
    if not key.created_by.startswith("person:"):
        return True
    is_recent = now_ms < (known.signed_in_ms or 0) + SIGN_IN_LASTS_MS
    return is_recent and may_give(roles, key.workspace, key.role)


def _new_tokens(
    key_id: str, client_id: str, resource: str, now_ms: int
) -> tuple[NewTokens, list[OAuthTokenRow]]:
    tokens = NewTokens(ACCESS_PREFIX + secrets.token_urlsafe(32), _REFRESH_PREFIX + secrets.token_urlsafe(32))
    of_grant = key_id, client_id, resource, now_ms
    return tokens, [
        OAuthTokenRow(_hash(tokens.access), "access", *of_grant, now_ms + ACCESS_MS),
        OAuthTokenRow(_hash(tokens.refresh), "refresh", *of_grant, now_ms + REFRESH_MS),
    ]


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _no_token() -> Unauthenticated:
    return Unauthenticated("this access token is unknown or has expired; connect the assistant again")
