"""A webhook receiver on 127.0.0.1, and a launcher."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.support.strict_json import strict_json
from tests.unit.launch.launches import launch
from wakeful.launch.address_guard import AddressGuard, AddressInfo, GuardedResolver
from wakeful.launch.port import Launch
from wakeful.launch.webhook import WebhookLauncher
from wakeful.run.outcome import Failed, Outcome
from wakeful.values.clock import SystemClock
from wakeful.values.json_value import Json

SECRET, OLD_SECRET = b"n" * 32, b"o" * 32
OPEN = AddressGuard(allow_private=True)

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Secrets:
    def __init__(self, *secrets: bytes) -> None:
        self.secrets = secrets

    def find_secrets(self, run: Launch) -> tuple[bytes, ...]:
        return self.secrets


class Receiver:
    """A server that records requests and sends configured responses."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.requests: list[web.BaseRequest] = []
        self.answer: Answer = self.ok
        self.port = 0

    @staticmethod
    async def ok(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"ok": True})

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        self.bodies.append(body)
        self.requests.append(request)
        if body and request.content_type == "application/json":
            try:
                strict_json(body)
            except ValueError as error:
                return web.Response(status=400, text=f"the body is not JSON: {error}")
        return await self.answer(request)

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the last request, with names in lower case."""
        return {name.lower(): value for name, value in self.requests[-1].headers.items()}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def answers(self, status: int, text: str = "", **headers: str) -> None:
        """Send this response from now on."""

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return web.Response(status=status, text=text or None, headers=named)

        self.answer = answer


@asynccontextmanager
async def serving(receiver: Receiver, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    runner = web.ServerRunner(web.Server(receiver), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    receiver.port = runner.addresses[0][1]
    try:
        yield receiver
    finally:
        await runner.cleanup()


@asynccontextmanager
async def launching(
    guard: AddressGuard = OPEN,
    *secrets: bytes,
    resolver: GuardedResolver | None = None,
    per_host: int | None = None,
    slots: int = 0,
) -> AsyncIterator[WebhookLauncher]:
    launcher = WebhookLauncher(
        Secrets(*(secrets or (SECRET,))),
        guard,
        SystemClock(),
        lambda status: None,
        resolver=resolver,
        per_host=per_host,
        slots=slots,
    )
    await launcher.open()
    try:
        yield launcher
    finally:
        await launcher.close()


def to(url: str, payload: str | None = None, **fields: Json) -> Launch:
    return launch({"kind": "webhook", "url": url, **fields}, payload)


def failed(outcome: Outcome) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def answering(*answers: list[str]) -> Callable[..., list[AddressInfo]]:
    """Return a look-up function that returns these answers in order; the last one repeatedly."""
    left: Iterator[list[str]] = iter(answers)
    now: list[str] = []

    def lookup(host: str, port: int, **hints: object) -> list[AddressInfo]:
        nonlocal now
        now = next(left, now)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in now]

    return lookup
