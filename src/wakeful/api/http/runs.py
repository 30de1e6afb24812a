"""Runs over HTTP: list, read, cancel, stop, replay, and wake an agent without a job."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import Depends, Query
from starlette.responses import Response

from wakeful.api.http.dependencies import (
    OptionalDocument,
    WorkspaceDep,
    WorkspaceRequest,
)
from wakeful.api.http.idempotency import Once
from wakeful.api.http.operations import ApiRouter
from wakeful.api.http.paging import Cursor, Limit, OfAgent, page, read_last
from wakeful.api.http.responses import (
    JsonResponse,
    list_response,
    location_of,
)
from wakeful.errors import InvalidArgument
from wakeful.model.codec import JsonObject
from wakeful.run.run import LISTED_STATES, TriggerName
from wakeful.service.serializers import serialize_run
from wakeful.values.ids import is_id

router = ApiRouter("runs")

States = Annotated[
    list[str] | None,
    Query(
        alias="state",
        description=f"Only runs in one of these states, given several times or separated by commas: "
        f"{', '.join(LISTED_STATES)} (reported as done, the work not verified yet).",
    ),
]
OfTrigger = Annotated[TriggerName | None, Query(description="Only runs with this trigger.")]


@dataclass(frozen=True, slots=True)
class RunList:
    """The filters and the page of a list."""

    states: tuple[str, ...]
    trigger: str | None
    limit: int
    cursor: str | None
    instance: str | None = None
    to_confirm: bool = False


async def _run_list(
    state: States = None,
    trigger: OfTrigger = None,
    instance: Annotated[
        str | None, Query(description="Only of this instance of the agent; it needs `agent`.")
    ] = None,
    to_confirm: Annotated[
        bool,
        Query(description="Only runs that wait for a person to confirm their work (`verify`: `manual`)."),
    ] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RunList:
    return RunList(_states(state), trigger, limit, cursor, instance, to_confirm)


RunListDep = Annotated[RunList, Depends(_run_list)]


@router.operation("GET /runs", "List the runs of all agents", "Runs", in_turn=True)
async def list_all_runs(
    about: WorkspaceDep,
    wanted: RunListDep,
    agent: OfAgent = None,
    job: Annotated[
        str | None,
        Query(description="Only of this job: its id, or with `agent` its name."),
    ] = None,
    job_id: Annotated[str | None, Query(max_length=64, description="Only of the job with this id.")] = None,
    dead: Annotated[bool, Query(description="Only dead letters.")] = False,
    before: Annotated[
        str | None, Query(max_length=64, description="Only runs older than the run with this id.")
    ] = None,
) -> Response:
    """The runs of a workspace, newest first. Those of a deleted job are found by its id."""
    if job is not None and job_id is None:
        job_id = job if is_id(job) else await _named(about, agent, job)
    return await _runs_page(about, agent, wanted, job_id=job_id, dead=dead, before=before)


@router.operation("GET /agents/{agent}/runs", "List the runs of an agent", "Runs", in_turn=True)
async def list_runs(agent: str, about: WorkspaceDep, wanted: RunListDep) -> Response:
    """The runs of an agent, newest first."""
    return await _runs_page(about, agent, wanted)


@router.operation(
    "POST /agents/{agent}/runs",
    "Wake an agent now",
    {201: "Run"},
    409,
    body=("Wake", {"payload": {"message": "look at this"}}),
    headers=("Location",),
)
async def wake_agent(agent: str, once: Once, body: OptionalDocument) -> Response:
    """Creates a `pending` run of the internal job `woken-by-hand`, for the target of the agent.

    Requires the role admin.
    """
    wake = partial(once.services.agents.wakes.wake, *once.caller, agent, body.get("payload"))
    return await once.respond_keyed(wake, lambda run: created_run(serialize_run(run)))


@router.operation("GET /agents/{agent}/jobs/{name}/runs", "List the runs of a job", "Runs", in_turn=True)
async def list_job_runs(
    agent: str,
    name: str,
    about: WorkspaceDep,
    state: States = None,
    trigger: OfTrigger = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Response:
    """The runs of a job, newest first."""
    job_id = (await about.services.jobs.get(*about.caller, agent, name)).id
    return await _runs_page(about, agent, RunList(_states(state), trigger, limit, cursor), job_id=job_id)


@router.operation("GET /runs/{run_id}", "Read a run", "RunWithAttempts")
async def get_run(run_id: str, about: WorkspaceDep) -> Response:
    """A run with its newest 200 attempts, and what it waits for."""
    run, attempts = await about.services.runs.read(*about.caller, run_id)
    rights = await about.services.rights.load(*about.caller, runs=(run,))
    return JsonResponse(serialize_run(run, attempts, await about.services.runs.waiting.of(run), rights))


@router.operation("POST /runs/{run_id}/cancel", "Cancel a waiting run", "Run", 409)
async def cancel_run(run_id: str, once: Once) -> Response:
    """A run that is pending, or between two attempts."""
    cancel = partial(once.services.runs.cancel, *once.caller, run_id)
    return await once.respond(cancel, lambda run: JsonResponse(serialize_run(run)))


@router.operation("POST /runs/{run_id}/stop", "Stop a running run", "Run", 409)
async def stop_run(run_id: str, once: Once) -> Response:
    """The worker is notified, on any replica."""
    stop = partial(once.services.runs.stop, *once.caller, run_id)
    return await once.respond(stop, lambda run: JsonResponse(serialize_run(run)))


@router.operation(
    "POST /runs/{run_id}/replay", "Replay a dead letter", {201: "Run"}, 409, headers=("Location",)
)
async def replay_run(run_id: str, once: Once) -> Response:
    """Creates a run with the same idempotency key and the next attempt. Requires the role admin."""
    replay = partial(once.services.runs.replay, *once.caller, run_id)
    return await once.respond_keyed(replay, lambda run: created_run(serialize_run(run)))


# --- inside ----------------------------------------------------------------------------------------


async def _runs_page(
    about: WorkspaceRequest,
    agent: str | None,
    wanted: RunList,
    *,
    job_id: str | None = None,
    dead: bool = False,
    before: str | None = None,
) -> Response:
    filters = wanted.states, wanted.trigger, wanted.instance, dead, wanted.to_confirm
    scope = ("runs", about.workspace, agent, job_id, *filters)
    before = read_last(wanted.cursor, scope, str) or before
    found = await about.services.runs.list(
        *about.caller,
        agent,
        job_id=job_id,
        states=wanted.states,
        trigger=wanted.trigger,
        instance=wanted.instance,
        dead=dead,
        before=before,
        limit=wanted.limit + 1,
        to_confirm=wanted.to_confirm,
    )
    shown, next_cursor = page(found, wanted.limit, scope, lambda run: (run.id,))
    rights = await about.services.rights.load(*about.caller, runs=shown)
    return await list_response(
        {"runs": (serialize_run(run, rights=rights) for run in shown), "cursor": next_cursor}
    )


def created_run(content: JsonObject) -> Response:
    """Return a new run, with its `Location`."""
    location = location_of(str(content["workspace"]), "runs", str(content["id"]))
    return JsonResponse(content, 201, {"Location": location})


def _states(body: list[str] | None) -> tuple[str, ...]:
    return tuple(state.strip() for each in body or () for state in each.split(","))


async def _named(about: WorkspaceRequest, agent: str | None, name: str) -> str:
    if agent is None:
        raise InvalidArgument("job: a name needs its agent; give agent too, or the id of the job")
    return (await about.services.jobs.get(*about.caller, agent, name)).id
