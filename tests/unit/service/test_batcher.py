"""The batcher: whatever fails, each caller gets the result of its own item, and no item is written twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tests.support.interruptions import cancel_at_each_await
from tests.support.waiting import PATIENCE
from wakeful.errors import InvalidArgument, Unavailable
from wakeful.service.batcher import Batcher, in_rounds
from wakeful.store.sql.driver import LockTimeout

MOST = 6


@dataclass(frozen=True)
class Item:
    number: int
    weight: int = 1
    group: int = 0
    key: int | None = None
    #: its own transaction, and that of each batch that it is in, fails
    poison: bool = False
    #: `write` returns an error for it, and writes the others
    refused: bool = False
    #: the caller is cancelled after so many steps of the loop; None: it waits
    patience: int | None = None

    @property
    def identity(self) -> int:
        return -self.number if self.key is None else self.key


class _Killed(BaseException):
    pass


@dataclass
class Database:
    """Writes slowly. The calls of these numbers fail, or end the task."""

    unavailable: frozenset[int] = frozenset()
    killed: int | None = None
    calls: int = 0
    begun: list[Sequence[Item]] = field(default_factory=list)
    written: list[Item] = field(default_factory=list)
    writing: bool = False

    async def write(self, batch: Sequence[Item]) -> Sequence[int | Exception]:
        assert not self.writing, "two batches are written at once"
        self.writing = True
        try:
            self.calls += 1
            self.begun.append(batch)
            for _ in range(3):
                await asyncio.sleep(0)
            if self.calls == self.killed:
                raise _Killed if self.calls % 2 else asyncio.CancelledError
            if self.calls in self.unavailable:
                raise Unavailable("the database restarts")
            if any(item.poison for item in batch):
                raise InvalidArgument("one of them is not accepted")
            self.written += [item for item in batch if not item.refused]
            return [InvalidArgument("refused") if item.refused else item.number for item in batch]
        finally:
            self.writing = False


def _batcher(database: Database) -> Batcher[Item, int]:
    return Batcher(
        "batcher",
        database.write,
        most=MOST,
        weigh=lambda item: item.weight,
        group=lambda item: item.group,
        distinct=lambda item: item.identity,
    )


def _items(of: Sequence[tuple[int, int, int | None, str, int | None]]) -> list[Item]:
    return [
        Item(number, weight, group, key, kind == "poison", kind == "refused", patience)
        for number, (weight, group, key, kind, patience) in enumerate(of, 1)
    ]


ITEMS = st.lists(
    st.tuples(
        st.integers(1, MOST + 2),
        st.integers(0, 1),
        st.none() | st.integers(1_000, 1_002),
        st.sampled_from(["good", "good", "good", "poison", "refused"]),
        st.none() | st.integers(0, 12),
    ),
    max_size=12,
).map(_items)


async def _add_all(batcher: Batcher[Item, int], waves: Sequence[Sequence[Item]]) -> dict[Item, object]:
    """Add the items, a few steps of the loop between waves. Returns the result or error of each."""
    tasks: dict[Item, asyncio.Task[int]] = {}
    loop = asyncio.get_running_loop()

    async def lose_patience(item: Item) -> None:
        for _ in range(item.patience or 0):
            await asyncio.sleep(0)
        tasks[item].cancel()

    impatient = []
    for wave in waves:
        for item in wave:
            tasks[item] = loop.create_task(batcher.add(item))
            if item.patience is not None:
                impatient.append(loop.create_task(lose_patience(item)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    async with asyncio.timeout(10):  # no caller waits forever
        results = await asyncio.gather(*tasks.values(), return_exceptions=True)
        await asyncio.gather(*impatient)
    return dict(zip(tasks, results, strict=True))


@given(first=ITEMS, then=ITEMS, unavailable=st.frozensets(st.integers(1, 8), max_size=2))
def test_each_caller_gets_the_result_of_its_own_item(
    first: list[Item], then: list[Item], unavailable: frozenset[int]
):
    then = [Item(**{**vars(item), "number": item.number + 100}) for item in then]
    database = Database(unavailable)

    async def run() -> dict[Item, object]:
        batcher = _batcher(database)
        results = await _add_all(batcher, [first, then])
        database.unavailable = frozenset()
        assert await batcher.add(Item(1_000_000)) == 1_000_000, "it continues after all errors"
        return results

    for item, result in asyncio.run(run()).items():
        written = database.written.count(item)
        assert written <= 1
        if isinstance(result, asyncio.CancelledError):
            assert item.patience is not None
            continue
        assert written == (result == item.number)
        if isinstance(result, InvalidArgument):
            assert item.poison or item.refused, "this is the error of another item"
        elif isinstance(result, Unavailable):
            assert unavailable
        else:
            assert not item.poison
            assert not item.refused
    for batch in database.begun:
        assert sum(item.weight for item in batch) <= MOST or len(batch) == 1
        assert len({item.group for item in batch}) == 1
        assert len({item.identity for item in batch}) == len(batch)
    for same in ({"group": 0}, {"group": 1}):
        numbers = [item.number for item in database.written if item.group == same["group"]]
        free = [n for n in numbers if not any(i.number == n and i.key is not None for i in database.written)]
        assert free == sorted(free), "items of a group are written in their order"
    for key in (1_000, 1_001, 1_002):
        for group in (0, 1):
            equal = [item.number for item in database.written if (item.key, item.group) == (key, group)]
            assert equal == sorted(equal), "equal items are written in their order"


@given(items=ITEMS, killed=st.integers(1, 4))
def test_no_caller_waits_after_the_task_was_ended(items: list[Item], killed: int):
    database = Database(killed=killed)

    async def run() -> None:
        batcher = _batcher(database)
        results = await _add_all(batcher, [items])
        if database.calls >= killed:
            ended = [each for each in results.values() if isinstance(each, BaseException)]
            assert ended
        database.killed = None
        assert await batcher.add(Item(1_000_000)) == 1_000_000, "the next caller starts a new task"

    asyncio.run(run())
    assert all(database.written.count(item) <= 1 for item in items)


async def test_a_batch_is_what_arrived_during_the_last_write():
    database = Database()
    batcher = _batcher(database)
    await _add_all(batcher, [[Item(1)], [Item(n) for n in range(2, 6)]])
    assert [[item.number for item in batch] for batch in database.begun] == [[1], [2, 3, 4, 5]]


async def test_a_batch_with_one_bad_item_is_written_one_by_one_until_the_database_fails():
    database = Database(frozenset({4}))
    items = [Item(1), Item(2), Item(3, poison=True), Item(4), Item(5)]
    results = await _add_all(_batcher(database), [items])
    kinds = [type(each) for each in results.values()]
    assert kinds == [int, int, Unavailable, Unavailable, Unavailable]
    assert database.calls == 4


async def test_an_item_that_another_transaction_locks_does_not_hold_up_the_others():
    written: list[int] = []

    async def write(batch: Sequence[int]) -> Sequence[int]:
        await asyncio.sleep(0)
        if 2 in batch:
            raise LockTimeout("another transaction holds it")
        written.extend(batch)
        return batch

    batcher = Batcher("batcher", write, most=MOST)
    results = await asyncio.gather(*map(batcher.add, (1, 2, 3)), return_exceptions=True)
    assert [type(each) for each in results] == [int, LockTimeout, int]
    assert written == [1, 3]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers())))
def test_rounds_have_no_key_twice_and_keep_the_order_of_each_key(items: list[tuple[str, int]]):
    numbered = list(enumerate(items))
    rounds = list(in_rounds(numbered, lambda each: each[1][0]))
    for several in rounds:
        assert len({key for _, (key, _) in several}) == len(several)
    for key in "abc":
        of_key = [number for several in rounds for number, item in several if item[0] == key]
        assert of_key == [number for number, item in numbered if item[0] == key]


async def test_a_caller_that_is_cancelled_before_its_batch_has_written_nothing():
    database = Database()
    batcher = _batcher(database)
    first, second = (asyncio.create_task(batcher.add(Item(number))) for number in (1, 2))
    await asyncio.sleep(0)
    third = asyncio.create_task(batcher.add(Item(3)))
    await asyncio.sleep(0)
    third.cancel()
    assert (await first, await second) == (1, 2)
    await asyncio.wait([third])
    assert [item.number for item in database.written] == [1, 2]


async def test_a_caller_cancelled_at_any_await_leaves_the_batcher_usable():
    database = Database()
    batcher = _batcher(database)
    numbers = iter(range(1, 1_000))

    async def check() -> None:
        number = next(numbers)
        async with asyncio.timeout(10):
            assert await batcher.add(Item(number)) == number

    assert await cancel_at_each_await(lambda: batcher.add(Item(next(numbers))), check) > 0


async def test_a_batch_that_waits_for_a_lock_holds_up_only_the_items_with_it():
    locked = asyncio.Event()
    written: list[str] = []

    async def write(items: Sequence[str]) -> Sequence[str | Exception]:
        if any(item.startswith("locked") for item in items):
            await locked.wait()
        written.extend(items)
        return items

    batcher = Batcher("batcher", write, most=MOST, lock=lambda item: item[:6])
    waiting = [asyncio.create_task(batcher.add(f"locked {number}")) for number in range(2)]
    for _ in range(3):  # until their batch is being written
        await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        for number in range(3):
            assert await batcher.add(f"free {number}") == f"free {number}"
        waiting.append(asyncio.create_task(batcher.add("locked 2")))
        assert await batcher.add("free 3") == "free 3"
        assert not any(each.done() for each in waiting)
        locked.set()
        assert await asyncio.gather(*waiting) == ["locked 0", "locked 1", "locked 2"]
        assert await batcher.add("free 4") == "free 4"
    assert [each for each in written if each.startswith("locked")] == ["locked 0", "locked 1", "locked 2"]
