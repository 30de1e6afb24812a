"""Recent values: none is used for longer than a second, or after it is known to have changed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.errors import NotFound
from wakeful.service.recent_values import RECENT_MS, RecentValues
from wakeful.store.port import Store
from wakeful.values.bounded_cache import MB


class World:
    """Versions of two rows, a clock, and reads that take some steps of the loop."""

    def __init__(self, budget: int = MB) -> None:
        self.now_ms = 1_800_000_000_000
        self.values: RecentValues[str, int] = RecentValues(
            cast(Store, SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: self.now_ms))), budget
        )
        #: of each row, the instant of each of its versions
        self.versions: dict[str, list[int]] = {"a": [self.now_ms], "b": [self.now_ms]}
        #: of each row, the version of its last change that this process knows
        self.known = {"a": 0, "b": 0}
        self.reads = 0

    def change(self, key: str, *, known: bool) -> None:
        self.versions[key].append(self.now_ms)
        if known:
            self.known[key] = len(self.versions[key]) - 1
            self.values.forget_all(lambda each, _: each == key)

    async def get(self, key: str, steps: int) -> None:
        """Read a row, and check that its version was the present one lately, and is not known to be gone."""
        began_ms, known = self.now_ms, self.known[key]

        async def read() -> int:
            self.reads += 1
            version = len(self.versions[key]) - 1
            for _ in range(steps):
                await asyncio.sleep(0)
            return version

        version = await self.values.get(key, read)
        assert version >= known, "it was used after it was known to have changed"
        later = self.versions[key][version + 1 :]
        assert not later or later[0] > began_ms - RECENT_MS, "it was used for too long"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("get"), st.sampled_from("ab"), st.integers(0, 6)),
        st.tuples(st.just("change"), st.sampled_from("ab"), st.booleans()),
        st.tuples(st.just("pass"), st.just(""), st.integers(1, 1_200)),
        st.tuples(st.just("step"), st.just(""), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS, st.sampled_from([MB, 3_000]))
def test_a_value_is_used_for_a_second_and_not_after_a_known_change(
    steps: list[tuple[str, str, int]], budget: int
):
    async def run() -> None:
        world = World(budget)
        reading: list[asyncio.Task[None]] = []
        for what, key, number in steps:
            if what == "get":
                reading.append(asyncio.create_task(world.get(key, number)))
            elif what == "change":
                world.change(key, known=bool(number))
            elif what == "pass":
                world.now_ms += number
            await asyncio.sleep(0)
        await asyncio.gather(*reading)

    asyncio.run(run())


async def test_a_value_is_read_once_in_a_second():
    world = World()
    for _ in range(3):
        await world.get("a", 1)
    assert world.reads == 1
    world.now_ms += RECENT_MS
    await world.get("a", 1)
    assert world.reads == 2


async def test_a_value_that_is_gone_is_not_used_again_when_the_clock_is_set_back():
    world = World()
    await world.get("a", 0)

    async def missing() -> int:
        raise NotFound("it is deleted")

    world.now_ms += RECENT_MS + 200
    with pytest.raises(NotFound):
        await world.values.get("a", missing)
    world.now_ms -= 500
    with pytest.raises(NotFound):
        await world.values.get("a", missing)
