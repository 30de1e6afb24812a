"""Compares the records of the database with the journals of the chaos test and lists the violations.

It shares no code with Wakeful: it computes the ticks of each job and checks the recorded runs, their steps
and the launches against them. Every tick must have exactly one record, and every record a tick.

Several processes write concurrently. So it reports neither lateness nor an order that two concurrent writes
can explain, only definite violations.

`test_guards` removes each guard to show that the violation is reported. Without the fence in the store's
`FINISH`, the full chaos test reported runs that were changed after their end within half a minute.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

from tests.chaos.jobs import Life, Rules, Stretch
from tests.chaos.launches import Launched
from tests.chaos.records import Beat, Records, Run, Step
from wakeful.job.policy import DEFAULT_POLICY

LIVE = ("pending", "running", "retrying")
OVER = ("succeeded", "failed", "cancelled", "skipped", "missed")
INITIAL_STATES = ("pending", "running", "skipped", "missed")
MOVES = {
    ("pending", "running"), ("pending", "cancelled"),
    ("running", "succeeded"), ("running", "failed"), ("running", "cancelled"), ("running", "retrying"),
    ("retrying", "running"), ("retrying", "cancelled"),
}  # fmt: skip

#: Tolerance between two processes that read one clock: the time of a call, and clock corrections.
HAIR_US = 5_000

#: The end of the error of an attempt that was lost together with other runs of its worker.
TOGETHER = "died with other runs"


@dataclass
class Findings:
    """Counts and violations."""

    ticks: int = 0
    runs: int = 0
    launches: int = 0
    #: runs that were rescued from a worker considered dead
    rescues: int = 0
    #: runs that a worker released
    released: int = 0
    states: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    @property
    def complaints(self) -> list[str]:
        """All violations."""
        return self.lost + self.doubled + self.others


def check(
    lives: list[Life], records: Records, launches: list[Launched], *, lead_ms: int, lease_ms: int
) -> Findings:
    """Check everything after the end. `lead_ms`: how long before its time a run may be recorded."""
    found = Findings(runs=len(records.runs), launches=len(launches))
    rules = {life.job_id: life.rules for life in lives}
    names = {life.job_id: life.name for life in lives}
    ticks = defaultdict(list)
    for run in records.runs:
        found.states[run.state] += 1
        if run.trigger == "schedule":
            ticks[run.job_id].append(run)
        if run.job_id not in rules:
            found.others.append(f"{_short(run)} belongs to an unknown job")
    for life in lives:
        _ticks(found, life, ticks[life.job_id], lead_ms)
    steps = defaultdict(list)
    for step in records.steps:
        steps[step.run_id].append(step)
    begun = defaultdict(list)
    for launch in launches:
        begun[launch.run_id].append(launch)
    for run in records.runs:
        its_rules = rules.get(run.job_id or "", Rules())
        what = f"{names.get(run.job_id or '', 'an unknown job')} {_short(run)}"
        wrong = [*_way(run, steps[run.id]), *_launches(run, its_rules, steps[run.id], begun[run.id])]
        found.others += [f"{what} {each}" for each in wrong]
    known = {run.id for run in records.runs}
    found.others += [f"run {run_id[-6:]} was launched and is not recorded" for run_id in begun.keys() - known]
    found.others += [f"run {run_id[-6:]} was recorded and vanished" for run_id in steps.keys() - known]
    if records.live:
        found.others.append(f"the store believes that {records.live} runs are live, and all are over")
    found.others += _turns(names, records, steps, begun)
    _attempts(found, names, rules, records)
    _rescues(found, names, records, lease_ms)
    return found


def instant(ms: int) -> str:
    """Format a time for messages."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%H:%M:%S.") + f"{ms % 1000:03d}"


def _short(run: Run) -> str:
    return f"{instant(run.scheduled_ms)} ({run.trigger}, {run.state}, {run.id[-6:]})"


# --- every tick has one record, and every record a tick ------------------------------------------------


class _Ticks:
    """The ticks of a stretch: those that may have a record, and how many of them must."""

    def __init__(self, stretch: Stretch, jitter_ms: int, lead_ms: int) -> None:
        until_ms, latest_ms = stretch.until_ms, stretch.until_at_latest_ms
        assert until_ms is not None, "the chaos is over when every job is paused"
        assert latest_ms is not None
        last_ms = latest_ms + jitter_ms + lead_ms
        self.may = stretch.schedule.ticks(stretch.anchor_ms, stretch.after_ms, last_ms)
        self.must = self.may[: bisect_right(self.may, until_ms - jitter_ms)]

    def __contains__(self, tick: int) -> bool:
        index = bisect_left(self.may, tick)
        return index < len(self.may) and self.may[index] == tick

    def between(self, first: int, last: int) -> list[int]:
        """Return the ticks from the first to the last, both included."""
        return self.may[bisect_left(self.may, first) : bisect_right(self.may, last)]


def _ticks(found: Findings, life: Life, runs: list[Run], lead_ms: int) -> None:
    stretches = [_Ticks(stretch, life.rules.jitter_ms, lead_ms) for stretch in life.stretches]
    recorded: dict[int, Run] = {}
    for run in runs:
        what = f"{life.name} {_short(run)}"
        homes = [stretch for stretch in stretches if run.scheduled_ms in stretch]
        if not homes and run.reason != "asked":  # a tick that was skipped ahead of its time
            found.others.append(f"{what} is a run without a tick")
        if run.key != _key(run):
            found.others.append(f"{what} has another key than its tick")
        if abs(run.fire_ms - run.scheduled_ms) > life.rules.jitter_ms and run.fire_ms < run.scheduled_ms:
            found.others.append(f"{what} was to fire {run.scheduled_ms - run.fire_ms} ms before its tick")
        covered = [run.scheduled_ms]
        if run.state == "missed":
            spoken_for = [home.between(run.scheduled_ms, run.until_ms or 0) for home in homes]
            covered = next((ticks for ticks in spoken_for if len(ticks) == run.covers), [])
            if not covered or covered[-1] != run.until_ms:
                counts = ", ".join(str(len(ticks)) for ticks in spoken_for)
                found.others.append(f"{what} covers {run.covers} ticks, not {counts}")
            found.others += [f"{what} {wrong}" for wrong in _wrongly_missed(life.rules, run)]
        elif run.covers != 1 or run.until_ms is not None:
            found.others.append(f"{what} speaks for more than its own tick")
        for tick in covered:
            if tick in recorded:
                other = recorded[tick]
                found.doubled.append(f"{what}: the tick {instant(tick)} has another record, {_short(other)}")
            recorded[tick] = run
    for stretch in stretches:
        found.ticks += len(stretch.must)
        for tick in stretch.must:
            if tick not in recorded:
                found.lost.append(f"{life.name}: the tick {instant(tick)} has no record")


def _wrongly_missed(rules: Rules, run: Run) -> Iterator[str]:
    if run.reason in ("paused", "edited", "deleted"):
        return  # it was not planned before the change
    reasons = {"none": ("downtime",), "latest": ("newer_tick_runs", "too_old")}
    if run.reason not in reasons.get(rules.catchup, ("too_old",)):
        yield f"is missed for '{run.reason}', with the policy {rules.catchup}"
    if run.until_ms is not None and run.created_ms - run.until_ms <= rules.grace_ms:
        yield f"is missed, though only {run.created_ms - run.until_ms} ms late"


def _key(run: Run) -> str:
    seconds, ms = divmod(run.scheduled_ms, 1000)
    text = f"{run.job_id}:{seconds}" + (f".{ms:03d}" if ms else "")
    return hashlib.sha256(text.encode()).hexdigest()


# --- state transitions of runs -------------------------------------------------------------------------


def _way(run: Run, steps: list[Step]) -> Iterator[str]:
    if run.state not in OVER:
        yield "is not over"
    if not steps:
        yield "came from nowhere"
        return
    if steps[0].was is not None or steps[0].state not in INITIAL_STATES:
        yield f"was created {steps[0].state}"
    for before, step in pairwise(steps):
        if before.state in OVER:
            yield f"was changed though it was {before.state}: to {step.state}"
        elif (before.state, step.state) not in MOVES:
            yield f"went from {before.state} to {step.state}"
        elif step.attempt != before.attempt + (before.state == "retrying" and step.state == "running"):
            yield f"went from attempt {before.attempt} ({before.state}) to {step.attempt} ({step.state})"
    if steps[-1].state != run.state:
        yield f"is not as it was left: {steps[-1].state}"


# --- launches ------------------------------------------------------------------------------------------


def _launches(run: Run, rules: Rules, steps: list[Step], launches: list[Launched]) -> Iterator[str]:
    claims: dict[tuple[int, str | None], Step] = {}
    for step in steps:
        if step.state == "running":
            claims.setdefault((step.attempt, None), step)  # of the worker that sent a webhook
            claims[step.attempt, step.worker] = step
    due_ms = {step.attempt + 1: step.due_ms for step in steps if step.state == "retrying"}
    attempts: dict[int, Launched] = {}
    for launch in launches:
        what = f"attempt {launch.attempt}"
        if launch.attempt in attempts:
            yield f"{what} was launched twice"
        if launch.key != run.key:
            yield f"{what} was launched with another key"
        claim = claims.get((launch.attempt, launch.worker))
        if claim is None:
            yield f"{what} was launched by {launch.worker}, who never held it"
        elif launch.at_us < claim.at_us - HAIR_US:
            yield f"{what} was launched before it was recorded"
        not_before_us = 1000 * max(run.fire_ms, due_ms.get(launch.attempt) or 0)
        if launch.at_us < not_before_us - HAIR_US:
            yield f"{what} was launched {(not_before_us - launch.at_us) // 1000} ms too early"
        before = attempts.get(max(attempts, default=0))
        known = rules.on_lost == "fail" and before is not None and before.worker is not None
        if known and before is not None and before.end != "failed":
            yield f"{what} was launched again ({before.end}), though it is not to start twice"
        attempts[launch.attempt] = launch
    if run.state == "succeeded":
        last = attempts.get(run.attempt)
        if last is None or last.end != "succeeded":
            yield f"succeeded, and its attempt {run.attempt} was {last and last.end}"
        elif steps and (last.ended_us or 0) > steps[-1].at_us + HAIR_US:
            yield f"succeeded before its attempt {run.attempt} had ended"


def _attempts(found: Findings, names: dict[str, str], rules: dict[str, Rules], records: Records) -> None:
    """Each attempt but the last has a record, and there are no more than allowed.

    Attempts that a worker released do not count, nor prefetched ones whose worker died before it recorded
    their start, nor the first ones that were lost together with other runs. An attempt that ends by itself
    clears those losses. A webhook cannot have killed its process, so its losses are not counted.
    """
    tried: dict[str, list[int]] = defaultdict(list)
    uncounted: dict[str, int] = defaultdict(int)
    losses: dict[str, int] = defaultdict(int)
    sending = {run.id for run in records.runs if rules.get(run.job_id or "", Rules()).hook}
    unstarted = {(step.run_id, step.attempt) for step in records.steps if step.unstarted}
    for attempt in records.attempts:
        tried[attempt.run_id].append(attempt.attempt)
        if attempt.error == "released":
            uncounted[attempt.run_id] += 1
            found.released += 1
        elif (attempt.error or "").endswith(TOGETHER):
            uncounted[attempt.run_id] += losses[attempt.run_id] < DEFAULT_POLICY.lost_limit
            losses[attempt.run_id] += attempt.run_id not in sending
        elif _died(attempt.error):
            uncounted[attempt.run_id] += (attempt.run_id, attempt.attempt) in unstarted
        else:
            losses[attempt.run_id] = 0
    for run in records.runs:
        what = f"{names.get(run.job_id or '')} {_short(run)}"
        if run.losses != losses[run.id]:
            found.others.append(f"{what} has {run.losses} losses, and was lost {losses[run.id]} times")
        # A run cancelled between two attempts never started the next.
        want = list(range(1, run.attempt + (run.state == "cancelled" and run.attempt in tried[run.id])))
        if tried[run.id] != want:
            found.others.append(f"{what} has the attempt {run.attempt}, and before it {tried[run.id]}")
        most = rules.get(run.job_id or "", Rules()).max_attempts + uncounted[run.id]
        if run.attempt > most:
            why = [attempt.error for attempt in records.attempts if attempt.run_id == run.id]
            found.others.append(f"{what} had {run.attempt} attempts of {most}: {run.losses} losses, {why}")


def _turns(
    names: dict[str, str], records: Records, steps: dict[str, list[Step]], launches: dict[str, list[Launched]]
) -> Iterator[str]:
    """Serial runs of a job run one at a time, and their ticks start in order.

    A run may be recorded as running in the transaction that ends the one before it, or in one that waits for
    its end: the one before must have ended when this one is launched.
    """
    serial = {run.id: run for run in records.runs if run.serial}
    running: dict[str | None, dict[str, Step]] = defaultdict(dict)
    latest: dict[str | None, Run] = {}
    begun: set[str] = set()
    for step in records.steps:
        run = serial.get(step.run_id)
        if run is None:
            continue
        what = f"{names.get(run.job_id or '')} {_short(run)}"
        if step.state != "running":
            running[run.job_id].pop(run.id, None)
            continue
        begun_us = [each.at_us for each in launches[run.id] if each.attempt == step.attempt]
        for other, its_step in running[run.job_id].items():
            after = steps[other][steps[other].index(its_step) + 1 :]
            if begun_us and (not after or after[0].at_us > begun_us[0] + HAIR_US):
                yield f"{what} ran beside {_short(serial[other])}"
        running[run.job_id][run.id] = step
        if run.id not in begun and run.trigger == "schedule":
            begun.add(run.id)
            before = latest.get(run.job_id)
            # A tick that was missed may be caught up later than one of a new schedule that is on time.
            if (
                before is not None
                and before.scheduled_ms > run.scheduled_ms
                and before.fire_ms >= run.fire_ms
            ):
                yield f"{what} started after {_short(before)}, a later tick"
            latest[run.job_id] = run


def _died(error: str | None) -> bool:
    """Return whether an attempt ended because its worker was dead."""
    return (error or "").endswith(("died", TOGETHER))


# --- rescues -------------------------------------------------------------------------------------------


def _rescues(found: Findings, names: dict[str, str], records: Records, lease_ms: int) -> None:
    """Runs are rescued only from a worker without a heartbeat for a lease.

    The rescue may not see a concurrent heartbeat: only those of the first half of the lease count.
    """
    beats: dict[str, list[Beat]] = defaultdict(list)
    for beat in records.beats:
        beats[beat.worker].append(beat)
    runs = {run.id: run for run in records.runs}
    ends = [(each.run_id, each.worker, each.finished_ms, each.error) for each in records.attempts]
    failed = [run for run in records.runs if run.state == "failed"]
    ends += [(run.id, run.worker, run.finished_ms, run.error) for run in failed]
    for run_id, worker, at_ms, error in ends:
        if at_ms is None or not _died(error):
            continue
        found.rescues += 1
        its = beats[worker or ""]
        first = bisect_right(its, at_ms - lease_ms, key=lambda beat: beat.beat_ms)
        if first < len(its) and its[first].at_us // 1000 < at_ms - lease_ms // 2:
            what = f"{names.get(runs[run_id].job_id or '')} {_short(runs[run_id])}"
            found.others.append(f"{what} was taken from {worker}, which was alive")
