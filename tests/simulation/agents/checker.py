"""Compares the records of instances with the journal of signals and lists the violations.

It shares no code with the stores and the rules. It replays every change of a run and of an instance in the
order of their commits. From that and from what handlers returned it computes the mailboxes, the states, the
signals and the schedules that must exist.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.simulation.agents.journal import Handling, SignalJournal
from tests.simulation.agents.records import Change, SignalRecords, SignalRun
from tests.simulation.checker import OVER, instant
from tests.simulation.records import Step


@dataclass
class Box:
    """An instance during the replay."""

    status: str = "active"
    #: its pending runs
    pending: dict[str, SignalRun] = field(default_factory=dict)
    #: its runs that are running or retrying
    active: dict[str, SignalRun] = field(default_factory=dict)
    #: its successful runs since it was started
    log: list[str] = field(default_factory=list)
    #: its dynamic schedules: tokens by id
    schedules: dict[str, str] = field(default_factory=dict)
    #: the step of an outcome that must have stopped it
    stops: int = 0


def check(journal: SignalJournal, records: SignalRecords, *, over: bool) -> list[str]:
    """Return all violations. `over`: all signals must have been handled."""
    replay = _Replay(journal, records)
    replay.run()
    return (
        replay.complaints
        + _states(replay, records)
        + _arrivals(replay, journal, records)
        + _emitted(replay, records)
        + _schedules(replay, records)
        + _senders(journal, records, over)
        + [f"{named(run)} was taken by a process without its class" for run in records.runs if _strayed(run)]
    )


class _Replay:
    """The mailboxes, step by step."""

    def __init__(self, journal: SignalJournal, records: SignalRecords) -> None:
        self.complaints: list[str] = []
        self.runs = {run.id: run for run in records.runs}
        self.boxes: dict[str, Box] = defaultdict(Box)
        #: the calls of handlers whose outcome was a success, in the order of their commits
        self.succeeded: list[Handling] = []
        self._steps = records.base.steps
        self._changes = records.changes
        self._handlings = {(each.launch.run_id, each.launch.attempt): each for each in journal.handlings}
        self._schedule_of = {each.job_id: each.schedule_id for each in records.schedules}

    def run(self) -> None:
        """Replay everything."""
        changes = iter(self._changes)
        change = next(changes, None)
        for step in self._steps:
            while change is not None and change.seq < step.seq:
                self._changed(change)
                change = next(changes, None)
            run = self.runs.get(step.run_id)
            if run is not None:
                self._moved(step, run)
        while change is not None:
            self._changed(change)
            change = next(changes, None)
        for box in self.boxes.values():
            if box.status == "stopped":
                self._check_stopped(box)

    def _changed(self, change: Change) -> None:
        box = self.boxes[change.instance_id]
        box.stops = 0
        if change.was == "stopped":
            self._check_stopped(box)
            box.log = []
        if change.status == "stopped":
            box.schedules = {}
        box.status = change.status

    def _check_stopped(self, box: Box) -> None:
        """An instance that is stopped has nothing to do."""
        for run in (*box.pending.values(), *box.active.values()):
            self._complain(run, "is not cancelled though the instance was stopped")

    def _moved(self, step: Step, run: SignalRun) -> None:
        box = self.boxes[run.instance_id]
        if box.stops:
            self._complain(run, "changed after an outcome with Stop that did not stop the instance")
            box.stops = 0
        if step.state == "pending":
            if box.status == "stopped":
                self._complain(run, "was accepted though the instance is stopped")
            box.pending[run.id] = run
        elif step.state == "running":
            if step.was != "running":
                self._started(step, run, box)
        elif step.state == "retrying":
            box.active[run.id] = run
        else:
            box.pending.pop(run.id, None)
            box.active.pop(run.id, None)
            if step.state == "succeeded":
                self._succeeded(step, run, box)

    def _started(self, step: Step, run: SignalRun, box: Box) -> None:
        others = [other for other in box.active.values() if other.id != run.id]
        for other in others:
            self._complain(run, f"started while {named(other)} was in progress")
        if box.status != "active":
            self._complain(run, f"started though the instance was {box.status}")
        if step.was != "retrying":
            first = min(box.pending.values(), key=_order, default=run)
            if _order(first) < _order(run):
                self._complain(run, f"started before {named(first)}, which comes first")
            self._is_scheduled(run, box)
        box.pending.pop(run.id, None)
        box.active[run.id] = run
        handling = self._handlings.get((run.id, step.attempt))
        if handling is not None and handling.saw != box.log:
            self._complain(
                run, f"saw a state with {len(handling.saw)} handled signals; {len(box.log)} were handled"
            )

    def _is_scheduled(self, run: SignalRun, box: Box) -> None:
        """A tick starts only while the instance has its schedule."""
        schedule_id = self._schedule_of.get(run.job_id or "")
        if run.trigger == "schedule" and schedule_id is not None and schedule_id not in box.schedules:
            self._complain(run, f"is a tick of the schedule '{schedule_id}', which is cancelled")

    def _succeeded(self, step: Step, run: SignalRun, box: Box) -> None:
        box.log.append(run.id)
        handling = self._handlings.get((run.id, step.attempt))
        if handling is None or handling.plan is None:
            self._complain(run, f"succeeded, and no handler returned in attempt {step.attempt}")
            return
        self.succeeded.append(handling)
        box.stops = step.seq if handling.plan.stop else 0
        for schedule_id, token in handling.plan.crons:
            if token is None:
                box.schedules.pop(schedule_id, None)
            else:
                box.schedules[schedule_id] = token

    def _complain(self, run: SignalRun, what: str) -> None:
        self.complaints.append(f"{named(run)} {what}")


# --- what the committed outcomes leave -----------------------------------------------------------------


def _states(replay: _Replay, records: SignalRecords) -> list[str]:
    """The state of each instance counts the runs that succeeded, in the order of their outcomes."""
    complaints = []
    for each in records.instances:
        log = replay.boxes[each.id].log
        # A stopped instance keeps its last state until it is started again.
        if each.count != len(log) or each.log != log:
            what = f"its state counts {each.count}" if each.count != len(log) else "its state has other runs"
            complaints.append(f"{each.agent}/{each.name}: {len(log)} signals succeeded, and {what}")
        if len(set(each.log)) < len(each.log):
            complaints.append(f"{each.agent}/{each.name}: a signal is twice in its state")
        if each.status != replay.boxes[each.id].status:
            complaints.append(f"{each.agent}/{each.name} is {each.status}, which no change has written")
    return complaints


def _arrivals(replay: _Replay, journal: SignalJournal, records: SignalRecords) -> list[str]:
    """Each signal of a committed outcome arrives once, and no other signal of a handler."""
    complaints: list[str] = []
    arrived: dict[str, list[SignalRun]] = defaultdict(list)
    for run in records.runs:
        if run.replay_of is None and run.token is not None:
            arrived[run.token].append(run)
    known: set[tuple[tuple[str, str], tuple[str, str], str]] = set()
    expected = Counter(f"{sent.sender}:{sent.signal_id}" for sent in set(journal.sent))
    for handling in replay.succeeded:
        assert handling.plan is not None
        own = handling.agent, handling.instance
        written_ms = journal.written_ms.get((handling.launch.run_id, handling.launch.attempt))
        for send in handling.plan.sends:
            if handling.plan.stop and send.to == own:
                continue
            if send.signal_id is not None:
                key = (send.to, own, send.signal_id)
                if key in known:
                    continue
                known.add(key)
            expected[send.token] += 1
            for run in arrived[send.token]:
                if (run.agent, run.instance) != send.to:
                    complaints.append(f"{named(run)} arrived at the wrong instance, not at {send.to}")
                due_ms = (written_ms or handling.returned_ms) + (send.delay_ms or 0)
                if run.fire_ms < due_ms:
                    complaints.append(f"{named(run)} is due {due_ms - run.fire_ms} ms too early")
    for token, runs in arrived.items():
        if len(runs) > 1:
            complaints.append(f"{named(runs[0])} arrived {len(runs)} times: {token}")
        if token not in expected and token.count(":") > 1:
            complaints.append(f"{named(runs[0])} arrived, but the outcome that sends it is not written")
    for token, times in expected.items():
        if not arrived.get(token):
            complaints.append(f"the signal {token} did not arrive, but the outcome that sends it is written")
        if times > 1:
            complaints.append(f"the signal {token} was sent by {times} outcomes")
    return complaints


def _emitted(replay: _Replay, records: SignalRecords) -> list[str]:
    """A run has the signals that its committed outcome emitted."""
    expected = {each.launch.run_id: each.plan.emitted for each in replay.succeeded if each.plan is not None}
    return [
        f"{named(run)} has emitted {len(run.emitted or ())} signals, not {len(expected.get(run.id, ()))}"
        for run in records.runs
        if (run.emitted or ()) != expected.get(run.id, ())
    ]


def _schedules(replay: _Replay, records: SignalRecords) -> list[str]:
    """The dynamic schedules are those that the committed outcomes leave."""
    complaints = []
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for each in records.schedules:
        if not each.deleted:
            if each.schedule_id in found[each.instance_id]:
                complaints.append(f"the schedule '{each.schedule_id}' exists twice")
            found[each.instance_id][each.schedule_id] = each.token
    for instance_id, box in replay.boxes.items():
        have = found.get(instance_id, {})
        if have != box.schedules:
            complaints.append(
                f"instance {instance_id[-6:]} has the schedules {have}, and outcomes leave {box.schedules}"
            )
    return complaints


# --- senders ---------------------------------------------------------------------------------------------


def _senders(journal: SignalJournal, records: SignalRecords, over: bool) -> list[str]:
    """Each acknowledged signal has one run, in the order of its sender, and ends visibly."""
    complaints = []
    runs = {run.id: run for run in records.runs}
    answers: dict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    last: dict[tuple[str, str, str], int] = {}
    for sent in journal.sent:
        run = runs.get(sent.run_id)
        if run is None:
            complaints.append(f"the signal {sent.signal_id} of {sent.sender} was acknowledged and has no run")
            continue
        key = sent.agent, sent.instance, sent.sender, sent.signal_id
        if key in answers:
            answers[key].add(run.id)
            continue
        answers[key].add(run.id)
        before, number = last.get(key[:3], 0), run.sequence or 0
        if number <= before:
            complaints.append(f"{named(run)} has number {number}, but its sender sent {before} before it")
        last[key[:3]] = number
        if run.state == "cancelled" and run.reason != "stopped" and run.id not in journal.cancelled:
            complaints.append(f"{named(run)} was acknowledged and cancelled: {run.reason}")
        if over and run.state not in OVER:
            complaints.append(f"{named(run)} was acknowledged and is {run.state} for ever")
        if run.state in ("skipped", "missed"):
            complaints.append(f"{named(run)} was acknowledged and {run.state}")
    for key, found in answers.items():
        if len(found) > 1:
            complaints.append(f"the signal {key} was acknowledged with {len(found)} runs")
    stored = Counter(
        (run.instance_id, run.event.get("source"), run.event.get("id"))
        for run in records.runs
        if run.replay_of is None and run.event.get("source", "").startswith("/senders/")
    )
    complaints += [f"the signal {key} is stored {count} times" for key, count in stored.items() if count > 1]
    return complaints


def _strayed(run: SignalRun) -> bool:
    return run.reason == "not_registered"


def _order(run: SignalRun) -> tuple[int, int]:
    return run.fire_ms, run.sequence or 0


def named(run: SignalRun) -> str:
    """Return how messages name a run."""
    return f"{run.agent}/{run.instance} {run.sequence} ({run.trigger}, {instant(run.fire_ms)}, {run.id[-6:]})"
