"""Which addresses a webhook may reach, checked on the address that is connected to.

The author of a job chooses the URL, and Wakeful runs inside the operator's network: without a guard, anyone
who may create a job could read the cloud's metadata service or reach the database. So every socket of a
webhook is created by `AddressGuard.socket`, which gets the final address: a name whose DNS answer changes, an
unusual spelling of an IP address and a literal one all pass the same check. No name is looked up between
check and use.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

from wakeful.errors import InvalidArgument
from wakeful.launch.user_code import NoThread, Threads
from wakeful.values.bounded_cache import MB, bounded_cache, text_size

#: The setting that allows private addresses.
SETTING: Final = "WAKEFUL_ALLOW_PRIVATE_TARGETS"

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
#: One result of `socket.getaddrinfo`.
AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
#: A function like `socket.getaddrinfo(host, port, family=…, type=…, flags=…)`. It may block.
Lookup = Callable[..., Iterable[AddressInfo]]

#: Addresses that are not the public internet, from the registries of special-purpose addresses. They are
#: listed here because `ipaddress` differs between releases of Python.
_REFUSED: Final[tuple[tuple[str, tuple[Network, ...]], ...]] = tuple(
    (word, tuple(ip_network(text) for text in texts.split()))
    for word, texts in (
        ("loopback", "127.0.0.0/8 ::1/128"),
        ("unspecified", "0.0.0.0/8 ::/128"),
        ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
        ("link-local", "169.254.0.0/16 fe80::/10"),
        ("shared (carrier-grade NAT)", "100.64.0.0/10"),
        ("multicast", "224.0.0.0/4 ff00::/8"),
        # Azure's metadata and health service has a public address.
        ("metadata", "168.63.129.16/32"),
        ("reserved", "192.0.0.0/24 192.88.99.0/24 198.18.0.0/15 240.0.0.0/4 2001::/23 5f00::/16"),
        ("documentation", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
    )
)
_PUBLIC_V6: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_NETWORKS: Final = re.compile(r"[\s,]+")


class AddressRefused(OSError):
    """An address that is not allowed, or a name with no other addresses."""


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """The allowed addresses: the public internet, and what the operator adds.

    >>> AddressGuard().refusal("10.1.2.3"), AddressGuard().refusal("1.1.1.1")
    ('private', None)
    >>> AddressGuard.parse("10.0.0.0/8, fd00::/8").refusal("10.1.2.3")
    """

    #: allow every address
    allow_private: bool = False
    #: additional allowed networks
    allowed: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> AddressGuard:
        """Return the guard of a setting: `true`, `false`, or allowed networks.

        >>> AddressGuard.parse("true").allow_private
        True
        """
        word = text.strip().lower()
        if word in ("", "0", "false", "no", "off"):
            return cls()
        if word in ("1", "true", "yes", "on"):
            return cls(allow_private=True)
        try:
            return cls(allowed=tuple(ip_network(each) for each in _NETWORKS.split(text.strip(" ,\t\n"))))
        except ValueError as error:
            raise InvalidArgument(
                f"{SETTING}: {error}; write true, false, or networks such as '10.0.0.0/8, fd00::/8'"
            ) from error

    def refusal(self, host: str) -> str | None:
        """Return the kind of an address that is not allowed; None if it is allowed."""
        if self.allow_private:
            return None
        try:
            return self._refusal(ip_address(host))
        except ValueError:
            return "unreadable"

    def _refusal(self, address: Address) -> str | None:
        if any(address in network for network in self.allowed):
            return None
        if isinstance(address, IPv6Address):
            if address.ipv4_mapped:
                # No resolver returns one: it is another spelling of an IPv4 address.
                inside = any(address.ipv4_mapped in network for network in self.allowed)
                return None if inside else "IPv4-mapped"
            inner = address.sixtofour or (
                IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
            )
            if inner is not None:
                return self._refusal(inner)
        for word, networks in _REFUSED:
            if any(address in network for network in networks):
                return word
        return "reserved" if isinstance(address, IPv6Address) and address not in _PUBLIC_V6 else None

    def check_host(self, host: str) -> None:
        """Raise AddressRefused for a literal address that is not allowed, without a lookup.

        This gives an early error to the author of the URL. The protection is `socket`.
        """
        address = _literal(host)
        word = self.refusal(address) if address else None
        if word:
            raise AddressRefused(_sentence(host, word))

    def socket(self, info: AddressInfo) -> socket.socket:
        """Return a socket for an allowed address. Raises AddressRefused."""
        family, kind, proto, _, address = info
        host = str(address[0])
        word = self.refusal(host)
        if word:
            raise AddressRefused(_sentence(host, word))
        return socket.socket(family, kind, proto)


class GuardedResolver:
    """Resolves names and leaves out addresses that are not allowed.

    A name with public and private addresses is reached at its public ones. Lookups block, so they have
    threads of their own: a dead name server does not block anything else. With fewer threads than there are
    requests at once, names whose servers do not answer would hold up the others.
    """

    def __init__(self, guard: AddressGuard, lookup: Lookup = socket.getaddrinfo, threads: int = 32) -> None:
        self._guard = guard
        self._lookup = lookup
        self._threads = Threads(threads)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[str]:
        """Return the allowed addresses of a name. Raises AddressRefused if there are only others."""

        def look_up() -> list[AddressInfo]:
            flags = socket.AI_ADDRCONFIG
            return list(self._lookup(host, port, family=family, type=socket.SOCK_STREAM, flags=flags))

        try:
            infos = await self._threads.run(look_up, lambda: None)
        except UnicodeError as error:
            raise OSError(f"'{host}' is not a host name: {error}") from error
        except NoThread as error:
            raise OSError(error.message) from error
        assert isinstance(infos, list)
        found: list[str] = []
        refused: str | None = None
        for _, _, _, _, address in infos:
            scope = f"%{address[3]}" if len(address) == 4 and address[3] else ""
            text = f"{address[0]}{scope}"
            word = self._guard.refusal(text)
            if word:
                refused = _sentence(f"{host} ({text})", word)
                continue
            found.append(text)
        if not found:
            raise AddressRefused(refused) if refused else OSError(f"'{host}' has no address")
        return found

    async def close(self) -> None:
        """Stop the threads."""
        self._threads.close()


def _sentence(host: str, word: str) -> str:
    article = "an" if word[0] in "Iaeiou" else "a"
    return (
        f"{host} is {article} {word} address, and webhooks reach only public ones; "
        f"the operator can allow others with {SETTING}"
    )


@bounded_cache(2 * MB, lambda address, host: text_size(host, address or ""))
def _literal(host: str) -> str | None:
    """Return the address of a literal host, without a lookup: 127.0.0.1 for `2130706433` and `0x7f.1`."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return "127.0.0.1"
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(name))
    except (OSError, UnicodeError):
        return None
