"""Dead letters over HTTP: list, group by cause, replay, discard. Incidents: list, read, acknowledge."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Final, NamedTuple

from fastapi import Query
from starlette.responses import Response

from wakeful.api.http.dependencies import (
    Document,
    OptionalDocument,
    WorkspaceDep,
    WorkspaceRequest,
)
from wakeful.api.http.idempotency import Once
from wakeful.api.http.operations import WORKSPACE, ApiRouter
from wakeful.api.http.paging import Cursor, Limit, OfAgent, OfJob, page, read_last, split_words, write_cursor
from wakeful.api.http.responses import JsonResponse, list_response
from wakeful.errors import InvalidArgument
from wakeful.model.codec import JsonObject
from wakeful.run.dead_letter_groups import DeadLetterSelection
from wakeful.run.incidents import INCIDENT_STATES
from wakeful.service.report_serializers import DEAD_LETTER_GROUPS
from wakeful.service.runs.dead_letters import read_selection
from wakeful.service.serializers import INCIDENTS, serialize_run
from wakeful.values.ids import is_id
from wakeful.values.json_value import Json

router = ApiRouter("dead letters", prefix=f"{WORKSPACE}/dead-letters")
incidents_router = ApiRouter("incidents", prefix=f"{WORKSPACE}/incidents")

_FILTERS: Final = ("agent", "job", "cause")
_FIELDS: Final = ("ids", "all", *_FILTERS, "through", "cursor", "dryRun")

OfJobOrNone = Annotated[
    str | None, Query(max_length=64, description="Only of this job: its id or name; empty: without a job.")
]
States = Annotated[
    str | None,
    Query(
        description=f"Only in these states, with commas: some of {', '.join(INCIDENT_STATES)}.",
    ),
]


@router.operation("GET", "List dead letters", "DeadLetters", in_turn=True)
async def list_dead_letters(
    about: WorkspaceDep,
    agent: OfAgent = None,
    job: OfJobOrNone = None,
    cause: Annotated[
        str | None, Query(max_length=200, description="Only with this cause, as its group has it.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Failed runs that were not replayed or discarded, newest first.

    With a filter, a page looks at 2,000 dead letters: it may have few runs, or none, and yet a cursor.
    """
    scope = ("deadLetters", about.workspace, agent, job, cause)
    before = read_last(cursor, scope, str)
    selection = DeadLetterSelection(agent, job, cause)
    shown, following = await about.services.runs.dead_letters.list(
        *about.caller, selection, before=before, limit=limit
    )
    rights = await about.services.rights.load(*about.caller, runs=shown)
    return await list_response(
        {
            "deadLetters": (serialize_run(run, rights=rights) for run in shown),
            "cursor": None if following is None else write_cursor([following], scope),
        }
    )


@router.operation("GET /groups", "Group dead letters by cause", "DeadLetterGroups")
async def group_dead_letters(about: WorkspaceDep, agent: OfAgent = None, job: OfJobOrNone = None) -> Response:
    """The newest 2,000 dead letters by job and cause, the group with the newest failure first."""
    return JsonResponse(
        DEAD_LETTER_GROUPS.to_json(await about.services.runs.dead_letters.groups(*about.caller, agent, job))
    )


@router.operation(
    "POST /replay",
    "Replay dead letters",
    "Replayed",
    409,
    body=("WhichDeadLetters", {"job": "digest", "cause": "http 503"}),
)
async def replay_dead_letters(once: Once, body: Document) -> Response:
    """The named ones, or the oldest thousand that match. Runs that are not dead letters are left out.

    With a filter, `cursor` says where to continue if there are more. Send `through` too, with the id of the
    newest run that is meant: replayed runs may fail again meanwhile.
    """
    picked = await _pick(once, body)
    if picked.dry_run:
        return JsonResponse({"replayed": [], **picked.content})
    replay = partial(once.services.runs.dead_letters.replay, *once.caller, picked.ids)
    return await once.respond_keyed(
        replay, lambda ids: JsonResponse({"replayed": list(ids), **picked.content})
    )


@router.operation(
    "POST /discard",
    "Discard dead letters",
    "Discarded",
    409,
    body=("WhichDeadLetters", {"ids": ["01980000-0000-7000-8000-000000000000"]}),
)
async def discard_dead_letters(once: Once, body: Document) -> Response:
    """Discard permanently, selected in the same way; their runs stay readable."""
    picked = await _pick(once, body)
    if picked.dry_run:
        return JsonResponse({"discarded": [], **picked.content})
    return await once.respond(
        partial(once.services.runs.dead_letters.discard, *once.caller, picked.ids),
        lambda ids: JsonResponse({"discarded": list(ids), **picked.content}),
    )


class _Picked(NamedTuple):
    """The dead letters of a request."""

    ids: list[str]
    cursor: str | None = None
    dry_run: bool = False
    #: whether the response says how many were selected, and where to continue
    counted: bool = True

    @property
    def content(self) -> JsonObject:
        return {"selected": len(self.ids), "cursor": self.cursor} if self.counted else {}


async def _pick(about: WorkspaceRequest, body: Mapping[str, object]) -> _Picked:
    """Return the dead letters that a request selects; all of them must be requested explicitly."""
    unknown = sorted(str(key)[:64] for key in body if key not in _FIELDS)
    if unknown:
        raise InvalidArgument(f"a selection has no {', '.join(unknown)}; it has {', '.join(_FIELDS)}")
    ids, everything, dry_run = body.get("ids"), body.get("all"), body.get("dryRun")
    filtered = any(body.get(name) is not None for name in _FILTERS)
    if not isinstance(dry_run, bool | None) or not isinstance(everything, bool | None):
        raise InvalidArgument("all, dryRun: write true or false")
    if isinstance(ids, list) and all(isinstance(each, str) for each in ids):
        if not everything and not filtered:
            return _Picked(ids, dry_run=bool(dry_run), counted=dry_run is not None)
    elif ids is None and (everything or filtered):
        cursor = body.get("cursor")
        if cursor is not None and not (isinstance(cursor, str) and is_id(cursor)):
            raise InvalidArgument("cursor: use that of the previous response, or leave it out")
        selected = await about.services.runs.dead_letters.select(
            *about.caller, read_selection(dict(body)), after=cursor
        )
        counted = any(name in body for name in (*_FILTERS, "through", "cursor", "dryRun"))
        return _Picked(selected.ids, selected.after, bool(dry_run), counted)
    raise InvalidArgument(
        'select dead letters: {"ids": ["…"]} for some of them, {"cause": "…", "job": "…", "agent": "…"} '
        'for those that match, or {"all": true}'
    )


@incidents_router.operation("GET", "List incidents", "Incidents")
async def list_incidents(
    about: WorkspaceDep,
    state: States = None,
    agent: OfAgent = None,
    job: OfJob = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Failures of one job with one cause are one incident. Newest first."""
    states = split_words(state)
    scope = ["incidents", about.workspace, about.principal.agent, agent, job, sorted(states)]
    before = read_last(cursor or None, scope, str)
    found = await about.services.admin.incidents.list(
        *about.caller, agent=agent, job=job, states=states, before=before, limit=limit + 1
    )
    shown, following = page(found, limit, scope, lambda each: [each.id])
    rights = await about.services.rights.load(*about.caller)
    incidents: list[Json] = [INCIDENTS.to_json(each, may=rights.incident(each)) for each in shown]
    return JsonResponse({"incidents": incidents, "cursor": following})


@incidents_router.operation("GET /{incident_id}", "Get an incident", "Incident")
async def get_incident(incident_id: str, about: WorkspaceDep) -> Response:
    """An incident stays readable after its job was deleted."""
    found = await about.services.admin.incidents.get(*about.caller, incident_id)
    rights = await about.services.rights.load(*about.caller)
    return JsonResponse(INCIDENTS.to_json(found, may=rights.incident(found)))


@incidents_router.operation(
    "POST /{incident_id}/ack",
    "Acknowledge an incident",
    "Incident",
    409,
    body=("Acknowledgement", {"note": "the database is being moved"}),
)
async def acknowledge_incident(incident_id: str, once: Once, body: OptionalDocument) -> Response:
    """No reminder follows. Acknowledging it again changes nothing. Requires the role admin or member."""
    acknowledge = partial(
        once.services.admin.incidents.acknowledge, *once.caller, incident_id, body.get("note")
    )
    return await once.respond(acknowledge, lambda found: JsonResponse(INCIDENTS.to_json(found)))
