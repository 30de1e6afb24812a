"""First contentful paint of the dashboard in Chromium on a throttled mobile profile.

The profile is a slow phone: 1.6 Mbit/s down, 750 kbit/s up, 150 ms round trip, a CPU that is 4 times slower,
and an empty cache. The floor is a page with one line of text and no assets, in the same run.

Needs Chromium and the package `playwright`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

from playwright.async_api import async_playwright
from starlette.responses import HTMLResponse

from wakeful import Wakeful
from wakeful.server.http_app import create_app
from wakeful.server.serve import Listening, readiness
from wakeful.settings import Settings

PAGES: Final = ("", "jobs", "jobs/new", "runs", "calendar", "agents", "cost")
_JOBS: Final = 50
_NETWORK: Final = {
    "offline": False,
    "latency": 150,
    "downloadThroughput": 1_600_000 / 8,
    "uploadThroughput": 750_000 / 8,
}
_PAINT: Final = """() => new Promise((resolve) => {
    const found = () => performance.getEntriesByName("first-contentful-paint")[0];
    const look = () => (found() ? resolve(found().startTime) : setTimeout(look, 20));
    look();
})"""


async def measure(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        app = Wakeful(f"sqlite:///{Path(folder) / 'wakeful.db'}", secret_key="benchmark")

        @app.function()
        async def nothing() -> None: ...

        async with app:
            for number in range(_JOBS):
                await app.jobs.create(
                    f"job-{number}", schedule="0 9 * * *", target={"kind": "function", "name": "nothing"}
                )
            http_app = create_app(app.services, ready=readiness(app))
            http_app.add_route("/floor", lambda request: HTMLResponse("<!doctype html><p>Wakeful"))
            async with Listening(http_app, Settings(port=0)) as http:
                key = await app.services.auth.keys.first_key()
                await _visit(http.url, str(key), rounds)


async def _visit(url: str, key: str, rounds: int) -> None:
    path = os.environ.get("WAKEFUL_TEST_CHROMIUM") or shutil.which("chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        floor = median([await _paint(browser, f"{url}/floor", key) for _ in range(rounds)])
        print(f"first contentful paint, median of {rounds}: floor {floor:.0f} ms")
        for page in PAGES:
            found = median(
                [await _paint(browser, f"{url}/workspaces/default/{page}", key) for _ in range(rounds)]
            )
            print(f"  {page or 'home':10} {found:5.0f} ms   {found / floor:.1f} times the floor")
        await browser.close()


async def _paint(browser: Any, address: str, key: str) -> float:
    context = await browser.new_context(
        viewport={"width": 390, "height": 844},
        is_mobile=True,
        extra_http_headers={"authorization": f"Bearer {key}"},
    )
    page = await context.new_page()
    session = await context.new_cdp_session(page)
    await session.send("Network.enable")
    await session.send("Network.emulateNetworkConditions", _NETWORK)
    await session.send("Emulation.setCPUThrottlingRate", {"rate": 4})
    await page.goto(address, wait_until="commit")
    found = float(await page.evaluate(_PAINT))
    await context.close()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    asyncio.run(measure(parser.parse_args().rounds))
