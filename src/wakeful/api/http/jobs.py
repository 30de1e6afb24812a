"""Jobs over HTTP: list, create one or several, read, upsert, change, delete; search for them and others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Final

from fastapi import Header, Query
from starlette.responses import Response

from wakeful.api.http.dependencies import (
    ServiceDocument,
    WorkspaceDep,
    WorkspaceRequest,
    long_list,
)
from wakeful.api.http.etags import CreateOnly, IfNoneMatch, JobRequest, JobRequestDep, etag, matches
from wakeful.api.http.idempotency import Once
from wakeful.api.http.job_lists import JobListDep, list_page
from wakeful.api.http.operations import ApiRouter
from wakeful.api.http.paging import OfAgent
from wakeful.api.http.problems import Stale
from wakeful.api.http.responses import (
    JsonResponse,
    list_response,
    location_of,
    no_content,
)
from wakeful.errors import AlreadyExists, InvalidArgument, NotFound
from wakeful.service.jobs.job_batches import read_batch
from wakeful.service.jobs.job_factory import SaveResult
from wakeful.service.jobs.job_query import LONGEST
from wakeful.service.jobs.jobs import JobReading
from wakeful.service.report_serializers import serialize_search
from wakeful.service.serializers import (
    serialize_created_job,
    serialize_job,
    serialize_run,
    serialize_saved_job,
    serialize_saved_jobs,
)
from wakeful.values.ids import is_id
from wakeful.values.json_value import Json

router = ApiRouter("jobs")
search_router = ApiRouter("jobs")

#: The number of ticks that are returned with a job.
TICKS: Final = 5
_EXAMPLE: Final[dict[str, Json]] = {
    "name": "digest",
    "schedule": "0 7 * * 1-5",
    "tz": "Europe/Berlin",
    "target": {"kind": "webhook", "url": "https://example.com/hook"},
    "payload": {"to": "me"},
}


@router.operation("GET /jobs", "List the jobs of all agents", "Jobs", in_turn=True)
async def list_all_jobs(about: WorkspaceDep, wanted: JobListDep, agent: OfAgent = None) -> Response:
    """The jobs of a workspace, by agent and name, or by their next tick."""
    return await list_page(about, agent, wanted)


@router.operation("GET /jobs/{name}", "Find a job of any agent", "JobWithTicks", 409, headers=("ETag",))
async def find_job(name: str, about: WorkspaceDep) -> Response:
    """The job with this id, or with this name if one agent only has it; 409 lists them if several have it."""
    found = await about.services.jobs.find(*about.caller, name)
    return await _one_job(about, await about.services.jobs.read(*about.caller, found.agent, found.id))


@router.operation("GET /agents/{agent}/jobs", "List the jobs of an agent", "Jobs", in_turn=True)
async def list_jobs(agent: str, about: WorkspaceDep, wanted: JobListDep) -> Response:
    """The jobs of an agent, by name, or by their next tick."""
    return await list_page(about, agent, wanted)


@router.operation(
    "POST /agents/{agent}/jobs",
    "Create a job",
    {201: "SavedJob"},
    409,
    body=("JobDocument", _EXAMPLE),
    headers=("Location", "ETag"),
)
async def create_job(agent: str, once: Once, document: ServiceDocument) -> Response:
    """A name that is taken is refused. The `secret` of a webhook is returned only once."""
    create = partial(once.services.jobs.create, *once.caller, agent, document)
    return await once.respond_keyed(create, lambda saved: _saved(once, saved, created=True))


@router.operation(
    "POST /agents/{agent}/jobs/bulk",
    "Create several jobs",
    {201: "SavedJobs", 204: None},
    409,
    body=("JobBatch", {"jobs": [_EXAMPLE]}),
)
async def create_jobs(
    agent: str,
    once: Once,
    brief: Annotated[
        bool, Query(description="Return only what is new: the id, secret and warnings of each job.")
    ] = False,
    dry_run: Annotated[
        bool, Query(description="Check the documents and create nothing: 204, or the errors.")
    ] = False,
) -> Response:
    """All jobs are created in one transaction, or none. `errors` of an error has those of all documents.

    The jobs of the response are in the order of the request. Their secrets are returned only once. The body
    has at most 8 MB. With `dry_run`, all checks but the quotas are made, and nothing is created.
    """

    def created(saved: Sequence[SaveResult]) -> Iterator[Json]:
        if brief:
            return map(serialize_created_job, saved)
        return serialize_saved_jobs(once.principal, saved, once.services.now_ms())

    # A tenant that sends slowly delays only itself: the second turn begins when the body is there.
    async with once.services.batches.next():
        await once.request.body()
        async with once.services.all_batches:
            documents = read_batch(await long_list(once.request, "jobs"))
            create = partial(once.services.jobs.create_many, *once.caller, agent, documents)
            if dry_run:
                await create(dry_run=True)
                return no_content()
            if once.key is None:
                return await list_response({"jobs": created(await create())}, 201)
            return await once.respond_keyed(
                create, lambda saved: JsonResponse({"jobs": [*created(saved)]}, 201)
            )


@router.operation(
    "GET /agents/{agent}/jobs/{name}", "Read a job", {200: "JobWithTicks", 304: None}, headers=("ETag",)
)
async def get_job(agent: str, name: str, about: WorkspaceDep, if_none_match: IfNoneMatch = None) -> Response:
    """A job with its next 5 ticks and its last 5 runs.

    Its ETag changes with every edit, not with time: `nextAt` and `runCount` may differ under the same ETag.
    """
    found = await about.services.jobs.read(*about.caller, agent, name)
    version = found.job.version
    if if_none_match is not None and matches(if_none_match, version, weak=True):
        return Response(status_code=304, headers={"ETag": etag(version)})
    return await _one_job(about, found)


@router.operation(
    "PUT /agents/{agent}/jobs/{name}",
    "Create a job, or change it to match the document",
    {200: "SavedJob", 201: "SavedJob", 204: None},
    409,
    body=("NamedJobDocument", {k: v for k, v in _EXAMPLE.items() if k != "name"}),
    headers=("Location", "ETag"),
)
async def upsert_job(
    about: JobRequestDep,
    document: ServiceDocument,
    if_none_match: CreateOnly = None,
    dry_run: Annotated[
        bool, Query(description="Check the document and change nothing: 204, or the error.")
    ] = False,
    prefer: Annotated[
        str | None,
        Header(description="`return=representation`: a dry run returns the job as it would be saved."),
    ] = None,
) -> Response:
    """The same document again changes nothing, not even a pause. `If-None-Match: *` only creates.

    With `dry_run`, all checks but the quotas are made, and nothing is changed. The response has no content,
    or with `Prefer: return=representation` the job as it would be: its revision is another if it changes.
    """
    name = await _name_of(about)
    if document.get("name", name) not in (name, about.name):
        raise InvalidArgument(
            f"name: the path names '{name[:64]}' and the document another job; rename a job with PATCH"
        )
    named = {**document, "name": name}
    if if_none_match is not None:
        return await _create_only(about, named, if_none_match, dry_run)
    upsert = partial(
        about.services.jobs.upsert, about.principal, about.workspace, about.agent, named, dry_run=dry_run
    )
    saved = await about.perform(upsert, missing=Stale)
    if dry_run:
        return _saved(about, saved) if prefer == "return=representation" else no_content()
    return _saved(about, saved, created=saved.created)


@router.operation(
    "PATCH /agents/{agent}/jobs/{name}",
    "Change fields of a job",
    "SavedJob",
    409,
    body=("JobPatch", {"schedule": "0 8 * * 1-5", "enabled": False}),
    headers=("ETag",),
)
async def update_job(about: JobRequestDep, patch: ServiceDocument) -> Response:
    """Change the fields that are given and no others; null resets a field to its default."""
    saved = await about.perform(partial(about.services.jobs.update, *about.job, patch))
    return _saved(about, saved)


@router.operation("DELETE /agents/{agent}/jobs/{name}", "Delete a job", {204: None, 200: "DeletedJob"}, 409)
async def delete_job(about: JobRequestDep) -> Response:
    """A running run continues; waiting runs are cancelled. Its runs stay readable.

    The response is 200, with `warnings`, if other jobs come after the deleted one.
    """
    warnings = await about.perform(partial(about.services.jobs.delete, *about.job))
    return JsonResponse({"warnings": list(warnings)}) if warnings else no_content()


@search_router.operation("GET /search", "Find jobs, agents and runs", "SearchResult")
async def search(
    about: WorkspaceDep,
    q: Annotated[
        str, Query(max_length=LONGEST, description="A part of a name, or the beginning of the id of a run.")
    ] = "",
) -> Response:
    """A few jobs and agents whose names have the text, and runs whose ids begin with it."""
    found = await about.services.search.search(*about.caller, q)
    rights = await about.services.rights.load(*about.caller, (job.agent for job in found.jobs))
    return JsonResponse(serialize_search(found, rights))


# --- inside ----------------------------------------------------------------------------------------


async def _one_job(about: WorkspaceRequest, found: JobReading) -> Response:
    job = found.job
    rights = await about.services.rights.load(*about.caller, (job.agent,), found.runs)
    content = serialize_job(about.principal, job, about.services.now_ms(), TICKS, rights)
    if found.warnings:
        content["warnings"] = list(found.warnings)
    content["hook"] = found.has_hook
    content["precheckState"] = found.precheck_state
    content["subscription"] = found.subscription
    content["spent"] = found.spent
    content["lastRuns"] = [serialize_run(run, rights=rights) for run in found.runs]
    return JsonResponse(content, headers={"ETag": etag(found.job.version)})


async def _name_of(about: JobRequest) -> str:
    """Return the name of the job of a request, whose path may have its id instead."""
    if not is_id(about.name):
        return about.name
    try:
        return (await about.services.jobs.get(*about.job)).name
    except NotFound:  # a new job, with a name in the form of an id
        return about.name


def _saved(about: WorkspaceRequest, saved: SaveResult, *, created: bool = False) -> Response:
    row = saved.row
    headers = {"ETag": etag(row.version)}
    if created:
        headers["Location"] = location_of(row.workspace, "agents", row.agent, "jobs", row.name)
    content = serialize_saved_job(about.principal, saved, about.services.now_ms())
    return JsonResponse(content, 201 if created else 200, headers)


async def _create_only(
    about: JobRequest, document: dict[str, object], header: str, dry_run: bool
) -> Response:
    if not matches(header, 0):
        raise InvalidArgument("If-None-Match: a PUT accepts only '*', which creates and changes nothing")
    try:
        saved = await about.services.jobs.create(
            about.principal, about.workspace, about.agent, document, dry_run=dry_run
        )
    except AlreadyExists as error:
        raise Stale(error.message) from error
    return no_content() if dry_run else _saved(about, saved, created=True)
