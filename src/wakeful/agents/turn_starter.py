"""The turn starter: starts due turns of sessions. `sessions.start_turns` decides which."""

from __future__ import annotations

import asyncio
from typing import Final

from wakeful.agents.sessions import start_turns
from wakeful.engine.loop import Loop
from wakeful.logs import get_logger
from wakeful.store.port import Store
from wakeful.store.sessions import SessionState, SessionUpdate
from wakeful.values.clock import Clock

_BATCH: Final = 50
#: The longest sleep without a notification.
_MAX_SLEEP_MS: Final = 10_000
#: How long a session that cannot be read is set aside.
_ASIDE_MS: Final = 60_000
#: The pause after a search for turns, as a multiple of its duration, and the longest in seconds. A search
#: reads all sessions whose messages wait for running turns.
_REST: Final = 4
_LONGEST_REST_S: Final = 5.0

log = get_logger("wakeful.turn_starter")


class TurnStarter(Loop):
    """Starts turns. It is notified of messages, and of runs that end and may free a slot."""

    name = "turn_starter"
    follows_time = True

    def __init__(self, store: Store, clock: Clock, tick_ms: int) -> None:
        super().__init__(clock, _MAX_SLEEP_MS)
        self._store = store
        self._tick_ms = tick_ms
        #: when to search again at the earliest, by the clock of the event loop
        self._search_from = 0.0
        store.listen(self._on_notify)

    async def step(self) -> int | None:
        """Start one batch of turns. Returns when the next session is due, or when to check again."""
        time = asyncio.get_running_loop().time
        if (pause := self._search_from - time()) > 0:
            await asyncio.sleep(pause)
        now_ms, began, self.follows_time = self.clock.now_ms(), time(), True
        due, next_ms = await self._store.next_turn(now_ms)
        if not due:
            return next_ms
        taken = await self._store.take_turns(now_ms, _BATCH, self._update)
        if taken < _BATCH:
            self._search_from = time() + min(_REST * (time() - began), _LONGEST_REST_S)
        if taken:
            return now_ms
        # They wait for running turns, whose end is notified. Other processes may not be able to notify us.
        check_ms, self.follows_time = now_ms + self._tick_ms, False
        return check_ms if next_ms is None else min(check_ms, next_ms)

    def _update(self, session: SessionState) -> SessionUpdate:
        """Return the update of a session. One that cannot be read is set aside and blocks no other."""
        now_ms = self.clock.now_ms()
        try:
            update = start_turns(session, now_ms)
        except Exception:
            log.exception(
                "session.set_aside", agent=session.key.agent, workspace=session.key.workspace,
                session=session.key.name,
            )  # fmt: skip
            return SessionUpdate(due_ms=now_ms + _ASIDE_MS, context=session.context)
        for run in update.begun:
            log.info(
                "turn.started", run_id=run.id, job_id=run.job_id, job=run.job_name, agent=run.agent,
                workspace=run.workspace, session=session.key.name,
            )  # fmt: skip
        return update

    def _on_notify(self, topic: str) -> None:
        if topic == "sessions":
            self.wake()
