"""Which addresses may be reached. Nothing here opens a connection, or asks a name server."""

from __future__ import annotations

import asyncio
import socket
import threading
from dataclasses import FrozenInstanceError
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wakeful.errors import InvalidArgument
from wakeful.launch.address_guard import SETTING, AddressGuard, AddressInfo, AddressRefused, GuardedResolver

CLOSED = AddressGuard()


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("fd00:ec2::254", "private"),
        ("fec0::1", "private"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("100.64.0.1", "shared (carrier-grade NAT)"),
        ("100.100.100.200", "shared (carrier-grade NAT)"),
        ("168.63.129.16", "metadata"),
        ("192.0.0.192", "reserved"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.250", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "reserved"),
        ("240.0.0.1", "reserved"),
        ("198.18.0.1", "reserved"),
        ("203.0.113.7", "documentation"),
        ("2001:db8::1", "documentation"),
        ("::ffff:127.0.0.1", "IPv4-mapped"),
        ("::ffff:8.8.8.8", "IPv4-mapped"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("2002:7f00:1::", "loopback"),
        ("2002:a00:1::1", "private"),
        ("64:ff9b:1::a00:1", "reserved"),
        ("::7f00:1", "reserved"),
        ("::ffff:0:7f00:1", "reserved"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "reserved"),
        ("100::1", "reserved"),
        ("localhost", "unreadable"),
        ("2130706433", "unreadable"),
        ("", "unreadable"),
    ],
)
def test_a_non_public_address_is_refused_with_its_kind(address: str, word: str):
    assert CLOSED.refusal(address) == word


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "93.184.216.34",
        "172.15.255.255",
        "172.32.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "168.63.129.17",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2a00:1450:4001:80b::200e",
        "64:ff9b::101:101",
        "2002:101:101::1",
    ],
)
def test_a_public_address_is_allowed(address: str):
    assert CLOSED.refusal(address) is None


@given(st.ip_addresses(v=4))
def test_no_ipv4_address_passes_that_python_calls_less_than_global(address: IPv4Address):
    if CLOSED.refusal(str(address)) is None:
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_reserved


@given(st.ip_addresses(v=6))
def test_no_ipv6_address_passes_that_python_calls_less_than_global(address: IPv6Address):
    if CLOSED.refusal(str(address)) is None:
        assert address.is_global or address.sixtofour
        assert not address.is_multicast
        assert not address.is_link_local
        assert not address.is_site_local


@given(st.ip_addresses(v=4))
def test_an_embedded_ipv4_address_is_checked_like_the_address_itself(address: IPv4Address):
    number = int(address)
    spellings = [
        IPv6Address((0xFFFF << 32) | number),  # mapped
        IPv6Address(number),  # compatible
        IPv6Address((0xFFFF << 48) | number),  # translated
        IPv6Address((0x0064FF9B << 96) | number),  # NAT64
        IPv6Address((0x0064FF9B0001 << 80) | number),  # NAT64, local
        IPv6Address((0x2002 << 112) | (number << 80) | 1),  # 6to4
        IPv6Address((0x20010000 << 96) | (number ^ 0xFFFFFFFF)),  # Teredo
    ]
    if CLOSED.refusal(str(address)):
        for spelling in spellings:
            assert CLOSED.refusal(str(spelling)), spelling


@given(st.ip_addresses())
def test_everything_may_be_reached_when_private_ones_are_allowed(address: IPv4Address | IPv6Address):
    assert AddressGuard(allow_private=True).refusal(str(address)) is None


@given(st.ip_addresses(v=4), st.integers(min_value=0, max_value=32), st.ip_addresses(v=4))
def test_an_allowed_network_allows_only_its_addresses(inside: IPv4Address, bits: int, other: IPv4Address):
    network = IPv4Network((int(inside), bits), strict=False)
    guard = AddressGuard(allowed=(network,))
    assert guard.refusal(str(inside)) is None
    assert guard.refusal(f"::ffff:{inside}") is None
    assume(other not in network)
    assert guard.refusal(str(other)) == CLOSED.refusal(str(other))


def test_the_setting_says_yes_or_no_or_which_networks():
    for text in ("true", "1", " YES ", "on"):
        assert AddressGuard.parse(text) == AddressGuard(allow_private=True)
    for text in ("", "false", "0", "no", "Off"):
        assert AddressGuard.parse(text) == AddressGuard()
    networks = (ip_network("10.0.0.0/8"), ip_network("192.168.1.7/32"), ip_network("fd00::/8"))
    assert AddressGuard.parse("10.0.0.0/8, 192.168.1.7 fd00::/8,") == AddressGuard(allowed=networks)


@pytest.mark.parametrize("text", ["maybe", "10.0.0.1/8", "10.0.0.0/8;11.0.0.0/8", "10.0.0.0/33"])
def test_an_invalid_setting_is_refused_by_name(text: str):
    with pytest.raises(InvalidArgument, match=SETTING):
        AddressGuard.parse(text)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "2130706433", "0177.0.0.1", "0x7f.1", "127.1", "0", "::1", "localhost", "a.LOCALHOST."],
)
def test_a_host_that_is_plainly_not_public_is_refused_early(host: str):
    with pytest.raises(AddressRefused, match=SETTING):
        CLOSED.check_host(host)
    AddressGuard(allow_private=True).check_host(host)


def test_a_host_name_is_checked_at_connection_time():
    for host in ("example.com", "localhost.example.com", "1.1.1.1", "16843009"):
        CLOSED.check_host(host)


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("10.0.0.1", "a private"),
        ("0.0.0.0", "an unspecified"),
        ("::ffff:8.8.8.8", "an IPv4-mapped"),
        ("localhost.", "a loopback"),
        ("127.0.0.1.", "a loopback"),
    ],
)
def test_the_error_names_the_host_its_kind_and_the_setting(host: str, kind: str):
    with pytest.raises(AddressRefused) as refused:
        CLOSED.check_host(host)
    assert str(refused.value) == (
        f"{host} is {kind} address, and webhooks reach only public ones; "
        "the operator can allow others with WAKEFUL_ALLOW_PRIVATE_TARGETS"
    )


def test_the_error_for_the_setting_says_what_to_write():
    with pytest.raises(InvalidArgument) as refused:
        AddressGuard.parse("maybe")
    assert refused.value.message == (
        "WAKEFUL_ALLOW_PRIVATE_TARGETS: 'maybe' does not appear to be an IPv4 or IPv6 network; "
        "write true, false, or networks such as '10.0.0.0/8, fd00::/8'"
    )


def test_a_mapped_address_is_allowed_where_its_ipv4_address_is():
    guard = AddressGuard.parse("8.8.8.0/24")
    assert guard.refusal("::ffff:8.8.8.8") is None
    assert guard.refusal("::ffff:9.9.9.9") == "IPv4-mapped"


def test_a_guard_allows_only_public_addresses_by_default_and_cannot_be_changed():
    assert (CLOSED.allow_private, CLOSED.allowed) == (False, ())
    assert AddressGuard() == AddressGuard(False, ())
    with pytest.raises(FrozenInstanceError):
        CLOSED.allow_private = True  # type: ignore[misc]


# --- the gate ---------------------------------------------------------------------------------------


def info(address: str, port: int = 80) -> AddressInfo:
    if ip_address(address).version == 4:
        return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
    return (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0))


def test_no_socket_is_made_for_an_address_that_may_not_be_reached():
    for address in ("127.0.0.1", "::1", "::ffff:10.0.0.1"):
        with pytest.raises(AddressRefused, match=rf"^{address} is an? .* with {SETTING}$"):
            CLOSED.socket(info(address))


def test_a_socket_is_made_for_one_that_may():
    public = CLOSED.socket(info("1.1.1.1"))
    assert (public.family, public.type, public.proto) == (socket.AF_INET, socket.SOCK_STREAM, 6)
    public.close()
    made = AddressGuard(allow_private=True).socket(info("127.0.0.1"))
    assert made.family is socket.AF_INET
    made.close()


# --- names ------------------------------------------------------------------------------------------


async def resolved(*addresses: str, guard: AddressGuard = CLOSED) -> list[str]:
    resolver = GuardedResolver(guard, lambda *args, **kwargs: [info(address) for address in addresses])
    try:
        return await resolver.resolve("example.com", 443, socket.AF_UNSPEC)
    finally:
        await resolver.close()


async def test_only_the_public_addresses_of_a_name_are_used():
    assert await resolved("10.0.0.1", "1.1.1.1", "::1", "2606:4700::1") == ["1.1.1.1", "2606:4700::1"]


async def test_a_name_with_only_private_addresses_is_refused_with_them():
    with pytest.raises(AddressRefused) as refused:
        await resolved("10.0.0.1")
    assert str(refused.value) == (
        "example.com (10.0.0.1) is a private address, and webhooks reach only public ones; "
        "the operator can allow others with WAKEFUL_ALLOW_PRIVATE_TARGETS"
    )
    assert await resolved("10.0.0.1", guard=AddressGuard.parse("10.0.0.0/8")) == ["10.0.0.1"]


async def test_a_lookup_gets_the_name_and_its_results_are_addresses_to_connect_to():
    asked: list[object] = []

    def lookup(*args: object, **kwargs: object) -> list[AddressInfo]:
        asked.append((args, kwargs))
        return [info("1.1.1.1"), (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2606:4700::1", 80, 0, 7))]

    resolver = GuardedResolver(CLOSED, lookup)
    found = await resolver.resolve("example.com")
    await resolver.close()
    how = {"family": socket.AF_INET, "type": socket.SOCK_STREAM, "flags": socket.AI_ADDRCONFIG}
    assert asked == [(("example.com", 0), how)]
    assert found == ["1.1.1.1", "2606:4700::1%7"]


async def test_a_name_without_an_address_is_an_ordinary_failure():
    with pytest.raises(OSError, match=r"^'example\.com' has no address$") as raised:
        await resolved()
    assert not isinstance(raised.value, AddressRefused)


async def test_a_host_that_cannot_be_a_name_is_an_ordinary_failure():
    resolver = GuardedResolver(CLOSED)
    with pytest.raises(OSError, match=r"^'a{64}\.example' is not a host name: ") as raised:
        await resolver.resolve("a" * 64 + ".example", 80)
    await resolver.close()
    assert str(raised.value).endswith(f": {raised.value.__cause__}")
    assert isinstance(raised.value.__cause__, UnicodeError)


async def test_a_lookup_for_which_the_system_starts_no_thread_is_an_ordinary_failure():
    before = threading.stack_size(1 << 46)  # more than a process may have
    try:
        with pytest.raises(OSError, match="can't start new thread"):
            await resolved("1.1.1.1")
    finally:
        threading.stack_size(before)


def lookup_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "wakeful-function"}


async def test_a_resolver_runs_32_lookups_at_once_and_close_ends_its_threads():
    before, release = lookup_threads(), threading.Event()

    def lookup(*args: object, **kwargs: object) -> list[AddressInfo]:
        release.wait(120)
        return [info("1.1.1.1")]

    resolver = GuardedResolver(CLOSED, lookup)
    tasks = [asyncio.create_task(resolver.resolve("example.com")) for _ in range(40)]
    await asyncio.sleep(0)
    threads = lookup_threads() - before
    release.set()
    assert len(threads) == 32
    assert [len(found) for found in await asyncio.gather(*tasks)] == [1] * 40
    await resolver.close()
    for thread in threads:
        await asyncio.to_thread(thread.join, 30)
        assert not thread.is_alive()
