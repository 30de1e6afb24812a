"""The turner: begins the turns of conversations when they are due. `sessions.begin` says which."""

from __future__ import annotations

from typing import Final

from wakeful.agents.sessions import start_turns
from wakeful.clock import Clock
from wakeful.engine.loop import Loop
from wakeful.logs import get_logger
from wakeful.store.port import Store
from wakeful.store.sessions import SessionState, SessionUpdate

_BATCH: Final = 200
#: How long nobody looks where nobody speaks.
_LOOK_MS: Final = 10_000
_ASIDE_MS: Final = 60_000

log = get_logger("wakeful.turner")


class TurnStarter(Loop):
    """Begins turns. It hears when somebody speaks, and when a run ends that somebody may be waiting for."""

    name = "turner"

    def __init__(self, store: Store, clock: Clock, tick_ms: int) -> None:
        super().__init__(clock, _LOOK_MS)
        self._store = store
        self._tick_ms = tick_ms
        store.listen(self._heard)

    async def step(self) -> int | None:
        """One batch. Returns when the next conversation is due, or when to look at those without a place."""
        now_ms = self.clock.now_ms()
        due, next_ms = await self._store.next_turn(now_ms)
        if not due:
            return next_ms
        if await self._store.take_turns(now_ms, _BATCH, self._judge):
            return now_ms
        # Whoever they wait for says so in the end; this is for those whom nobody here hears.
        look_ms = now_ms + self._tick_ms
        return look_ms if next_ms is None else min(look_ms, next_ms)

    def _judge(self, talk: SessionState) -> SessionUpdate:
        """What becomes of one; one that cannot be judged is set aside for a while, and holds up no other."""
        now_ms = self.clock.now_ms()
        try:
            settled = start_turns(talk, now_ms)
        except Exception:
            log.exception("session.set_aside", agent=talk.key.agent, session=talk.key.name)
            return SessionUpdate(due_ms=now_ms + _ASIDE_MS, context=talk.context)
        for run in settled.begun:
            log.info("turn.begun", run=run.id, agent=run.agent, session=talk.key.name)
        return settled

    def _heard(self, topic: str) -> None:
        if topic == "sessions":
            self.wake()
