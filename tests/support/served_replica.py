"""`wakeful serve` as a separate process on a given database, and HTTP requests to it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from tests.support import prefork
from tests.support.command_line import Machine, first_json
from tests.support.waiting import PATIENCE

_PREFIX = "/api/workspaces/default"


class ServedReplica:
    """A replica; `source` is the directory of another version of the package. Port 0 is any free port."""

    def __init__(self, home: Path, database: str, *, source: Path | None = None, port: int = 0) -> None:
        self.home = home
        home.mkdir(exist_ok=True)
        arguments = ["serve", "--db", database, "--port", str(port), "--dev", "--json"]
        own = {"WAKEFUL_SECRET_KEY": "a key for tests"} | ({"PYTHONPATH": str(source)} if source else {})
        with (home / "log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "wakeful", *arguments]
                if source
                else prefork.command("wakeful", *arguments),
                env={**Machine(home).environment, **own},
                cwd=home,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.url = ""
        self.key: str | None = None

    async def started(self) -> ServedReplica:
        """Wait until it accepts requests."""
        said = await asyncio.to_thread(first_json, self.process)
        self.url = said["url"]
        self.key = await asyncio.to_thread(_read, Path(said["keyFile"]))
        return self

    @property
    def log(self) -> str:
        """Return what it has logged so far."""
        return (self.home / "log").read_text()

    async def request(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return the status and the parsed response; status 0 if there was none."""
        headers = {**(headers or {}), **({"authorization": f"Bearer {self.key}"} if self.key else {})}
        target = self.url + (path if path in ("/readyz", "/healthz") else _PREFIX + path)
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(method, target, json=body, headers=headers) as response,
            ):
                text = await response.text()
                return response.status, json.loads(text) if text else None
        except aiohttp.ClientError:
            return 0, None

    async def ready(self) -> bool:
        """Return whether it is ready. Another status than 200 or 503 is a failure."""
        status, said = await self.request("GET", "/readyz")
        assert status in (200, 503), (status, said)
        return status == 200

    async def exit_code(self) -> int:
        """Wait for the end of the process."""
        return await asyncio.to_thread(self.process.wait, PATIENCE)

    async def stop(self) -> int:
        """Stop it with SIGTERM and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await self.exit_code()

    def kill(self) -> None:
        """Kill it, if it still runs."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _read(file: Path) -> str | None:
    return file.read_text().strip() if file.exists() else None
