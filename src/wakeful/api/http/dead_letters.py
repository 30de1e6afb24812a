"""Dead letters over HTTP: see them, replay them, put them away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, Document, ServicesDep
from wakeful.api.http.idempotency import IdempotencyKey, once
from wakeful.api.http.paging import Cursor, Limit
from wakeful.api.http.responses import BODY, JsonAnswer, takes, told
from wakeful.api.http.runs import listed_runs
from wakeful.errors import InvalidArgument
from wakeful.store.idempotency import Keyed
from wakeful.store.rows import RunFilter

router = APIRouter(
    prefix="/api/workspaces/{workspace}/dead-letters", tags=["dead letters"], dependencies=SECURED
)


@router.get("", summary="List dead letters", responses=told({200: "DeadLetters"}))
async def list_dead_letters(
    workspace: str,
    here: ServicesDep,
    who: CurrentPrincipal,
    agent: Annotated[str | None, Query(description="Only those of this agent.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Failed runs that nobody has replayed or discarded, newest first."""
    only_dead = RunFilter(workspace, agent, dead=True)
    return await listed_runs(here, who, only_dead, limit, cursor, "deadLetters")


@router.post(
    "/replay",
    summary="Replay dead letters",
    responses=told({200: "Replayed"}, *BODY, 409, headers=("Idempotency-Replayed",)),
    openapi_extra=takes("WhichDeadLetters", {"all": True}),
)
async def replay_dead_letters(
    workspace: str,
    request: Request,
    here: ServicesDep,
    who: CurrentPrincipal,
    given: Document,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """These, or with `all` the oldest thousand; what is no dead letter any more is passed over."""
    ids = _ids(given)

    async def replay(keyed: Keyed[Sequence[str]] | None) -> Sequence[str]:
        return await here.runs.replay_many(who, workspace, ids, keyed=keyed)

    return await once(
        request, who, workspace, replay, lambda replayed: JsonAnswer({"replayed": list(replayed)})
    )


@router.post(
    "/discard",
    summary="Discard dead letters",
    responses=told({200: "Discarded"}, *BODY),
    openapi_extra=takes("WhichDeadLetters", {"ids": ["01980000-0000-7000-8000-000000000000"]}),
)
async def discard_dead_letters(
    workspace: str, here: ServicesDep, who: CurrentPrincipal, given: Document
) -> Response:
    """Put them away for good, likewise; their runs can still be seen."""
    ids = _ids(given)
    return JsonAnswer({"discarded": list(await here.runs.discard_many(who, workspace, ids))})


def _ids(given: dict[str, object]) -> list[str] | None:
    """Which ones; None for all of them, which nobody gets by leaving something out."""
    ids, everything = given.get("ids"), given.get("all")
    if everything is True and ids is None:
        return None
    if isinstance(ids, list) and all(isinstance(each, str) for each in ids) and not everything:
        return ids
    raise InvalidArgument('say which: {"ids": ["…"]} for some of them, or {"all": true}')
