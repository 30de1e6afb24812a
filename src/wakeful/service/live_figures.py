"""Figures of workspaces and agents, shared by all that show them and read about once a second."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from wakeful.engine.rescuer import LEASE_MS
from wakeful.service.change_summary import Scope
from wakeful.store.live import LiveFigures
from wakeful.store.port import Store

#: How long figures are used, in seconds.
KEPT_S: Final = 0.9
#: Reading figures takes at most this part of the time of the process; with many scopes they are used longer.
_SHARE: Final = 1 / 20
#: After so many seconds without use, figures are dropped.
_UNUSED_S: Final = 60.0


class _Kept:
    """The figures of a scope."""

    def __init__(self) -> None:
        self.value: LiveFigures | None = None
        self.read_at = 0.0
        #: how long the last read took, in seconds
        self.took_s = 0.0
        self.lock = asyncio.Lock()


class FigureCache:
    """Reads figures, and keeps them for a short time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[Scope, _Kept] = {}

    async def get(self, scope: Scope) -> LiveFigures:
        """Return the figures of a scope."""
        kept = self._kept.setdefault(scope, _Kept())
        async with kept.lock:
            longest = max(KEPT_S, sum(each.took_s for each in self._kept.values()) / _SHARE)
            if kept.value is not None and time.monotonic() - kept.read_at < longest:
                return kept.value
            began = time.monotonic()
            kept.value = await self._store.live_figures(*scope, self._store.clock.now_ms() - LEASE_MS)
            kept.read_at = time.monotonic()
            kept.took_s = kept.read_at - began
            self._drop_unused(kept.read_at - max(_UNUSED_S, 2 * longest))
            return kept.value

    def _drop_unused(self, before: float) -> None:
        for scope, kept in list(self._kept.items()):
            if kept.read_at < before and not kept.lock.locked():
                del self._kept[scope]
