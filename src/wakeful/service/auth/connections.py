"""Connections of clients: from which web pages, how many, and until when.

A page of another site can open a WebSocket or send a request to any server that the browser can reach, also
on a private network. The browser sends the site of the page in `Origin`. With DNS rebinding, the name of that
site resolves to the server, so that `Host` and `Origin` agree: then only a list of hosts helps.

Open connections (RPC and event streams) are limited in total, per workspace and per key, as are requests. The
limits hold per process, so that one tenant does not take what all need. A key for all workspaces counts
towards none of them. Connections that are not authenticated yet have a limit of their own, so that they use
no slots of authenticated ones.

Event streams, waiting claims and RPC connections end with their key or session. The store publishes the topic
of a key in all processes when it is revoked or sessions of it end; then the credentials of this key with
which something is open are checked. Processes on one SQLite file do not notify each other, so there all are
also checked once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from typing import Final
from weakref import WeakSet

from wakeful.errors import InvalidArgument, PermissionDenied, ResourceExhausted, Unauthenticated, WakefulError
from wakeful.logs import get_logger
from wakeful.service.auth.access import Principal
from wakeful.service.auth.keys import listen_to_keys
from wakeful.settings import PREFIX
from wakeful.store.port import Store
from wakeful.store.sql.driver import current_tenant

ORIGINS: Final = f"{PREFIX}ALLOWED_ORIGINS"
HOSTS: Final = f"{PREFIX}ALLOWED_HOSTS"
ANY: Final = "*"
_ORIGIN: Final = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@]+")
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?")
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}

#: Seconds between two checks if other processes send no notification, or if one was not possible.
POLL_S: Final = 1.0
#: Seconds between two checks otherwise: a key can also expire.
NOTIFIED_POLL_S: Final = 15.0

log = get_logger("wakeful.auth")


class Origins:
    """The origins and hosts that the operator allows.

    >>> Origins((), ()).check_origin("https://wakeful.example", "wakeful.example")
    >>> Origins((), ()).check_origin("https://evil.example", "wakeful.example")
    Traceback (most recent call last):
    wakeful.errors.PermissionDenied: pages of 'https://evil.example' may not use this server; an operator \
allows them with WAKEFUL_ALLOWED_ORIGINS
    """

    def __init__(self, origins: Iterable[str], hosts: Iterable[str]) -> None:
        self._origins = frozenset(_read(ORIGINS, _ORIGIN, each, "https://app.example") for each in origins)
        self._hosts = frozenset(_read(HOSTS, _HOST, each, "wakeful.example.com") for each in hosts)

    def check_origin(self, origin: str | None, host: str | None, *, by_cookie: bool = False) -> None:
        """Raise PermissionDenied for a page of another site that is not allowed. No `Origin`: not a page.

        A browser sends a cookie for any page: then `*` does not apply, and a site is allowed by its name.
        """
        if origin is None or origin.lower() in self._origins:
            return
        if ANY in self._origins and not by_cookie:
            return
        scheme, _, site = origin.lower().partition("://")
        port = _DEFAULT_PORTS.get(scheme, "")
        if port and host and site.removesuffix(port) == host.lower().removesuffix(port):
            return
        raise PermissionDenied(
            f"pages of '{origin[:200]}' may not use this server; an operator allows them with {ORIGINS}"
        )

    def check_host(self, host: str | None) -> None:
        """Raise PermissionDenied for a host that is not in the list, if there is a list."""
        if not self._hosts:
            return
        name = (host or "").lower()
        found = _HOST.fullmatch(name)
        if found is None or not {name, found[1]} & self._hosts:
            raise PermissionDenied(
                f"this server does not answer for the host '{name[:200]}'; an operator allows it with {HOSTS}"
            )


def _read(setting: str, form: re.Pattern[str], entry: str, example: str) -> str:
    text = entry.lower().rstrip("/") if "://" in entry else entry.lower()
    if not form.fullmatch(text):
        raise InvalidArgument(f"{setting}: '{entry[:200]}' is not valid; write it as {example}")
    return text


class TooManyConnections(ResourceExhausted):
    """The connection limit is reached."""

    retry_after_s = 1


class ConnectionSlot:
    """The slot of one connection. The owner must release it."""

    def __init__(self, limits: ConnectionLimits, kind: str) -> None:
        self._limits = limits
        self.kind = kind
        #: the actor of the connection, once it is authenticated
        self.actor: str | None = None
        #: the workspace of its key; None: not authenticated, or a key for all workspaces
        self.workspace: str | None = None

    def assign(self, actor: str, workspace: str | None) -> None:
        """Assign the slot to an actor; TooManyConnections if a limit is reached."""
        if actor != self.actor:
            if self.actor is None:
                self._limits.check_total()
            self._limits.check_actor(actor)
            if workspace is not None and workspace != self.workspace:
                self._limits.check_workspace(workspace)
            self.actor, self.workspace = actor, workspace
            current_tenant.set(workspace)

    def release(self) -> None:
        """Free the slot: the connection is closed."""
        self._limits.discard(self)


class ConnectionLimits:
    """The open connections of this process, and their limits; 0: no limit."""

    def __init__(
        self,
        max_total: int,
        max_per_actor: int,
        max_unauthenticated: int,
        max_per_workspace: int = 0,
        max_requests: int = 0,
    ) -> None:
        self._max_total = max_total
        self._max_per_actor = max_per_actor
        self._max_unauthenticated = max_unauthenticated
        self._max_per_workspace = max_per_workspace
        self._max_requests = max_requests
        #: the requests in progress, by workspace
        self._requests: Counter[str] = Counter()
        # Weak: a stream whose client disconnects before it starts is never closed, only collected.
        self._taken: WeakSet[ConnectionSlot] = WeakSet()

    def acquire(self, kind: str, actor: str | None = None, workspace: str | None = None) -> ConnectionSlot:
        """Return a slot, or raise TooManyConnections. Without an actor it is not authenticated yet.

        >>> limits = ConnectionLimits(2, 1, 0)
        >>> ada, bob = limits.acquire("rpc", "key:ada"), limits.acquire("rpc", "key:bob")
        >>> bob.release()
        >>> limits.acquire("events", "key:ada")
        Traceback (most recent call last):
        wakeful.service.auth.connections.TooManyConnections: this key has 1 connections open...
        """
        slot = ConnectionSlot(self, kind)
        if actor is not None:
            slot.assign(actor, workspace)
        elif self._max_unauthenticated and self._count(None) >= self._max_unauthenticated:
            raise TooManyConnections(
                f"this server has {self._max_unauthenticated} connections open that are not authenticated "
                f"({PREFIX}MAX_UNAUTHENTICATED_CONNECTIONS); send the key in a header, or try again later"
            )
        self._taken.add(slot)
        return slot

    def check_total(self) -> None:
        """Raise TooManyConnections if the limit of authenticated connections is reached."""
        if self._max_total and len(self._taken) - self._count(None) >= self._max_total:
            raise TooManyConnections(
                f"this server has {self._max_total} connections open, which is its limit "
                f"({PREFIX}MAX_CONNECTIONS); try another replica, or try again later"
            )

    def check_actor(self, actor: str) -> None:
        """Raise TooManyConnections if the limit of connections per actor is reached."""
        if not self._max_per_actor:
            return
        if self._count(actor) >= self._max_per_actor:
            raise TooManyConnections(
                f"this key has {self._max_per_actor} connections open, which is the limit of one key "
                f"({PREFIX}MAX_CONNECTIONS_PER_KEY); close one first"
            )

    def check_workspace(self, workspace: str) -> None:
        """Raise TooManyConnections if the limit of connections per workspace is reached."""
        most = self._max_per_workspace
        if most and sum(slot.workspace == workspace for slot in self._taken) >= most:
            raise TooManyConnections(
                f"workspace '{workspace}' has {most} connections open here, which is the limit of one "
                f"workspace ({PREFIX}MAX_CONNECTIONS_PER_WORKSPACE); close one first, or try another replica"
            )

    def begin_request(self, workspace: str) -> None:
        """Count a request of a workspace until `end_request`; TooManyConnections if the limit is reached.

        What the request calls of the store from now on is a call of this tenant.

        >>> limits = ConnectionLimits(0, 0, 0, 0, max_requests=1)
        >>> limits.begin_request("acme")
        >>> limits.begin_request("acme")
        Traceback (most recent call last):
        wakeful.service.auth.connections.TooManyConnections: workspace 'acme' has 1 requests in ...
        >>> limits.end_request("acme")
        >>> limits.begin_request("acme")
        """
        if self._max_requests and self._requests[workspace] >= self._max_requests:
            raise TooManyConnections(
                f"workspace '{workspace}' has {self._max_requests} requests in progress here, which is the "
                f"limit of one workspace ({PREFIX}MAX_REQUESTS_PER_WORKSPACE); try again later"
            )
        self._requests[workspace] += 1
        current_tenant.set(workspace)

    def end_request(self, workspace: str) -> None:
        """Count a request no longer."""
        self._requests[workspace] -= 1
        if not self._requests[workspace]:
            del self._requests[workspace]

    def _count(self, actor: str | None) -> int:
        return sum(slot.actor == actor for slot in self._taken)

    def discard(self, slot: ConnectionSlot) -> None:
        """Remove a slot whose connection is closed."""
        self._taken.discard(slot)

    def open(self) -> Counter[str]:
        """Return the number of open connections, by kind."""
        return Counter(slot.kind for slot in self._taken)


class OpenUse:
    """Something that is open with a credential. The owner must close it."""

    def __init__(
        self,
        uses: OpenUses,
        credential: str,
        authenticate: Callable[[], Awaitable[Principal]],
        end: Callable[[], object],
    ) -> None:
        self._uses = uses
        self.credential = credential
        #: who the credential is of, and what it may do; None: not known yet
        self.principal: Principal | None = None
        self.authenticate = authenticate
        self.end = end

    @property
    def actor(self) -> str | None:
        """The actor of the credential; None: not known yet."""
        return self.principal.actor if self.principal is not None else None

    def close(self) -> None:
        """Forget it: it is over."""
        self._uses.discard(self)


class OpenUses:
    """Ends what is open in this process with a credential that has ended."""

    def __init__(self, store: Store) -> None:
        self._poll_s = NOTIFIED_POLL_S if store.notifies_other_processes else POLL_S
        # Weak: a stream whose client disconnects before it starts is never closed, only collected.
        self._open: WeakSet[OpenUse] = WeakSet()
        self._changed = asyncio.Event()
        #: those whose key or session may have ended
        self._suspects: set[OpenUse] = set()
        self._watching: asyncio.Task[None] | None = None
        listen_to_keys(store, self._suspect)

    def __len__(self) -> int:
        return len(self._open)

    def _suspect(self, key_id: str | None) -> None:
        """Check what is open with this key, or all. The notification empties the caches of keys first."""
        actors = (f"key:{key_id}", key_id, None)
        self._suspects.update(use for use in self._open if key_id is None or use.actor in actors)
        if self._suspects:
            self._changed.set()

    async def add(
        self, credential: str, authenticate: Callable[[], Awaitable[Principal]], end: Callable[[], object]
    ) -> OpenUse:
        """Call `end` when `authenticate` refuses the credential. Unauthenticated: it has ended already."""
        use = OpenUse(self, credential, authenticate, end)
        self._open.add(use)
        if self._watching is None or self._watching.done():
            self._changed = asyncio.Event()  # the scheduler may have had another event loop
            if self._suspects:
                self._changed.set()
            # Not in the context of this request: it reads for all tenants.
            self._watching = asyncio.create_task(self._watch(), name="wakeful-credentials", context=Context())
        try:
            principal = await authenticate()  # it may have ended since the request was authenticated
        except BaseException:
            use.close()
            raise
        use.principal = principal
        return use

    def discard(self, use: OpenUse) -> None:
        """Forget what is over; stop watching after the last one."""
        self._open.discard(use)
        self._suspects.discard(use)
        if not self._open and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def close(self) -> None:
        """Stop watching: the process stops."""
        watching, self._watching = self._watching, None
        if watching is not None and not watching.done():  # one of an earlier event loop is
            watching.cancel()
            await asyncio.wait({watching})

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._poll_s
        while self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._changed.wait()
            if not await self._check_suspects():
                due = min(due, loop.time() + POLL_S)
            if loop.time() >= due:
                due = loop.time() + (self._poll_s if await self._check_all() else POLL_S)

    async def _check_suspects(self) -> bool:
        """End those of credentials that have ended. False: not all could be checked."""
        self._changed.clear()
        suspects, self._suspects = self._suspects, set()
        results = [await self._check(uses) for uses in _by_credential(suspects)]
        return all(results)

    async def _check_all(self) -> bool:
        complete = True
        for uses in _by_credential(self._open):
            if self._suspects:  # they do not wait for thousands of others
                complete &= await self._check_suspects()
            complete &= await self._check(uses)
        return complete

    async def _check(self, uses: list[OpenUse]) -> bool:
        """End the uses of a credential if it has ended, or its rights are others. False: not checked."""
        try:
            principal = await uses[0].authenticate()
        except Unauthenticated:
            for use in uses:
                use.end()
        except WakefulError:
            return False
        except Exception:
            log.exception("auth.check_failed")
            return False
        else:
            for use in uses:
                if use.principal is not None and _rights(use.principal) != _rights(principal):
                    use.end()
        return True


def _rights(principal: Principal) -> tuple[object, ...]:
    return principal.actor, principal.role, principal.workspace, principal.agent


def _by_credential(uses: Iterable[OpenUse]) -> list[list[OpenUse]]:
    found: dict[str, list[OpenUse]] = {}
    for use in uses:
        found.setdefault(use.credential, []).append(use)
    return list(found.values())
