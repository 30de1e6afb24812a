"""What follows from the directives of handlers."""

from __future__ import annotations

import pytest

from wakeful.document import Defaults, read_definition
from wakeful.job.job import AGENT_INACTIVE, Definition, JobRecord, ScheduleKey
from wakeful.job.policy import DEFAULT_POLICY
from wakeful.run.instances import (
    DIRECTIVE_REFUSED,
    MAX_DELAYS,
    MAX_SCHEDULES,
    AgentClass,
    ScheduleChange,
    Send,
    instance_id,
)
from wakeful.run.job_transitions import CANCELLED_BY_AGENT, disable_job, pause_job, schedule_job
from wakeful.run.outcome import Failed, Finished, Handled, Succeeded, conclude
from wakeful.run.signal_rules import (
    InstanceFacts,
    SignalFacts,
    instances_to_lock,
    refuse,
    signal_effects,
    signal_run,
)

NOW_MS = 1_800_000_000_000
CLASS = AgentClass("default", "report", 2, "{}", mailbox=3, dedupe_ms=1_000, lane="team")
OWN = instance_id("default", "report", "eu")
OTHER = instance_id("default", "report", "us")
HANDLED = Handled("default", "report", "eu", revision=7, version=2)


def outcome_of(handled: Handled, run_id: str = "r1") -> Finished:
    return conclude(
        run_id, None, 1, DEFAULT_POLICY, Succeeded(handled=handled), NOW_MS - 5, NOW_MS,
        instance_id=handled.instance_id,
    )  # fmt: skip


FACTS = SignalFacts({OWN: InstanceFacts("active", 7, 0)}, {("default", "report"): CLASS})


def definition_of(expr: str = "0 6 * * *") -> Definition:
    document = {"name": "eu-daily", "schedule": expr, "target": {"kind": "pull"}}
    return read_definition(document, now_ms=NOW_MS, defaults=Defaults())


def job_of(key: ScheduleKey, definition: Definition) -> JobRecord:
    job = schedule_job(key, "default", "report", definition, None, NOW_MS, "agent:report/eu")
    assert job is not None
    return job


def send_to(instance: str = "us", signal_id: str | None = None, delay_ms: int = 0) -> Send:
    return Send("report", instance, "report.ready", '{"type":"report.ready"}', "/a", signal_id, delay_ms)


class TestRefusal:
    def test_directives_that_can_be_stored_are_not_refused(self) -> None:
        outcome = outcome_of(HANDLED._replace(sends=(send_to(),) * 3))
        assert refuse([outcome], FACTS) == [outcome]

    def test_a_signal_that_does_not_fit_makes_the_attempt_fail(self) -> None:
        outcome = outcome_of(HANDLED._replace(data='{"count":1}', sends=(send_to(),) * 4))
        (refused,) = refuse([outcome], FACTS)
        assert (refused.state, refused.reason, refused.handled) == ("retrying", DIRECTIVE_REFUSED, None)
        assert str(refused.error) == (
            "Emit: the mailbox of instance 'us' of agent 'report' is full (3 signals wait)"
        )
        assert refused.failed_attempts == 1
        assert signal_effects([refused], FACTS, NOW_MS).instances == []

    def test_delays_have_a_limit_of_their_own(self) -> None:
        many = FACTS._replace(instances={OWN: InstanceFacts("active", 7, 3, delayed=MAX_DELAYS - 1)})
        one, two = (outcome_of(HANDLED._replace(sends=(send_to("eu", delay_ms=5),) * n)) for n in (1, 2))
        assert refuse([one], many) == [one]
        (refused,) = refuse([two], many)
        assert str(refused.error).startswith("Delay: instance 'eu' of agent 'report' has 10000 delays")
        replacing = outcome_of(two.handled._replace(delay_ids=("a",)) if two.handled else HANDLED)
        assert refuse([replacing], many._replace(delays={(OWN, "a"): "r9"})) == [replacing]

    def test_the_last_attempt_is_a_dead_letter(self) -> None:
        outcome = conclude(
            "r1", None, 5, DEFAULT_POLICY, Succeeded(handled=HANDLED._replace(sends=(send_to(),) * 4)),
            NOW_MS, NOW_MS, failed_attempts=4, instance_id=OWN,
        )  # fmt: skip
        (refused,) = refuse([outcome], FACTS)
        assert (refused.state, refused.failed_attempts) == ("failed", 5)

    def test_a_refused_outcome_leaves_room_for_the_next_one(self) -> None:
        first = outcome_of(HANDLED._replace(sends=(send_to(),) * 4))
        second = outcome_of(HANDLED._replace(sends=(send_to(),) * 3), "r2")
        assert [each.state for each in refuse([first, second], FACTS)] == ["retrying", "succeeded"]

    def test_outcomes_of_a_batch_share_the_room_of_a_mailbox(self) -> None:
        first = outcome_of(HANDLED._replace(sends=(send_to(),) * 2))
        second = outcome_of(HANDLED._replace(sends=(send_to(),) * 2), "r2")
        assert [each.state for each in refuse([first, second], FACTS)] == ["succeeded", "retrying"]

    def test_a_duplicate_takes_no_room(self) -> None:
        full = FACTS._replace(
            instances={OWN: InstanceFacts("active", 7, 0), OTHER: InstanceFacts("active", 0, 3)},
            duplicates=frozenset({(OTHER, "/a", "s1")}),
        )
        outcome = outcome_of(HANDLED._replace(sends=(send_to(signal_id="s1"),)))
        assert refuse([outcome], full) == [outcome]
        assert signal_effects([outcome], full, NOW_MS).arrivals == []

    @pytest.mark.parametrize(
        ("facts", "message"),
        [
            (FACTS._replace(classes={}), "agent 'report' has no class"),
            (
                FACTS._replace(
                    instances={OWN: InstanceFacts("active", 7, 0), OTHER: InstanceFacts("stopped", 0, 0)}
                ),
                "is stopped; start it",
            ),
            (
                FACTS._replace(instances={OWN: InstanceFacts("active", 8, 0)}),
                "was changed while the handler ran",
            ),
            (FACTS._replace(instances={}), "was changed while the handler ran"),
        ],
    )
    def test_reasons(self, facts: SignalFacts, message: str) -> None:
        (refused,) = refuse([outcome_of(HANDLED._replace(sends=(send_to(),)))], facts)
        assert message in str(refused.error)

    def test_an_instance_has_a_limited_number_of_schedules(self) -> None:
        change = ScheduleChange("daily", definition_of())
        full = FACTS._replace(instances={OWN: InstanceFacts("active", 7, 0, MAX_SCHEDULES)})
        (refused,) = refuse([outcome_of(HANDLED._replace(schedules=(change,)))], full)
        assert refused.reason == DIRECTIVE_REFUSED
        key = ScheduleKey(OWN, "dynamic", "daily")
        outcome = outcome_of(HANDLED._replace(schedules=(change,)))
        assert refuse([outcome], full._replace(job_ids={key: "j1"})) == [outcome]


class TestEffects:
    def test_the_state_is_written_with_its_version(self) -> None:
        effects = signal_effects([outcome_of(HANDLED._replace(data='{"count":1}'))], FACTS, NOW_MS)
        (update,) = effects.instances
        assert (update.instance_id, update.data, update.version, update.status) == (
            OWN, '{"count":1}', 2, None,
        )  # fmt: skip

    def test_a_failed_attempt_changes_nothing(self) -> None:
        failed = conclude("r1", None, 1, DEFAULT_POLICY, Failed("no"), NOW_MS, NOW_MS, instance_id=OWN)
        effects = signal_effects([failed], FACTS, NOW_MS)
        assert not any(effects)

    def test_a_blocked_instance_keeps_its_state(self) -> None:
        blocked = Failed("cannot", counted=False, handled=HANDLED._replace(block="cannot read"))
        outcome = conclude("r1", None, 1, DEFAULT_POLICY, blocked, NOW_MS, NOW_MS, instance_id=OWN)
        (update,) = signal_effects(refuse([outcome], FACTS), FACTS, NOW_MS).instances
        assert (update.status, update.note, update.data) == ("blocked", "cannot read", None)

    def test_a_delay_counts_from_the_commit(self) -> None:
        outcome = outcome_of(HANDLED._replace(sends=(send_to("eu", delay_ms=5_000),)))
        (arrival,) = signal_effects([outcome], FACTS, NOW_MS + 40).arrivals
        run = arrival.run
        assert (run.fire_ms, run.due_ms, run.state) == (NOW_MS + 5_040, None, "pending")
        assert (run.instance, run.signal, run.trigger, run.triggered_by) == (
            "eu", "report.ready", "signal", "r1",
        )  # fmt: skip

    def test_stop_deletes_all_schedules_and_keeps_signals_to_others(self) -> None:
        keys = ScheduleKey(OWN, "declared", "daily"), ScheduleKey(OWN, "dynamic", "daily")
        other = ScheduleKey(OTHER, "declared", "daily")
        facts = FACTS._replace(job_ids={keys[0]: "j1", keys[1]: "j2", other: "j3"})
        outcome = outcome_of(HANDLED._replace(stop=True, sends=(send_to("eu"), send_to("us"))))
        effects = signal_effects([outcome], facts, NOW_MS)
        assert effects.stopped == [OWN]
        assert set(effects.deleted) == {"j1", "j2"}
        assert effects.instances[0].status == "stopped"
        assert [arrival.run.instance for arrival in effects.arrivals] == ["us"]

    def test_the_key_of_a_signal_with_an_id_follows_from_the_id(self) -> None:
        one, two = (signal_run(CLASS, "eu", "a", "{}", NOW_MS, source="/a", signal_id="s1") for _ in range(2))
        assert one.run.id != two.run.id
        assert one.run.idempotency_key == two.run.idempotency_key
        assert one.expires_ms == NOW_MS + 1_000
        assert signal_run(CLASS, "eu", "a", "{}", NOW_MS).run.idempotency_key != one.run.idempotency_key

    def test_instances_are_locked_in_one_order(self) -> None:
        outcome = outcome_of(HANDLED._replace(sends=(send_to("us"), send_to("b"), send_to("a"))))
        ids = instances_to_lock([outcome])
        assert ids == sorted(ids)
        assert set(ids) == {OWN, *(instance_id("default", "report", name) for name in ("us", "a", "b"))}


class TestSchedules:
    KEY = ScheduleKey(OWN, "dynamic", "daily")

    def test_a_new_schedule_is_a_job(self) -> None:
        outcome = outcome_of(HANDLED._replace(schedules=(ScheduleChange("daily", definition_of()),)))
        (job,) = signal_effects([outcome], FACTS, NOW_MS).created
        assert (job.schedule_key, job.enabled, job.created_by) == (self.KEY, True, "agent:report/eu")
        assert job.next_ms is not None

    def test_the_same_definition_changes_nothing(self) -> None:
        old = job_of(self.KEY, definition_of())
        facts = FACTS._replace(schedules={self.KEY: old}, job_ids={self.KEY: old.id})
        outcome = outcome_of(HANDLED._replace(schedules=(ScheduleChange("daily", definition_of()),)))
        effects = signal_effects([outcome], facts, NOW_MS + 1)
        assert (effects.created, effects.changed, effects.deleted) == ([], [], {})

    def test_another_definition_replaces_the_old_one_in_the_same_job(self) -> None:
        old = job_of(self.KEY, definition_of())
        facts = FACTS._replace(schedules={self.KEY: old}, job_ids={self.KEY: old.id})
        change = ScheduleChange("daily", definition_of("0 7 * * *"))
        (job,) = signal_effects([outcome_of(HANDLED._replace(schedules=(change,)))], facts, NOW_MS).changed
        assert job.id == old.id
        assert job.next_ms != old.next_ms

    def test_the_last_directive_of_a_list_counts(self) -> None:
        changes = (
            ScheduleChange("daily", definition_of()),
            ScheduleChange("daily"),
            ScheduleChange("weekly"),
            ScheduleChange("weekly", definition_of("@weekly")),
        )
        outcome = outcome_of(HANDLED._replace(schedules=changes))
        effects = signal_effects([outcome], FACTS, NOW_MS)
        assert [job.schedule_key.schedule_id for job in effects.created if job.schedule_key] == ["weekly"]
        assert effects.deleted == {}

    def test_cancelling_an_unknown_schedule_changes_nothing(self) -> None:
        outcome = outcome_of(HANDLED._replace(schedules=(ScheduleChange("daily"),)))
        assert signal_effects([outcome], FACTS, NOW_MS)[1:] == ([], [], {}, [], [], [], [])

    def test_a_declared_schedule_that_is_cancelled_is_disabled(self) -> None:
        key = ScheduleKey(OWN, "declared", "daily")
        old = job_of(key, definition_of())
        facts = FACTS._replace(schedules={key: old}, job_ids={key: old.id})
        change = ScheduleChange("daily", declared=True)
        (job,) = signal_effects([outcome_of(HANDLED._replace(schedules=(change,)))], facts, NOW_MS).changed
        assert (job.enabled, job.disabled_reason, job.next_ms) == (False, CANCELLED_BY_AGENT, None)

    def test_a_declared_schedule_that_the_instance_does_not_have_yet_is_created_disabled(self) -> None:
        change = ScheduleChange("daily", definition_of(), declared=True)
        (job,) = signal_effects([outcome_of(HANDLED._replace(schedules=(change,)))], FACTS, NOW_MS).created
        assert job.schedule_key == ScheduleKey(OWN, "declared", "daily")
        assert (job.enabled, job.disabled_reason) == (False, CANCELLED_BY_AGENT)

    def test_a_schedule_that_cannot_be_read_is_replaced(self) -> None:
        facts = FACTS._replace(schedules={self.KEY: None}, job_ids={self.KEY: "j1"})
        outcome = outcome_of(HANDLED._replace(schedules=(ScheduleChange("daily", definition_of()),)))
        effects = signal_effects([outcome], facts, NOW_MS)
        assert list(effects.deleted) == ["j1"]
        assert len(effects.created) == 1

    def test_a_schedule_that_a_person_paused_stays_paused(self) -> None:
        old = pause_job(job_of(self.KEY, definition_of()), NOW_MS, "maintenance")
        again = schedule_job(self.KEY, "default", "report", definition_of("@hourly"), old, NOW_MS, "")
        assert again is not None
        assert (again.enabled, again.pause_note) == (False, "maintenance")
        off = disable_job(old, NOW_MS, "failed")
        enabled = schedule_job(self.KEY, "default", "report", definition_of(), off, NOW_MS, "")
        assert enabled is not None
        assert enabled.enabled

    def test_of_an_inactive_agent_schedules_wait_until_it_is_active_unless_they_are_cancelled(self) -> None:
        off = disable_job(job_of(self.KEY, definition_of()), NOW_MS, "failed")
        waits = schedule_job(self.KEY, "default", "report", definition_of(), off, NOW_MS, "", active=False)
        assert waits is not None
        assert (waits.enabled, waits.disabled_reason) == (False, AGENT_INACTIVE)
        declared = ScheduleKey(OWN, "declared", "daily")
        facts = FACTS._replace(schedules={declared: waits}, job_ids={declared: waits.id})
        change = ScheduleChange("daily", declared=True)
        (job,) = signal_effects([outcome_of(HANDLED._replace(schedules=(change,)))], facts, NOW_MS).changed
        assert (job.enabled, job.disabled_reason) == (False, CANCELLED_BY_AGENT)
