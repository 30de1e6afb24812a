"""What can be done with one job over HTTP: pause, resume, skip a tick, run, rotate its secret, backfill."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, Document, OptionalDocument, ServicesDep
from wakeful.api.http.etags import IfMatch, etag, guarded
from wakeful.api.http.idempotency import IdempotencyKey, once
from wakeful.api.http.jobs import TICKS
from wakeful.api.http.responses import BODY, JsonResponse, location_of, no_content, request_body, responses
from wakeful.document.values import whole_number
from wakeful.errors import InvalidArgument
from wakeful.job import JobRecord
from wakeful.schedule import LATEST_MS, At, parse_schedule
from wakeful.service.auth.access import Principal
from wakeful.service.jobs.job_factory import SaveResult
from wakeful.service.jobs.pauses import SkippedTick
from wakeful.service.serializers import (
    serialize_job,
    serialize_run,
    serialize_saved_job,
    serialize_skipped_tick,
)
from wakeful.service.services import Services
from wakeful.store.idempotency import Keyed
from wakeful.store.rows import RunView

router = APIRouter(
    prefix="/api/workspaces/{workspace}/agents/{agent}/jobs/{name}", tags=["jobs"], dependencies=SECURED
)


@router.post(
    "/pause",
    summary="Pause a job",
    responses=responses({200: "JobWithTicks"}, *BODY, 409, 412, headers=("ETag",)),
    openapi_extra=request_body("Pause", {"note": "maintenance", "until": "in 2h"}, required=False),
)
async def pause_job(
    workspace: str,
    agent: str,
    name: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    body: OptionalDocument,
    if_match: IfMatch = None,
) -> Response:
    """Stop its ticks and withdraw what is planned; time that passes now is never missed.

    With `until` it resumes by itself at that instant. A job that is paused already keeps its note and its
    end, unless one of them is given.
    """

    async def pause(version: int | None) -> JobRecord:
        return await services.jobs.pause(
            principal, workspace, agent, name, note=body.get("note"), until=body.get("until"), version=version
        )

    return _job(
        services, principal, await guarded(services, principal, workspace, agent, name, if_match, pause)
    )


@router.post(
    "/resume", summary="Resume a job", responses=responses({200: "JobWithTicks"}, 409, 412, headers=("ETag",))
)
async def resume_job(
    workspace: str,
    agent: str,
    name: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    if_match: IfMatch = None,
) -> Response:
    """Start its ticks again, from now."""

    async def resume(version: int | None) -> JobRecord:
        return await services.jobs.resume(principal, workspace, agent, name, version=version)

    return _job(
        services, principal, await guarded(services, principal, workspace, agent, name, if_match, resume)
    )


@router.post(
    "/skip-next",
    summary="Skip the next tick of a job",
    responses=responses({200: "SkippedTick"}, 409, 412, headers=("ETag",)),
)
async def skip_next_tick(
    workspace: str,
    agent: str,
    name: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    if_match: IfMatch = None,
) -> Response:
    """Record the next tick as skipped (reason `asked`); one that is recorded already is cancelled."""

    async def skip(version: int | None) -> SkippedTick:
        return await services.jobs.skip_next(principal, workspace, agent, name, version=version)

    done = await guarded(services, principal, workspace, agent, name, if_match, skip)
    content = serialize_skipped_tick(principal, done, services.store.clock.now_ms())
    return JsonResponse(content, headers={"ETag": etag(done.job.version)})


@router.post(
    "/rotate-secret",
    summary="Give a job a new webhook secret",
    responses=responses({200: "SavedJob"}, 409, 412, headers=("ETag",)),
)
async def rotate_secret(
    workspace: str,
    agent: str,
    name: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    if_match: IfMatch = None,
) -> Response:
    """For a day, deliveries are signed with both. The new `secret` is shown here and never again."""

    async def rotate(version: int | None) -> SaveResult:
        return await services.jobs.rotate_secret(principal, workspace, agent, name, version=version)

    saved = await guarded(services, principal, workspace, agent, name, if_match, rotate)
    return JsonResponse(
        serialize_saved_job(principal, saved, services.store.clock.now_ms()),
        headers={"ETag": etag(saved.row.version)},
    )


@router.post(
    "/run",
    summary="Run a job now",
    status_code=201,
    responses=responses(
        {201: "Run", 204: None}, *BODY, 409, 412, headers=("Location", "Idempotency-Replayed")
    ),
    openapi_extra=request_body("RunRequest", {"mode": "force", "payload": {"to": "you"}}, required=False),
)
async def run_job(
    workspace: str,
    agent: str,
    name: str,
    request: Request,
    services: ServicesDep,
    principal: CurrentPrincipal,
    body: OptionalDocument,
    idempotency_key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> Response:
    """`force` runs it whatever its schedule says; `due` only if a tick is due, and 204 says that none is.

    It starts at once, beside any other run of the job, unless `overlapPolicy` says otherwise.
    """
    mode = body.get("mode", "force")
    if mode != "force" and mode != "due":
        raise InvalidArgument("mode: write 'force' to run it whatever its schedule says, or 'due'")

    async def trigger(version: int | None, keyed: Keyed[RunView | None] | None) -> RunView | None:
        return await services.jobs.trigger(
            principal,
            workspace,
            agent,
            name,
            mode=mode,
            payload=body.get("payload"),
            overlap=body.get("overlapPolicy"),
            version=version,
            keyed=keyed,
        )

    async def run(keyed: Keyed[RunView | None] | None) -> RunView | None:
        return await guarded(
            services, principal, workspace, agent, name, if_match, lambda version: trigger(version, keyed)
        )

    def render(started: RunView | None) -> Response:
        if started is None:
            return no_content()
        return JsonResponse(
            serialize_run(started), 201, {"Location": location_of(workspace, "runs", started.id)}
        )

    return await once(request, principal, workspace, run, render)


@router.post(
    "/backfill",
    summary="Run the ticks of a past range",
    responses=responses({200: "Count"}, *BODY, 409, 412, headers=("Idempotency-Replayed",)),
    openapi_extra=request_body("Backfill", {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}),
)
async def backfill_job(
    workspace: str,
    agent: str,
    name: str,
    request: Request,
    services: ServicesDep,
    principal: CurrentPrincipal,
    body: Document,
    idempotency_key: IdempotencyKey = None,
    if_match: IfMatch = None,
) -> Response:
    """Oldest first, whether or not they ran before. An instant without a zone is in the job's."""

    async def backfill(version: int | None, keyed: Keyed[int] | None) -> int:
        job = await services.jobs.get(principal, workspace, agent, name)
        start_ms, end_ms = (_instant(body, field, job) for field in ("start", "end"))
        return await services.jobs.backfill(
            principal, workspace, agent, name, start_ms, end_ms, version=version, keyed=keyed
        )

    async def act(keyed: Keyed[int] | None) -> int:
        return await guarded(
            services, principal, workspace, agent, name, if_match, lambda version: backfill(version, keyed)
        )

    return await once(request, principal, workspace, act, lambda count: JsonResponse({"count": count}))


def _job(services: Services, principal: Principal, job: JobRecord) -> Response:
    return JsonResponse(
        serialize_job(principal, job, services.store.clock.now_ms(), TICKS),
        headers={"ETag": etag(job.version)},
    )


def _instant(body: dict[str, object], field: str, job: JobRecord) -> int:
    value = body.get(field)
    number = whole_number(value)
    if number is not None and 0 <= number <= LATEST_MS:
        return number
    if not isinstance(value, str):
        raise InvalidArgument(
            f"{field}: write an instant such as '2026-01-01T00:00:00Z', or milliseconds since 1970"
        )
    tz = job.definition.timing.schedule.tz if job.definition.timing else None
    try:
        at = parse_schedule({"kind": "at", "at": value}, now_ms=-1, tz=tz or "UTC")
    except InvalidArgument as error:
        raise InvalidArgument(f"{field}: {error.message}") from error
    assert isinstance(at, At)
    return at.at_ms
