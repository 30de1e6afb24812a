"""Records of instances read directly from the SQLite file: their mailboxes, states and schedules.

Triggers that the simulation adds record every change of an instance, with the number of the last step of a
run at that time. So both histories can be merged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulation.records import Recorder, Records

_CHANGES = """
CREATE TABLE instance_changes (
    number INTEGER PRIMARY KEY, seq INTEGER, instance_id TEXT, was TEXT, status TEXT
);
CREATE TRIGGER instance_added AFTER INSERT ON instances BEGIN
    INSERT INTO instance_changes (seq, instance_id, was, status)
    VALUES ((SELECT coalesce(max(seq), 0) FROM steps), NEW.id, NULL, NEW.status);
END;
CREATE TRIGGER instance_changed AFTER UPDATE ON instances WHEN OLD.status IS NOT NEW.status BEGIN
    INSERT INTO instance_changes (seq, instance_id, was, status)
    VALUES ((SELECT coalesce(max(seq), 0) FROM steps), NEW.id, OLD.status, NEW.status);
END;
"""


class SignalRun(NamedTuple):
    """The mailbox part of a row of `runs`."""

    id: str
    instance_id: str
    agent: str
    instance: str
    job_id: str | None
    trigger: str
    state: str
    reason: str | None
    sequence: int | None
    fire_ms: int
    replay_of: str | None
    #: the CloudEvent of a signal that is no tick
    event: dict[str, Any]
    #: the tokens of signals that went out
    emitted: tuple[str, ...] | None

    @property
    def token(self) -> str | None:
        """The token of its signal."""
        token: str | None = self.event.get("data", {}).get("token")
        return token


class Change(NamedTuple):
    """A change of the status of an instance, after the step `seq` of a run; `was` is None for a new one."""

    seq: int
    instance_id: str
    was: str | None
    status: str


@dataclass(frozen=True)
class Instance:
    """A row of `instances`."""

    id: str
    agent: str
    name: str
    status: str
    #: the state
    count: int
    log: list[str]


class Schedule(NamedTuple):
    """The job of a dynamic schedule."""

    job_id: str
    instance_id: str
    schedule_id: str
    token: str
    deleted: bool


@dataclass
class SignalRecords:
    """The contents of the database that concern instances."""

    base: Records = field(default_factory=Records)
    runs: list[SignalRun] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)


def watch_instances(recorder: Recorder) -> None:
    """Record every change of the status of an instance from now on."""
    recorder.run_script(_CHANGES)


def read_signals(recorder: Recorder) -> SignalRecords:
    """Return all records."""
    runs = recorder.execute(
        "SELECT id, instance_id, agent, instance, job_id, trigger, state, reason, sequence, fire_at,"
        " replay_of, payload, emitted FROM runs WHERE instance_id IS NOT NULL ORDER BY id"
    )
    changes = recorder.execute("SELECT seq, instance_id, was, status FROM instance_changes ORDER BY number")
    instances = recorder.execute("SELECT id, agent, name, status, data FROM instances")
    schedules = recorder.execute(
        "SELECT id, instance_id, schedule_id, payload, deleted_at IS NOT NULL FROM jobs"
        " WHERE schedule_origin = 'dynamic'"
    )
    return SignalRecords(
        recorder.read(),
        [SignalRun(*row[:11], _event(row[11]), _tokens(row[12])) for row in runs],  # type: ignore[arg-type, call-arg]
        [Change(*row) for row in changes],  # type: ignore[arg-type]
        [_instance(*row) for row in instances],  # type: ignore[arg-type]
        [_schedule(*row) for row in schedules],  # type: ignore[arg-type]
    )


def _event(payload: object) -> dict[str, Any]:
    event = json.loads(str(payload)) if payload else {}
    return event if "specversion" in event else {}


def _tokens(emitted: object) -> tuple[str, ...] | None:
    return None if emitted is None else tuple(each["data"]["token"] for each in json.loads(str(emitted)))


def _instance(id_: str, agent: str, name: str, status: str, data: str | None) -> Instance:
    state: dict[str, Any] = json.loads(data) if data else {"count": 0, "log": []}
    return Instance(id_, agent, name, status, state["count"], state["log"])


def _schedule(job_id: str, instance_id: str, schedule_id: str, payload: str, deleted: int) -> Schedule:
    return Schedule(job_id, instance_id, schedule_id, json.loads(payload)["token"], bool(deleted))
