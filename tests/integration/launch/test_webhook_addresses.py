"""Allowed webhook addresses. Others are rejected before a packet is sent; only 127.0.0.1 is contacted."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator

import pytest

from tests.support.receiver import (
    OPEN,
    Receiver,
    answering,
    failed,
    launching,
    serving,
    to,
)
from tests.support.waiting import eventually
from wakeful.errors import InvalidArgument
from wakeful.launch.address_guard import SETTING, AddressGuard, AddressInfo, GuardedResolver
from wakeful.launch.http.connection import HttpConnection, HttpConnector
from wakeful.launch.http.messages import UrlOrigin
from wakeful.run.outcome import Succeeded


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with serving(Receiver()) as receiver:
        yield receiver


class Tripwire:
    """Fails the test on any attempt to connect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop_class = type(asyncio.get_running_loop())

        async def connect(loop: object, sock: object, address: object) -> None:
            self.tried.append(address)
            raise AssertionError(f"connecting to {address}")

        self.tried: list[object] = []
        monkeypatch.setattr(loop_class, "sock_connect", connect)


REFUSED = [
    "http://127.0.0.1:{port}/",
    "http://10.0.0.1/",
    "http://172.16.3.4:8080/",
    "http://192.168.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://100.64.0.1/",
    "http://0.0.0.0:{port}/",
    "http://224.0.0.1/",
    "http://[::1]:{port}/",
    "http://[::]:{port}/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://2130706433:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://0x7f.0.0.1:{port}/",
    "http://0x7f000001:{port}/",
    "http://127.1:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://\uff11\uff12\uff17.0.0.1:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST.:{port}/",
    "http://example.com@127.0.0.1:{port}/",
    "http://example.com:80@127.0.0.1:{port}/",
]
#: Spellings that the client rejects before it opens a socket.
NOT_CANONICAL = {
    "http://2130706433:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://127.0.0.1.:{port}/",
}


@pytest.mark.parametrize("url", REFUSED)
async def test_a_non_public_address_fails_permanently_before_a_connection(
    receiver: Receiver, url: str, monkeypatch: pytest.MonkeyPatch
):
    run = to(url.format(port=receiver.port))
    async with launching(AddressGuard()) as launcher:
        with pytest.raises(InvalidArgument, match=SETTING):
            launcher.check(run.target)
        wire = Tripwire(monkeypatch)
        outcome = failed(await launcher.start(run))
    assert wire.tried == []
    assert (outcome.permanent, outcome.reason) == (True, "address_refused")
    assert SETTING in outcome.error
    assert receiver.requests == []


@pytest.mark.parametrize("url", REFUSED)
async def test_the_check_at_the_socket_alone_blocks_non_public_addresses(
    receiver: Receiver, url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(AddressGuard, "check_host", lambda self, host: None)
    careless = GuardedResolver(OPEN, answering(["127.0.0.1"]))
    async with launching(AddressGuard(), resolver=careless) as launcher:
        wire = Tripwire(monkeypatch)
        outcome = failed(await launcher.start(to(url.format(port=receiver.port))))
    assert wire.tried == []
    reason = "invalid_target" if url in NOT_CANONICAL else "address_refused"
    assert (outcome.permanent, outcome.reason) == (True, reason)
    assert receiver.requests == []


async def test_a_name_that_resolves_to_a_private_address_is_rejected(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    resolver = GuardedResolver(AddressGuard(), answering(["127.0.0.1"]))
    async with launching(AddressGuard(), resolver=resolver) as launcher:
        wire = Tripwire(monkeypatch)
        run = to(f"http://rebind.example:{receiver.port}/")
        launcher.check(run.target)  # does not resolve the name
        outcome = failed(await launcher.start(run))
    assert wire.tried == []
    assert outcome.permanent
    assert "rebind.example (127.0.0.1) is a loopback address" in outcome.error


async def test_the_connection_uses_the_resolved_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
):
    lookup = answering(["1.1.1.1"], ["127.0.0.1"])
    async with launching(AddressGuard(), resolver=GuardedResolver(AddressGuard(), lookup)) as launcher:
        wire = Tripwire(monkeypatch)
        with pytest.raises(AssertionError, match=r"1\.1\.1\.1"):
            await launcher.start(to("http://rebind.example/"))
        assert wire.tried == [("1.1.1.1", 80)]  # the result that was checked; there was no second lookup


async def test_the_socket_check_holds_with_an_unguarded_resolver(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    careless = GuardedResolver(OPEN, answering(["127.0.0.1"]))
    async with launching(AddressGuard(), resolver=careless) as launcher:
        wire = Tripwire(monkeypatch)
        outcome = failed(await launcher.start(to(f"http://rebind.example:{receiver.port}/")))
    assert (outcome.permanent, outcome.reason, wire.tried) == (True, "address_refused", [])


async def test_addresses_of_a_name_are_used_for_at_most_30_seconds(receiver: Receiver):
    clock, lookups = [0.0], 0

    def lookup(host: str, port: int, **hints: object) -> list[AddressInfo]:
        nonlocal lookups
        lookups += 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    resolver = GuardedResolver(OPEN, lookup)
    connector = HttpConnector(OPEN, resolver, now=lambda: clock[0])
    connections: set[HttpConnection] = set()
    for clock[0] in (0.0, 29.9, 30.1, 60.0):
        (await connector.connect(UrlOrigin(False, "agent.example", receiver.port), connections)).abort()
    assert lookups == 2
    await eventually(lambda: not connections)
    await resolver.close()


async def test_only_allowed_private_networks_are_reachable(receiver: Receiver):
    async with launching(AddressGuard.parse("127.0.0.0/8")) as launcher:
        assert isinstance(await launcher.start(to(receiver.url)), Succeeded)
        assert failed(await launcher.start(to("http://10.0.0.1/"))).reason == "address_refused"


async def test_the_host_header_has_the_name_of_the_url(receiver: Receiver):
    resolver = GuardedResolver(OPEN, answering(["127.0.0.1"]))
    async with launching(resolver=resolver) as launcher:
        outcome = await launcher.start(to(f"http://agent.internal.example:{receiver.port}/a?b=c#d"))
    assert isinstance(outcome, Succeeded)
    assert receiver.headers["host"] == f"agent.internal.example:{receiver.port}"
    assert receiver.requests[0].path_qs == "/a?b=c"


async def test_a_name_that_does_not_resolve_is_a_retryable_failure():
    def nowhere(host: str, port: int, **hints: object) -> list[AddressInfo]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    for lookup in (nowhere, answering([])):
        async with launching(resolver=GuardedResolver(OPEN, lookup)) as launcher:
            outcome = failed(await launcher.start(to("http://nowhere.example/")))
        assert (outcome.permanent, outcome.reason) == (False, "network")
        assert "nowhere.example" in outcome.error


async def test_names_whose_servers_do_not_answer_delay_no_other(receiver: Receiver):
    slots, release = 100, threading.Event()

    def lookup(host: str, port: int, **hints: object) -> list[AddressInfo]:
        if host.startswith("dead"):
            release.wait(60)
        return list(answering(["127.0.0.1"])(host, port, **hints))

    async with launching(slots=slots) as launcher:
        assert launcher._client is not None
        launcher._client._connector._resolver._lookup = lookup
        dead = [
            asyncio.create_task(launcher.start(to(f"http://dead-{number}.example/")))
            for number in range(slots - 1)
        ]
        await asyncio.sleep(0)  # all of them are looked up first
        try:
            async with asyncio.timeout(40):
                url = f"http://good.example:{receiver.port}/"
                assert isinstance(await launcher.start(to(url)), Succeeded)
        finally:
            release.set()
            for task in dead:
                task.cancel()
            await asyncio.gather(*dead, return_exceptions=True)


async def test_proxies_of_the_environment_are_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    other = Receiver()
    async with serving(other):
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{other.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with launching() as launcher:
            assert isinstance(await launcher.start(to(receiver.url)), Succeeded)
    assert (len(receiver.requests), len(other.requests)) == (1, 0)
