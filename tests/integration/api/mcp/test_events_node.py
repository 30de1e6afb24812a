"""The client of @ai-sdk/mcp in Node: it subscribes to time, gets ticks, refreshes and unsubscribes."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.integration.conftest import NewApp
from tests.support.api_client import served
from tests.support.node_packages import node_package
from tests.support.tools import tool
from tests.support.waiting import PATIENCE

pytest.importorskip("mcp")

_SCRIPT = Path(__file__).parents[3] / "support" / "mcp_events_client.mjs"


async def test_a_client_that_others_wrote_is_woken_three_times_on_the_second(new_app: NewApp) -> None:
    node, packages = tool("node"), node_package("@ai-sdk/mcp")
    async with new_app() as app, served(app) as client:
        assert client.key is not None
        process = await asyncio.create_subprocess_exec(
            node, str(_SCRIPT), f"{client.url}/mcp", client.key, str(packages),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(PATIENCE):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0
        (row,) = await app.store.subscriptions("default", None)
    found = json.loads(output)
    assert (found["same"], found["expires"], found["left"], found["errors"]) == (True, True, 0, [])
    assert {"schedule.tick", "run.finished", "incident.opened"} <= set(found["names"])
    ticks = [datetime.fromisoformat(event["data"]["scheduledAt"]) for event in found["events"]]
    assert [event["data"]["number"] for event in found["events"]] == [1, 2, 3]
    assert [later - tick for tick, later in zip(ticks, ticks[1:], strict=False)] == [timedelta(seconds=1)] * 2
    assert row.reason == "unsubscribed"
