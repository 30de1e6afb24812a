"""Actions on jobs over HTTP.

On one job: pause, resume, skip a tick, run, rotate its secret, backfill, restore. On several jobs, which are
named or found by a filter: pause, resume, run and delete. On a job that is not saved: preview its schedule,
test its target, write it as text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Final, TypeVar

from fastapi import Path
from starlette.responses import Response

from wakeful.api.http.dependencies import (
    Document,
    OptionalDocument,
    WorkspaceDep,
)
from wakeful.api.http.etags import JobRequest, JobRequestDep
from wakeful.api.http.idempotency import Once, OnceRequest
from wakeful.api.http.jobs import TICKS
from wakeful.api.http.operations import WORKSPACE, ApiRouter
from wakeful.api.http.responses import JsonResponse, list_response, no_content
from wakeful.api.http.runs import created_run
from wakeful.errors import InvalidArgument
from wakeful.job.job import JobRecord
from wakeful.model.codec import JsonObject
from wakeful.service.jobs.job_factory import SaveResult
from wakeful.service.jobs.job_query import read_selection
from wakeful.service.jobs.pauses import SkippedTick
from wakeful.service.report_serializers import SNIPPETS, serialize_preview, serialize_target_test
from wakeful.service.serializers import (
    REVISIONS,
    serialize_bulk_result,
    serialize_bulk_runs,
    serialize_job,
    serialize_run,
    serialize_saved_job,
    serialize_skipped_tick,
)
from wakeful.values.json_value import Json

router = ApiRouter("jobs", prefix=f"{WORKSPACE}/agents/{{agent}}/jobs/{{name}}")
bulk_router = ApiRouter("jobs", prefix=f"{WORKSPACE}/jobs")
checks_router = ApiRouter("jobs")

T = TypeVar("T")

_SCHEDULE: Final[dict[str, Json]] = {"schedule": "30 2 * * *", "tz": "Europe/Berlin", "count": 5}
_TARGET: Final[dict[str, Json]] = {
    "name": "digest",
    "target": {"kind": "webhook", "url": "https://example.com/hook"},
    "payload": {"to": "me"},
}


@router.operation(
    "POST /pause",
    "Pause a job",
    "JobWithTicks",
    409,
    body=("Pause", {"note": "maintenance", "until": "in 2h"}),
    headers=("ETag",),
)
async def pause_job(about: JobRequestDep, once: Once, body: OptionalDocument) -> Response:
    """Stop its ticks and cancel its planned runs. Ticks that pass during the pause are not missed.

    With `until`, the job resumes by itself at that instant. A job that is paused already keeps its note and
    its end, unless one of them is given.
    """
    pause = partial(about.services.jobs.pause, *about.job, note=body.get("note"), until=body.get("until"))
    return await once.respond(partial(about.perform, pause), partial(_job, about))


@router.operation("POST /resume", "Resume a job", "JobWithTicks", 409, headers=("ETag",))
async def resume_job(about: JobRequestDep, once: Once) -> Response:
    """Start its ticks again, from now."""
    resume = partial(about.services.jobs.resume, *about.job)
    return await once.respond(partial(about.perform, resume), partial(_job, about))


@router.operation("POST /skip-next", "Skip the next tick of a job", "SkippedTick", 409, headers=("ETag",))
async def skip_next_tick(about: JobRequestDep, once: Once) -> Response:
    """Record the next tick as skipped (reason `asked`). If its run is recorded already, cancel that run."""
    skip = partial(about.services.jobs.skip_next, *about.job)

    def response(done: SkippedTick) -> Response:
        content = serialize_skipped_tick(about.principal, done, about.services.now_ms())
        return about.job_response(content, done.job.version)

    return await once.respond(partial(about.perform, skip), response)


@router.operation(
    "POST /rotate-secret", "Give a job a new webhook secret", "SavedJob", 409, headers=("ETag",)
)
async def rotate_secret(about: JobRequestDep, once: Once) -> Response:
    """For a day, deliveries are signed with both secrets. The new `secret` is returned only once."""
    rotate = partial(about.perform, partial(about.services.jobs.rotate_secret, *about.job))
    return await once.respond_keyed(rotate, partial(_saved, about))


@router.operation(
    "POST /run",
    "Run a job now",
    {201: "Run", 204: None},
    409,
    body=("RunRequest", {"mode": "force", "payload": {"to": "you"}}),
    headers=("Location",),
)
async def run_job(about: JobRequestDep, once: Once, body: OptionalDocument) -> Response:
    """`force` runs it whatever its schedule says; `due` only if a tick is due, and 204 says that none is.

    It starts at once, beside any other run of the job, unless `overlapPolicy` says otherwise.
    """
    trigger = partial(
        about.services.jobs.trigger,
        *about.job,
        mode=body.get("mode", "force"),
        payload=body.get("payload"),
        overlap=body.get("overlapPolicy"),
    )
    return await once.respond_keyed(
        partial(about.perform, trigger),
        lambda run: no_content() if run is None else created_run(serialize_run(run)),
    )


@router.operation(
    "POST /backfill",
    "Run the ticks of a past range",
    "Count",
    409,
    body=("Backfill", {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}),
)
async def backfill_job(about: JobRequestDep, once: Once, body: Document) -> Response:
    """Oldest first, whether or not they ran before. An instant without a zone is in the zone of the job.

    They overlap as the job's policy says, unless `overlapPolicy` says `queue` (one after another) or `allow`.
    """
    backfill = partial(
        about.services.jobs.backfill,
        *about.job,
        body.get("start"),
        body.get("end"),
        overlap=body.get("overlapPolicy"),
    )
    return await once.respond_keyed(
        partial(about.perform, backfill),
        lambda count: JsonResponse({"count": count}),
    )


@router.operation("GET /revisions", "List the revisions of a job", "Revisions", in_turn=True)
async def list_revisions(agent: str, name: str, about: WorkspaceDep) -> Response:
    """The changes of its definition, newest first: who changed which fields, and when. At most 50.

    The first one is the present state, the last one the creation, unless there were more. Values of
    credentials are not kept.
    """
    found = await about.services.jobs.revisions.list(*about.caller, agent, name)
    return await list_response({"revisions": (REVISIONS.to_json(each) for each in found)})


@router.operation(
    "POST /revisions/{revision}/restore", "Restore a revision of a job", "SavedJob", 409, headers=("ETag",)
)
async def restore_revision(
    about: JobRequestDep, once: Once, revision: Annotated[int, Path(ge=1, le=2**31 - 1)]
) -> Response:
    """Give the job the fields of an earlier revision. That is an edit: its pause and its secret stay."""
    restore = partial(about.services.jobs.revisions.restore, *about.job, revision)
    return await once.respond(partial(about.perform, restore), partial(_saved, about))


def _saved(about: JobRequest, saved: SaveResult) -> Response:
    content = serialize_saved_job(about.principal, saved, about.services.now_ms())
    return about.job_response(content, saved.row.version)


def _job(about: JobRequest, job: JobRecord) -> Response:
    now_ms = about.services.now_ms()
    return about.job_response(serialize_job(about.principal, job, now_ms, TICKS), job.version)


@bulk_router.operation(
    "POST /pause",
    "Pause several jobs",
    "BulkResult",
    409,
    body=("BulkPause", {"agent": "ops", "label": ["team=ops"], "note": "maintenance"}),
)
async def pause_jobs(once: Once, body: Document) -> Response:
    """The named jobs, or the enabled jobs that the filter finds. `dryRun` counts them and changes nothing.

    An unknown name changes nothing. A job that cannot be paused is in `errors`; the others are paused.
    """
    pause = once.services.jobs.pause_many
    note, until = body.get("note"), body.get("until")
    return await _change_many(once, body, pause, serialize_bulk_result, note=note, until=until)


@bulk_router.operation(
    "POST /resume",
    "Resume several jobs",
    "BulkResult",
    409,
    body=("BulkResume", {"agent": "ops", "dryRun": True}),
)
async def resume_jobs(once: Once, body: Document) -> Response:
    """The named jobs, or the paused jobs that the filter finds. `dryRun` counts them and changes nothing."""
    return await _change_many(once, body, once.services.jobs.resume_many, serialize_bulk_result)


@bulk_router.operation(
    "POST /run", "Run several jobs", "BulkRuns", 409, body=("BulkRun", {"jobs": ["digest", "ops/tidy"]})
)
async def run_jobs(once: Once, body: Document) -> Response:
    """The named jobs, or the enabled jobs that the filter finds: at most 1,000 of them.

    Each is run as by `POST …/jobs/{name}/run`. A job that cannot be run is in `errors`; the others are run.
    """
    return await _change_many(
        once,
        body,
        once.services.jobs.run_many,
        serialize_bulk_runs,
        mode=body.get("mode", "force"),
        payload=body.get("payload"),
        overlap=body.get("overlapPolicy"),
    )


@bulk_router.operation(
    "POST /delete",
    "Delete several jobs",
    "BulkResult",
    409,
    body=("BulkDelete", {"agent": "ops", "label": ["team=ops"], "dryRun": True}),
)
async def delete_jobs(once: Once, body: Document) -> Response:
    """The named jobs, or those that the filter finds: at most 1,000 of them.

    Each is deleted as by `DELETE …/jobs/{name}`. A job that cannot be deleted is in `errors`.
    """
    return await _change_many(once, body, once.services.jobs.delete_many, serialize_bulk_result)


async def _change_many(
    once: OnceRequest,
    body: dict[str, object],
    operation: Callable[..., Awaitable[T]],
    serialize: Callable[[T], JsonObject],
    **options: object,
) -> Response:
    """Change the jobs that a body selects, or with `dryRun` count them."""
    dry_run = body.get("dryRun")
    if not isinstance(dry_run, bool | None):
        raise InvalidArgument("dryRun: write true or false")
    change = partial(operation, *once.caller, read_selection(body), dry_run=bool(dry_run), **options)
    return await once.respond(change, lambda result: JsonResponse(serialize(result)))


@checks_router.operation(
    "POST /schedules/preview",
    "Preview a schedule",
    "SchedulePreview",
    body=("SchedulePreviewRequest", _SCHEDULE),
)
async def preview_schedule(about: WorkspaceDep, document: Document) -> Response:
    """A schedule in words, its next ticks with clock changes, and a quieter minute if many jobs start then.

    It takes the fields of a job that determine its ticks, and has the errors of a creation.
    """
    found = await about.services.jobs.previews.preview(*about.caller, document)
    return JsonResponse(serialize_preview(found))


@checks_router.operation(
    "POST /agents/{agent}/jobs/test-target",
    "Test a target",
    "TargetTest",
    body=("TargetTestRequest", _TARGET),
)
async def test_target(agent: str, about: WorkspaceDep, document: Document) -> Response:
    """Send one signed request to a webhook, as a run does, and return both the request and the response.

    Other kinds are only checked: whether a function is registered, a command allowed, a key of a model
    configured, an executor connected. A test is no run, and is not retried.
    """
    found = await about.services.jobs.target_tests.test(*about.caller, agent, document)
    return JsonResponse(serialize_target_test(found))


@checks_router.operation(
    "POST /agents/{agent}/jobs/snippets",
    "Write a job as YAML, curl, CLI and Python",
    "JobSnippets",
    body=("JobDraft", {"name": "digest", "schedule": "0 7 * * 1-5"}),
)
async def write_job_snippets(agent: str, about: WorkspaceDep, document: Document) -> Response:
    """The texts that create the job of a document. It is not validated, and nothing is saved."""
    base_url = about.services.public_url or str(about.request.base_url).rstrip("/")
    texts = await about.services.jobs.texts.write(*about.caller, agent, document, base_url)
    return JsonResponse(SNIPPETS.to_json(texts))
