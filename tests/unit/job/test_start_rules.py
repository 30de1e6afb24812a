"""Whether a run may start: budgets, active hours, and the triggers and attempts that they apply to."""

from __future__ import annotations

from datetime import datetime
from itertools import product
from typing import get_args
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.job.job import Work
from wakeful.job.start_rules import (
    ALLOWED,
    BudgetBlock,
    BudgetOwner,
    StartDecision,
    find_block,
    is_skipped,
    may_start,
)
from wakeful.run.factory import follow_up_run
from wakeful.run.run import Follower, TriggerName
from wakeful.schedule.day_rules import within

TRIGGERS = get_args(TriggerName)
TZ = "Asia/Kathmandu"
BY_DAY = Work(active_hours="08:00-22:00", hours_tz=TZ)
BLOCK = BudgetBlock(20_000, "acme", "writer", "", "tokensPerDay", 1000.0)


def ms(text: str, tz: str = TZ) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).timestamp() * 1000)


NIGHT, DAY = ms("2027-03-01T23:00"), ms("2027-03-01T12:00")

# --- active hours ---------------------------------------------------------------------------------


@pytest.mark.parametrize("trigger", ["schedule", "chain", "heartbeat"])
def test_an_automatic_run_starts_within_its_active_hours_only(trigger: str):
    assert may_start(trigger, 1, BY_DAY, DAY, None)
    assert may_start(trigger, 1, Work(), NIGHT, None)
    assert may_start(trigger, 1, BY_DAY, NIGHT, None) == (
        "outside_hours",
        "the job runs from 08:00 to 22:00 (Asia/Kathmandu)",
    )


@pytest.mark.parametrize("trigger", ["user", "agent", "replay", "backfill", "alert"])
def test_a_requested_run_starts_at_any_hour(trigger: str):
    assert may_start(trigger, 1, BY_DAY, NIGHT, None)


def test_active_hours_without_a_zone_are_in_utc():
    work = Work(active_hours="08:00-09:00")

    assert may_start("schedule", 1, work, ms("2027-03-01T08:30", "UTC"), None)
    assert not may_start("schedule", 1, work, ms("2027-03-01T09:00", "UTC"), None)


# --- budgets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("trigger", [each for each in TRIGGERS if each != "alert"])
def test_a_run_does_not_start_when_its_budget_is_used_up(trigger: str):
    assert may_start(trigger, 2, Work(), DAY, BLOCK).reason == "budget"
    assert may_start(trigger, 1, Work(), DAY, BLOCK) == (
        "budget",
        "agent 'writer' has used its budget of 1000 tokens a day (tokensPerDay); "
        "wait until midnight UTC, or raise the budget",
    )


def test_a_run_that_a_budget_ends_is_skipped_only_if_nobody_asked_for_it_and_it_has_not_started():
    skipped = {trigger for trigger in TRIGGERS if is_skipped(trigger, retried=False)}
    assert skipped == {"schedule", "chain", "heartbeat", "backfill"}
    assert not any(is_skipped(trigger, retried=True) for trigger in TRIGGERS)


def test_an_alert_is_sent_though_the_budget_is_used_up():
    assert may_start("alert", 1, Work(), DAY, BLOCK)


@pytest.mark.parametrize(
    ("block", "subject"),
    [
        (BudgetBlock(1, "acme", "writer", "j1", "costPerDay", 0.25), "job 'digest' has used its budget of"),
        (BudgetBlock(1, "acme", "writer", "", "costPerDay", 0.25), "agent 'writer' has used its budget of"),
        (BudgetBlock(1, "acme", "", "", "costPerDay", 0.25), "workspace 'acme' has used its budget of"),
    ],
)
def test_the_message_names_what_the_budget_applies_to(block: BudgetBlock, subject: str):
    decision = may_start("schedule", 1, Work(), DAY, block, "digest")

    assert decision.message.startswith(f"{subject} 0.25 a day (costPerDay)")


def test_the_budget_of_the_job_is_found_before_those_of_its_agent_and_workspace():
    owners = [BudgetOwner("acme", "writer", "j1"), BudgetOwner("acme", "writer"), BudgetOwner("acme")]
    blocks = {owner: BudgetBlock(1, *owner, "tokensPerDay", 5.0) for owner in owners}

    for owner in owners:
        assert find_block(blocks, "acme", "writer", "j1") == blocks[owner]
        del blocks[owner]
    assert find_block(blocks, "acme", "writer", "j1") is None


def test_the_budget_of_another_job_agent_or_workspace_does_not_apply():
    others = [BudgetOwner("acme", "writer", "j2"), BudgetOwner("acme", "reader"), BudgetOwner("other")]
    blocks = {owner: BudgetBlock(1, *owner, "tokensPerDay", 5.0) for owner in others}

    assert find_block(blocks, "acme", "writer", "j1") is None
    assert find_block(blocks, "acme", "writer", None) is None


# --- properties -----------------------------------------------------------------------------------

works = st.builds(
    Work,
    active_hours=st.sampled_from([None, "08:00-22:00", "22:00-06:00"]),
    hours_tz=st.sampled_from([None, "UTC", TZ, "America/New_York"]),
)
instants = st.integers(0, 4_000_000_000_000)
maybe_blocked = st.sampled_from([None, BLOCK])


@given(st.sampled_from(TRIGGERS), st.integers(2, 50), works, instants)
def test_a_later_attempt_starts_at_any_hour(trigger: str, attempt: int, work: Work, at_ms: int):
    assert may_start(trigger, attempt, work, at_ms, None) is ALLOWED


@given(st.sampled_from(TRIGGERS), works, instants)
def test_a_used_up_budget_only_adds_refusals(trigger: str, work: Work, at_ms: int):
    without, blocked = (may_start(trigger, 1, work, at_ms, block) for block in (None, BLOCK))

    assert without or not blocked
    assert blocked == without or blocked.reason == "budget"


@given(st.sampled_from(TRIGGERS), works, instants, maybe_blocked)
def test_a_request_is_refused_exactly_if_a_budget_is_used_up(
    trigger: str, work: Work, at_ms: int, block: BudgetBlock | None
):
    assert bool(may_start(trigger, 1, work, at_ms, block, at_request=True)) is (block is None)


@given(st.sampled_from(["schedule", "chain", "heartbeat"]), works, instants)
def test_an_automatic_run_without_a_used_up_budget_starts_exactly_within_its_hours(
    trigger: str, work: Work, at_ms: int
):
    hours = work.active_hours
    open_now = hours is None or within(hours, work.hours_tz or "UTC", at_ms)

    assert bool(may_start(trigger, 1, work, at_ms, None)) is open_now


def test_a_refusal_has_a_reason_and_a_message_and_an_allowed_start_has_neither():
    for trigger, attempt, at_ms, block in product(TRIGGERS, (1, 2), (NIGHT, DAY), (None, BLOCK)):
        decision = may_start(trigger, attempt, BY_DAY, at_ms, block)
        assert bool(decision) == (decision.reason is None) == (decision.message == "")
        assert isinstance(decision, StartDecision)


# --- follow-up runs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "at_ms", "state"),
    [
        ('{"activeHours":"08:00-22:00","hoursTz":"Asia/Kathmandu"}', NIGHT, "skipped"),
        ('{"activeHours":"08:00-22:00","hoursTz":"Asia/Kathmandu"}', DAY, "pending"),
        ("{}", NIGHT, "pending"),
        # A worker takes it, and skips it with a message.
        (
            '{"activeHours":"08:00-22:00","hoursTz":"Asia/Kathmandu","target":{"kind":"function"}}',
            NIGHT,
            "pending",
        ),
    ],
    ids=["at night", "by day", "without hours", "not a pull run"],
)
def test_a_follow_up_pull_run_outside_its_hours_is_skipped_at_once(work: str, at_ms: int, state: str):
    follower = Follower("j", "default", "default", "heartbeat", "{}", work, "r", at_ms, "heartbeat")

    run = follow_up_run(follower)

    assert run.state == state
    if state == "skipped":
        assert (run.reason, run.attempt, run.due_ms, run.claim_deadline_ms) == (
            "outside_hours",
            0,
            None,
            None,
        )
        assert run.finished_ms == at_ms
