"""What the demo is made of: an agent that is woken, and the jobs that wake it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from types import TracebackType
from typing import Final, Self

from aiohttp import web

from wakeful.client import AsyncClient

AGENT: Final = "demo"


class DemoAgent:
    """A small agent behind a webhook: it believes only what is signed. `async with DemoAgent() as agent`."""

    def __init__(self) -> None:
        self.woken = 0
        self.verified = 0
        self.refused = 0
        self.url = ""
        self._secrets: dict[str, bytes] = {}
        self._runner: web.AppRunner | None = None

    def trust(self, job: str, secret: str) -> None:
        """Remember the secret of a job, as it was shown when the job was made."""
        self._secrets[job] = base64.b64decode(secret.removeprefix("whsec_"))

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/wake", self._wake)
        app.router.add_post("/flaky", self._flaky)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _wake(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.woken += 1
        if not self._genuine(request, body):
            self.refused += 1
            return web.Response(status=401, text="the signature is wrong")
        self.verified += 1
        return web.Response(text=f"good morning; I was woken {self.woken} times")

    async def _flaky(self, request: web.Request) -> web.Response:
        """One that fails the first time, and every third time again and again."""
        body = await request.read()
        if not self._genuine(request, body):
            self.refused += 1
            return web.Response(status=401, text="the signature is wrong")
        self.woken += 1
        self.verified += 1
        if request.headers["x-wakeful-attempt"] == "1" or self.woken % 3 == 0:
            return web.Response(status=503, text="not now, I am busy")
        return web.Response(text="now I could")

    def _genuine(self, request: web.Request, body: bytes) -> bool:
        secret = self._secrets.get(str(json.loads(body).get("job")), b"")
        expected = hmac.new(secret, body, hashlib.sha256).hexdigest()
        return bool(secret) and hmac.compare_digest(expected, request.headers.get("x-wakeful-signature", ""))


async def make_jobs(client: AsyncClient, agent: DemoAgent) -> None:
    """The jobs of the demo: one that goes well, one that needs a second try, one for later."""
    jobs = client.jobs.of(AGENT)
    hello = await jobs.create(
        "hello",
        schedule="every 2s",
        webhook_url=f"{agent.url}/wake",
        message="good morning",
        description="wakes the agent every two seconds",
    )
    agent.trust("hello", str(hello.get("secret")))
    flaky = await jobs.create(
        "flaky",
        schedule="every 5s",
        webhook_url=f"{agent.url}/flaky",
        max_attempts=2,
        backoff={"base": "1s", "max": "1s"},
        description="fails the first time, and sometimes for good: a dead letter",
    )
    agent.trust("flaky", str(flaky.get("secret")))
    await jobs.create(
        "standup",
        schedule="0 9 * * MON-FRI",
        tz="Europe/Berlin",
        target={"kind": "pull"},
        message="what is on today?",
        description="waits for an executor to fetch it",
    )
