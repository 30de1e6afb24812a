"""What an agent's key may do with a job that an admin created for its agent.

It may read the job, execute its runs, run it at most once a minute, and delete it during one of its runs. It
may not change, pause, skip, resume, delete or backfill it, run it with another payload or in place of runs
that it did not start, nor cancel or stop such runs: that would let it accelerate or block the job. Jobs that
agents' keys created belong to the agent. So do jobs without a recorded creator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wakeful.errors import PermissionDenied, ResourceExhausted
from wakeful.job.job import WAKE_JOB, JobRecord
from wakeful.job.policy import Overlap
from wakeful.run.run import TriggerName
from wakeful.service.auth.access import Principal
from wakeful.store.rows import JobRow, RunView

#: The shortest time between two runs of an admin's job that an agent's key starts.
MIN_INTERVAL_MS: Final = 60_000
#: The trigger of runs that an agent's key starts.
AGENT_TRIGGER: Final[TriggerName] = "agent"
_LIVE: Final = frozenset({"pending", "retrying", "running"})


def is_admin_owned(principal: Principal, job: JobRecord | JobRow) -> bool:
    """Return whether the principal is an agent and an admin created the job."""
    return principal.role == "agent" and job.created_by.startswith("admin:")


def check_change(principal: Principal, job: JobRecord | JobRow) -> None:
    """Raise PermissionDenied if an agent's key changes a job that an admin created."""
    if is_admin_owned(principal, job):
        raise PermissionDenied(
            f"job '{job.name}' was created by an admin; a key of the role 'agent' may read and run it, not "
            "change it; ask an admin, or create a job of your own"
        )


def check_removal(principal: Principal, job: JobRow, running: Iterable[RunView]) -> None:
    """Raise PermissionDenied if an agent's key deletes it, unless in a run that the agent did not start.

    If the call names its run (`x-wakeful-run-id`), that must be a run of the job.
    """
    own = (run for run in running if principal.run_id in (None, run.id))
    if all(run.trigger == AGENT_TRIGGER for run in own):
        check_change(principal, job)


def check_ending(principal: Principal, job: JobRow, run: RunView) -> None:
    """Raise PermissionDenied if an agent's key cancels or stops a run of it that the agent did not start.

    It may end its wakes and turns, whoever asked for them.
    """
    if is_admin_owned(principal, job) and run.trigger != AGENT_TRIGGER and job.name != WAKE_JOB:
        raise PermissionDenied(
            f"run '{run.id}' is of job '{job.name}', which was created by an admin; a key of the role "
            "'agent' may end only those of its runs that it started; ask an admin"
        )


def check_payload(principal: Principal, job: JobRecord) -> None:
    """Raise PermissionDenied if an agent's key runs an admin's job with another payload."""
    if is_admin_owned(principal, job):
        raise PermissionDenied(
            f"job '{job.name}' was created by an admin; a key of the role 'agent' may run it only with its "
            "own payload; leave the payload out"
        )


def check_overlap(principal: Principal, job: JobRecord, overlap: Overlap | None) -> None:
    """Raise PermissionDenied if an agent's key replaces other runs of an admin's job."""
    if overlap in ("replace", "queue_one") and is_admin_owned(principal, job):
        raise PermissionDenied(
            f"job '{job.name}' was created by an admin; a key of the role 'agent' may not cancel its runs "
            f"with overlapPolicy '{overlap}'; use 'skip' or 'queue', or ask an admin"
        )


def check_rate(job: JobRecord, newest: Iterable[RunView], now_ms: int) -> None:
    """Raise ResourceExhausted if an agent's key ran an admin's job in the last minute, or its run is live.

    `newest` is the newest run of the job that an agent's key started, if any.
    """
    for run in newest:
        if run.state in _LIVE or now_ms - run.created_ms < MIN_INTERVAL_MS:
            raise ResourceExhausted(
                f"job '{job.name}' was created by an admin; a key of the role 'agent' may run it once a "
                f"minute, one run at a time, and run '{run.id}' is {run.state}; wait, or ask an admin"
            )
