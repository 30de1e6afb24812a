"""What a batch of outcomes does to the jobs of its runs: pure, and the same for every store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from wakeful.outcome import Finished


class JobEffects(NamedTuple):
    """What is to be written of jobs."""

    #: the consecutive failures of the jobs that were given, as they are now
    failures: dict[str, int]
    #: jobs to disable: when, and for which reason
    disabled: dict[str, tuple[int, str]]
    #: jobs to delete, and when
    deleted: dict[str, int]


def job_effects(
    finished: Iterable[Finished],
    failures: Mapping[str, int],
    ticking: Collection[str],
    edited: Collection[str],
) -> JobEffects:
    """What these outcomes, in their order, do to their jobs.

    A failure adds one to the failures of its job, a success sets them to 0. A job is disabled when they reach
    `disable_after`, and disabled or deleted where an outcome says so. One that is deleted is not disabled
    too, whichever outcome came first.

    `failures` are those before the batch, of every job of which a run failed, or succeeded after failures.
    `ticking` are the jobs that have a tick to come: a skipped run does not end such a job. `edited` are the
    runs whose job was edited after they were written and has a tick to come: they do not end their job.
    """
    now = dict(failures)
    disabled: dict[str, tuple[int, str]] = {}
    deleted: dict[str, int] = {}
    for outcome in finished:
        job_id = outcome.job_id
        if job_id is None:
            continue
        if job_id in now:
            if outcome.state == "succeeded":
                now[job_id] = 0
            elif outcome.state == "failed":
                now[job_id] += 1
                if outcome.disable_after is not None and now[job_id] >= outcome.disable_after:
                    disabled.setdefault(job_id, (outcome.finished_ms, "failed"))
        if outcome.run_id in edited or (outcome.state == "skipped" and job_id in ticking):
            continue
        if outcome.delete_job:
            deleted.setdefault(job_id, outcome.finished_ms)
        elif outcome.disable_job is not None:
            disabled.setdefault(job_id, (outcome.finished_ms, outcome.disable_job))
    kept = {job_id: why for job_id, why in disabled.items() if job_id not in deleted}
    return JobEffects(now, kept, deleted)
