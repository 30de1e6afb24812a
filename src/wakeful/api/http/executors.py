"""Executors over HTTP: claim runs, renew their leases, complete or return them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from wakeful.api.http.dependencies import (
    Document,
    OptionalDocument,
    WorkspaceDep,
    current_principal,
    open_use,
    refuse_unknown,
)
from wakeful.api.http.idempotency import Once
from wakeful.api.http.operations import WORKSPACE, ApiRouter
from wakeful.api.http.responses import JsonResponse, compact_in_turns
from wakeful.errors import InvalidArgument, Unauthenticated, WakefulError
from wakeful.model import run as model
from wakeful.model.codec import to_json
from wakeful.model.enums import RunState
from wakeful.run.verification import write_evidence
from wakeful.service.auth.connections import OpenUse
from wakeful.service.runs.completions import ATTEMPT_MISSING, Completion
from wakeful.service.runs.report_batches import CompletionResult
from wakeful.service.runs.runs import MAX_REASON
from wakeful.service.serializers import serialize_run
from wakeful.values.ids import new_id
from wakeful.values.json_value import compact, json_value, whole_number
from wakeful.values.stored_text import clean_text, is_storable

router = ApiRouter("work", prefix=f"{WORKSPACE}/runs")

T = TypeVar("T")
_MANY_NAMES: Final = 1_000
#: How many rounds of the event loop it takes until it notices that a client has disconnected.
_UNTIL_NOTICED: Final = 4
_MAX_USAGE: Final = 65_536
_OF_REPORT: Final = ("attempt", "status", "output", "error", "usage", "evidence", "permanent", "counted")


@router.operation(
    "POST /claim",
    "Claim runs to execute",
    "Claimed",
    409,
    body=("Claim", {"worker": "laptop-1", "agents": ["writer"], "limit": 1, "waitMs": 20_000}),
)
async def claim_runs(about: WorkspaceDep, body: Document) -> Response:
    """Claim runs of `pull` jobs, each with its target and payload; with `waitMs`, wait for the first.

    Each claimed run has a lease of 30 s, which a heartbeat renews. A run whose lease expires is retried as a
    new attempt. A claim is never replayed: `Idempotency-Key` has no effect here. If the client disconnects,
    or the response cannot be sent, the runs are returned; `claimId` lets the client return them itself.
    """
    worker = _text(body, "worker")
    claim_id = _claim_id(body) or new_id(about.services.now_ms())
    claiming = about.services.runs.pull.claim(
        *about.caller,
        worker,
        agents=_names(body, "agents"),
        lanes=_names(body, "lanes"),
        limit=_whole(body, "limit", 1),
        wait_ms=_whole(body, "waitMs", 0),
        claim_id=claim_id,
    )

    def abandon() -> None:
        about.services.runs.pull.abandon(about.workspace, worker, claim_id)

    runs = await _while_valid(about.request, claiming, abandon)
    if not runs:
        return JsonResponse({"runs": []})
    try:
        await current_principal(about.request)  # its key may have ended while it waited
        return ClaimResponse(await compact_in_turns({"runs": [*runs]}), abandon)
    except BaseException:
        abandon()
        raise


@router.operation(
    "POST /release",
    "Return claimed runs without executing them",
    "Released",
    body=(
        "Release",
        {
            "worker": "laptop-1",
            "claimId": "6f1c2f1e-6b0e-4c38-9d53-0d2f6a7f2a11",
            "runs": [{"id": "0190a0b0-0000-7000-8000-000000000000", "attempt": 1}],
        },
    ),
)
async def release_runs(about: WorkspaceDep, body: Document) -> Response:
    """Return `runs`, each named with its attempt, or all runs of the claim `claimId`, or both.

    For a worker that stops, and for a claim whose response was lost: it also ends a claim that still waits.
    The runs are due at once, and the attempts do not count. Runs that `worker` does not hold in that attempt
    are `lost`, and not changed.
    """
    refuse_unknown(body, ("worker", "claimId", "runs"), "field")
    claim_id = _claim_id(body)
    if claim_id is None and body.get("runs") is None:
        raise InvalidArgument("runs: it is missing; name the runs to return, or the claim in claimId")
    held = [] if body.get("runs") is None else _held(body)
    released, lost = await about.services.runs.pull.release(
        *about.caller, _text(body, "worker"), held, claim_id
    )
    return JsonResponse({"released": list(released), "lost": list(lost)})


@router.operation(
    "POST /heartbeat",
    "Renew the leases of claimed runs",
    "Heartbeats",
    body=(
        "HeartbeatMany",
        {"worker": "laptop-1", "runs": [{"id": "0190a0b0-0000-7000-8000-000000000000", "attempt": 1}]},
    ),
)
async def heartbeat_runs(about: WorkspaceDep, body: Document) -> Response:
    """Each run is named with the attempt that was claimed. Stop working on those that are `lost`.

    `waitingFor` says what the work of runs waits for before it starts, such as a node of a cluster. The runs
    show it, and their timeouts count from the end of the wait.
    """
    held, waiting = _held(body), _waiting(body)
    renewed, lost = await about.services.runs.pull.heartbeats(*about.caller, held, _worker(body), waiting)
    return JsonResponse({"renewed": list(renewed), "lost": list(lost)})


@router.operation(
    "POST /complete",
    "Report how several runs ended",
    "Completions",
    409,
    body=(
        "CompletionMany",
        {
            "runs": [
                {"id": "0190a0b0-0000-7000-8000-000000000000", "attempt": 1, "status": "succeeded"},
                {
                    "id": "0190a0b0-0000-7000-8000-000000000001",
                    "attempt": 2,
                    "status": "failed",
                    "error": "no",
                },
            ]
        },
    ),
)
async def complete_runs(once: Once, body: Document) -> Response:
    """Each report counts by itself: a refused one has a `code` and a `message`, and does not affect others.

    The results are in the order of the reports. The reports of one executor are written in one transaction.
    """
    reports = _reports(body)
    read = [report for _, report in reports]

    def response(results: list[CompletionResult]) -> Response:
        pairs = zip(reports, results, strict=True)
        return JsonResponse(
            to_json(model.Completions(runs=tuple(_result(run_id, each) for (run_id, _), each in pairs)))
        )

    complete = partial(once.services.runs.reports.complete_many, *once.caller, read)
    return await once.respond(complete, response)


@router.operation(
    "POST /{run_id}/heartbeat",
    "Renew the lease of a claimed run",
    "Run",
    409,
    body=("Heartbeat", {"attempt": 1}),
)
async def heartbeat_run(run_id: str, about: WorkspaceDep, body: OptionalDocument) -> Response:
    """`attempt` is that of the claimed run. 409: the claim is lost or the run is over; stop working on it."""
    attempt = _whole(body, "attempt", None)
    run = await about.services.runs.pull.heartbeat(*about.caller, run_id, attempt, _worker(body))
    return JsonResponse(serialize_run(run))


@router.operation(
    "POST /{run_id}/complete",
    "Report how a run ended",
    "Run",
    409,
    body=("Completion", {"attempt": 1, "status": "succeeded", "output": "sent", "usage": {"tokens": 512}}),
)
async def complete_run(run_id: str, once: Once, body: Document) -> Response:
    """For a claimed run, with the `attempt` of the claim, or a webhook run with `completion: callback`.

    The first report of an attempt counts. A success of a job with `verify` stays `running`, `verifying`,
    until it is verified. 409: the run is over, or at another attempt.
    """
    complete = partial(
        once.services.runs.complete,
        *once.caller,
        run_id,
        _text(body, "status"),
        attempt=_whole(body, "attempt", None),
        output=_as_text(body, "output"),
        error=_as_text(body, "error"),
        usage=_usage(body),
        evidence=_evidence(body),
        permanent=_flag(body, "permanent", False),
        counted=_flag(body, "counted", True),
    )
    return await once.respond(complete, lambda run: JsonResponse(serialize_run(run)))


@router.operation(
    "POST /{run_id}/verify",
    "Confirm or reject the work of a run",
    "Run",
    409,
    body=("RunVerification", {"verified": True}),
)
async def verify_run(run_id: str, once: Once, body: Document) -> Response:
    """For a run that is `verifying`: `manual`, or any other check that a person decides instead.

    A rejected attempt has failed with the reason `unverified`. Requires the role admin or member. 409: the
    run does not wait to be verified, or is at another attempt.
    """
    refuse_unknown(body, ("verified", "reason", "attempt"), "field")
    verified = body.get("verified")
    if not isinstance(verified, bool):
        raise InvalidArgument("verified: write true or false")
    verify = partial(
        once.services.runs.verify,
        *once.caller,
        run_id,
        verified,
        reason=_reason(body),
        attempt=_whole(body, "attempt", None),
    )
    return await once.respond(verify, lambda run: JsonResponse(serialize_run(run)))


class ClaimResponse(Response):
    """The response to a claim, as JSON. `abandon` is called if the client did not get it."""

    def __init__(self, text: str, abandon: Callable[[], None]) -> None:
        super().__init__(clean_text(text).encode(), media_type=JsonResponse.media_type)
        self._abandon = abandon

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response if the client is still connected.

        A client that disconnects after the body was written may have read it: its runs stay claimed.
        """
        gone = asyncio.ensure_future(_disconnected(receive))
        sent = False
        try:
            for _ in range(_UNTIL_NOTICED):
                await asyncio.sleep(0)
            if not gone.done():
                await super().__call__(scope, receive, send)
                sent = True
        finally:
            gone.cancel()
            if not sent:
                self._abandon()


async def _while_valid(
    request: Request, doing: Coroutine[object, object, T], abandon: Callable[[], None]
) -> T:
    """Return the result; cancel the wait when the client disconnects or its key ends.

    `abandon` a result that the client misses.
    """
    task = asyncio.ensure_future(doing)
    gone = asyncio.ensure_future(_disconnected(request.receive))
    returned = False
    use: OpenUse | None = None
    try:
        use = await open_use(request, gone.cancel)
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            task.cancel()
            await asyncio.wait({task})
            if gone.cancelled():
                raise Unauthenticated("the key of this request has ended; get another one")
            raise ClientDisconnect
        returned = True
        return task.result()
    finally:
        if use is not None:
            use.close()
        gone.cancel()
        if not returned:
            if task.done() and not task.cancelled() and task.exception() is None:
                abandon()
            task.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _claim_id(body: dict[str, object]) -> str | None:
    return None if body.get("claimId") is None else _text(body, "claimId")


def _text(body: dict[str, object], field: str) -> str:
    value = body.get(field)
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"{field}: {'it is missing; ' if value is None else ''}write text")
    return value


def _names(body: dict[str, object], field: str) -> list[str] | None:
    """Return a list of names, or None if it is absent or empty."""
    value = body.get(field)
    if value is None or value == []:
        return None
    if not isinstance(value, list) or len(value) > _MANY_NAMES:
        raise InvalidArgument(f'{field}: write a list of at most {_MANY_NAMES} names, such as ["writer"]')
    names = [name for name in value if isinstance(name, str) and "\x00" not in name]
    if len(names) != len(value):
        raise InvalidArgument(f"{field}: a name is text")
    return names


def _whole(body: dict[str, object], field: str, default: T) -> int | T:
    value = body.get(field)
    if value is None:
        return default
    number = whole_number(value)
    if number is None or not 0 <= number < 2**31:
        raise InvalidArgument(f"{field}: write a whole number from 0 to {2**31 - 1}")
    return number


def _worker(body: dict[str, object]) -> str | None:
    return None if body.get("worker") is None else _text(body, "worker")


def _waiting(body: dict[str, object]) -> dict[str, str]:
    """Return what runs wait for, by their ids."""
    given = body.get("waitingFor")
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
        raise InvalidArgument('waitingFor: write an object of texts by run, such as {"0190…": "a free node"}')
    return given


def _held(body: dict[str, object]) -> list[tuple[str, int]]:
    """Return the runs of a heartbeat, each with its attempt."""
    runs = body.get("runs")
    if not isinstance(runs, list):
        raise InvalidArgument('runs: write a list, such as [{"id": "0190…", "attempt": 1}]')
    held: list[tuple[str, int]] = []
    for index, run in enumerate(runs):
        if not isinstance(run, dict):
            raise InvalidArgument(f'runs[{index}]: write an object, such as {{"id": "0190…", "attempt": 1}}')
        try:
            refuse_unknown(run, ("id", "attempt"), "field")
            attempt = _whole(run, "attempt", None)
            if attempt is None:
                raise InvalidArgument(ATTEMPT_MISSING)
            held.append((_text(run, "id"), attempt))
        except InvalidArgument as error:
            raise InvalidArgument(f"runs[{index}].{error.message}") from error
    return held


def _reports(body: dict[str, object]) -> list[tuple[str, Completion | InvalidArgument]]:
    """Return the id of each run with its report, or with why that cannot be read."""
    runs = body.get("runs")
    if not isinstance(runs, list):
        example = '[{"id": "0190…", "attempt": 1, "status": "succeeded"}]'
        raise InvalidArgument(f"runs: write a list, such as {example}")
    reports: list[tuple[str, Completion | InvalidArgument]] = []
    for index, run in enumerate(runs):
        try:
            if not isinstance(run, dict):
                raise InvalidArgument("write an object with id, attempt and status")
            run_id = _text(run, "id")
        except InvalidArgument as error:
            raise InvalidArgument(f"runs[{index}]: {error.message}") from error
        try:
            reports.append((run_id, _report(run_id, run)))
        except InvalidArgument as error:
            reports.append((run_id, InvalidArgument(f"runs[{index}].{error.message}")))
    return reports


def _report(run_id: str, run: dict[str, object]) -> Completion:
    refuse_unknown(run, ("id", *_OF_REPORT), "field")
    return Completion(
        run_id, _text(run, "status"), _whole(run, "attempt", None), _as_text(run, "output"),
        _as_text(run, "error"), _usage(run), _evidence(run),
        _flag(run, "permanent", False), _flag(run, "counted", True),
    )  # fmt: skip


def _result(run_id: str, result: CompletionResult) -> model.ReportResult:
    if isinstance(result, WakefulError):
        return model.ReportResult(id=run_id, state=None, code=result.code, message=result.message)
    return model.ReportResult(id=run_id, state=RunState(result), code=None, message=None)


def _flag(body: dict[str, object], field: str, default: bool) -> bool:
    value = body.get(field)
    if value is None or isinstance(value, bool):
        return default if value is None else value
    raise InvalidArgument(f"{field}: write true or false")


def _as_text(body: dict[str, object], field: str) -> str | None:
    """Return text as it is, any other value as JSON."""
    value = body.get(field)
    return value if value is None or isinstance(value, str) else compact(json_value(value, None))


def _reason(body: dict[str, object]) -> str | None:
    value = body.get("reason")
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_REASON or not is_storable(value):
        raise InvalidArgument(f"reason: write text of at most {MAX_REASON} characters")
    return value


def _evidence(body: dict[str, object]) -> str | None:
    value = body.get("evidence")
    if value is None:
        return None
    try:
        return write_evidence(value)
    except InvalidArgument as error:
        raise InvalidArgument(f"evidence: {error.message}") from error


def _usage(body: dict[str, object]) -> str | None:
    value = body.get("usage")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidArgument('usage: write an object, such as {"tokens": 512}')
    try:
        return compact(json_value(value, _MAX_USAGE))
    except InvalidArgument as error:
        raise InvalidArgument(f"usage: {error.message}") from error
