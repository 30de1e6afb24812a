"""How instances are started, stopped, paused, resumed and deleted. Pure: a store calls these rules.

Each rule gets the instance (None: there is none) and the jobs of its schedules, both locked, and returns the
change, or None if nothing changes. It raises NotFound or FailedPrecondition if the change is not possible.
"""

from __future__ import annotations

from collections.abc import Sequence

from wakeful.agents.schedule_sync import DeclaredSchedules, converge
from wakeful.errors import FailedPrecondition, NotFound
from wakeful.run.instances import INSTANCE_DELETED, STOPPED, instance_id
from wakeful.store.instances import InstanceChange, InstanceRow, InstanceRule
from wakeful.store.rows import JobRow


def no_instance(agent: str, name: str) -> NotFound:
    """Return the error for an instance that does not exist."""
    return NotFound(
        f"agent '{agent[:64]}' has no instance '{name[:64]}'; start it, or list its instances to see their "
        "names"
    )


def start(
    name: str,
    declared: DeclaredSchedules,
    data: str | None,
    now_ms: int,
    version: int = 0,
    *,
    replace: bool = False,
) -> InstanceRule:
    """Return the rule that starts an instance. A new one, or one that was stopped, begins anew.

    `data` is its initial state, in the form of this `version` of the class; None: that of the class. An
    instance that is not stopped keeps its state, and its declared schedules converge: those that the agent
    cancelled are enabled again. It is refused another state, unless it is to `replace` the one it has: then a
    handler that runs meanwhile is tried again with the new one, and a blocked instance is active again.
    """
    agent_class = declared.agent_class

    def rule(row: InstanceRow | None, jobs: Sequence[JobRow]) -> InstanceChange | None:
        own = instance_id(agent_class.workspace, agent_class.agent, name)
        begins = row is None or row.status == "stopped"
        if row is not None:
            _require(row, agent_class.agent, name)
            if not begins and not replace and data not in (None, row.data):
                raise FailedPrecondition(
                    f"state: instance '{name}' of agent '{agent_class.agent}' is {row.status} and keeps its "
                    "state; start it without a state, with replace to give it this one, or stop it first to "
                    "begin anew with this one"
                )
        diff = converge(own, name, jobs, declared, now_ms, enable_cancelled=True)
        new = row or new_row(agent_class.workspace, agent_class.agent, name, now_ms)
        if begins:
            new = new._replace(status="active", note=None, data=data, version=version, memory=None)
        elif replace and data not in (None, new.data):
            new = new._replace(data=data, version=version, revision=new.revision + 1)
            if new.status == "blocked":
                new = new._replace(status="active", note=None)
        if row is not None and row.status == "stopped":
            new = new._replace(revision=row.revision + 1)
        if begins or agent_class.version >= new.schedules_version:
            new = new._replace(schedules_hash=declared.hash, schedules_version=agent_class.version)
        elif new == row:
            return None
        else:
            return InstanceChange(new._replace(updated_ms=now_ms))
        if new == row and not any(diff):
            return None
        return InstanceChange(new._replace(updated_ms=now_ms), *diff, active=declared.active)

    return rule


def new_row(workspace: str, agent: str, name: str, now_ms: int) -> InstanceRow:
    """Return an instance that has done nothing yet."""
    return InstanceRow(
        id=instance_id(workspace, agent, name),
        workspace=workspace,
        agent=agent,
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
        created_ms=now_ms,
        updated_ms=now_ms,
    )


def delete(
    workspace: str, agent: str, name: str, now_ms: int, *, erase: bool, has_runs: bool = False
) -> InstanceRule:
    """Return the rule that deletes an instance: with its state, mailbox and schedules.

    With `erase` it stays as `deleting` until its history is erased: also if it was deleted before and only
    its runs are left (`has_runs`).
    """

    def rule(row: InstanceRow | None, jobs: Sequence[JobRow]) -> InstanceChange | None:
        if row is None and not (erase and has_runs):
            raise no_instance(agent, name)
        if row is not None and row.status == "deleting":
            return None
        new = (row or new_row(workspace, agent, name, now_ms))._replace(
            status="deleting", note=None, data=None, memory=None, schedules_hash="", updated_ms=now_ms
        )
        return InstanceChange(
            new,
            deleted=tuple(job.id for job in jobs),
            cancel=INSTANCE_DELETED,
            cancel_running=True,
            delete=not erase,
        )

    return rule


def _require(row: InstanceRow | None, agent: str, name: str) -> InstanceRow:
    """Return an instance, unless there is none or it is being deleted."""
    if row is None:
        raise no_instance(agent, name)
    if row.status == "deleting":
        raise FailedPrecondition(
            f"instance '{row.name}' of agent '{row.agent}' is being deleted with its history; try it again "
            "in a moment, when it does not exist any more"
        )
    return row


def stop(agent: str, name: str, now_ms: int) -> InstanceRule:
    """Return the rule that stops an instance: its schedules are deleted and its runs are cancelled."""

    def rule(row: InstanceRow | None, jobs: Sequence[JobRow]) -> InstanceChange | None:
        row = _require(row, agent, name)
        if row.status == "stopped":
            return None
        return InstanceChange(
            row._replace(status="stopped", note=None, schedules_hash="", updated_ms=now_ms),
            deleted=tuple(job.id for job in jobs),
            cancel=STOPPED,
            cancel_running=True,
        )

    return rule


def pause(agent: str, name: str, note: str | None, now_ms: int) -> InstanceRule:
    """Return the rule that pauses an instance: its signals and ticks wait until it is resumed.

    A run that is running ends. An instance that is paused keeps its note, unless one is given.
    """

    def rule(row: InstanceRow | None, jobs: Sequence[JobRow]) -> InstanceChange | None:
        row = _require(row, agent, name)
        if row.status in ("stopped", "blocked"):
            what = (
                "is stopped; start it first" if row.status == "stopped"
                else "is blocked already: it handles no signals until it is resumed"
            )  # fmt: skip
            raise FailedPrecondition(f"instance '{name}' of agent '{agent}' {what}")
        if row.status == "paused" and note in (None, row.note):
            return None
        return InstanceChange(row._replace(status="paused", note=note, updated_ms=now_ms))

    return rule


def resume(agent: str, name: str, now_ms: int) -> InstanceRule:
    """Return the rule that resumes an instance that is paused or blocked: it handles its signals again."""

    def rule(row: InstanceRow | None, jobs: Sequence[JobRow]) -> InstanceChange | None:
        row = _require(row, agent, name)
        if row.status == "stopped":
            raise FailedPrecondition(
                f"instance '{name}' of agent '{agent}' is stopped, not paused; start it: it begins with its "
                "initial state"
            )
        if row.status == "active":
            return None
        return InstanceChange(row._replace(status="active", note=None, updated_ms=now_ms))

    return rule
