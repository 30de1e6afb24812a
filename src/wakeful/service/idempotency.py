"""Idempotency keys: a request that is sent again is performed once and gets the first response again.

The response is stored in the transaction of the operation (`wakeful.store.idempotency`), so a retry either
finds it or performs the operation. A key belongs to the caller that sent it, in one workspace, for a day.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, Protocol, TypeVar

from wakeful.errors import InvalidArgument, PermissionDenied, Unavailable, WakefulError
from wakeful.launch.secrets import Keyring
from wakeful.service.auth.access import Principal, permit
from wakeful.store.idempotency import (
    ABANDONED_MS,
    KEPT_MS,
    AlreadyPerformed,
    Claim,
    InProgress,
    Keyed,
    ResponseLost,
    StoredResponse,
    check_fingerprint,
    current_claim,
)
from wakeful.store.port import Store
from wakeful.values.json_value import compact

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_KEY: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")
_SEALED: Final = "sealed:"
#: The fields of responses that are secrets: of webhooks, new keys, and trigger URLs.
_SECRETS: Final = frozenset({"secret", "key", "url"})
#: How long a request waits for another one of this process with the same key.
_WAIT_S: Final = 10.0


class Reply(NamedTuple):
    """A response to a keyed request. An interface without statuses uses 200, and no headers."""

    status: int
    headers: Mapping[str, str]
    body: str
    #: whether it is the response of an earlier request
    replayed: bool = False


class InvalidKey(InvalidArgument):
    """The text cannot be an idempotency key."""


class KeyedOperation(Protocol[T_co]):
    """A service call that makes one change and stores its response with `keyed`, where it is given."""

    def __call__(self, *, keyed: Keyed[T_co] | None) -> Awaitable[T_co]:
        """Perform the operation."""
        ...


def check_key(text: str) -> None:
    """Raise InvalidKey unless the text is 1 to 255 printable ASCII characters.

    >>> check_key("deploy 17")
    >>> check_key(" 17")
    Traceback (most recent call last):
    wakeful.service.idempotency.InvalidKey: Idempotency-Key: give 1 to 255 printable ASCII characters
    """
    if _KEY.fullmatch(text) is None:
        raise InvalidKey("Idempotency-Key: give 1 to 255 printable ASCII characters")


class IdempotencyService:
    """Performs keyed requests."""

    def __init__(self, store: Store, keyring: Keyring) -> None:
        self._store = store
        self._keyring = keyring
        self._in_progress: dict[tuple[str, str], asyncio.Event] = {}

    async def perform(
        self,
        principal: Principal,
        workspace: str,
        key: str,
        request: Sequence[str | bytes],
        operation: KeyedOperation[T],
        render: Callable[[T], Reply],
        *,
        kept_ms: int = KEPT_MS,
    ) -> Reply:
        """Perform the operation and return `render` of its result, or the reply of an earlier request.

        `request` identifies the request: the same key with another request is refused. The reply is kept for
        the `kept_ms` of the first request.
        """
        check_key(key)
        permit(principal, "read", workspace)  # a key occupies space in the workspace
        own_key, fingerprint = _hash(principal.actor, key), _hash(*request)
        async with self._one_at_a_time(workspace, own_key):
            return await self._perform(principal, workspace, own_key, fingerprint, operation, render, kept_ms)

    async def perform_claimed(
        self,
        principal: Principal,
        workspace: str,
        key: str,
        request: Sequence[str | bytes],
        operation: Callable[[], Awaitable[T]],
        render: Callable[[T], Reply],
    ) -> Reply:
        """Do the same with an operation that takes no key: its first audited transaction claims the key.

        Its response is stored afterwards. If the process dies in between, a retry gets `ResponseLost`, and
        the operation is not performed again. For operations whose response a caller can do without.
        """
        failed: list[WakefulError] = []  # after a transaction that claimed the key

        async def claimed(*, keyed: Keyed[T] | None) -> T:
            assert keyed is not None
            claim = Claim(keyed.workspace, keyed.key, keyed.fingerprint)
            token = current_claim.set(claim)
            try:
                result = await operation()
            except WakefulError as error:
                if not claim.is_open:
                    failed.append(error)
                raise
            finally:
                current_claim.reset(token)
            try:
                await self._store.keep_response(claim, *keyed.render(result))
            finally:
                claim.is_open = False  # for tasks that were started meanwhile
            return result

        try:
            return await self.perform(principal, workspace, key, request, claimed, render)
        except InProgress:
            raise (failed or [InProgress()])[0] from None

    async def _perform(
        self,
        principal: Principal,
        workspace: str,
        own_key: str,
        fingerprint: str,
        operation: KeyedOperation[T],
        render: Callable[[T], Reply],
        kept_ms: int,
    ) -> Reply:
        reply: Reply | None = None

        def rendered(result: T) -> tuple[int, str]:
            nonlocal reply
            reply = render(result)
            return reply.status, self._seal_reply(principal, reply)

        stored = await self._store.stored_response(workspace, own_key)
        if stored is None:
            try:
                await operation(keyed=Keyed(workspace, own_key, fingerprint, rendered, kept_ms))
            except AlreadyPerformed as found:
                stored = found.response
            except (Unavailable, InProgress):
                raise
            except WakefulError:
                # A concurrent request with this key may have caused the refusal: then this is its retry.
                stored = await self._store.stored_response(workspace, own_key)
                if stored is None:
                    raise
            else:
                assert reply is not None, "the operation did not use its key"
                return reply
        check_fingerprint(stored, fingerprint)
        return self.read_reply(principal, stored)

    @asynccontextmanager
    async def _one_at_a_time(self, workspace: str, key: str) -> AsyncIterator[None]:
        """Wait for a request of this process with the same key, so that at most one waits in the database.

        Each waiting request holds a connection of the pool.
        """
        try:
            async with asyncio.timeout(_WAIT_S):
                while (other := self._in_progress.get((workspace, key))) is not None:
                    await other.wait()
        except TimeoutError:
            raise InProgress from None
        done = self._in_progress[workspace, key] = asyncio.Event()
        try:
            yield
        finally:
            del self._in_progress[workspace, key]
            done.set()

    def _seal_reply(self, principal: Principal, reply: Reply) -> str:
        """Return the reply as stored text. A reply with a secret is encrypted."""
        text = compact({"headers": dict(reply.headers), "body": reply.body, "rights": _rights(principal)})
        if not reply.body or not _has_secret(json.loads(reply.body)):
            return text
        return _SEALED + b64encode(self._keyring.seal(text.encode())).decode()

    def read_reply(self, principal: Principal, stored: StoredResponse) -> Reply:
        """Return the reply of an earlier request with the same key, which the store has found."""
        if not stored.status:
            # The time since may be negative: the clock was set back.
            is_recent = abs(self._store.clock.now_ms() - stored.created_ms) < ABANDONED_MS
            raise InProgress if is_recent else ResponseLost
        text = stored.body
        if text.startswith(_SEALED):
            text = self._keyring.open(b64decode(text.removeprefix(_SEALED))).decode()
        kept = json.loads(text)
        if kept.get("rights", _rights(principal)) != _rights(principal):
            raise PermissionDenied(
                "Idempotency-Key: the first request with this key was made with other rights than you have "
                "now; use a new key"
            )
        return Reply(stored.status, kept["headers"], kept["body"], replayed=True)


def _has_secret(body: object) -> bool:
    """Return whether a response has a secret, itself or in a list of objects.

    >>> _has_secret({"jobs": [{"name": "a"}, {"name": "b", "secret": "x"}]}), _has_secret({"jobs": [{}]})
    (True, False)
    """
    if not isinstance(body, dict):
        return False
    lists = (value for value in body.values() if isinstance(value, list))
    return not _SECRETS.isdisjoint(body) or any(_has_secret(item) for items in lists for item in items)


def _rights(principal: Principal) -> str:
    """Return the rights of a caller, which a signed token can change: a response is for the same ones."""
    return f"{principal.role}:{principal.agent or ''}"


def _hash(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode(errors="backslashreplace") if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8) + raw)
    return digest.hexdigest()
