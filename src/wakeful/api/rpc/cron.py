"""The methods `cron.…`: each reads its parameters, calls a service, and returns JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from wakeful.api.http.paging import MAX_PAGE
from wakeful.api.rpc.frames import Params
from wakeful.errors import InvalidArgument, NotFound
from wakeful.job.job import JobRecord
from wakeful.model.codec import JsonObject
from wakeful.service.auth.access import Principal
from wakeful.service.jobs.job_factory import SaveResult
from wakeful.service.jobs.job_query import read_label_filter
from wakeful.service.serializers import serialize_job, serialize_run, serialize_runs, serialize_saved_job
from wakeful.service.services import Services

#: The largest offset of a list; HTTP has cursors without a limit.
MAX_OFFSET: Final = 10_000

Method = Callable[[Services, Principal, Params], Awaitable[JsonObject]]


async def list_jobs(services: Services, principal: Principal, params: Params) -> JsonObject:
    """List jobs by agent and name, of one agent or of all."""
    params.only("includeDisabled", "label", "limit", "offset")
    limit, offset = _page(params, 100)
    found = await services.jobs.list(
        principal,
        params.workspace,
        params.agent,
        include_disabled=params.flag("includeDisabled", False),
        labels=read_label_filter(params.words("label")),
        limit=limit + 1,
        offset=offset,
    )
    shown = [await _serialize(services, principal, job) for job in found[:limit]]
    return {"jobs": [*shown], "limit": limit, "offset": offset, "more": len(found) > limit}


async def create_job(services: Services, principal: Principal, params: Params) -> JsonObject:
    """Create a job from the parameters. The `secret` of a webhook is returned only once."""
    document = {name: value for name, value in params.given.items() if name not in ("agentId", "workspace")}
    saved = await services.jobs.create(principal, params.workspace, params.agent_or_default, document)
    return {"job": await _serialize_saved(services, principal, saved)}


async def update_job(services: Services, principal: Principal, params: Params) -> JsonObject:
    """Change the fields that `patch` names, and no others."""
    params.only("jobId", "patch")
    patch = params.object("patch")
    job = await _job(services, principal, params)
    saved = await services.jobs.update(principal, job.workspace, job.agent, job.name, patch)
    return {"job": await _serialize_saved(services, principal, saved)}


async def delete_job(services: Services, principal: Principal, params: Params) -> JsonObject:
    """Delete a job and cancel its waiting runs; its runs stay readable."""
    params.only("jobId")
    job = await _job(services, principal, params)
    warnings = await services.jobs.delete(principal, job.workspace, job.agent, job.name)
    return {"deleted": True, "jobId": job.id, **({"warnings": [*warnings]} if warnings else {})}


async def toggle_job(services: Services, principal: Principal, params: Params) -> JsonObject:
    """Resume a job (`enabled`), or pause it, with a `note` and `until` an instant."""
    params.only("jobId", "enabled", "note", "until")
    enabled = params.flag("enabled")
    note, until = params.given.get("note"), params.given.get("until")
    if enabled and (note is not None or until is not None):
        raise InvalidArgument("note, until: only for a pause; leave them out, or pause the job")
    job = await _job(services, principal, params)
    where = job.workspace, job.agent, job.name
    if enabled:
        done = await services.jobs.resume(principal, *where)
    else:
        done = await services.jobs.pause(principal, *where, note=note, until=until)
    return {"job": await _serialize(services, principal, done)}


async def skip_next(services: Services, principal: Principal, params: Params) -> JsonObject:
    """Record the next tick of a job as skipped."""
    params.only("jobId")
    job = await _job(services, principal, params)
    done = await services.jobs.skip_next(principal, job.workspace, job.agent, job.name)
    return {"job": await _serialize(services, principal, done.job), "run": serialize_run(done.run)}


async def run_job(services: Services, principal: Principal, params: Params) -> JsonObject:
    """Run a job now: always with mode `force`, with mode `due` only if a tick is due."""
    params.only("jobId", "mode", "payload", "overlapPolicy")
    job = await _job(services, principal, params)
    run = await services.jobs.trigger(
        principal,
        job.workspace,
        job.agent,
        job.name,
        mode=params.given.get("mode", "force"),
        payload=params.given.get("payload"),
        overlap=params.given.get("overlapPolicy"),
    )
    return {"ran": run is not None, "run": serialize_run(run) if run else None}


async def list_runs(services: Services, principal: Principal, params: Params) -> JsonObject:
    """List the runs of a job, newest first; those of a deleted job by its id."""
    params.only("jobId", "limit", "offset")
    limit, offset = _page(params, 20)
    agent, job_id, missing = params.agent, params.job(), None
    try:
        job = await _job(services, principal, params)
        agent, job_id = job.agent, job.id
    except NotFound as error:
        missing = error
    listed = partial(services.runs.list, principal, params.workspace, agent, job_id=job_id)
    runs = await listed(limit=limit + 1, offset=offset)
    if missing is not None and not runs and not (offset and await listed(limit=1)):
        raise missing
    rights = await services.rights.load(principal, params.workspace, runs=runs)
    shown = await serialize_runs(runs[:limit], rights)
    return {"runs": [*shown], "limit": limit, "offset": offset, "more": len(runs) > limit}


async def status(services: Services, principal: Principal, params: Params) -> JsonObject:
    """Return whether the engine is running, the number of active jobs, and the next tick."""
    params.only()
    found = await services.admin.status.status(principal, params.workspace)
    jobs = found["jobs"]
    assert isinstance(jobs, dict)
    return {"running": found["engine"], "activeJobs": jobs["active"], **found}


METHODS: Final[dict[str, Method]] = {
    "cron.list": list_jobs,
    "cron.create": create_job,
    "cron.update": update_job,
    "cron.delete": delete_job,
    "cron.toggle": toggle_job,
    "cron.skipNext": skip_next,
    "cron.run": run_job,
    "cron.runs": list_runs,
    "cron.status": status,
}


# --- inside ----------------------------------------------------------------------------------------


def _page(params: Params, usual: int) -> tuple[int, int]:
    return params.number("limit", usual, 1, MAX_PAGE), params.number("offset", 0, 0, MAX_OFFSET)


async def _job(services: Services, principal: Principal, params: Params) -> JobRecord:
    """Return the job with this id, else the job with this name."""
    wanted = params.job()
    try:
        job = await services.jobs.by_id(principal, params.workspace, wanted)
    except NotFound:
        return await services.jobs.get(principal, params.workspace, params.agent_or_default, wanted)
    if params.agent not in (None, job.agent):
        raise NotFound(f"no job '{wanted}' of the agent '{params.agent}'; list the jobs to see their names")
    return job


async def _serialize_saved(services: Services, principal: Principal, saved: SaveResult) -> JsonObject:
    rights = await services.rights.load(principal, saved.job.workspace, (saved.job.agent,))
    return {
        **serialize_saved_job(principal, saved, services.now_ms()),
        "may": [*rights.job(saved.job)],
        **await _last(services, principal, saved.job),
    }


async def _serialize(services: Services, principal: Principal, job: JobRecord) -> JsonObject:
    rights = await services.rights.load(principal, job.workspace, (job.agent,))
    return {**serialize_job(principal, job, rights=rights), **await _last(services, principal, job)}


async def _last(services: Services, principal: Principal, job: JobRecord) -> JsonObject:
    """Return the fields that only the RPC has: the next tick, and the result of the last run.

    The job records whether it failed; only the error is read from a run.
    """
    error = None
    if job.failures:
        failed = await services.runs.list(
            principal, job.workspace, job.agent, job_id=job.id, states=("failed",), limit=1
        )
        error = next((run.error for run in failed), None)
    return {
        "nextRunAtMs": job.next_ms,
        "lastStatus": "error" if job.failures else "ok" if job.run_count else None,
        "lastError": error,
    }
