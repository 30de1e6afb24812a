"""Agent classes, signals and outcomes of signals for tests."""

from __future__ import annotations

from typing import Any

from tests.support.factories import NOW, SECOND
from wakeful.job.start_rules import Capabilities
from wakeful.run.instances import AgentClass, instance_id
from wakeful.run.outcome import Finished, Handled
from wakeful.run.signal_rules import Arrival, signal_run
from wakeful.store.instances import InstanceRow, InstanceView
from wakeful.store.port import Store
from wakeful.store.rows import TakenRun

#: How many runs may wait in a mailbox, unless a test says otherwise.
MAILBOX = 1000
#: The capabilities of a process with version 9 of the class of `report`.
HAS_REPORT: Capabilities = {"": 0, "agent:default/report": 9, "agent:default/other": 9}
LANES = {"team": 100, "cron": 100}


def agent_class(**fields: Any) -> AgentClass:
    """Return the class of the agent `report`."""
    row = AgentClass("default", "report", 1, '{"maxAttempts":5}', MAILBOX, 7 * 86_400_000, "team")
    return row._replace(**fields)


def arrival(instance: str = "eu", at: int = NOW, signal_id: str | None = None, **fields: Any) -> Arrival:
    """Return a signal that arrives at an instance."""
    of, kind = fields.pop("of", agent_class()), fields.pop("type", "report.generate")
    return signal_run(
        of, instance, kind, '{"type":"report.generate"}', at, source="/tests", signal_id=signal_id, **fields
    )


def key_of(instance: str = "eu", agent: str = "report") -> str:
    """Return the id of an instance."""
    return instance_id("default", agent, instance)


async def given_sent(store: Store, *instances: str, **fields: Any) -> list[str]:
    """Send a signal to each of these instances, in this order. Returns the runs."""
    found = await store.send([arrival(each, **fields) for each in instances], MAILBOX)
    return [each.run.id for each in found]


async def taken(store: Store, worker: str = "w1", now_ms: int = NOW) -> list[TakenRun]:
    """Take all runs that can be taken."""
    return await store.take(now_ms, worker, LANES, HAS_REPORT)


def handled(run: TakenRun, **fields: Any) -> Handled:
    """Return what the handler of a signal returned."""
    row = Handled(run.workspace, run.agent, str(run.instance), run.revision, 1)
    return row._replace(**fields)


def done(run: TakenRun, state: str = "succeeded", **fields: Any) -> Finished:
    """Return the outcome of a signal; with fields of `Handled`, of a handler that returned them."""
    known = {name: fields.pop(name) for name in list(fields) if name in Finished._fields}
    row = Finished(
        run.id, run.job_id, run.attempt, state, NOW, NOW + SECOND, instance_id=run.instance_id
    )._replace(**known)
    if not fields:
        return row
    refusal = row._replace(
        state="retrying", due_ms=NOW + 2 * SECOND, output=None, reason="directive_refused", failed_attempts=1
    )
    return row._replace(handled=handled(run, **fields, refusal=lambda: refusal))


async def view(store: Store, instance: str = "eu", agent: str = "report") -> InstanceView:
    """Return an instance, which exists."""
    found = await store.instance("default", agent, instance)
    assert found is not None
    return found


def new_instance(name: str = "eu", **fields: Any) -> InstanceRow:
    """Return a new active instance."""
    row = InstanceRow(
        id=key_of(name),
        workspace="default",
        agent="report",
        name=name,
        status="active",
        note=None,
        data=None,
        version=0,
        revision=0,
        memory=None,
        sequence=0,
        schedules_hash="",
        schedules_version=0,
        handled_ms=None,
        hibernated_ms=None,
        created_ms=NOW,
        updated_ms=NOW,
    )
    return row._replace(**fields)
