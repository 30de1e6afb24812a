"""Names that a shell completes: those of the server's jobs, where it is quick to say."""

from __future__ import annotations

import asyncio
import os

from wakeful.client import AsyncClient
from wakeful.errors import WakefulError

#: Seconds: whoever presses Tab does not wait for longer.
_QUICK = 0.8


def job_names(incomplete: str) -> list[str]:
    """The names of jobs that begin so; none where the server does not answer at once."""
    try:
        return asyncio.run(_names(incomplete))
    except (WakefulError, OSError):
        return []


async def _names(incomplete: str) -> list[str]:
    workspace = os.environ.get("WAKEFUL_WORKSPACE") or "default"
    mine = os.environ.get("WAKEFUL_AGENT") or "default"
    async with AsyncClient(workspace=workspace, timeout=_QUICK) as client:
        jobs = await client.jobs.list(all_agents=True)
    names = [job["name"] if job["agentId"] == mine else f"{job['agentId']}/{job['name']}" for job in jobs]
    return [name for name in names if name.startswith(incomplete)]
