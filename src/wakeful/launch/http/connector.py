"""Opens connections: looks names up, tries their addresses, and speaks TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Final

import aiohappyeyeballs

from wakeful.launch.address_guard import AddressGuard, AddressRefused, GuardedResolver
from wakeful.launch.http.connection import Connection
from wakeful.launch.http.errors import HttpError, InvalidTarget
from wakeful.launch.http.messages import Origin

#: How long the addresses of a name are used, in seconds.
DNS_TTL_S: Final = 30
#: How many names are remembered.
_MAX_NAMES: Final = 1_000
#: When the next address of a name is tried while the previous one does not answer, in seconds (RFC 8305).
_NEXT_ADDRESS_S: Final = 0.25

Addresses = list[aiohappyeyeballs.AddrInfoType]


class Connector:
    """Opens connections to allowed addresses: every socket is created by the guard."""

    def __init__(
        self,
        guard: AddressGuard,
        resolver: GuardedResolver,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._guard = guard
        self._resolver = resolver
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._now = now or self._loop.time
        #: the addresses of each name and port, and until when they are used
        self._known: OrderedDict[tuple[str, int], tuple[float, Addresses]] = OrderedDict()
        self._lookups: dict[tuple[str, int], asyncio.Task[Addresses]] = {}

    async def connect(self, origin: Origin, connections: set[Connection]) -> Connection:
        """Open a connection. Raises HttpError, AddressRefused."""
        # A name may end with one dot, but no certificate has one.
        host = origin.host.rstrip(".") + "." if origin.host.endswith("..") else origin.host
        addresses = await self._addresses(host, origin.port)
        context = await self._context() if origin.tls else None
        while True:
            try:
                sock = await aiohappyeyeballs.start_connection(
                    addresses,
                    happy_eyeballs_delay=_NEXT_ADDRESS_S,
                    loop=self._loop,
                    socket_factory=self._guard.socket,
                )
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self._loop, connections),
                    sock=sock,
                    ssl=context,
                    server_hostname=host.rstrip(".") if origin.tls else None,
                )
            except OSError as error:
                aiohappyeyeballs.pop_addr_infos_interleave(addresses)
                if not addresses:
                    raise _failure(origin, error) from error
            else:
                return connection

    async def close(self) -> None:
        """Cancel the lookups."""
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        if lookups:
            await asyncio.wait(lookups)

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await asyncio.to_thread(_default_context)
        return self._tls

    async def _addresses(self, host: str, port: int) -> Addresses:
        """Return the addresses of a host, as a list that the caller may change."""
        if ":" in host:
            return [_address(host, port)]
        if host.replace(".", "").isdigit():
            # Other spellings, such as 127.1, look different from the address that they mean.
            if not _is_canonical(host):
                raise InvalidTarget(f"{host} - is not a canonical IPv4 address")
            return [_address(host, port)]
        key = host, port
        until, known = self._known.get(key, (0.0, []))
        if not known or until <= self._now():
            lookup = self._lookups.get(key)
            if lookup is None:
                lookup = self._lookups[key] = self._loop.create_task(self._look_up(host, port))
                lookup.add_done_callback(lambda done: self._looked_up(key, done))
            try:
                # Others may wait for the same lookup.
                known = await asyncio.shield(lookup)
            except AddressRefused:
                raise
            except OSError as error:
                raise HttpError(f"the name {host} could not be resolved: {error}") from error
        found = known.copy()
        known.append(known.pop(0))  # the next connection tries another one first
        return found

    async def _look_up(self, host: str, port: int) -> Addresses:
        found = await self._resolver.resolve(host, port, socket.AF_UNSPEC)
        return [_address(each["host"], each["port"]) for each in found]

    def _looked_up(self, key: tuple[str, int], lookup: asyncio.Task[Addresses]) -> None:
        del self._lookups[key]
        self._known.pop(key, None)
        if not lookup.cancelled() and lookup.exception() is None:
            self._known[key] = self._now() + DNS_TTL_S, lookup.result()
            if len(self._known) > _MAX_NAMES:
                self._known.popitem(last=False)


@lru_cache(maxsize=1)
def _default_context() -> ssl.SSLContext:
    """Return a context that verifies certificates with the authorities of the system. It reads files."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _address(host: str, port: int) -> aiohappyeyeballs.AddrInfoType:
    if ":" in host:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)


def _is_canonical(host: str) -> bool:
    """Return whether a host of digits and dots is an address as it is usually written.

    >>> _is_canonical("127.0.0.1"), _is_canonical("127.1"), _is_canonical("0177.0.0.1")
    (True, False, False)
    """
    try:
        return str(IPv4Address(host)) == host
    except ValueError:
        return False


def _failure(origin: Origin, error: OSError) -> HttpError | AddressRefused:
    if isinstance(error, AddressRefused):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return HttpError(f"the certificate of {origin.host} was not accepted: {error}")
    return HttpError(f"could not connect to {origin.host}:{origin.port}: {error}")
