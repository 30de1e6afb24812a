"""The agent and the jobs of `wakeful demo`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from types import TracebackType
from typing import Final, Self

from aiohttp import web

from wakeful.client.rest import RestClient

AGENT: Final = "demo"


class DemoAgent:
    """A webhook that verifies signatures: `async with DemoAgent() as agent`."""

    def __init__(self) -> None:
        self.woken = 0
        self.verified = 0
        self.refused = 0
        self.url = ""
        self._secrets: dict[str, bytes] = {}
        self._runner: web.AppRunner | None = None

    def trust(self, job: str, secret: str) -> None:
        """Store the secret that the creation of a job returned."""
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
        if not self._verify(request, body):
            self.refused += 1
            return web.Response(status=401, text="invalid signature")
        self.verified += 1
        return web.Response(text=f"good morning; this is call {self.woken}")

    async def _flaky(self, request: web.Request) -> web.Response:
        """Fail every first attempt, and every third call."""
        body = await request.read()
        if not self._verify(request, body):
            self.refused += 1
            return web.Response(status=401, text="invalid signature")
        self.woken += 1
        self.verified += 1
        if request.headers["x-wakeful-attempt"] == "1" or self.woken % 3 == 0:
            return web.Response(status=503, text="busy, try again")
        return web.Response(text="done")

    def _verify(self, request: web.Request, body: bytes) -> bool:
        secret = self._secrets.get(str(json.loads(body).get("job")), b"")
        expected = hmac.new(secret, body, hashlib.sha256).hexdigest()
        return bool(secret) and hmac.compare_digest(expected, request.headers.get("x-wakeful-signature", ""))


async def make_jobs(client: RestClient, agent: DemoAgent) -> None:
    """Create the demo's jobs: one that succeeds, one that is retried, one for an executor."""
    jobs = client.jobs.of(AGENT)
    hello = await jobs.create(
        {
            "name": "hello",
            "schedule": "every 2s",
            "webhookUrl": f"{agent.url}/wake",
            "message": "good morning",
            "description": "runs the agent every two seconds",
        }
    )
    agent.trust("hello", str(hello.get("secret")))
    flaky = await jobs.create(
        {
            "name": "flaky",
            "schedule": "every 5s",
            "webhookUrl": f"{agent.url}/flaky",
            "maxAttempts": 2,
            "backoff": {"base": "1s", "max": "1s"},
            "description": "fails its first attempt, and sometimes all: a dead letter",
        }
    )
    agent.trust("flaky", str(flaky.get("secret")))
    await jobs.create(
        {
            "name": "standup",
            "schedule": "0 9 * * MON-FRI",
            "tz": "Europe/Berlin",
            "target": {"kind": "pull"},
            "message": "what is on today?",
            "description": "waits for an executor to claim it",
        }
    )
