"""What pages read: agents with counts, conversations, mailboxes, dead letters."""

from __future__ import annotations

from tests.store.test_sessions import KEY, begin_due, say, turns
from tests.support.factories import NOW, alone, asked, asleep, ended, given_job, held, jobless, over
from tests.support.instances import agent_class, given_sent, key_of, taken
from wakeful.job.job import HEARTBEAT_JOB
from wakeful.store.accounts import AgentRow
from wakeful.store.port import Store
from wakeful.store.rows import JobRow
from wakeful.store.stats import AgentOverview, DeadLetterFilter
from wakeful.values.ids import first_id


async def _agents(store: Store, *names: str) -> None:
    for name in names:
        row = AgentRow("default", name, None, None, True, None, None, "", 1, NOW, NOW)
        await store.put_agent("default", name, lambda old, row=row: row)  # type: ignore[misc]


async def _dead(store: Store, job: JobRow, many: int, **outcome: object) -> list[str]:
    runs = [held(asked(job, NOW + number, serial=False)) for number in range(many)]
    await store.add_runs(runs)
    await store.finish("w1", [ended(run, "failed", **outcome) for run in runs], alone)
    return sorted(run.id for run in runs)


async def test_agents_are_read_in_pages_by_name_and_by_a_part_of_it(store: Store) -> None:
    await _agents(store, "writer", "reader", "red-reader")
    assert [row.name for row in await store.agents_page("default", None, 2)] == ["default", "reader"]
    assert [row.name for row in await store.agents_page("default", "reader", 2)] == ["red-reader", "writer"]
    assert [row.name for row in await store.agents_page("default", None, 9, "read")] == [
        "reader", "red-reader",
    ]  # fmt: skip
    assert await store.agents_page("default", None, 9, "%_") == await store.agents("default")
    assert await store.agents_page("other", None, 9) == []
    assert [row.active for row in await store.agents_page("default", None, 1)] == [True]


async def test_an_overview_counts_up_to_a_limit_and_names_the_heartbeat(store: Store) -> None:
    await _agents(store, "writer")
    beat = asleep(HEARTBEAT_JOB, agent="writer")
    await store.create_jobs([beat, *(asleep(f"j{n}", agent="writer") for n in range(3))])
    first, last = over(asked(beat, NOW - 5)), over(asked(beat, NOW))
    await store.add_runs([first, last])
    await say(store, key=KEY._replace(agent="writer"))
    await store.put_class(agent_class(version=3), NOW)
    await given_sent(store, "eu")
    found = await store.agent_overviews("default", ["writer", "report", "nobody"], 100)
    newest = max(first.id, last.id)
    assert found["writer"] == AgentOverview("writer", 4, 1, 0, None, beat.id, newest)
    assert found["report"] == AgentOverview("report", 0, 0, 1, 3, None, None)
    assert "nobody" not in found
    assert (await store.agent_overviews("default", ["writer"], 2))["writer"].jobs == 2
    assert await store.agent_overviews("default", [], 2) == {}


async def test_a_deleted_heartbeat_is_not_in_the_overview(store: Store) -> None:
    await _agents(store, "writer")
    beat = asleep(HEARTBEAT_JOB, agent="writer")
    await store.create_jobs([beat])
    await store.delete_job(beat.id, NOW, "deleted")
    assert (await store.agent_overviews("default", ["writer"], 9))["writer"] == AgentOverview(
        "writer", 0, 0, 0, None, None, None
    )


async def test_waiting_messages_and_turns_of_one_session(store: Store) -> None:
    await say(store, "first")
    await begin_due(store, NOW + 800)
    await say(store, "second", at_ms=NOW + 2_000)
    await say(store, "third", at_ms=NOW + 3_000)
    await say(store, "elsewhere", KEY._replace(name="other"), at_ms=NOW + 2_000)
    assert [each.body for each in await store.waiting_messages(KEY, 9)] == ["second", "third"]
    assert [each.body for each in await store.waiting_messages(KEY, 1)] == ["second"]
    (turn,) = await turns(store)
    assert await store.recent_turns(KEY, 9) == [turn]
    assert await store.recent_turns(KEY._replace(name="other"), 9) == []
    assert await store.existing_runs([turn.id, first_id(NOW)]) == [turn]


async def test_a_turn_stays_in_the_list_when_it_has_ended(store: Store) -> None:
    for number in range(3):
        at_ms = NOW + number * 10_000
        await say(store, f"m{number}", at_ms=at_ms)
        await begin_due(store, at_ms + 800)
        (run,) = await store.recent_turns(KEY, 1)
        await store.cancel_run(run.id, at_ms + 900, "stopped", running=False)
        await begin_due(store, at_ms + 1_000)
    found = await store.recent_turns(KEY, 2)
    assert [run.state for run in found] == ["cancelled", "cancelled"]
    assert [run.id for run in found] == sorted((run.id for run in found), reverse=True)


async def test_a_mailbox_is_in_the_order_of_handling_without_what_runs(store: Store) -> None:
    await store.put_class(agent_class(), NOW)
    ids = [(await given_sent(store, "eu", at=NOW + number))[0] for number in range(4)]
    (running,) = await taken(store)
    assert running.id == ids[0]
    assert [run.id for run in await store.mailbox(key_of(), 9)] == ids[1:]
    assert [run.id for run in await store.mailbox(key_of(), 2)] == ids[1:3]
    assert await store.mailbox(key_of("us"), 9) == []


async def test_dead_letters_are_read_with_their_cause(store: Store) -> None:
    job = await given_job(store)
    ids = await _dead(store, job, 3, error="x" * 5_000, reason="http", response_code=503)
    newest, *_ = found = await store.dead_letters(DeadLetterFilter("default"))
    assert [row.id for row in found] == ids[::-1]
    assert (newest.agent, newest.job_id, newest.job_name) == (job.agent, job.id, job.name)
    assert (newest.reason, newest.response_code, newest.error) == ("http", 503, "x" * 2_000)
    assert await store.dead_letters(DeadLetterFilter("default", agent=job.agent)) == found
    assert await store.dead_letters(DeadLetterFilter("default", agent="other")) == []
    assert await store.dead_letters(DeadLetterFilter("other")) == []


async def test_ranges_of_dead_letters(store: Store) -> None:
    ids = await _dead(store, await given_job(store), 5)

    async def found(**fields: object) -> list[str]:
        only = DeadLetterFilter("default", **fields)  # type: ignore[arg-type]
        return [row.id for row in await store.dead_letters(only)]

    assert await found(before=ids[3], limit=2) == [ids[2], ids[1]]
    assert await found(after=ids[0], through=ids[3], oldest_first=True) == ids[1:4]
    assert await found(oldest_first=True, limit=1) == ids[:1]
    await store.discard_runs("default", [ids[4]])
    assert await found() == ids[3::-1]


async def test_a_dead_letter_without_a_job(store: Store) -> None:
    run = held(jobless())
    await store.add_runs([run])
    await store.finish("w1", [ended(run, "failed", error="refused")], alone)
    (row,) = await store.dead_letters(DeadLetterFilter("default"))
    assert (row.id, row.job_id, row.job_name, row.error) == (run.id, None, None, "refused")
