"""How many statements the requests of programs and workers execute: none may need more than today.

The engine does not run, so that its statements are not counted. The clock stands still, so that what is kept
for a second (the key, the agent) is known from an earlier request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.api_client import JOBS, ApiClient, Reply, served
from tests.support.factories import FalseClock
from tests.support.statements import recorded

PULL: Final = {"schedule": SELDOM, "target": {"kind": "pull"}, "overlapPolicy": "allow"}
#: By request: the most statements in SQLite and in PostgreSQL, besides those that begin and end transactions.
MOST: Final = {
    "POST job": (11, 3),
    "POST run": (7, 2),
    "POST run again": (7, 1),
    "trigger URL": (5, 3),
    "claim, nothing there": (1, 1),
    "claim of one": (5, 1),
    "claim of two": (6, 1),
    "heartbeat": (3, 2),
    "complete": (11, 2),
    "GET job": (2, 2),
    "GET job by id": (2, 2),
    "GET run": (1, 1),
    "GET agent": (2, 2),
    "list jobs": (1, 1),
    "list runs": (1, 1),
    "list runs of job": (2, 2),
}


@pytest.fixture
async def idle(new_app: NewApp) -> AsyncIterator[ApiClient]:
    """Return a client of a server without an engine."""
    app = new_app()
    app.store.clock = FalseClock()
    await app.store.open()
    try:
        async with served(app) as ask:
            yield ask
    finally:
        await app.store.close()


class Counter:
    """Counts the statements of requests."""

    def __init__(self, ask: ApiClient) -> None:
        self._ask = ask
        self.texts: dict[str, list[str]] = {}

    async def __call__(self, label: str, *request: Any, **given: Any) -> Any:
        """Send a request, and return the body of the response."""
        with recorded(self._ask.app.store) as texts:
            reply: Reply = await self._ask(*request, **given)
        assert reply.status < 300, reply
        self.texts[label] = texts
        return reply.body

    def check(self) -> None:
        """Check that each request executed as many statements as expected."""
        place = 0 if self._ask.app.store.kind == "sqlite" else 1
        most = {label: MOST[label][place] for label in self.texts}
        counts = {label: len(texts) for label, texts in self.texts.items()}
        assert counts == most, "\n".join(
            text[:120] for texts in self.texts.values() for text in ("--", *texts)
        )


async def test_writes_execute_no_more_statements_than_they_need(idle: ApiClient) -> None:
    for name in ("first", "second"):  # the first requests prepare the connections, and fill what is kept
        count = Counter(idle)
        await count("POST job", "POST", JOBS, {"name": name, **PULL})
        await count("POST run", "POST", f"{JOBS}/{name}/run", {})
        hook = (await idle("POST", f"{JOBS}/{name}/hook", {})).body
        await count("trigger URL", "POST", urlsplit(hook["url"]).path)
        claim = {"worker": "laptop-1", "limit": 1}
        await count("claim, nothing there", "POST", "/runs/claim", {**claim, "agents": ["nobody"]})
        (run,) = (await count("claim of one", "POST", "/runs/claim", claim))["runs"]
        for _ in range(2):
            await count("POST run again", "POST", f"{JOBS}/{name}/run", {})
        assert len((await count("claim of two", "POST", "/runs/claim", {**claim, "limit": 2}))["runs"]) == 2
        await count("heartbeat", "POST", f"/runs/{run['id']}/heartbeat", {"attempt": 1})
        report = {"attempt": 1, "status": "succeeded", "output": "x"}
        await count("complete", "POST", f"/runs/{run['id']}/complete", report)
    count.check()


async def test_reads_execute_one_or_two_statements(idle: ApiClient) -> None:
    job = (await idle("POST", JOBS, {"name": "read", **PULL})).body
    run = (await idle("POST", f"{JOBS}/read/run", {})).body
    for _ in range(2):
        count = Counter(idle)
        await count("GET job", "GET", f"{JOBS}/read")
        await count("GET job by id", "GET", f"{JOBS}/{job['id']}")
        await count("GET run", "GET", f"/runs/{run['id']}")
        await count("GET agent", "GET", "/agents/default")
        await count("list jobs", "GET", JOBS)
        await count("list runs", "GET", "/runs")
        await count("list runs of job", "GET", f"{JOBS}/read/runs")
    count.check()
