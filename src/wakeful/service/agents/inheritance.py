"""What jobs inherit from their agent: target and secret, if they have no target, and whether they are active.

Pure: the store writes these decisions in the transaction of the agent's row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from wakeful.document import payload_from_text
from wakeful.errors import InvalidArgument
from wakeful.job.job import AGENT_INACTIVE, Definition, JobRecord, Work, inherit
from wakeful.job.target_kinds import find_kind
from wakeful.launch.secrets import ROTATION_MS
from wakeful.logs import get_logger
from wakeful.run.job_transitions import has_max_runs, pause_job, resume_job
from wakeful.store.accounts import AgentRow, Inherited
from wakeful.store.job_changes import missed_runs, move_after_edit
from wakeful.store.row_mapping import changed_row, job_from_row
from wakeful.store.rows import JobChange, JobRow
from wakeful.values.json_value import Json

INACTIVE: Final = AGENT_INACTIVE

log = get_logger("wakeful.service")


class Inheritance:
    """Decides the changes to the jobs of an agent that is changed at `now_ms`."""

    def __init__(self, now_ms: int, new_secret: Callable[[], bytes]) -> None:
        self._now_ms = now_ms
        self._new_secret = new_secret
        #: the jobs that had the agent's target, and have none now
        self.untargeted: set[str] = set()
        self._targets: dict[str | None, Mapping[str, Json] | None] = {None: None}

    def __call__(self, agent: AgentRow, row: JobRow) -> JobChange | None:
        """Return the change to a job, or None."""
        try:
            old = job_from_row(row)
        except InvalidArgument as error:
            log.warning("job.unreadable", **row.log_fields, error=error.message)
            return self._stop(row) if row.enabled and not agent.active else None
        work = inherit(old.definition.work, self._target(agent.target))
        job = replace(old, definition=replace(old.definition, work=work))
        if work.target is None and old.definition.work.inherited:
            self.untargeted.add(row.name)
        stopped = old.enabled and not agent.active
        if stopped:
            job = replace(pause_job(job, self._now_ms), disabled_reason=INACTIVE)
        elif agent.active and old.disabled_reason == INACTIVE:
            job = _resume(job, self._now_ms)
        changed = changed_row(row, job)
        if signed_by_agent(work, agent.inherited):
            changed = with_agents_secret(changed, agent.inherited, self._now_ms)
        elif row.secret is None and needs_secret(job.definition):
            changed = changed._replace(secret=self._new_secret())
        if changed == row:
            return None
        change = JobChange(changed._replace(updated_ms=self._now_ms), move=move_after_edit(old, job))
        if stopped:
            return change._replace(withdraw=INACTIVE, runs=missed_runs(row, self._now_ms, "paused"))
        return change

    def _target(self, text: str | None) -> Mapping[str, Json] | None:
        if text not in self._targets:
            target = payload_from_text(text)
            self._targets[text] = target if isinstance(target, dict) else None
        return self._targets[text]

    def _stop(self, row: JobRow) -> JobChange:
        """Disable a job that cannot be read."""
        now_ms = self._now_ms
        stopped = row._replace(
            enabled=False, disabled_reason=INACTIVE, next_ms=None, wake_ms=None, updated_ms=now_ms
        )
        return JobChange(stopped, withdraw=INACTIVE)


def _resume(job: JobRecord, now_ms: int) -> JobRecord:
    """Return the job with ticks from now on; without a tick left, it stays disabled for that reason."""
    if has_max_runs(job):
        return replace(job, disabled_reason="max_runs")
    ticks = job.open_ticks
    if ticks is not None and ticks.next(now_ms) is None:
        return replace(job, disabled_reason="no_more_ticks")
    return resume_job(job, now_ms)


def goes_to_webhook(target: Mapping[str, Json] | None) -> bool:
    """Return whether runs with this target are sent to a webhook, directly or through a workflow."""
    inner = target.get("to") if target else None
    return any(isinstance(each, Mapping) and _is_signed(each) for each in (target, inner))


def needs_secret(definition: Definition) -> bool:
    """Return whether requests of the job are signed: its target, its precheck or its check is a webhook."""
    work = definition.work
    return goes_to_webhook(work.target) or any(
        check is not None and _is_signed(check) for check in (work.precheck, work.verify)
    )


def _is_signed(target: Mapping[str, Json]) -> bool:
    kind = find_kind(target)
    return kind is not None and kind.is_signed


def signed_by_agent(work: Work, agent: Inherited) -> bool:
    """Return whether runs are signed with the agent's secret: they go to an inherited webhook.

    Agents of older databases have no secret until their target is changed or their secret is rotated: until
    then each job keeps its own.
    """
    return work.inherited and agent.secret is not None and goes_to_webhook(work.target)


def with_agents_secret(row: JobRow, agent: Inherited, now_ms: int) -> JobRow:
    """Return the row with its agent's secret. The previous secret stays valid for a while."""
    if agent.old_secret is not None:
        return row._replace(
            secret=agent.secret, old_secret=agent.old_secret, old_secret_until_ms=agent.old_secret_until_ms
        )
    if row.secret in (None, agent.secret):
        return row._replace(secret=agent.secret)
    return row._replace(secret=agent.secret, old_secret=row.secret, old_secret_until_ms=now_ms + ROTATION_MS)
