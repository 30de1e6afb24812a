"""How often the engine reads who has a budget."""

from __future__ import annotations

from typing import cast

import pytest

from wakeful.job.start_rules import BudgetBlock, BudgetOwner
from wakeful.launch.budgets import BudgetCache
from wakeful.store.port import Store


class Budgets:
    """A store with so many agents that have a budget."""

    def __init__(self, count: int) -> None:
        self._owners = {BudgetOwner("acme", f"agent-{number}") for number in range(count)}
        self.reads = 0

    async def budget_owners(self) -> set[BudgetOwner]:
        self.reads += 1
        return self._owners

    async def budget_blocks(self, day: int) -> list[BudgetBlock]:
        return []


@pytest.mark.parametrize(("count", "changes", "reads"), [(10, 0, 60), (10, 1, 240), (100_000, 1, 6)])
async def test_many_budgets_are_read_less_often(count: int, changes: int, reads: int) -> None:
    store = Budgets(count)
    cache = BudgetCache(cast(Store, store), 1_000)
    for now_ms in range(0, 60_000, 250):
        for _ in range(changes):
            cache.invalidate()
        await cache.refresh(now_ms)
        assert cache.apply_to("acme", "agent-7")
        assert not cache.apply_to("acme", "another")
    assert store.reads == reads
