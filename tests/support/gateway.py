"""A gateway that is managed over its WebSocket: its documented jobs, and what tests ask it."""

from __future__ import annotations

import time
from typing import Any

from tests.support.rpc_client import Caller
from tests.support.waiting import eventually

AGENT = "3f2a1b4c-0000-0000-0000-000000000000"
STANDUP: dict[str, Any] = {
    "name": "daily-standup-summary",
    "schedule": {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Asia/Ho_Chi_Minh"},
    "message": "Summarize yesterday's GitHub activity and post a standup update.",
    "deliver": True,
    "channel": "telegram",
    "to": "123456789",
    "agentId": AGENT,
}
HEALTH: dict[str, Any] = {
    "name": "check-server-health",
    "schedule": {"kind": "every", "everyMs": 300_000},
    "message": "Check if the API server is responding and alert me if it's down.",
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def create(gateway: Caller, **fields: object) -> dict[str, Any]:
    return dict((await gateway("cron.create", **fields))["job"])


async def jobs(gateway: Caller) -> dict[str, dict[str, Any]]:
    found = (await gateway("cron.list", includeDisabled=True))["jobs"]
    return {job["name"]: job for job in found}


async def ended(gateway: Caller, job: dict[str, Any]) -> dict[str, Any]:
    """Wait for the first run of a job to finish and return it."""

    async def look() -> list[dict[str, Any]]:
        runs = (await gateway("cron.runs", jobId=job["id"]))["runs"]
        return [run for run in runs if run["state"] in ("succeeded", "failed")]

    return dict((await eventually(look))[-1])
