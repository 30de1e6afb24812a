"""Report the warnings about saved jobs to programs, which may not read `Job.warnings`."""

from __future__ import annotations

from typing import Final

from wakeful.logs import get_logger
from wakeful.model.job import Job

log = get_logger("wakeful.jobs")

_LIMIT: Final = 1_000
_reported: set[tuple[str, str]] = set()


def log_warnings(job: Job) -> Job:
    """Log the warnings about a job, once for each agent and process; return the job."""
    owner = job.workspace, job.agent
    if job.warnings and owner not in _reported and len(_reported) < _LIMIT:
        _reported.add(owner)
        for warning in job.warnings:
            log.warning(
                "job.warning", job_id=job.id, job=job.name, agent=job.agent, workspace=job.workspace,
                warning=warning,
            )  # fmt: skip
    return job
