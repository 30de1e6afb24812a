"""What an agent's key may do with a job that an admin created for its agent.

It may read the job, execute its runs, run it by hand at most once a minute, and remove it while it works in
one of its runs. Everything else would let it speed the job up or keep it from running: to change, pause,
skip, resume or delete it, to fill in its past, to run it with another payload or in the place of runs that
it did not start, and to cancel or stop those. Jobs that agents' keys created are theirs. Jobs that are older
than the record of who created them count as theirs too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wakeful.errors import PermissionDenied, ResourceExhausted
from wakeful.job import JobRecord
from wakeful.policy import Overlap
from wakeful.run import TriggerName
from wakeful.service.auth.access import Principal
from wakeful.store.rows import JobRow, RunView

#: How often an agent's key may run a job of an admin's by hand.
MIN_INTERVAL_MS: Final = 60_000
#: The trigger of what an agent's key runs.
AGENT_TRIGGER: Final[TriggerName] = "agent"
_LIVE: Final = frozenset({"pending", "retrying", "running"})


def is_admin_owned(principal: Principal, job: JobRecord | JobRow) -> bool:
    """Whether they are an agent, and the job is one that an admin created."""
    return principal.role == "agent" and job.created_by.startswith("admin:")


def check_change(principal: Principal, job: JobRecord | JobRow) -> None:
    """Refuse an agent's key to change a job that an admin created."""
    if is_admin_owned(principal, job):
        raise PermissionDenied(
            f"job '{job.name}' was created by an admin; a key of the role 'agent' may read it and run it, "
            "and not change it; ask an admin, or create a job of your own"
        )


def check_removal(principal: Principal, job: JobRow, running: Iterable[RunView]) -> None:
    """Likewise to delete it, unless the agent works in one of its runs that it did not start itself."""
    if all(run.trigger == AGENT_TRIGGER for run in running):
        check_change(principal, job)


def check_ending(principal: Principal, job: JobRow, run: RunView) -> None:
    """Likewise to cancel or stop a run of it that the agent did not start itself."""
    if is_admin_owned(principal, job) and run.trigger != AGENT_TRIGGER:
        raise PermissionDenied(
            f"run '{run.id}' is of job '{job.name}', which was created by an admin; a key of the role "
            "'agent' may end only those of its runs that it started; ask an admin"
        )


def check_payload(principal: Principal, job: JobRecord) -> None:
    """Refuse an agent's key to run a job that an admin created with another payload than its own."""
    if is_admin_owned(principal, job):
        raise PermissionDenied(
            f"job '{job.name}' was created by an admin; a key of the role 'agent' may run it with its own "
            "payload alone; leave the payload out"
        )


def check_overlap(principal: Principal, job: JobRecord, overlap: Overlap | None) -> None:
    """Refuse an agent's key to run a job that an admin created in the place of the job's other runs."""
    if overlap in ("replace", "queue_one") and is_admin_owned(principal, job):
        raise PermissionDenied(
            f"job '{job.name}' was created by an admin; a key of the role 'agent' may not cancel its runs "
            f"with overlapPolicy '{overlap}'; use 'skip' or 'queue', or ask an admin"
        )


def check_rate(job: JobRecord, newest: Iterable[RunView], now_ms: int) -> None:
    """Refuse to run an admin's job once more before a minute has passed, or while such a run is live.

    `newest` is the newest run of the job that an agent's key started, if there is one.
    """
    for run in newest:
        if run.state in _LIVE or now_ms - run.created_ms < MIN_INTERVAL_MS:
            raise ResourceExhausted(
                f"job '{job.name}' was created by an admin; a key of the role 'agent' may run it once a "
                f"minute, one run at a time, and run '{run.id}' is {run.state}; wait, or ask an admin"
            )
