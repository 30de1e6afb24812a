"""Deactivate an agent and kill the process in between: `python agent_change.py URL WHEN`.

WHEN is `deciding` (half of the jobs are decided), `writing` (the jobs are written, and not committed) or
`done` (the call has returned). The process kills itself with SIGKILL, so nothing is cleaned up.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any, NoReturn

from wakeful import Wakeful
from wakeful.service.agents import agents
from wakeful.service.agents.inheritance import Inheritance
from wakeful.service.auth.access import LOCAL
from wakeful.store.accounts import AgentRow
from wakeful.store.changelog import TransactionEvents
from wakeful.store.rows import JobChange, JobRow

HALF = 100


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not reached")


class Dying(Inheritance):
    decided = 0

    def __call__(self, agent: AgentRow, row: JobRow) -> JobChange | None:
        self.decided += 1
        if self.decided > HALF:
            die()
        return super().__call__(agent, row)


def dying_log(events: TransactionEvents) -> Any:
    """Kill the process directly before the commit."""
    die()


async def main(url: str, when: str) -> None:
    app = Wakeful(url, secret_key="a key for tests")
    await app.store.open()
    if when == "deciding":
        agents.Inheritance = Dying  # type: ignore[attr-defined]
    elif when == "writing":
        TransactionEvents.log = dying_log  # type: ignore[assignment, method-assign]
    await app.services.agents.put(LOCAL, "default", "ada", {"active": False})
    die()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
