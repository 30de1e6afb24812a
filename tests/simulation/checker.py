"""Compares the records of the database with the journal of the simulation and lists the violations.

It shares no code with the engine: it computes the ticks of each job from the journal and checks the recorded
runs and the launches against them. Every tick must have exactly one record, and every record a tick.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from datetime import UTC, datetime

from tests.simulation.journal import Journal, Launched, Life, Rules
from tests.simulation.records import Records, Run, Step
from tests.simulation.stretches import Stretch, home_of, stretches_of

LIVE = ("pending", "running", "retrying")
OVER = ("succeeded", "failed", "cancelled", "skipped", "missed")
INITIAL_STATES = ("pending", "running", "skipped", "missed")
MOVES = {
    ("pending", "running"), ("pending", "cancelled"), ("pending", "failed"),
    ("running", "succeeded"), ("running", "failed"), ("running", "cancelled"), ("running", "retrying"),
    ("retrying", "running"), ("retrying", "cancelled"), ("retrying", "failed"),
}  # fmt: skip


def check(journal: Journal, records: Records, *, over: bool = True) -> list[str]:
    """Return all violations. `over`: every run must have ended by now."""
    complaints: list[str] = []
    for life in journal.lives.values():
        complaints += _ticks(life, journal, records)
    complaints += _steps(journal, records, over)
    complaints += _launches(journal, records)
    complaints += _outcomes(journal, records)
    complaints += _chains(journal, records)
    return complaints


def instant(ms: int) -> str:
    """Format a time for messages."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%m-%d %H:%M:%S.") + f"{ms % 1000:03d}"


# --- every tick has one record, and every record a tick ------------------------------------------------


def _ticks(life: Life, journal: Journal, records: Records) -> list[str]:
    complaints: list[str] = []
    stretches = list(stretches_of(life.eras, journal))
    runs = [run for run in records.runs if run.job_id == life.job_id and run.trigger == "schedule"]
    recorded: dict[int, Run] = {}
    for run in runs:
        ticks = [run.scheduled_ms]
        home = home_of(run, stretches)
        if home is None:
            complaints.append(f"{_named(life, run)} is a run without a tick")
        if run.state == "missed":
            if run.until_ms is None or (home and run.until_ms not in home):
                complaints.append(f"{_named(life, run)} is missed up to {run.until_ms}, which is no tick")
            elif home is not None:
                ticks = home.between(run.scheduled_ms, run.until_ms)
                if len(ticks) != run.covers:
                    complaints.append(f"{_named(life, run)} covers {run.covers} ticks, not {len(ticks)}")
                complaints += _rightly_missed(life, run, home, ticks, journal)
        elif run.covers != 1 or run.until_ms is not None:
            complaints.append(f"{_named(life, run)} is {run.state} and speaks for more than its own tick")
        for tick in ticks:
            if tick in recorded:
                other = recorded[tick]
                complaints.append(
                    f"{life.name}: the tick {instant(tick)} has two records, {other.state} and {run.state}"
                )
            recorded[tick] = run
    for stretch in stretches:
        # Ticks that were not yet planned when the job was deleted have no record.
        cut = life.deleted and stretch is stretches[-1]
        complaints += _complete(life, stretch, recorded, cut)
    return complaints


def _complete(life: Life, stretch: Stretch, recorded: dict[int, Run], cut: bool) -> list[str]:
    must = stretch.must()
    if cut:
        must = must[: max((bisect_right(must, tick) for tick in recorded), default=0)]
    max_runs = stretch.rules[-1].max_runs
    if max_runs is not None:
        ran = [tick for tick in stretch.ticks if tick in recorded and recorded[tick].state not in OVER[3:]]
        if len(ran) > max_runs:
            return [f"{life.name} ran {len(ran)} times, and was to run {max_runs} times at most"]
        if len(ran) == max_runs:
            must = must[: bisect_right(must, ran[-1])]
    lost = [tick for tick in must if tick not in recorded]
    if not lost:
        return []
    some = ", ".join(instant(tick) for tick in lost[:3])
    return [f"{life.name}: {len(lost)} ticks have no record: {some}{' …' if len(lost) > 3 else ''}"]


def _rightly_missed(life: Life, run: Run, stretch: Stretch, ticks: list[int], journal: Journal) -> list[str]:
    """A tick is missed only if no replica was awake for it, or by the job's own policy."""
    policies = {rules.catchup for rules in stretch.rules}
    allowed = {
        "downtime": "none" in policies,
        "newer_tick_runs": "latest" in policies,
        "too_old": policies != {"none"},
    }
    if run.reason in allowed and not allowed[run.reason]:
        return [f"{_named(life, run)} is missed for '{run.reason}', though it catches up: {policies}"]
    if journal.jumped or run.reason not in allowed:
        return []
    # There may be years of ticks: find those during which a replica was awake by bisection.
    seen: set[int] = set()
    for awake in journal.awake:
        first = bisect_left(ticks, awake.from_ms - stretch.jitter_ms)
        after = len(ticks)
        if awake.until_ms is not None:
            after = bisect_right(ticks, awake.until_ms - stretch.jitter_ms - journal.tick_ms)
        seen.update(ticks[first:after])
    return [
        f"{life.name}: the tick {instant(tick)} was missed, though a replica was running"
        for tick in sorted(seen)[:3]
    ]


# --- state transitions of runs -------------------------------------------------------------------------


def _steps(journal: Journal, records: Records, over: bool) -> list[str]:
    complaints = []
    runs = {run.id: run for run in records.runs}
    last: dict[str, Step] = {}
    live: dict[str, set[str]] = defaultdict(set)
    begun: dict[str, int] = {}
    # A planning pass inserts the runs that it skips before those that enter a mailbox, or find it closed.
    waiting: dict[tuple[str | None, int], set[str]] = defaultdict(set)
    for step in records.steps:
        added = runs.get(step.run_id)
        if step.was is not None or added is None or not added.created_ms:
            continue
        if step.state == "pending" or added.reason in ("mailbox_full", "stopped"):
            waiting[added.job_id, added.created_ms].add(added.id)
    for step in records.steps:
        run, before = runs.get(step.run_id), last.get(step.run_id)
        last[step.run_id] = step
        if run is None or step.state is None:
            complaints.append(f"run {step.run_id[-6:]}, {step.was}, vanished")
            continue
        what = f"{_job(journal, run)} {_short(run)}"
        if before is None:
            if step.state not in INITIAL_STATES:
                complaints.append(f"{what} was created {step.state}")
            beside = live[run.job_id or ""] | waiting.get((run.job_id, run.created_ms), set())
            complaints += _rightly_skipped(journal, run, beside)
        else:
            complaints += [f"{what} {wrong}" for wrong in _wrong_move(before, step)]
        if step.state in LIVE:
            live[run.job_id or ""].add(run.id)
        else:
            live[run.job_id or ""].discard(run.id)
        if step.state == "running" and run.id not in begun:
            begun[run.id] = step.seq
    for run in records.runs:
        if over and run.state not in OVER:
            complaints.append(f"{_job(journal, run)} {_short(run)} is {run.state} for ever")
        if run.id not in last:
            complaints.append(f"{_job(journal, run)} {_short(run)} came from nowhere")
    return complaints + _order(journal, records, begun)


def _wrong_move(before: Step, step: Step) -> list[str]:
    move = (before.state, step.state)
    if before.state in OVER:
        return [f"was changed though it was {before.state}: to {step.state}"]
    if move == ("running", "running"):
        if step.worker is not None or step.attempt != before.attempt:
            return [f"changed hands while it ran: attempt {before.attempt} to {step.attempt}"]
        return []
    if move not in MOVES:
        return [f"went from {before.state} to {step.state}"]
    rise = 1 if move == ("retrying", "running") else 0
    if step.attempt != before.attempt + rise:
        return [f"went from attempt {before.attempt} ({before.state}) to {step.attempt} ({step.state})"]
    return []


def _rightly_skipped(journal: Journal, run: Run, live: set[str]) -> list[str]:
    """A run is skipped for an overlap only while another run is live."""
    if run.state == "skipped" and run.reason in ("overlap", "queue_full") and not live:
        return [f"{_job(journal, run)} {_short(run)} was skipped for '{run.reason}' while nothing was live"]
    return []


def _order(journal: Journal, records: Records, begun: dict[str, int]) -> list[str]:
    """Serial runs start in the order of their ticks.

    An edit resets the order: jitter may have fired a tick of the old schedule before its time.
    """
    complaints = []
    latest: dict[tuple[str | None, int], Run] = {}
    stretches = {life.job_id: list(stretches_of(life.eras, journal)) for life in journal.lives.values()}
    ticks = [run for run in records.runs if run.trigger == "schedule" and run.serial and run.id in begun]
    for run in sorted(ticks, key=lambda run: begun[run.id]):
        for number, stretch in enumerate(stretches.get(run.job_id or "", [])):
            if run.scheduled_ms not in stretch:
                continue
            before = latest.get((run.job_id, number), run)
            if before.scheduled_ms > run.scheduled_ms:
                later = f"{instant(before.scheduled_ms)}, a later tick"
                complaints.append(f"{_job(journal, run)} {_short(run)} started after {later}")
            latest[run.job_id, number] = run
            break
    return complaints


# --- launches and outcomes -----------------------------------------------------------------------------


def _launches(journal: Journal, records: Records) -> list[str]:
    """Replay steps and launches in order, and check each launch against the state when it began."""
    complaints: list[str] = []
    runs = {run.id: run for run in records.runs}
    stands: dict[str, Step] = {}
    due: dict[tuple[str, int], int] = {}
    claimed: set[tuple[str, int, str | None]] = set()
    attempted: set[tuple[str, int]] = set()
    earlier: dict[str | None, list[Launched]] = defaultdict(list)
    released = {(each.run_id, each.attempt) for each in records.attempts if each.error == "released"}
    steps = iter(records.steps)
    step = next(steps, None)
    for launch in journal.launches:
        while step is not None and step.seq <= launch.seq:
            stands[step.run_id] = step
            if step.state == "running":
                claimed.add((step.run_id, step.attempt, step.worker))
            elif step.due_ms is not None:
                due[step.run_id, step.attempt + (step.state == "retrying")] = step.due_ms
            step = next(steps, None)
        run = runs.get(launch.run_id)
        if run is None:
            complaints.append(f"run {launch.run_id[-6:]} was launched and is not recorded")
            continue
        what = f"{_job(journal, run)} {_short(run)}, attempt {launch.attempt},"
        if (run.id, launch.attempt) in attempted:
            complaints.append(f"{what} was launched twice")
        attempted.add((run.id, launch.attempt))
        if launch.key != run.key:
            complaints.append(f"{what} was launched with another key")
        not_before = max(run.fire_ms, due.get((run.id, launch.attempt), 0))
        if launch.high_ms < not_before:
            complaints.append(f"{what} was launched {not_before - launch.high_ms} ms too early")
        holds = _holds(stands.get(run.id), launch)
        if (run.id, launch.attempt, launch.worker) not in claimed:
            complaints.append(f"{what} was launched by {launch.worker[-4:]}, who never held it")
        elif not holds and not journal.slow and not _changed_elsewhere(run, stands[run.id], journal):
            complaints.append(f"{what} was launched by {launch.worker[-4:]}, who did not hold it any more")
        if run.serial and holds:
            for other in earlier[run.job_id]:
                if (
                    other.run_id != run.id
                    and runs[other.run_id].serial
                    and (other.ended_at is None or other.ended_at > launch.began_at)
                    and _holds(stands.get(other.run_id), other)
                ):
                    complaints.append(f"{what} was launched beside {_short(runs[other.run_id])}")
        if _rules(journal, run).on_lost == "fail":
            complaints += [
                f"{what} was launched again, though it is not to start twice"
                for other in earlier[run.job_id]
                if other.run_id == run.id
                and (other.end in ("crashed", None) or (run.id, other.attempt) in released)
            ]
        earlier[run.job_id] = [
            other
            for other in earlier[run.job_id]
            if other.ended_at is None or other.ended_at > launch.began_at or other.run_id == run.id
        ] + [launch]
    return complaints


def _changed_elsewhere(run: Run, stand: Step, journal: Journal) -> bool:
    """Another process may cancel or release a tick recorded ahead; its worker learns of it at a heartbeat.

    A released tick is still due at its instant. One that must not start twice is not released.
    """
    if not journal.lead_ms:
        return False
    released = stand.was == "running" and stand.state == "retrying" and stand.due_ms == run.fire_ms
    return stand.state == "cancelled" or (released and _rules(journal, run).on_lost != "fail")


def _holds(stand: Step | None, launch: Launched) -> bool:
    return (
        stand is not None
        and stand.state == "running"
        and stand.attempt == launch.attempt
        and stand.worker == launch.worker
    )


def _outcomes(journal: Journal, records: Records) -> list[str]:
    """The outcome of every run is consistent with its launches."""
    complaints = []
    launches: dict[str, list[Launched]] = defaultdict(list)
    for launch in journal.launches:
        launches[launch.run_id].append(launch)
    released: dict[str, int] = defaultdict(int)
    for attempt in records.attempts:
        released[attempt.run_id] += attempt.error == "released"
    ran = {step.run_id for step in records.steps if step.state == "running"}
    created = {step.run_id: step.attempt for step in reversed(records.steps)}
    prefetched, begun = _prefetched_and_begun(journal, records)
    by_id = {run.id: run for run in records.runs}
    replayed = {run.replay_of for run in records.runs}
    errors: dict[str, list[str]] = defaultdict(list)
    for attempt in sorted(records.attempts, key=lambda each: each.attempt):
        errors[attempt.run_id].append(attempt.error or "")
    for run in records.runs:
        what = f"{_job(journal, run)} {_short(run)}"
        ends = {launch.attempt: launch.end for launch in launches[run.id]}
        if run.state == "succeeded" and ends.get(run.attempt) not in ("succeeded", "parked"):
            complaints.append(f"{what} succeeded, and its attempt {run.attempt} was {ends.get(run.attempt)}")
        if run.id not in ran and ends:
            complaints.append(f"{what} is {run.state}, never ran, and was launched")
        if run.state == "failed" and not run.dead and run.id not in replayed:
            complaints.append(f"{what} failed and is no dead letter")
        most = (
            _max_attempts(journal, run) + created.get(run.id, 1) - 1 + released[run.id] + prefetched[run.id]
        )
        most += _count_not_counted(errors[run.id], _lost_limit(journal, run))
        if run.attempt > most:
            complaints.append(f"{what} had {run.attempt} attempts of {most}")
        if run.state == "failed" and run.reason in (None, "lost") and begun[run.id] < _least(journal, run):
            complaints.append(f"{what} failed after {begun[run.id]} attempts that started")
        key = _key(run, by_id)
        if key is not None and run.key != key:
            complaints.append(f"{what} has another key than its tick")
    return complaints


def _prefetched_and_begun(journal: Journal, records: Records) -> tuple[Counter[str], Counter[str]]:
    """Return by run how many attempts were lost before they started, and how many started.

    The start of a prefetched run is not recorded before its launch.
    """
    launched = {(launch.run_id, launch.attempt) for launch in journal.launches}
    claimed = {(step.run_id, step.attempt): step for step in records.steps if step.state == "running"}
    early = {each for each, step in claimed.items() if step.started_ms is None}
    lost = {(each.run_id, each.attempt) for each in records.attempts if each.error != "released"}
    return (
        Counter(run_id for run_id, _ in early & lost),
        Counter(run_id for run_id, _ in (claimed.keys() - early) | launched),
    )


def _least(journal: Journal, run: Run) -> int:
    """Return how many attempts must have started before a run fails without a permanent error."""
    life = journal.lives.get(run.job_id or "")
    if life is None or any(era.rules.on_lost == "fail" for era in life.eras):
        return 0
    return min((era.rules.max_attempts for era in life.eras), default=0)


def _key(run: Run, by_id: dict[str, Run]) -> str | None:
    if run.replay_of is not None:
        old = by_id.get(run.replay_of)
        return old.key if old else None
    if run.trigger != "schedule":
        return None
    seconds, ms = divmod(run.scheduled_ms, 1000)
    text = f"{run.job_id}:{seconds}" + (f".{ms:03d}" if ms else "")
    return hashlib.sha256(text.encode()).hexdigest()


def _chains(journal: Journal, records: Records) -> list[str]:
    """A follower fires once for each run of its predecessor with the expected outcome."""
    complaints = []
    for life in journal.lives.values():
        if life.after is None:
            continue
        leaders = {each.job_id for each in journal.lives.values() if each.name == life.after}
        ends = ("succeeded", "failed") if life.after_on == "finished" else (life.after_on,)
        want = {run.id for run in records.runs if run.job_id in leaders and run.state in ends}
        have = [
            run.triggered_by for run in records.runs if run.job_id == life.job_id and run.trigger == "chain"
        ]
        if len(have) != len(set(have)):
            complaints.append(f"{life.name} fired twice after one run of {life.after}")
        if set(have) != want:
            few, many = len(want - set(have)), len(set(have) - want)
            complaints.append(
                f"{life.name} did not fire after {few} runs of {life.after}, and {many} times for none"
            )
    return complaints


# --- lookups and labels --------------------------------------------------------------------------------


def _rules(journal: Journal, run: Run) -> Rules:
    life = journal.lives.get(run.job_id or "")
    return life.eras[-1].rules if life and life.eras else Rules()


def _count_not_counted(errors: list[str], lost_limit: int) -> int:
    """Count the losses in company that are no attempts: so many in a row, and again after another error.

    >>> _count_not_counted(["died with other runs"] * 4, 3)
    3
    >>> _count_not_counted(["died with other runs", "timed out", "died with other runs"], 1)
    2
    """
    found = row = 0
    for error in errors:
        if error.endswith("other runs"):
            found += row < lost_limit
            row += 1
        elif error != "released":
            row = 0
    return found


def _max_attempts(journal: Journal, run: Run) -> int:
    life = journal.lives.get(run.job_id or "")
    return max((era.rules.max_attempts for era in life.eras), default=5) if life else 5


def _lost_limit(journal: Journal, run: Run) -> int:
    life = journal.lives.get(run.job_id or "")
    return max((era.rules.lost_limit for era in life.eras), default=3) if life else 3


def _job(journal: Journal, run: Run) -> str:
    life = journal.lives.get(run.job_id or "")
    return life.name if life else "an unknown job"


def _named(life: Life, run: Run) -> str:
    return f"{life.name} {_short(run)}"


def _short(run: Run) -> str:
    return f"{instant(run.scheduled_ms)} ({run.trigger}, {run.id[-6:]})"
