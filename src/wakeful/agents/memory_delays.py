"""Delays that are kept in memory: `Delay(…, durable=False)`. They are lost with the process.

A delay is kept from when its handler returns. When it is over, its signal is sent only if the run has
succeeded in that attempt: then the outcome that asked for it is written, and was not refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from wakeful.errors import Unavailable, WakefulError
from wakeful.job.policy import Backoff
from wakeful.launch.port import Launch
from wakeful.logs import get_logger
from wakeful.run.instances import InstanceLimits, Send
from wakeful.run.signal_rules import signal_run
from wakeful.store.port import Store
from wakeful.values.ids import new_id

#: The most delays in memory. Further ones are dropped, with a log line.
MAX_DELAYS: Final = 100_000
#: How often the outcome is looked for, or an unavailable database is tried.
_TRIES: Final = 20
_BACKOFF: Final = Backoff(base_ms=50, max_ms=5_000)

log = get_logger("wakeful.agents")


class MemoryDelays:
    """Sends signals to instances after a delay."""

    def __init__(self, store: Store, max_delays: int = MAX_DELAYS) -> None:
        self._store = store
        self._max_delays = max_delays
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def keep(self, run: Launch, sends: Sequence[Send]) -> None:
        """Keep the delays that the handler of this attempt returned."""
        if len(self._tasks) + len(sends) > self._max_delays:
            log.warning("delays.dropped", **run.log_fields, count=len(sends), kept=len(self._tasks))
            return
        loop = asyncio.get_running_loop()
        for send in sends:
            if send.id is None:  # a signal that was stored, but whose answer was lost, is not stored again
                send = send._replace(id=new_id(self._store.clock.now_ms()))
            task = loop.create_task(
                self._wait(run.id, run.attempt, run.workspace, send), name="wakeful-delay"
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Drop all delays."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self, run_id: str, attempt: int, workspace: str, send: Send) -> None:
        await asyncio.sleep(send.delay_ms / 1000)
        about = {
            "run_id": run_id, "workspace": workspace, "agent": send.agent, "instance": send.instance,
            "signal": send.type,
        }  # fmt: skip
        error = "the outcome of its run is not written"
        for tries in range(1, _TRIES + 1):
            try:
                if await self._try(run_id, attempt, workspace, send):
                    return
            except Unavailable as unavailable:
                error = unavailable.message
            except WakefulError as refused:
                log.warning("delay.refused", **about, error=refused.message)
                return
            except Exception:
                log.exception("delay.failed", **about)
                return
            await asyncio.sleep(_BACKOFF.delay_ms(tries, run_id) / 1000)
        log.warning("delay.refused", **about, error=error)

    async def _try(self, run_id: str, attempt: int, workspace: str, send: Send) -> bool:
        """Send the signal if the run has succeeded. Returns False if its outcome is not written yet."""
        found = await self._store.runs_by_ids([run_id])
        if not found or found[0].attempt != attempt or found[0].state != "succeeded":
            return not found or found[0].attempt != attempt or found[0].state != "running"
        agent_class = await self._store.agent_class(workspace, send.agent)
        own = await self._store.instance(workspace, send.agent, send.instance)
        # Of an instance that was deleted, there is none, or a new one that did not ask for it.
        if agent_class is not None and own is not None and own.row.created_ms <= (found[0].finished_ms or 0):
            arrival = signal_run(
                agent_class,
                send.instance,
                send.type,
                send.text,
                self._store.clock.now_ms(),
                source=send.source,
                signal_id=send.id,
                triggered_by=run_id,
                depth=found[0].depth,
            )
            # It may be deleted in this moment.
            await self._store.send([arrival], agent_class.mailbox, InstanceLimits(may_add=False))
        return True
