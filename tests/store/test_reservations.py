"""Reservations under budgets: what parallel runs, retries, crashes and day changes may use."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.support.databases import Database
from tests.support.effort import cases
from tests.support.factories import DAY, NOW, alone, asked, ended, job, jobless
from tests.support.waiting import PATIENCE
from wakeful.job.policy import DEFAULT_POLICY
from wakeful.job.start_rules import BudgetOwner
from wakeful.run.consequences import consequences
from wakeful.run.outcome import Failed, Finished, Verification, conclude
from wakeful.run.usage import MOST_TOKENS, ReservationRequest, Reserved, Spent, utc_day
from wakeful.store.accounts import AgentRow, WorkspaceRow
from wakeful.store.port import Store
from wakeful.store.rows import TakenRun, UnfinishedRun

AGENT = BudgetOwner("default", "default")
WHOLE = BudgetOwner("default")


async def put_budgets(store: Store, *, agent: object = None, workspace: object = None) -> None:
    def text(budget: object) -> str | None:
        return None if budget is None else json.dumps(budget)

    await store.put_workspace(WorkspaceRow("default", None, "", NOW, NOW, budget=text(workspace)))

    def put(old: AgentRow | None) -> AgentRow:
        assert old is not None
        return old._replace(budget=text(agent))

    await store.put_agent("default", "default", put)


async def running(store: Store, count: int = 1, worker: str = "w1", **fields: Any) -> list[TakenRun]:
    """Store runs without a job, and take them."""
    await store.add_runs([jobless(**fields) for _ in range(count)])
    return await store.take(store.clock.now_ms(), worker, {"cron": count})


def request(run: TakenRun, used: Spent | None = None, need: Spent | None = None) -> ReservationRequest:
    return ReservationRequest(run.workspace, run.agent, run.id, run.attempt, used, need)


def tokens(number: int) -> Spent:
    return Spent(number, 0.0)


async def test_without_a_budget_nothing_is_written(store: Store) -> None:
    (run,) = await running(store)
    assert await store.reserve(NOW, request(run, tokens(70), tokens(30)))
    assert await store.read_spent(AGENT, utc_day(NOW)) == Spent()
    await store.finish("w1", [ended(run, usage='{"tokens":90}')], alone)
    assert await store.read_spent(AGENT, utc_day(NOW)) == tokens(90)


async def test_a_hundred_parallel_runs_at_the_edge_exceed_a_cap_by_at_most_one_request(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They wait for each other, which takes long on a busy machine.
    monkeypatch.setattr("wakeful.store.postgres.connection.CONNECT_S", PATIENCE)
    stores = [await database.connect() for _ in range(4)]
    await put_budgets(stores[0], agent={"tokensPerDay": 1_000})
    runs = await running(stores[0], 100)
    answers = await asyncio.gather(
        *(stores[n % 4].reserve(NOW, request(run, Spent(), tokens(300))) for n, run in enumerate(runs))
    )
    assert sorted(answers) == [Reserved()] * 4 + [Reserved(wait=True)] * 96
    allowed = [run for run, answer in zip(runs, answers, strict=True) if answer]
    # One used less than it reserved: another may start.
    await stores[1].finish("w1", [ended(allowed[0], usage='{"tokens":50}')], alone)
    waiting = [run for run, answer in zip(runs, answers, strict=True) if not answer]
    again = await asyncio.gather(
        *(stores[n % 4].reserve(NOW, request(run, Spent(), tokens(300))) for n, run in enumerate(waiting))
    )
    assert sum(map(bool, again)) == 1
    started = [*allowed[1:], *(run for run, answer in zip(waiting, again, strict=True) if answer)]
    await stores[2].finish("w1", [ended(run, usage='{"tokens":300}') for run in started], alone)
    assert await stores[0].read_spent(AGENT, utc_day(NOW)) == tokens(1_250)
    rest = next(run for run, answer in zip(waiting, again, strict=True) if not answer)
    refused = await stores[3].reserve(NOW, request(rest, Spent(), tokens(1)))
    assert refused.reached is not None
    assert (refused.reached.owner, refused.reached.cap) == (AGENT, "tokensPerDay")


async def test_outcomes_that_are_written_during_a_reservation_do_not_leave_the_count(
    database: Database,
) -> None:
    stores = [await database.connect() for _ in range(4)]
    await put_budgets(stores[0], workspace={"tokensPerDay": 1_000})
    used: list[int] = []

    async def work(number: int, run: TakenRun) -> None:
        random, store = Random(number), stores[number % 4]
        while True:
            answer = await store.reserve(NOW, request(run, Spent(), tokens(100)))
            if answer:
                used.append(random.choice([1, 50, 100]))
                await store.finish("w1", [ended(run, usage=json.dumps({"tokens": used[-1]}))], alone)
            if not answer.wait:
                return
            await asyncio.sleep(0)

    await asyncio.gather(*(work(*each) for each in enumerate(await running(stores[0], 40))))
    assert 1_000 <= sum(used) < 1_100
    assert await stores[0].read_spent(WHOLE, utc_day(NOW)) == tokens(sum(used))


@pytest.mark.parametrize("end", ["finished", "cancelled", "released", "rescued"])
async def test_a_reservation_ends_with_its_attempt_and_what_was_used_stays_counted(
    store: Store, end: str
) -> None:
    await put_budgets(store, workspace={"costPerDay": 1})
    first, other = await running(store, 2)
    assert await store.reserve(NOW, request(first, Spent(10, 0.25), Spent(0, 2.0)))
    assert (await store.reserve(NOW, request(other, Spent(), Spent(0, 0.5)))).wait
    if end == "finished":  # it reports nothing that is not counted yet
        await store.finish("w1", [ended(first, "failed", error="no")], alone)
    elif end == "cancelled":
        await store.cancel_run(first.id, NOW, "cancelled", running=True)
    elif end == "released":
        await store.release("w1", NOW, [(other.id, other.attempt)])
    else:
        await store.beat("w1", NOW, [], None)

        def judge(run: UnfinishedRun) -> Finished:
            lost = Failed("lost", reason="lost")
            return conclude(run.id, run.job_id, run.attempt, DEFAULT_POLICY, lost, NOW, NOW)

        # The other run is lost too: reserve for a new one.
        await store.rescue(NOW + 60_000, NOW + 30_000, 10, judge, alone, 0)
        (other,) = await running(store, 1, "w2")
    assert await store.reserve(NOW, request(other, Spent(), Spent(0, 0.5)))
    assert await store.read_spent(WHOLE, utc_day(NOW)) == Spent(10, 0.25)
    assert (await store.reserve(NOW, request(first, Spent(20, 0.5), Spent()))).lost
    # Of an attempt that was stopped, nobody else reports what its last request used.
    used = Spent(20, 0.5) if end == "cancelled" else Spent(10, 0.25)
    assert await store.read_spent(WHOLE, utc_day(NOW)) == used


async def test_a_run_that_awaits_its_verification_reserves_nothing(store: Store) -> None:
    await put_budgets(store, agent={"tokensPerRun": 1_000, "tokensPerDay": 1_000})
    (done,) = await running(store)
    assert await store.reserve(NOW, request(done))
    (other,) = await running(store)
    assert (await store.reserve(NOW, request(other))).wait
    # A person may have days to confirm it, and it reported no usage.
    reported = ended(done, "running")._replace(verification=Verification('{"kind":"manual"}', "", DAY))
    assert await store.finish("w1", [reported], alone) == {done.id}
    assert await store.reserve(NOW, request(other))


async def test_reservations_that_add_up_to_more_than_a_column_holds(store: Store) -> None:
    """As those of a thousand runs under the largest `tokensPerRun` do."""
    await put_budgets(store, agent={"tokensPerRun": MOST_TOKENS})
    *runs, last = await running(store, 4)
    for run in runs:
        assert await store.reserve(NOW, request(run, Spent(), tokens(2**62)))
    await put_budgets(store, agent={"tokensPerDay": MOST_TOKENS})
    assert (await store.reserve(NOW, request(last))).wait


async def test_a_reservation_that_is_made_twice_counts_once(store: Store) -> None:
    await put_budgets(store, agent={"tokensPerDay": 1_000})
    (run,) = await running(store)
    for _ in range(2):
        assert await store.reserve(NOW, request(run, tokens(400), tokens(900)))
    assert await store.read_spent(AGENT, utc_day(NOW)) == tokens(400)
    await store.finish("w1", [ended(run, usage='{"tokens":600}')], alone)
    assert await store.read_spent(AGENT, utc_day(NOW)) == tokens(600)


async def test_the_budget_of_a_run_counts_all_its_attempts(store: Store) -> None:
    await put_budgets(store, agent={"tokensPerRun": 1_000, "tokensPerDay": 1_500})
    (run,) = await running(store)
    assert await store.reserve(NOW, request(run))
    (other,) = await running(store)
    # An attempt whose use is not known reserves all that the budget of a run leaves.
    assert await store.reserve(NOW, request(other))
    (third,) = await running(store)
    assert (await store.reserve(NOW, request(third))).wait
    await store.finish("w1", [ended(other), ended(third)], alone)
    for used in (600, 300):
        retrying = ended(run, "retrying", due_ms=NOW, reason="failed", usage=json.dumps({"tokens": used}))
        await store.finish("w1", [retrying], alone)
        (run,) = await store.take(NOW, "w1", {"cron": 1})
        assert await store.reserve(NOW, request(run))
    answer = await store.reserve(NOW, request(run, tokens(200), tokens(1)))
    assert answer.reached is not None
    assert (answer.reached.cap, answer.reached.most) == ("tokensPerRun", 1_000.0)
    assert await store.read_spent(AGENT, utc_day(NOW)) == tokens(1_100)


async def test_the_budget_of_a_job_applies_to_its_runs_only(store: Store) -> None:
    limited, free = job("limited", work=BUDGETED), job("free")
    await store.create_jobs([limited, free])
    await store.add_runs([asked(each, serial=False) for each in (limited, limited, free)])
    runs = await store.take(NOW, "w1", {"cron": 3})
    first, second, other = sorted(runs, key=lambda run: run.job_id != limited.id)
    assert await store.reserve(NOW, request(first, tokens(60), tokens(60)))
    assert (await store.reserve(NOW, request(second, Spent(), tokens(60)))).wait
    assert await store.reserve(NOW, request(other, tokens(500), tokens(60)))
    answer = await store.reserve(NOW, request(first, tokens(120), tokens(60)))
    assert answer.reached is not None
    assert answer.reached.owner.job == limited.id
    (block,) = await store.budget_blocks(utc_day(NOW))
    assert block.owner.job == limited.id


async def test_ended_reservations_are_pruned(store: Store) -> None:
    await put_budgets(store, agent={"tokensPerDay": 1_000})
    over, live = await running(store, 2)
    for run in (over, live):
        assert await store.reserve(NOW, request(run, tokens(10), tokens(10)))
    await store.finish("w1", [ended(over)], alone)
    await store.prune_budgets(NOW - DAY)
    assert await store.reserve(NOW, request(live, tokens(10), tokens(10)))
    assert await store.read_spent(AGENT, utc_day(NOW)) == tokens(20)


BUDGETED = '{"target":{"kind":"function","name":"digest"},"budget":{"tokensPerDay":100}}'


# --- the simulation -----------------------------------------------------------------------------------------


class _Attempt(NamedTuple):
    run: TakenRun
    #: what it used, as far as it knows
    used: int = 0
    #: what its last request reserved, until it is settled
    reserved: int = 0
    under_way: bool = False


@pytest.mark.parametrize("seed", range(cases(6, 60)))
async def test_no_interleaving_exceeds_a_cap_by_more_than_one_request(database: Database, seed: int) -> None:
    """Random requests, rounds, retries, crashes, cancellations and day changes against a model of the cap.

    The model adds up what the endpoint was used for. Lost is what was used by a request whose process died
    before it could report it.
    """
    random, clock = Random(seed), database.clock
    stores = [await database.connect() for _ in range(2)]
    per_day, per_run, most = random.choice([400, 1_000]), random.choice([300, 700]), 100
    budget = {"tokensPerDay": per_day, **({"tokensPerRun": per_run} if random.random() < 0.5 else {})}
    await put_budgets(stores[0], **{random.choice(["agent", "workspace"]): budget})
    attempts: dict[str, _Attempt] = {}
    #: by day: what the store must have counted; by run: what its attempts reported
    counted: dict[int, int] = {}
    by_run: dict[str, int] = {}
    known: dict[str, int] = {}  # of the running attempt: what is counted of it

    def count(run_id: str, used: int) -> None:
        more = used - known.get(run_id, 0)
        if more > 0:
            known[run_id] = used
            counted[today()] = counted.get(today(), 0) + more
            by_run[run_id] = by_run.get(run_id, 0) + more

    def today() -> int:
        return utc_day(clock.now_ms())

    async def take() -> None:
        for run in await stores[0].take(clock.now_ms(), "w1", {"cron": 6 - len(attempts)}):
            attempts[run.id], known[run.id] = _Attempt(run), 0

    async def reserve(one: _Attempt) -> None:
        need = random.randint(1, most)
        answer = await random.choice(stores).reserve(
            clock.now_ms(), request(one.run, tokens(one.used), tokens(need))
        )
        count(one.run.id, one.used)
        used, of_run = counted.get(today(), 0), by_run.get(one.run.id, 0)
        others = sum(each.reserved for each in attempts.values() if each.run.id != one.run.id)
        reached = used >= per_day or of_run >= budget.get("tokensPerRun", 10**9)
        assert (answer.reached is not None, answer.wait) == (
            reached,
            not reached and used + others >= per_day,
        ), (used, others, budget)
        if answer:
            attempts[one.run.id] = one._replace(reserved=need, under_way=True)
        elif answer.wait:
            attempts[one.run.id] = one._replace(reserved=0)
        else:
            await finish(one, "failed", reason="budget", error="no")

    async def finish(one: _Attempt, state: str, **fields: Any) -> None:
        usage = json.dumps({"tokens": one.used}) if one.used else None
        outcome = ended(one.run, state, usage=usage, finished_ms=clock.now_ms(), **fields)
        assert await random.choice(stores).finish("w1", [outcome], consequences) == {one.run.id}
        count(one.run.id, one.used)
        del attempts[one.run.id]

    for _ in range(120):
        if len(attempts) < 3:
            await stores[0].add_runs([jobless() for _ in range(2)])
            await take()
        one = random.choice(list(attempts.values()))
        step = random.random()
        if one.under_way:
            if step < 0.75:  # the answer arrives, and mostly uses less than the request reserved
                used = one.used + random.randint(0, one.reserved)
                attempts[one.run.id] = one._replace(used=used, under_way=False)
            elif step < 0.85:  # the process dies, and is started again
                await stores[0].release("w1", clock.now_ms())
                attempts.clear()
                await take()
            else:
                await stores[1].cancel_run(one.run.id, clock.now_ms(), "cancelled", running=True)
                del attempts[one.run.id]
                if random.random() < 0.8:  # else its process has died too
                    used = one.used + random.randint(0, one.reserved)
                    for _ in range(random.randint(1, 2)):
                        late = request(one.run, tokens(used), Spent())
                        assert (await random.choice(stores).reserve(clock.now_ms(), late)).lost
                    count(one.run.id, used)
        elif step < 0.75:
            await reserve(one)
        elif step < 0.85:
            await finish(one, "succeeded")
        elif step < 0.95:
            await finish(one, "retrying", due_ms=clock.now_ms(), reason="failed", error="no")
            await take()
        else:
            clock.ms += random.choice([1_000, DAY // 2])
    owner = AGENT if random.random() < 0.5 else WHOLE
    for day, used in counted.items():
        # Each day may start with what attempts from the day before used in their last request.
        assert used < per_day + 7 * most
        assert await stores[1].read_spent(owner, day) == tokens(used)
