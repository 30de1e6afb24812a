"""`wakeful demo`: a server, an agent and some jobs in one process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final, Self

import typer
from aiohttp import web
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from wakeful.cli.arguments import now_ms
from wakeful.cli.pages import RUNS, progress_line
from wakeful.cli.serve_options import wakeful_command
from wakeful.cli.serving import link_lines
from wakeful.cli.session import CliSession, command
from wakeful.cli.times import moment
from wakeful.client.rest import RestClient
from wakeful.client.types import RunShape
from wakeful.errors import Unavailable
from wakeful.logs.setup import configure
from wakeful.run.run import RunState
from wakeful.settings import Settings

AGENT: Final = "demo"
#: Differs from the port of `wakeful serve`, so both can run.
_PORT: Final = 9254
_REFRESH_S: Final = 0.5
_SHOWN: Final = 12


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "demo",
        examples=(
            "wakeful demo",
            "wakeful demo --seconds 20",
        ),
        panel="Server",
        calls_server=False,
    )
    async def demo(
        s: CliSession,
        seconds: Annotated[
            float | None, typer.Option("--seconds", min=0, help="stop after this many seconds")
        ] = None,
        enough: Annotated[
            int | None, typer.Option("--runs", min=1, help="stop after this many finished runs")
        ] = None,
        port: Annotated[
            int | None, typer.Option("--port", min=0, max=65_535, help="(9254, or a free one)")
        ] = None,
        directory: Annotated[
            Path | None,
            typer.Option("--dir", help="keep the database in this directory (default: a temporary one)"),
        ] = None,
    ) -> None:
        """Start a server and an agent, run the agent every few seconds, and show the runs.

        WAKEFUL_… variables and wakeful.toml do not change it.
        """
        from wakeful.app.process_protection import protect_process

        configure("console", "error")
        async with contextlib.AsyncExitStack() as stack:
            place = directory or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="wakeful-demo-"))
            )
            place.mkdir(parents=True, exist_ok=True)
            # Not the settings of this machine: with its NATS servers, the demo would take its results.
            settings = Settings(db=f"sqlite:///{place.resolve()}/demo.db", allow_private_targets=True)
            protect_process()
            url, key, server = await stack.enter_async_context(_server(settings, port))
            agent = await stack.enter_async_context(DemoAgent())
            client = await stack.enter_async_context(RestClient(url, key, run_id=""))
            await make_jobs(client, agent)
            link = str((await client.sign_in_link())["url"])
            s.out.say(*_introduction(url, key, link))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await _watch(s, client, agent, server, enough)
            runs = [] if server.done() else await client.list_all_runs(limit=_SHOWN)
            result = {"url": url, "woken": agent.woken, "verified": agent.verified, "refused": agent.refused}
            s.out.show({**result, "runs": runs}, "", _counts(agent))


@contextlib.asynccontextmanager
async def _server(settings: Settings, port: int | None) -> AsyncIterator[tuple[str, str, asyncio.Task[None]]]:
    """Run a server in this process; yields its URL, an admin key and its task."""
    from wakeful.app import Wakeful
    from wakeful.server.serve import serve
    from wakeful.service.auth.access import LOCAL

    loop = asyncio.get_running_loop()
    started: asyncio.Future[tuple[str, Wakeful]] = loop.create_future()
    for number in (port,) if port is not None else (_PORT, 0):
        task = asyncio.create_task(
            serve(replace(settings, port=number), started=lambda url, app: started.set_result((url, app)))
        )
        pending: set[asyncio.Future[Any]] = {task, started}
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            break
        if number == 0 or port is not None or not isinstance(task.exception(), Unavailable):
            await task
    url, app = started.result()
    try:
        _, key = await app.services.auth.keys.create(LOCAL, None, {"name": "demo", "role": "admin"})
        yield url, key, task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _watch(
    s: CliSession, client: RestClient, agent: DemoAgent, server: asyncio.Task[None], enough: int | None
) -> None:
    """Show the runs until the server stops or `enough` runs have finished."""
    seen: set[str] = set()
    interactive = s.out.console.is_terminal and not s.out.as_json
    with contextlib.ExitStack() as stack:
        live = stack.enter_context(Live(console=s.out.console, auto_refresh=False)) if interactive else None
        while not server.done() and (enough is None or len(seen) < enough):
            runs = await _runs(client)
            over = [run for run in runs if RunState(run["state"]).terminal and run["id"] not in seen]
            seen.update(run["id"] for run in over)
            if live:
                live.update(_screen(runs, agent, s.out.wide), refresh=True)
            else:
                now = now_ms()
                s.out.say(
                    *(
                        Text(f"{moment(now, None, now)}  {run['job']}  ").append(progress_line(run))
                        for run in over
                    )
                )
            await asyncio.wait({server}, timeout=_REFRESH_S)


async def _runs(client: RestClient) -> list[RunShape]:
    """Return the last runs, oldest first; none while the server stops."""
    try:
        return list(reversed(await client.list_all_runs(limit=_SHOWN)))
    except Unavailable:
        return []


def _screen(runs: list[RunShape], agent: DemoAgent, wide: bool) -> RenderableType:
    return Group(
        RUNS.render(runs, now_ms(), wide=wide), "", _counts(agent), Text("press Ctrl-C to stop", "dim")
    )


def _counts(agent: DemoAgent) -> Text:
    line = Text(f"the agent was woken {agent.woken} time{'' if agent.woken == 1 else 's'}; ")
    line.append(f"{agent.verified} signatures verified", "green")
    return line.append(f", {agent.refused} refused", "red" if agent.refused else "dim")


def _introduction(url: str, key: str, link: str) -> Iterator[RenderableType]:
    wakeful = wakeful_command()
    yield Text("Wakeful is running", "bold green").append(f" at {url}", "default")
    yield from link_lines(link)
    yield Text("In another terminal, set these variables:", "dim")
    yield Text(f"  export WAKEFUL_URL={url} WAKEFUL_KEY={key}")
    yield Text("then try:", "dim")
    yield Text(f"  {wakeful} list")
    yield Text(f"  {wakeful} run demo/hello --wait")
    yield Text(f"  {wakeful} preview demo/standup")
    yield Text(f"  {wakeful} dead-letters")
    yield Text(f"  {wakeful} add once --schedule 'in 20s' --message 'are you there?'")
    yield Text(
        '  curl -H "Authorization: Bearer $WAKEFUL_KEY" "$WAKEFUL_URL/api/workspaces/default/runs?limit=3"'
    )
    yield Text("")


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
    hello = await client.create_job(
        AGENT,
        {
            "name": "hello",
            "schedule": "every 2s",
            "webhookUrl": f"{agent.url}/wake",
            "message": "good morning",
            "description": "runs the agent every two seconds",
        },
    )
    agent.trust("hello", str(hello.get("secret")))
    flaky = await client.create_job(
        AGENT,
        {
            "name": "flaky",
            "schedule": "every 5s",
            "webhookUrl": f"{agent.url}/flaky",
            "maxAttempts": 2,
            "backoff": {"base": "1s", "max": "1s"},
            "description": "fails its first attempt, and sometimes all: a dead letter",
        },
    )
    agent.trust("flaky", str(flaky.get("secret")))
    await client.create_job(
        AGENT,
        {
            "name": "standup",
            "schedule": "0 9 * * MON-FRI",
            "tz": "Europe/Berlin",
            "target": {"kind": "pull"},
            "message": "what is on today?",
            "description": "waits for an executor to claim it",
        },
    )
