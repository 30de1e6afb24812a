"""The reader of coalesced events: many changes for many clients."""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time
from types import SimpleNamespace
from typing import Any, cast

from wakeful.service.auth.access import LOCAL
from wakeful.service.change_summary import Scope
from wakeful.service.coalesced_events import CoalescedEvents
from wakeful.store.changelog import ChangeRow
from wakeful.store.stats import LiveFigures, RunChange

WORKSPACES = 1_000


class Storm:
    """A store with the changes of many runs, those of each workspace by two agents."""

    clock = SimpleNamespace(now_ms=lambda: 0)
    rows = [
        ChangeRow(1 + 1_000 * row, "run.finished", 0, tuple(str(row * 1_000 + item) for item in range(1_000)))
        for row in range(10)
    ]

    def listen(self, listener: object) -> None:
        """Announce nothing."""

    async def changes(self, after: int, limit: int) -> list[ChangeRow]:
        return [row for row in self.rows if row.last > after][:limit]

    async def run_changes(self, ids: Sequence[str]) -> list[RunChange]:
        return [
            RunChange(each, f"w{int(each) % 100}", f"a{int(each) // 100 % 2}", None, "succeeded")
            for each in ids
        ]

    async def incidents_by_ids(self, ids: Sequence[str]) -> list[Any]:
        return []

    async def suggestions_by_ids(self, ids: Sequence[str]) -> list[Any]:
        return []


async def test_a_storm_of_changes_takes_no_longer_with_many_clients():
    events = CoalescedEvents(cast(Any, Storm()), cast(Any, None))
    scopes = [Scope(f"w{number}", None) for number in range(WORKSPACES)]
    channels = [events._channel(scope, 1.0) for scope in (*scopes, Scope("w7", "a1"), Scope("w7", "a2"))]
    began = process_time()
    await events._advance()
    assert process_time() - began < 1, "to look at each change for each client takes ten times as long"
    finished = [channel.summary.to_json()["runs"]["finished"] for channel in channels]  # type: ignore[call-overload, index]
    assert finished[:100] == [{"succeeded": 100}] * 100
    assert finished[100:] == [{}] * (WORKSPACES - 100) + [{"succeeded": 50}, {}]


class Replaced(Storm):
    """A store whose database an older one has replaced."""

    rows = []
    last = 100

    async def last_change(self) -> int:
        return self.last

    async def live_figures(self, *scope: object) -> LiveFigures:
        return LiveFigures(0, 0, 0, 0, 0, 0, 0, None)

    async def authorize(self, *call: object) -> None:
        """Permit all."""


async def test_a_position_of_a_database_that_was_replaced_meanwhile_is_reset():
    store = Replaced()
    events = CoalescedEvents(cast(Any, store), cast(Any, store))
    (await events.subscribe(LOCAL, "w7", 1_000)).close()
    store.last = 50
    subscription = await events.subscribe(LOCAL, "w7", 1_000, after=100)
    assert str(await subscription.next()).startswith("b'id: 50\\nevent: reset")
    subscription.close()
