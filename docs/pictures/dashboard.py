"""Draw the pictures of the dashboard: `python docs/pictures/dashboard.py`. Needs Chromium and `playwright`.

It starts a server with sample jobs and their runs, and photographs three pages.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import tempfile
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import async_playwright

from wakeful import AsyncClient, EngineConfig, Wakeful, Webhook
from wakeful.server.http_app import create_app
from wakeful.server.serve import Listening, readiness
from wakeful.settings import Settings

HERE = Path(__file__).parent
#: name, agent, schedule, zone, path of the webhook
JOBS = (
    ("morning-digest", "writer", "0 7 * * 1-5", "Europe/Berlin", "digest"),
    ("weekly-report", "writer", "0 9 * * MON", "Europe/Berlin", "digest"),
    ("check-inbox", "support", "*/10 * * * *", "UTC", "answer"),
    ("triage-tickets", "support", "*/15 * * * *", "UTC", "answer"),
    ("sync-crm", "sales", "every 30m", "UTC", "sync"),
    ("enrich-leads", "sales", "5 * * * *", "America/New_York", "answer"),
    ("watch-prices", "analyst", "*/5 * * * *", "UTC", "answer"),
    ("nightly-summary", "analyst", "30 2 * * *", "America/New_York", "digest"),
)


async def main() -> None:
    """Write the pictures beside this file."""
    with tempfile.TemporaryDirectory() as folder:
        app = Wakeful(
            f"sqlite:///{folder}/wakeful.db",
            config=EngineConfig(tick_ms=100),
            secret_key="pictures",
            allow_private_targets=True,
        )
        async with app, TestServer(_receiver()) as receiver:
            http_app = create_app(app.services, ready=readiness(app))
            async with Listening(http_app, Settings(port=0)) as http:
                key = await app.services.auth.keys.first_key()
                for job in JOBS:
                    await _fill(http.url, key, str(receiver.make_url("/")), *job)
                await _photograph(http.url, {"authorization": f"Bearer {key}"})


async def _fill(
    url: str, key: str | None, receiver: str, name: str, agent: str, schedule: str, tz: str, path: str
) -> None:
    """Create a job and run it some times."""
    async with AsyncClient(url, key, agent=agent) as client:
        target, labels = Webhook(receiver + path), {"team": agent}
        await client.jobs.create(name, schedule=schedule, tz=tz, target=target, labels=labels, max_attempts=1)
        for _ in range(20):
            run = await client.jobs.run(name)
            await client.runs.wait(run.id)


def _receiver() -> web.Application:
    """Return a receiver of webhooks. Its delays, costs and failures vary, always in the same way."""
    chance = random.Random(7)
    answers = {
        "digest": (0.08, 0.08, "Three new articles about schedulers, one about time zones."),
        "answer": (0.05, 0.02, "2 messages answered, 1 waits for a person."),
        "sync": (0.03, 0.001, "synchronized"),
    }

    async def received(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        seconds, cost, text = answers[name]
        await asyncio.sleep(chance.uniform(seconds / 5, seconds))
        if name == "sync" and chance.random() < 0.25:
            return web.Response(status=422, text="the token of the CRM has expired")
        spent = chance.uniform(cost / 5, cost)
        usage = {"tokens": round(spent * 100_000), "cost": round(spent, 4)}
        return web.Response(text=text, headers={"x-wakeful-usage": json.dumps(usage)})

    app = web.Application()
    app.router.add_post("/{name}", received)
    return app


async def _photograph(url: str, headers: dict[str, str]) -> None:
    pages = {
        "dashboard-home": ("light", ""),
        "dashboard-jobs": ("light", "jobs"),
        "dashboard-job": ("dark", "agents/support/jobs/check-inbox"),
    }
    path = os.environ.get("WAKEFUL_TEST_CHROMIUM") or shutil.which("chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, (theme, page_path) in pages.items():
            page = await browser.new_page(
                viewport={"width": 1200, "height": 800}, color_scheme=theme, extra_http_headers=headers
            )
            await page.goto(f"{url}/workspaces/default/{page_path}")
            await page.get_by_text("Live", exact=True).wait_for()
            await page.screenshot(path=HERE / f"{name}.png")
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
