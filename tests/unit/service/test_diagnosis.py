"""The rules of `wakeful doctor`, with values on both sides of each threshold."""

from __future__ import annotations

import pytest

from wakeful.job.start_rules import Requirement
from wakeful.model.reports import Check
from wakeful.service.admin import diagnosis as rules
from wakeful.store.sql.event_figures import EventFigures
from wakeful.store.stats import DueRequirement


def test_a_function_that_no_replica_has_is_an_error():
    due = [
        DueRequirement(Requirement("function:digest"), 3, 0),
        DueRequirement(Requirement("agent:a/b", 2), 1, 0),
    ]
    having = {"": 0, "function:digest": 0}
    assert _state(rules.check_functions(due, [{"": 0}, {**having, "agent:a/b": 2}])) == "ok"
    assert _state(rules.check_functions([], [])) == "ok"
    check = rules.check_functions(due, [{"": 0}, {"agent:a/b": 1}])
    assert (_state(check), check.message) == (
        "error",
        "no running replica has the function 'digest' (3 runs due), "
        "version 2 of the class of agent 'b' (1 run due)",
    )


def _state(check: Check) -> str:
    assert (check.state in ("ok", "unknown")) == (check.action is None)
    return check.state


def test_a_slow_database_is_a_warning_and_one_that_does_not_respond_an_error():
    assert _state(rules.check_database("sqlite:///a.db", rules.SLOW_MS, None)) == "ok"
    assert _state(rules.check_database("sqlite:///a.db", rules.SLOW_MS + 1, None)) == "warning"
    failed = rules.check_database("sqlite:///a.db", None, "connection refused")
    assert (_state(failed), failed.message) == ("error", "connection refused")


@pytest.mark.parametrize(("schema", "state"), [(9, "error"), (10, "ok"), (11, "warning")])
def test_the_schema_of_the_database_is_compared_with_the_newest(schema: int, state: str):
    assert _state(rules.check_schema(schema, newest=10)) == state


def test_clocks_that_differ_by_more_than_a_second_are_a_warning():
    for skew_ms, state in ((1_000, "ok"), (-1_000, "ok"), (1_001, "warning"), (-61_500, "warning")):
        check = rules.check_clock("clock", skew_ms, "the first", "the second")
        assert _state(check) == state
    assert check.message == "the second is 1 minute 1 second ahead of the first"


def test_an_engine_that_does_not_plan_is_an_error():
    assert _state(rules.check_engine(True, [], 0.5, None)) == "ok"
    assert _state(rules.check_engine(True, [], 0.5, rules.LATE_MS)) == "ok"
    assert _state(rules.check_engine(True, [], 0.5, -5_000)) == "ok"  # the next job is due in the future
    assert _state(rules.check_engine(True, [], 0.5, rules.LATE_MS + 1)) == "error"
    stalled = rules.check_engine(True, ["planner"], 90, None)
    assert (_state(stalled), stalled.message) == ("error", "1 loop stalled: planner")
    assert _state(rules.check_engine(False, [], 0.5, None)) == "error"


def test_at_least_one_replica_is_alive():
    assert _state(rules.check_replicas([])) == "error"
    check = rules.check_replicas(["a", "b", "c", "d"])
    assert (_state(check), check.message) == ("ok", "4 replicas alive: a, b, c and 1 more")


def test_a_full_lane_is_a_warning_only_if_runs_wait_for_it():
    used = {"cron": (30, 30), "main": (0, 30)}
    assert _state(rules.check_lanes(used, {})) == "ok"
    assert _state(rules.check_lanes(used, {"main": 5})) == "ok"
    full = rules.check_lanes(used, {"cron": 1})
    assert (_state(full), full.message) == ("warning", "full: cron (30 of 30, 1 run due)")
    missing = rules.check_lanes(used, {"big-jobs": 2})
    assert _state(missing) == "warning"
    assert "WAKEFUL_LANE_BIG_JOBS" in str(missing.action)


def test_runs_that_are_due_for_long_are_a_warning_and_then_an_error():
    assert _state(rules.check_due_runs(0, None)) == "ok"
    assert _state(rules.check_due_runs(3, rules.LATE_MS)) == "ok"
    assert _state(rules.check_due_runs(3, rules.LATE_MS + 1)) == "warning"
    late = rules.check_due_runs(3, rules.VERY_LATE_MS + 1)
    assert (_state(late), late.message) == ("error", "3 runs due, the oldest for 10 minutes")


def test_runs_that_no_executor_claims_name_their_agents():
    assert _state(rules.check_unclaimed(2, rules.LATE_MS, [("default", "ops", 2)])) == "ok"
    check = rules.check_unclaimed(2, rules.LATE_MS + 1, [("default", "ops", 2)])
    assert (_state(check), "default/ops (2)" in check.message) == ("warning", True)


def test_leases_dead_letters_and_incidents():
    assert _state(rules.check_leases(0)) == "ok"
    assert _state(rules.check_leases(1)) == "error"
    assert _state(rules.check_dead_letters([])) == "ok"
    letters = rules.check_dead_letters([("", 3), ("expired", 1)])
    assert (_state(letters), letters.message) == ("warning", "4 dead letters: failed (3), expired (1)")
    assert _state(rules.check_incidents(0, 0)) == "ok"
    assert _state(rules.check_incidents(0, 2)) == "ok"
    assert _state(rules.check_incidents(1, 0)) == "warning"


def test_events_that_wait_and_subscriptions_that_fail():
    fine = EventFigures(3, 0, None, {"active": 2}, 500_000)
    assert _state(rules.check_events(fine, 400_000)) == "ok"
    assert _state(rules.check_events(fine, 500_000 + rules.LATE_MS)) == "ok"
    assert _state(rules.check_events(fine, 501_000 + rules.LATE_MS)) == "error"
    assert _state(rules.check_events(fine._replace(oldest_ms=5), 400_000)) == "error"
    assert _state(rules.check_events(fine._replace(failing=1), 400_000)) == "warning"
    assert _state(rules.check_events(fine._replace(sources={"failed": 1}), 400_000)) == "warning"


def test_jobs_that_come_after_each_other_are_named():
    jobs = [("b", "a"), ("a", "c"), ("c", "b"), ("d", "a"), ("e", "d"), ("self", "self"), ("x", "y")]
    cycles = rules.find_cycles([("default", "ops", name, after) for name, after in jobs])
    assert cycles == [("ops/a", "ops/c", "ops/b"), ("ops/self",)]
    check = rules.check_chains([("default", "ops", "x", "y")], cycles)
    assert _state(check) == "warning"
    assert "ops/a after ops/c after ops/b after ops/a, ops/self after ops/self" in check.message
    assert "schedule" in str(check.action)


def test_channels_that_cannot_be_used_or_whose_deliveries_fail():
    delivered = [("team", "delivered", 9), ("team", "suppressed", 1), ("team", "pending", 1)]
    assert _state(rules.check_channels([], False, [])) == "ok"
    assert _state(rules.check_channels(["team"], True, delivered)) == "ok"
    assert _state(rules.check_channels(["team"], False, delivered)) == "error"
    failed = [("team", "failed", 1), ("team", "unknown", 1)]
    check = rules.check_channels(["team"], True, [*delivered, *failed])
    assert (_state(check), check.message) == ("warning", "2 deliveries failed in the last day: team (2)")


@pytest.mark.parametrize(
    ("free", "total", "state"),
    [
        (50_000_000_000, 1_000_000_000_000, "ok"),  # 5 %, but much
        (900_000_000, 5_000_000_000, "warning"),
        (1_000_000_000, 20_000_000_000, "warning"),  # 5 %
        (1_000_000_000, 100_000_000_000, "error"),  # 1 %
        (99_000_000, 500_000_000, "error"),
    ],
)
def test_a_disk_with_little_space_is_a_warning_or_an_error(free: int, total: int, state: str):
    assert _state(rules.check_disk(1_000, free, total)) == state


def test_the_disk_of_another_machine_is_unknown():
    assert _state(rules.check_disk(1_000, None, None)) == "unknown"


@pytest.mark.parametrize(
    ("public", "private_targets", "key_is_set", "one_machine", "state"),
    [
        (False, True, False, True, "ok"),
        (True, False, True, False, "ok"),
        (True, True, True, True, "warning"),
        (False, False, False, False, "warning"),
    ],
)
def test_settings_that_are_unsafe_together(
    public: bool, private_targets: bool, key_is_set: bool, one_machine: bool, state: str
):
    assert _state(rules.check_settings(public, private_targets, key_is_set, one_machine)) == state


def test_a_database_server_with_too_few_connections_is_a_warning():
    assert _state(rules.check_connections(97, 53, 4, 11)) == "ok"
    few = rules.check_connections(97, 54, 4, 11)
    assert (few.state, few.runbook) == ("warning", "too-many-connections")
    assert few.message == (
        "the database server accepts 97 connections; others use 54, 4 processes of this server may open 44"
    )


def test_an_unknown_check_does_not_change_the_result():
    ok, unknown = Check("a", "ok", ""), rules.check_failed("b", "the database does not respond")
    assert rules.worst([ok, unknown]) == "ok"
    assert rules.worst([ok, rules.check_incidents(1, 0)]) == "warning"
    assert rules.worst([rules.check_incidents(1, 0), rules.check_leases(1)]) == "error"


def test_a_chat_target_that_cannot_be_launched_is_an_error_and_a_key_for_any_host_a_warning():
    assert _state(rules.check_chat(0, [], False)) == "ok"
    broken = rules.check_chat(3, [("default/digest", "there is no key 'openai'")], False, ["openai"])
    assert (broken.state, broken.message) == (
        "error",
        "1 chat target cannot be launched: default/digest (there is no key 'openai')",
    )
    unbound = rules.check_chat(3, [], False, ["openai"])
    assert (unbound.state, unbound.action) == (
        "warning",
        "list the hosts of each key in WAKEFUL_CHAT_HOSTS_…",
    )
    assert rules.check_chat(3, [], True).message == "at least 3 chat targets"
