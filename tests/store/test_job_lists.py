"""Lists of jobs: search, filters, order by name and by next tick, and bounded counts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.support.factories import DAY, MINUTE, NOW, job
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobFilter, JobRow

CRON = '{"schedule":{"expr":"0 9 * * *","kind":"cron","tz":"UTC"}}'
EVERY = '{"schedule":{"everyMs":60000,"kind":"every"}}'
AT = '{"schedule":{"atMs":1800000000000,"kind":"at"}}'
LONG = '{"a":"' + "x" * 2_000 + '","team":"ops"}'
HOSTILE = '{"\\"team":"ops","<b>,{":"\\"owner\\":\\"me","é":"ü"}'


def _jobs() -> list[JobRow]:
    return [
        job("apple", agent="ada", timing=CRON, wake_ms=NOW + 3 * MINUTE, labels='{"team":"ops"}'),
        job("banana", agent="ada", timing=EVERY, wake_ms=NOW + MINUTE, created_by="agent:key:7"),
        job("cherry", agent="bob", timing=AT, next_ms=None, wake_ms=None, labels='{"team":"web","x":"y"}'),
        job("date", agent="bob", timing=None, next_ms=None, wake_ms=None, after_job="cherry"),
        job("elder", agent="bob", timing=None, next_ms=None, wake_ms=None, created_by="admin:key:1"),
        job(
            "fig", agent="cy", timing=CRON, enabled=False, disabled_reason="paused", next_ms=None,
            wake_ms=NOW + DAY, work='{"message":"a \\"target\\" of {\\"kind\\":\\"chat\\"}"}', labels=LONG,
        ),
        job("grape", agent="cy", timing=CRON, wake_ms=NOW + 2 * MINUTE, failures=3, labels=HOSTILE),
        job(
            "hazel", agent="cy", timing=CRON, enabled=False, disabled_reason="approval", next_ms=None,
            wake_ms=None, created_by="agent:key:7", work='{"target":{"kind":"webhook","url":"https://x"}}',
        ),
        job(
            "iris", agent="cy", timing=CRON, enabled=False, disabled_reason="max_runs", next_ms=None,
            wake_ms=None,
        ),
        job("apple", workspace="other", agent="ada", timing=CRON, failures=1),
    ]  # fmt: skip


@dataclass(frozen=True)
class Lists:
    store: Store

    async def names(self, **fields: object) -> str:
        rows = await self.store.jobs(JobFilter("default", **fields))  # type: ignore[arg-type]
        only = JobFilter("default", **fields)  # type: ignore[arg-type]
        counted = await self.store.count_jobs(only._replace(limit=1), 100)
        if only.order == "name" and only.after is None and only.limit == 1000:
            assert counted == len(rows)
        return " ".join(row.name for row in rows)


@pytest.fixture
async def lists(store: Store) -> Lists:
    await store.create_jobs(_jobs())
    return Lists(store)


async def test_a_search_finds_a_part_of_the_agent_or_the_name(lists: Lists) -> None:
    assert await lists.names(q="an") == "banana"
    assert await lists.names(q="ad") == "apple banana"
    assert await lists.names(q="cy/g") == "grape"
    assert await lists.names(q="%") == await lists.names(q="_") == await lists.names(q="'") == ""
    assert await lists.names(q="e", agent="bob") == "cherry date elder"


@pytest.mark.parametrize(
    ("state", "names"),
    [
        ("active", "apple banana cherry date elder grape"),
        ("paused", "fig"),
        ("approval", "hazel"),
        ("ended", "iris"),
        ("inactive", ""),
        ("failing", "grape"),
    ],
)
async def test_jobs_are_filtered_by_state(lists: Lists, state: str, names: str) -> None:
    assert await lists.names(state=state) == names


async def test_jobs_are_filtered_by_creator(lists: Lists) -> None:
    assert await lists.names(creator="agent") == "banana hazel"
    assert await lists.names(creator="person") == "elder"
    assert await lists.names(created_by="admin:key:1") == "elder"
    assert await lists.names(created_by="admin:key:") == ""


async def test_jobs_are_filtered_by_the_kinds_of_schedule_and_target(lists: Lists) -> None:
    assert await lists.names(schedule_kind="cron") == "apple fig grape hazel iris"
    assert await lists.names(schedule_kind="every") == "banana"
    assert await lists.names(schedule_kind="at") == "cherry"
    assert await lists.names(schedule_kind="after") == "date"
    assert await lists.names(schedule_kind="none") == "elder"
    assert await lists.names(target_kind="webhook") == "hazel"
    assert await lists.names(target_kind="pull") == "fig"


async def test_the_kinds_follow_a_change(lists: Lists) -> None:
    (row,) = await lists.store.jobs(JobFilter("default", name="elder"))
    changed = row._replace(timing=EVERY, work='{"target":{"kind":"chat"}}')
    await lists.store.change_job(row.id, lambda _: JobChange(changed))
    assert await lists.names(schedule_kind="every") == "banana elder"
    assert await lists.names(schedule_kind="none") == ""
    assert await lists.names(target_kind="chat") == "elder"


@pytest.mark.parametrize("text", ["a\\u0000b", "a\\\\u0000b"])
async def test_a_target_may_have_any_text(lists: Lists, text: str) -> None:
    work = f'{{"target":{{"kind":"function","name":"tidy","text":"{text}"}}}}'
    await lists.store.create_jobs([job("olive", work=work, timing=CRON)])
    assert await lists.names(target_kind="function", name="olive") == "olive"
    (row,) = await lists.store.jobs(JobFilter("default", name="olive"))
    assert row.work == work


async def test_the_word_target_is_no_target(lists: Lists) -> None:
    await lists.store.create_jobs([job("olive", work='{"message":"target"}', timing=CRON)])
    assert await lists.names(target_kind="pull", name="olive") == "olive"


async def test_labels_match_exactly_whatever_their_length_and_characters(lists: Lists) -> None:
    assert await lists.names(labels=(("team", "ops"),)) == "apple fig"
    assert await lists.names(labels=(("team", None),)) == "apple cherry fig"
    assert await lists.names(labels=(("team", "op"),)) == ""
    assert await lists.names(labels=(('"team', "ops"),)) == "grape"
    assert await lists.names(labels=(("owner", "me"),)) == await lists.names(labels=(("owner", None),)) == ""
    assert await lists.names(labels=(("<b>,{", '"owner":"me'),)) == "grape"
    assert await lists.names(labels=(("é", "ü"),)) == "grape"
    assert await lists.names(labels=(("team", "web"), ("x", "y"))) == "cherry"


async def test_labels_that_cannot_be_read_are_found_by_no_filter(lists: Lists) -> None:
    await lists.store.create_jobs([job("torn", labels='{"team":"ops"')])
    assert await lists.names(labels=(("team", "ops"),)) == "apple fig"
    assert await lists.names(q="torn") == "torn"


async def test_filters_combine(lists: Lists) -> None:
    assert await lists.names(q="a", state="active", schedule_kind="cron") == "apple grape"
    assert await lists.names(state="failing", agent="ada") == ""


async def test_the_order_by_next_tick_lists_jobs_that_have_one(lists: Lists) -> None:
    assert await lists.names(order="next") == "banana grape apple"
    assert await lists.names(order="next", q="ap") == "grape apple"
    assert await lists.names(order="next", state="failing") == "grape"


@pytest.mark.parametrize("few", [1, 1_000])
async def test_pages_by_next_tick_meet_each_job_once(
    store: Store, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.store.sql.jobs.FEW", few)
    await store.create_jobs([job(f"job-{n}", wake_ms=NOW + n // 4 * MINUTE) for n in range(30)])
    met: list[JobRow] = []
    after: tuple[int, str] | None = None
    while page := await store.jobs(JobFilter("default", order="next", limit=7, after_tick=after)):
        met += page
        assert page[-1].wake_ms is not None
        after = page[-1].wake_ms, page[-1].id
    assert [row.wake_ms for row in met] == sorted(NOW + n // 4 * MINUTE for n in range(30))
    assert len({row.id for row in met}) == 30


async def test_pages_by_next_tick_continue_after_a_job_that_was_deleted(store: Store) -> None:
    await store.create_jobs([job(f"job-{n}", wake_ms=NOW + n // 10 * MINUTE) for n in range(30)])
    met: list[JobRow] = []
    after: tuple[int, str] | None = None
    while page := await store.jobs(JobFilter("default", order="next", limit=7, after_tick=after)):
        met += page
        assert page[-1].wake_ms is not None
        after = page[-1].wake_ms, page[-1].id
        await store.delete_job(page[-1].id, NOW, "deleted")
        assert len(met) <= 30, "a page repeats jobs"
    assert len({row.id for row in met}) == len(met) == 30


async def test_a_count_stops_at_its_bound(store: Store) -> None:
    await store.create_jobs([job(f"job-{n}") for n in range(12)])
    assert await store.count_jobs(JobFilter("default"), 10) == 10
    assert await store.count_jobs(JobFilter("default", q="job-1"), 10) == 3


async def test_internal_jobs_are_left_out_of_a_list(lists: Lists) -> None:
    for name in ("heartbeat", "wakeful-alerts", f"wakeful-events-{'0' * 32}"):
        await lists.store.create_jobs([job(name, agent="ada", next_ms=NOW, wake_ms=NOW)])
    for order in ("name", "next"):
        assert len((await lists.names(agent="ada", order=order)).split()) == 5
        assert await lists.names(agent="ada", order=order, internal=False) in ("apple banana", "banana apple")
