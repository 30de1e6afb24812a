"""Evolution from a recorded month to a decision: each rule finds its answer, or stays silent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tests.integration.conftest import on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.evolving_agent import EvolvingAgent, Month, evolving_agent
from tests.support.factories import asleep
from tests.support.run_months import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    failing,
    overlapping,
    sharing_slots,
    timing_out,
    varying,
)
from wakeful.errors import FailedPrecondition, NotFound, PermissionDenied
from wakeful.model import Suggestion
from wakeful.schedule.schedules import Every
from wakeful.service.admin.evolution import AnalysisResult, EvaluationResult
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.signal.event_catalog import job_name
from wakeful.store.rows import JobChange, JobRow

LATE = [("work", 9 * HOUR, DAY), *((f"other-{n}", 9 * HOUR, DAY) for n in range(11))]


@pytest.fixture
async def ada(database: str) -> AsyncIterator[EvolvingAgent]:
    async with evolving_agent(database) as agent:
        yield agent


async def analyze(ada: EvolvingAgent) -> AnalysisResult:
    return await ada.app.services.admin.evolution.analyze("default", "ada")


async def evaluate(ada: EvolvingAgent) -> EvaluationResult:
    return await ada.app.services.admin.evolution.evaluate("default", "ada")


async def suggestions(ada: EvolvingAgent, *statuses: str) -> list[Suggestion]:
    return list(await ada.app.suggestions.list(agent="ada", statuses=statuses))


async def timing_out_job(ada: EvolvingAgent) -> Suggestion:
    """Return the suggestion for a job that always hits its timeout of 30 s."""
    await ada.add(timeout="30s")
    await ada.spend(timing_out("work", HOUR, 30 * SECOND, lambda _: 50 * SECOND))
    await analyze(ada)
    (found,) = await suggestions(ada, "open")
    return found


# --- analysis -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "month", "rule", "change"),
    [
        (
            "every 10m",
            lambda: overlapping("work", 10 * MINUTE, varying(25 * MINUTE, 0.1, seed=1)),
            "widen_interval",
            {"schedule": {"kind": "every", "everyMs": 45 * MINUTE}},
        ),
        (
            "every 1h",
            lambda: timing_out("work", HOUR, 10 * MINUTE, lambda _: 15 * MINUTE),
            "raise_timeout",
            {"timeoutMs": 20 * MINUTE},
        ),
        ("every 6h", lambda: failing("work", 6 * HOUR, lambda _: True), "pause_failing", {"enabled": False}),
        (
            "0 9 * * *",
            lambda: [run for run in sharing_slots(LATE, 1, 20 * SECOND) if run.job == "work"],
            None,
            None,
        ),
        ("every 10m", lambda: overlapping("work", 10 * MINUTE, varying(MINUTE, 0.5, seed=2)), None, None),
        ("every 6h", lambda: failing("work", 6 * HOUR, lambda n: n % 2 == 0), None, None),
    ],
)
async def test_a_month_of_runs_leads_to_the_suggestion_or_to_none(
    ada: EvolvingAgent, schedule: str, month: Month, rule: str | None, change: object
) -> None:
    await ada.add(schedule=schedule)
    await ada.spend(month())
    result = await analyze(ada)
    found = await suggestions(ada)
    assert [(each.rule, dict(each.change), each.status) for each in found] == (
        [] if rule is None else [(rule, change, "open")]
    )
    assert result == AnalysisResult(jobs=1, opened=len(found), refreshed=0, withdrawn=0)


async def test_jobs_that_fire_together_and_start_late_are_staggered(ada: EvolvingAgent) -> None:
    for name, *_ in LATE:
        await ada.add(name, "0 9 * * *")
    await ada.spend(sharing_slots(LATE, 1, 20 * SECOND))
    await analyze(ada)
    found = {each.job: each for each in await suggestions(ada)}
    assert {each.rule for each in found.values()} == {"stagger_peak"}
    assert found["work"].change == {"jitterMs": 10 * MINUTE}
    assert found["work"].figures["peakJobs"] == 12
    # The first of them starts on time.
    assert "other-0" not in found


@on_one_store
async def test_an_analysis_again_renews_figures_and_withdraws_what_no_longer_holds(
    ada: EvolvingAgent,
) -> None:
    await ada.add()
    await ada.spend(failing("work", HOUR, lambda _: True))
    assert (await analyze(ada)).opened == 1
    (first,) = await suggestions(ada, "open")
    await ada.spend(failing("work", HOUR, lambda _: True), days=1)
    assert await analyze(ada) == AnalysisResult(jobs=1, opened=0, refreshed=1, withdrawn=0)
    (second,) = await suggestions(ada, "open")
    assert (second.id, second.created_at) == (first.id, first.created_at)
    assert second.updated_at > first.updated_at
    await ada.spend(failing("work", HOUR, lambda _: False), days=1)
    assert await analyze(ada) == AnalysisResult(jobs=1, opened=0, refreshed=0, withdrawn=1)
    assert [each.status for each in await suggestions(ada)] == ["withdrawn"]


@on_one_store
async def test_internal_disabled_and_one_time_jobs_are_not_analyzed(ada: EvolvingAgent) -> None:
    services = ada.app.services
    await ada.add("paused")
    await services.jobs.pause(LOCAL, "default", "ada", "paused")
    at = (ada.clock.now() + timedelta(days=60)).isoformat()
    await ada.add("once", {"kind": "at", "at": at})
    delivers = job_name("sub_" + "0" * 32)
    hourly = f'{{"schedule":{{"kind":"every","everyMs":{HOUR}}}}}'
    await ada.app.store.create_jobs([asleep(delivers, agent="ada", timing=hourly, policy="{}")])
    names = ("paused", "once", "wakeful-analysis", delivers)
    fails = [run for name in names for run in failing(name, HOUR, lambda _: True)]
    await ada.spend(fails)
    assert await analyze(ada) == AnalysisResult(jobs=0, opened=0, refreshed=0, withdrawn=0)


@on_one_store
async def test_an_unreadable_job_does_not_stop_the_analysis_of_the_others(ada: EvolvingAgent) -> None:
    await ada.add()
    broken = await ada.add("broken")

    def spoiled(row: JobRow) -> JobChange:
        return JobChange(row._replace(policy='{"jitterMs":"x"}'))

    await ada.app.store.change_job(broken.id, spoiled)
    await ada.spend(failing("work", HOUR, lambda _: True))
    assert (await analyze(ada)).opened == 1


# --- decisions ------------------------------------------------------------------------------------------


async def test_applying_is_an_ordinary_edit_and_rolling_back_restores_the_job(ada: EvolvingAgent) -> None:
    found = await timing_out_job(ada)
    before = await ada.job()
    applied = await ada.app.suggestions.apply(found.id)
    changed = await ada.job()
    assert json.loads(changed.policy)["timeoutMs"] == MINUTE
    assert (applied.status, applied.decided_by) == ("applied", "python")
    assert applied.job_version == changed.version == before.version + 1
    rolled_back = await ada.app.suggestions.rollback(found.id)
    restored = await ada.job()
    assert restored._replace(version=0, updated_ms=0) == before._replace(version=0, updated_ms=0)
    assert (rolled_back.status, rolled_back.job_version) == ("rolled_back", restored.version)
    entries = await ada.app.store.audit("default")
    told = [(each.action, each.subject) for each in entries if each.action.startswith("suggestion")]
    assert told == [("suggestion.apply", "ada/work"), ("suggestion.rollback", "ada/work")]
    assert [each.action for each in entries].count("job.update") == 2


@pytest.mark.parametrize(
    ("schedule", "month"),
    [
        ("every 10m", lambda: overlapping("work", 10 * MINUTE, lambda _: 25 * MINUTE)),
        ("every 1h", lambda: timing_out("work", HOUR, 10 * MINUTE, lambda _: 15 * MINUTE)),
        ("every 6h", lambda: failing("work", 6 * HOUR, lambda _: True)),
    ],
    ids=["widen", "timeout", "pause"],
)
async def test_every_change_can_be_applied_and_rolled_back(
    ada: EvolvingAgent, schedule: str, month: Month
) -> None:
    before = await ada.add(schedule=schedule)
    await ada.spend(month())
    await analyze(ada)
    (found,) = await suggestions(ada, "open")
    await ada.app.suggestions.apply(found.id)
    shown = await ada.app.jobs.of("ada").get("work")
    applied = await ada.job()
    assert (applied.timing, applied.policy, applied.enabled) != (before.timing, before.policy, before.enabled)
    assert shown.enabled is (found.rule != "pause_failing")
    await ada.app.suggestions.rollback(found.id)
    after = await ada.job()
    assert (after.timing, after.policy, after.enabled) == (before.timing, before.policy, before.enabled)


async def test_a_job_that_was_changed_since_keeps_its_settings_and_the_suggestion_is_withdrawn(
    ada: EvolvingAgent,
) -> None:
    found = await timing_out_job(ada)
    await ada.app.jobs.of("ada").update("work", timeout="5m")
    with pytest.raises(FailedPrecondition, match="was changed since it was analyzed, so the suggestion is"):
        await ada.app.suggestions.apply(found.id)
    assert json.loads((await ada.job()).policy)["timeoutMs"] == 5 * MINUTE
    assert (await ada.app.suggestions.get(found.id)).status == "withdrawn"
    with pytest.raises(FailedPrecondition, match=r"is withdrawn since .*; only an open one can be applied"):
        await ada.app.suggestions.apply(found.id)


@on_one_store
async def test_a_job_that_was_changed_since_is_not_rolled_back(ada: EvolvingAgent) -> None:
    found = await timing_out_job(ada)
    await ada.app.suggestions.apply(found.id)
    await ada.app.jobs.of("ada").update("work", timeout="5m")
    with pytest.raises(FailedPrecondition, match="was changed since the suggestion was applied"):
        await ada.app.suggestions.rollback(found.id)
    assert json.loads((await ada.job()).policy)["timeoutMs"] == 5 * MINUTE
    assert (await ada.app.suggestions.get(found.id)).status == "applied"


@on_one_store
async def test_the_suggestion_of_a_deleted_job_cannot_be_applied(ada: EvolvingAgent) -> None:
    found = await timing_out_job(ada)
    await ada.app.jobs.of("ada").delete("work")
    with pytest.raises(FailedPrecondition, match="was deleted since it was analyzed"):
        await ada.app.suggestions.apply(found.id)


@on_one_store
async def test_a_dismissed_suggestion_does_not_return_until_the_figures_change_substantially(
    ada: EvolvingAgent,
) -> None:
    await ada.add(schedule="every 30m")
    month = failing("work", HOUR, lambda _: True)
    await ada.spend(month)
    await analyze(ada)
    (found,) = await suggestions(ada, "open")
    assert (await ada.app.suggestions.dismiss(found.id)).status == "dismissed"
    assert (await ada.app.suggestions.dismiss(found.id)).status == "dismissed"
    with pytest.raises(FailedPrecondition, match="is dismissed since"):
        await ada.app.suggestions.apply(found.id)
    await ada.spend(month, days=7)
    assert (await analyze(ada)).opened == 0
    # It fails twice as often now.
    await ada.spend(failing("work", HOUR // 2, lambda _: True), days=28)
    assert (await analyze(ada)).opened == 1
    entries = await ada.app.store.audit("default")
    assert [each.action for each in entries if "suggestion" in each.action] == ["suggestion.dismiss"]


@on_one_store
async def test_a_dismissed_suggestion_returns_after_a_change_of_the_job(ada: EvolvingAgent) -> None:
    found = await timing_out_job(ada)
    await ada.app.suggestions.dismiss(found.id)
    await ada.app.jobs.of("ada").update("work", timeout="1m")
    await ada.spend(timing_out("work", HOUR, MINUTE, lambda _: 2 * MINUTE), days=7)
    assert (await analyze(ada)).opened == 1
    (again,) = await suggestions(ada, "open")
    assert again.change == {"timeoutMs": 2 * MINUTE}


# --- evaluation -----------------------------------------------------------------------------------------


async def test_a_suggestion_that_helped_stays_applied(ada: EvolvingAgent) -> None:
    found = await timing_out_job(ada)
    await ada.app.suggestions.apply(found.id)
    assert await evaluate(ada) == EvaluationResult(evaluated=0, rolled_back=0)  # too early
    await ada.spend(timing_out("work", HOUR, MINUTE, lambda _: 50 * SECOND), days=7)
    assert await evaluate(ada) == EvaluationResult(evaluated=1, rolled_back=0)
    after = await ada.app.suggestions.get(found.id)
    assert after.status == "applied"
    assert after.evaluation == {
        "verdict": "improved", "figure": "lostMsPerRun", "before": 30_000, "after": 0, "ticks": 168,
    }  # fmt: skip


async def test_a_suggestion_that_made_its_figure_worse_is_rolled_back(ada: EvolvingAgent) -> None:
    found = await timing_out_job(ada)
    await ada.app.suggestions.apply(found.id)
    applied = await ada.job()
    # All runs still end at the timeout, which takes twice as long now.
    month = timing_out("work", HOUR, MINUTE, lambda _: HOUR)
    await ada.spend(month, days=7)
    assert await evaluate(ada) == EvaluationResult(evaluated=1, rolled_back=1)
    after = await ada.app.suggestions.get(found.id)
    assert (after.status, after.decided_by) == ("rolled_back", "wakeful")
    assert after.evaluation is not None
    assert (after.evaluation["verdict"], after.evaluation["after"]) == ("worse", 60_000)
    restored = await ada.job()
    assert json.loads(restored.policy)["timeoutMs"] == 30_000
    assert restored.version == applied.version + 1
    last = (await ada.app.store.audit("default"))[-1]
    assert (last.action, last.actor) == ("suggestion.rollback", "wakeful")
    # It does not return, although the old timeout is hit again.
    await ada.spend(timing_out("work", HOUR, 30 * SECOND, lambda _: HOUR), days=7)
    assert (await analyze(ada)).opened == 0
    assert await evaluate(ada) == EvaluationResult(evaluated=0, rolled_back=0)


@on_one_store
async def test_an_unreadable_job_does_not_stop_the_evaluation_of_the_others(ada: EvolvingAgent) -> None:
    for name in ("broken", "work"):
        await ada.add(name, timeout="30s")
        await ada.spend(timing_out(name, HOUR, 30 * SECOND, lambda _: 50 * SECOND), days=7)
    await analyze(ada)
    for each in await suggestions(ada, "open"):
        await ada.app.suggestions.apply(each.id)
    broken = await ada.job("broken")
    await ada.app.store.change_job(broken.id, lambda row: JobChange(row._replace(policy='{"jitterMs":"x"}')))
    await ada.spend(timing_out("work", HOUR, MINUTE, lambda _: HOUR), days=7)
    assert await evaluate(ada) == EvaluationResult(evaluated=1, rolled_back=1)
    assert {each.job: each.status for each in await suggestions(ada)} == {
        "broken": "applied",
        "work": "rolled_back",
    }


@on_one_store
async def test_a_wider_interval_that_overlaps_even_more_is_rolled_back(ada: EvolvingAgent) -> None:
    await ada.add(schedule="every 10m")
    await ada.spend(overlapping("work", 10 * MINUTE, lambda _: 15 * MINUTE))
    await analyze(ada)
    (found,) = await suggestions(ada, "open")
    await ada.app.suggestions.apply(found.id)
    await ada.spend(overlapping("work", 20 * MINUTE, lambda _: 100 * MINUTE), days=7)
    assert (await evaluate(ada)).rolled_back == 1
    shown = await ada.app.jobs.of("ada").get("work")
    assert shown.schedule == Every(10 * MINUTE)


@on_one_store
async def test_a_job_that_was_edited_since_is_left_alone(ada: EvolvingAgent) -> None:
    found = await timing_out_job(ada)
    await ada.app.suggestions.apply(found.id)
    await ada.app.jobs.of("ada").update("work", timeout="2m")
    edited = await ada.job()
    await ada.spend(timing_out("work", HOUR, 2 * MINUTE, lambda _: HOUR), days=7)
    assert await evaluate(ada) == EvaluationResult(evaluated=1, rolled_back=0)
    after = await ada.app.suggestions.get(found.id)
    assert after.evaluation is not None
    assert (after.status, after.evaluation["verdict"]) == ("applied", "superseded")
    assert await ada.job() == edited
    assert await evaluate(ada) == EvaluationResult(evaluated=0, rolled_back=0)


@on_one_store
async def test_a_pause_that_a_person_ends_is_not_repeated(ada: EvolvingAgent) -> None:
    await ada.add()
    await ada.spend(failing("work", HOUR, lambda _: True))
    await analyze(ada)
    (found,) = await suggestions(ada, "open")
    await ada.app.suggestions.apply(found.id)
    assert not (await ada.job()).enabled
    ada.clock.advance(timedelta(days=7))
    assert await evaluate(ada) == EvaluationResult(evaluated=1, rolled_back=0)
    assert (await ada.app.suggestions.get(found.id)).evaluation == {
        "verdict": "improved", "figure": "failedPerDay", "before": found.figures["failedPerDay"],
        "after": 0.0, "ticks": 0,
    }  # fmt: skip
    await ada.app.jobs.of("ada").resume("work")
    assert (await evaluate(ada)).evaluated == 1
    assert (await ada.job()).enabled


# --- who may --------------------------------------------------------------------------------------------


@on_one_store
async def test_an_agent_reads_its_suggestions_and_only_an_admin_decides(ada: EvolvingAgent) -> None:
    found = await timing_out_job(ada)
    service = ada.app.services.admin.suggestions
    agent = Principal("key:1", "agent", "default", "ada")
    member = Principal("key:2", "member", "default")
    other = Principal("key:3", "agent", "default", "bob")
    for reader in (agent, member):
        assert (await service.get(reader, "default", found.id)).id == found.id
        assert len(await service.list(reader, "default")) == 1
        for decide in (service.apply, service.dismiss, service.rollback):
            with pytest.raises(PermissionDenied, match="it takes the role admin"):
                await decide(reader, "default", found.id)
    assert await service.list(other, "default") == []
    for call in (service.get, service.apply, service.dismiss, service.rollback):
        with pytest.raises(NotFound, match="no suggestion"):
            await call(other, "default", found.id)
    assert (await ada.app.suggestions.get(found.id)).status == "open"


# --- HTTP -----------------------------------------------------------------------------------------------


@on_one_store
async def test_suggestions_over_http(ada: EvolvingAgent) -> None:
    found = await timing_out_job(ada)
    async with served(ada.app) as ask:
        await _over_http(ask, found)


async def _over_http(ask: ApiClient, found: Suggestion) -> None:
    listed = await ask("GET", "/suggestions", status="open", agent="ada", job="work")
    (shown,) = listed.body["suggestions"]
    assert listed.body["cursor"] is None
    assert shown["id"] == found.id
    assert shown["summary"] == "672 of 672 runs ended at the timeout of 30 seconds; allow 1 minute."
    assert shown["change"] == {"timeoutMs": 60_000}
    assert shown["before"] == {"timeoutMs": 30_000}
    assert shown["figures"]["lostMsPerRun"] == 30_000
    assert (await ask("GET", f"/suggestions/{found.id}")).body == shown
    applied = await ask("POST", f"/suggestions/{found.id}/apply")
    assert (applied.status, applied.body["status"]) == (200, "applied")
    again = await ask("POST", f"/suggestions/{found.id}/apply")
    assert (again.status, again.code) == (409, "failed-precondition")
    assert (await ask("POST", f"/suggestions/{found.id}/dismiss")).status == 409
    assert (await ask("GET", "/suggestions", status="open")).body["suggestions"] == []
    back = await ask("POST", f"/suggestions/{found.id}/rollback")
    assert (back.status, back.body["status"]) == (200, "rolled_back")
    assert (await ask("GET", "/suggestions", status="nonsense")).code == "invalid-argument"
    assert (await ask("GET", "/suggestions/no-such-id")).code == "not-found"
    assert (await ask("GET", "/suggestions", agent="nobody")).code == "not-found"
