"""Shell completion of job names, which come from the server."""

from __future__ import annotations

import asyncio
import os

from wakeful.client.rest import RestClient
from wakeful.errors import WakefulError

#: Completion gives up after this many seconds.
_TIMEOUT_S = 0.8


def job_names(incomplete: str) -> list[str]:
    """Return the job names with this prefix; none if the server does not respond in time."""
    try:
        return asyncio.run(_names(incomplete))
    except (WakefulError, OSError):
        return []


async def _names(incomplete: str) -> list[str]:
    workspace = os.environ.get("WAKEFUL_WORKSPACE") or "default"
    agent = os.environ.get("WAKEFUL_AGENT") or "default"
    async with RestClient(workspace=workspace, timeout=_TIMEOUT_S) as client:
        jobs = await client.jobs.list(all_agents=True)
    names = [job["name"] if job["agentId"] == agent else f"{job['agentId']}/{job['name']}" for job in jobs]
    return [name for name in names if name.startswith(incomplete)]
