"""What follows from outcomes, for random batches on a simple model of a database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.run.test_consequences import AT, STATES, candidate, ended, fired
from wakeful.job.start_rules import BudgetOwner
from wakeful.run.consequences import Effects, Facts, consequences, fires_followers, needs, resets_failures
from wakeful.run.incidents import Incident, IncidentJob
from wakeful.run.outcome import Finished
from wakeful.run.usage import Spent

COUNTED = ("succeeded", "failed")
JOBS = ["j0", "j1", "j2"]
FOLLOWERS = [
    ("f0", "j0", "succeeded"),
    ("f1", "j0", "failed"),
    ("f2", "j1", "finished"),
    ("j2", "j1", "failed"),
]
HEARTBEAT = "h0"


@dataclass
class World:
    """Jobs as a simple database has them, to which outcomes are applied."""

    failures: dict[str, int]
    has_next: set[str]
    edited_ms: dict[str, int]
    created_ms: dict[str, int]
    enabled: set[str] = field(default_factory=lambda: {*JOBS, "f0", "f1", "f2"})
    deleted: set[str] = field(default_factory=set)
    heartbeat_waits: bool = False
    fired: list[tuple[str, str]] = field(default_factory=list)
    incidents: dict[str, Incident] = field(default_factory=dict)
    attempts: list[str] = field(default_factory=list)
    deliveries: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    tokens: int = 0

    def facts(self, batch: Sequence[Finished]) -> Facts:
        """Return what a store would read for this batch, and nothing else."""
        need = needs(batch)
        ran = {each.run_id: each.job_id for each in batch}
        troubled = {incident.job_id for incident in self.incidents.values() if incident.is_open}
        failing = [
            job_id for job_id in resets_failures(batch) if self.failures[job_id] > 0 or job_id in troubled
        ]
        live = self.enabled - self.deleted
        return Facts(
            {job_id: self.failures[job_id] for job_id in {*need.failed_jobs, *failing}},
            {job_id for job_id in need.ending_jobs if job_id in self.has_next},
            {
                run_id: (self.created_ms[run_id], self.edited_ms[str(ran[run_id])])
                for run_id in need.ending_runs
            },
            [
                candidate(follower, run_id, on=on)
                for run_id in fires_followers(batch)
                for follower, after, on in FOLLOWERS
                if after == ran[run_id] and follower in live
            ],
            [candidate(HEARTBEAT, run_id, waiting=self.heartbeat_waits) for run_id in need.waking_runs],
            {run_id: BudgetOwner("w", "a", ran[run_id] or "") for run_id in need.usage_runs},
            {
                job_id: IncidentJob(job_id, "w", "a", job_id, has_alerts=True)
                for job_id in need.failed_jobs
                if job_id not in self.deleted
            },
            [
                incident
                for incident in self.incidents.values()
                if incident.job_id in {*need.failed_jobs, *failing, *need.ending_jobs}
            ],
        )

    def story(self) -> list[Incident]:
        """Return the incidents without their ids, which are random."""
        return sorted(incident._replace(id="") for incident in self.incidents.values())

    def apply(self, batch: Sequence[Finished]) -> Effects:
        """Write the effects of a batch."""
        effects = consequences(batch, self.facts(batch))
        self.failures.update(effects.failures)
        self.enabled -= effects.disabled.keys()
        self.deleted |= effects.deleted.keys()
        self.has_next -= {each.job_id for each in effects.withdrawn}
        self.fired += [(str(run.job_id), str(run.triggered_by)) for run in effects.runs]
        self.heartbeat_waits |= any(run.trigger == "heartbeat" for run in effects.runs)
        self.incidents.update((change.incident.id, change.incident) for change in effects.incidents)
        self.attempts += [each.run_id for each in effects.attempts]
        self.deliveries += effects.deliveries
        self.tokens += effects.usage.get((BudgetOwner("w"), 0), Spent()).tokens
        return effects


@st.composite
def outcomes(draw: st.DrawFn, min_size: int = 0) -> list[Finished]:
    batch = []
    for number in range(draw(st.integers(min_size, 9))):
        state = draw(st.sampled_from(STATES))
        over = state in ("succeeded", "failed", "skipped")
        usage = draw(st.none() | st.integers(1, 9))
        batch.append(
            ended(
                state,
                f"r{number}",
                draw(st.sampled_from([*JOBS, None])),
                finished_ms=AT + number,
                delete_job=over and draw(st.integers(0, 4)) == 0,
                disable_job=draw(st.sampled_from([None, None, "gone"])) if state == "failed" else None,
                disable_after=draw(st.none() | st.integers(1, 4)) if state == "failed" else None,
                deliver=draw(st.none() | st.just(("slack", None))) if state == "succeeded" else None,
                wake_heartbeat=state == "succeeded" and draw(st.booleans()),
                usage=None if usage is None else json.dumps({"tokens": usage}),
                reason=draw(st.sampled_from(["timeout", "lost"])) if state == "failed" else None,
            )
        )
    return batch


@st.composite
def worlds(draw: st.DrawFn, *, may_go_on: bool = True) -> World:
    times = st.integers(0, 3)
    return World(
        {job_id: draw(times) for job_id in JOBS},
        draw(st.sets(st.sampled_from(JOBS))) if may_go_on else set(),
        {job_id: draw(times) for job_id in JOBS},
        {f"r{number}": draw(times) for number in range(9)},
    )


def copy(world: World) -> World:
    return World(dict(world.failures), set(world.has_next), world.edited_ms, world.created_ms)


@given(outcomes(), worlds())
def test_counts_are_the_failures_since_the_last_success(batch: list[Finished], world: World) -> None:
    before = dict(world.failures)
    world.apply(batch)
    for job_id in JOBS:
        ends = [
            each.state for each in batch if each.job_id == job_id and each.state in ("succeeded", "failed")
        ]
        trailing = len(ends) - (ends[::-1].index("succeeded") if "succeeded" in ends else 0)
        expected = ends[::-1].index("succeeded") if "succeeded" in ends else before[job_id] + trailing
        assert world.failures[job_id] == expected


@given(outcomes(), worlds())
def test_a_job_has_one_open_incident_for_each_cause_since_its_last_success(
    batch: list[Finished], world: World
) -> None:
    world.apply(batch)
    for job_id in JOBS:
        mine = [each for each in batch if each.job_id == job_id]
        if job_id in world.deleted:
            assert all(each.job_id != job_id or not each.is_open for each in world.incidents.values())
            continue
        last = max((number for number, each in enumerate(mine) if each.state == "succeeded"), default=-1)
        causes = {each.reason for each in mine[last + 1 :] if each.state == "failed"}
        opened = [each.cause for each in world.incidents.values() if each.job_id == job_id and each.is_open]
        assert sorted(opened) == sorted(map(str, causes))
        failed = sum(each.failed_runs for each in world.incidents.values() if each.job_id == job_id)
        assert failed == sum(each.state == "failed" for each in mine)


@given(outcomes(), worlds())
def test_a_job_ends_only_if_an_outcome_of_it_says_so_and_it_does_not_go_on(
    batch: list[Finished], world: World
) -> None:
    before, went_on = dict(world.failures), set()
    for each in batch:
        job_id = each.job_id
        if job_id in world.has_next and (
            each.state == "skipped" or world.edited_ms[job_id] > world.created_ms[each.run_id]
        ):
            went_on.add(each.run_id)
    effects = world.apply(batch)
    ending = [each for each in batch if each.job_id and each.run_id not in went_on]
    deletes = {each.job_id for each in ending if each.delete_job}
    assert effects.deleted.keys() == deletes
    limited = set()
    for job_id in JOBS:
        count = before[job_id]
        for each in batch:
            if each.job_id == job_id:
                count = 0 if each.state == "succeeded" else count + (each.state == "failed")
                if each.state == "failed" and each.disable_after is not None and count >= each.disable_after:
                    limited.add(job_id)
    disables = {each.job_id for each in ending if each.disable_job and not each.delete_job}
    assert effects.disabled.keys() == (disables | limited) - deletes
    assert {(each.job_id, each.manual) for each in effects.withdrawn} == {
        *((job_id, True) for job_id in effects.deleted),
        *((job_id, False) for job_id in effects.disabled),
    }


@given(outcomes(), worlds(may_go_on=False))
def test_one_batch_equals_the_same_outcomes_one_by_one(batch: list[Finished], world: World) -> None:
    one_by_one = copy(world)
    world.apply(batch)
    for each in batch:
        one_by_one.apply([each])
    assert world.failures == one_by_one.failures
    assert world.deleted == one_by_one.deleted
    assert world.enabled - world.deleted == one_by_one.enabled - one_by_one.deleted
    assert world.story() == one_by_one.story()
    assert (world.attempts, world.deliveries) == (one_by_one.attempts, one_by_one.deliveries)
    assert world.tokens == one_by_one.tokens
    ended_jobs = world.deleted | ({*JOBS} - world.enabled)
    fired_alike = [each for each in one_by_one.fired if each[0] not in ended_jobs]
    assert sorted(world.fired) == sorted(fired_alike)


@given(outcomes(), worlds(), st.randoms())
def test_the_order_matters_within_a_job_only(batch: list[Finished], world: World, random: Any) -> None:
    other = copy(world)
    keys = {job_id: random.random() for job_id in (*JOBS, None)}
    first, second = world.apply(batch), other.apply(sorted(batch, key=lambda each: keys[each.job_id]))
    assert first.failures == second.failures
    assert (first.disabled, first.deleted) == (second.disabled, second.deleted)
    assert set(first.withdrawn) == set(second.withdrawn)
    assert world.story() == other.story()
    assert {each.run_id for each in first.attempts} == {each.run_id for each in second.attempts}
    assert sorted(first.deliveries) == sorted(second.deliveries)
    assert first.usage == second.usage
    chains = [{each for each in fired(effects) if each[2] == "chain"} for effects in (first, second)]
    assert chains[0] == chains[1]
    assert len(first.runs) == len(second.runs)


@given(outcomes(min_size=1), worlds())
def test_facts_of_other_jobs_and_runs_change_nothing(batch: list[Finished], world: World) -> None:
    facts = world.facts(batch)
    more = facts._replace(
        failures={**facts.failures, "other": 3},
        has_next={*facts.has_next, "other"},
        edits={**facts.edits, "other": (0, 9)},
        owners={**facts.owners, "other": BudgetOwner("w")},
    )
    effects, same = consequences(batch, facts), consequences(batch, more)
    assert [run._replace(id="", idempotency_key="") for run in same.runs] == [
        run._replace(id="", idempotency_key="") for run in effects.runs
    ]
    assert same._replace(runs=(), incidents=()) == effects._replace(runs=(), incidents=())
    assert len(same.incidents) == len(effects.incidents)
