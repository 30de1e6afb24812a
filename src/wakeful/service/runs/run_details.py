"""What pages show of runs: lists by state, trigger, owner and time, and all that is known of one run.

That is its attempts with requests and advice, its job, what it waits for, and what follows. The request of an
attempt is reconstructed from the run and its job: credentials are masked and signatures are left out, because
the secret signs every later request too.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from json import dumps
from typing import Final, NamedTuple

from wakeful.document import payload_to_text, work_from_text
from wakeful.errors import InvalidArgument, NotFound
from wakeful.job.job import JobRecord, Work
from wakeful.launch.port import launch_ids
from wakeful.run.incidents import failure_cause
from wakeful.run.prechecks import with_context
from wakeful.service.auth.access import Principal
from wakeful.service.auth.masking import mask_document
from wakeful.service.runs.executors import WaitingReasons
from wakeful.service.runs.runs import RunService
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import AttemptView, RunView
from wakeful.store.sql.verifications import VerificationView
from wakeful.values.ids import first_id, is_id
from wakeful.values.instants import LATEST_MS, iso_utc
from wakeful.values.json_value import Json

#: The interfaces import the types of runs from here: they do not use the store.
__all__ = ["CONSIDERED", "AttemptView", "RunFinder", "RunSearch", "RunView", "RunsFound"]

#: How many runs a search considers at a time if no index finds what it looks for.
CONSIDERED: Final = 20_000

_SIGNATURES: Final = ("x-wakeful-signature", "webhook-signature")
_COMPUTED: Final = "(computed from the secret of the job)"
#: The commands that compute the signature of the body in a shell.
_SIGNED: Final = (
    "SECRET='whsec_…'  # the secret of the job, which is shown when it is created or rotated\n"
    'KEY=$(printf %s "${SECRET#whsec_}" | base64 -d | od -An -v -tx1 | tr -d " \\n")\n'
    'SIGNATURE=$(printf %s "$BODY" | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$KEY" -r'
    ' | cut -d" " -f1)\n'
)

_BY_REASON: Final[Mapping[str, str]] = {
    "timeout": "Raise timeoutMs of the job, or make the target faster.",
    "network": "Check that the address is right and that the receiver runs.",
    "address_refused": "Use a public address, or let the operator set WAKEFUL_ALLOW_PRIVATE_TARGETS.",
    "not_registered": "Start a process that registers this function, or correct its name in the target.",
    "not_allowed": "Let the operator add it to WAKEFUL_COMMANDS or WAKEFUL_CELERY_TASKS.",
    "not_found": "Check the name of the program or of the agent in the target.",
    "exit": "Read the output of the program; it ended with an error.",
    "killed": "The program was killed; check its memory and its timeout.",
    "lost": "The worker died during the run. Check its logs and its memory.",
    "expired": "Start an executor that claims runs of this agent, or raise claimTimeoutMs.",
    "gone": "The receiver answered 410, so the job is paused. Set another URL, then resume the job.",
    "invalid_target": "Correct the target of the job.",
    "secret_unreadable": "Start the server with the WAKEFUL_SECRET_KEY that encrypted the secret.",
    "unverified": "The target reported success, but the verification did not confirm it. Check what it did.",
    "evidence_missing": "Let the target return the evidence that the job requires.",
    "directive_refused": "The directives of the handler could not be stored; the error says why.",
    "unavailable": "The database or a service was not available. The run is tried again.",
    "broker_unavailable": "Check that the broker runs and is reachable from the server.",
    "no_stream": "Create a stream with the subject, or let the operator set WAKEFUL_NATS_CREATE_STREAMS.",
    "too_large": "Send a smaller payload, or raise the limit of the receiver (NATS: max_payload).",
    "workflow_missing": "Add this version of the workflow, or correct workflowId and version.",
    "history_unreadable": "Delete the history of the session, or run the job without continuity.",
    "budget": "Raise the budget, or wait until midnight UTC. Then replay the run.",
    "precheck_failed": "Correct the precheck; the target was not launched.",
}

#: The target of a job that has none.
PULL: Final[dict[str, Json]] = {"kind": "pull"}


class RunSearch(NamedTuple):
    """Which runs to find; None does not filter."""

    agent: str | None = None
    job_id: str | None = None
    states: tuple[str, ...] = ()
    trigger: str | None = None
    #: when they were recorded
    since_ms: int | None = None
    until_ms: int | None = None
    #: only those that wait for a person to confirm their work
    to_confirm: bool = False
    #: an instance of the agent
    instance: str | None = None


class RunsFound(NamedTuple):
    """Runs that a search found, and where it continues."""

    runs: Sequence[RunView]
    #: `before` of the next page; None: there is none
    cursor: str | None
    #: False: the search ended at its limit, and older runs may match
    complete: bool


class RunFinder:
    """Finds runs."""

    def __init__(self, store: Store, runs: RunService) -> None:
        self._store = store
        self._runs = runs

    async def search(
        self,
        principal: Principal,
        workspace: str,
        only: RunSearch,
        *,
        before: str | None = None,
        limit: int = 50,
    ) -> RunsFound:
        """Find runs, newest first. A search that no index serves considers `CONSIDERED` runs at a time."""
        if before is not None and not is_id(before):
            raise InvalidArgument("cursor: it is not from a list of runs; open the list again")
        end, since = before or _id_of(only.until_ms), _id_of(only.since_ms)
        horizon: str | None = None
        if only.trigger is not None and only.job_id is None and not only.to_confirm:
            horizon = await self._store.run_horizon(workspace, end or first_id(LATEST_MS), CONSIDERED)
            if horizon is not None and (since is None or horizon > since):
                since = horizon
            else:
                horizon = None
        found = await self._runs.list(
            principal,
            workspace,
            only.agent,
            job_id=only.job_id,
            states=only.states,
            trigger=only.trigger,
            before=end,
            since=since,
            limit=limit + 1,
            to_confirm=only.to_confirm,
            instance=only.instance,
        )
        if len(found) > limit:
            return RunsFound(found[:limit], found[limit - 1].id, complete=True)
        return RunsFound(found, horizon, complete=horizon is None)

    async def follow_ups(self, principal: Principal, workspace: str, run_id: str) -> list[RunView]:
        """Return the runs that the end of a run caused, and its replays; only those that are visible.

        Of a signal these are also the signals that it sent to instances.
        """
        run = await self._runs.get(principal, workspace, run_id)
        found = await self._store.follow_up_runs(run.id)
        if run.instance is not None and run.finished_ms is not None:
            found += await self._store.sent_signals(workspace, run.id, run.finished_ms)
        return [run for run in found if run.workspace == workspace and principal.agent in (None, run.agent)]


def _id_of(ms: int | None) -> str | None:
    return None if ms is None else first_id(min(max(ms, 0), LATEST_MS))


class AttemptRequest(NamedTuple):
    """What an attempt sends to its target."""

    #: the kind of the target
    kind: str
    #: of a webhook: the address
    url: str | None
    headers: tuple[tuple[str, str], ...]
    #: of a webhook the body, of others the payload; None: there is none
    body: str | None
    #: the target, without credentials
    target: Mapping[str, Json]
    #: of a webhook: commands that send it again
    curl: str | None


def payload_of(run: RunView, work: Work | None, job_payload: str | None) -> str | None:
    """Return the payload that a run carries, as JSON: its own or that of its job, with its context."""
    payload = run.payload
    if payload is None:
        payload = job_payload if job_payload is not None or work is None else payload_to_text(work.body)
    return payload if run.context is None else with_context(payload, run.context)


def attempt_request(
    run: RunView, attempt: AttemptView, target: Mapping[str, Json], payload: str | None
) -> AttemptRequest:
    """Return the request of an attempt. The target is that of the job as it is now."""
    shown = mask_document({"name": run.job_name, "target": dict(target)})["target"]
    assert isinstance(shown, dict)
    kind = str(target.get("kind", "pull"))
    url = shown.get("url")
    if kind != "webhook" or not isinstance(url, str):
        return AttemptRequest(kind, None, (), payload, shown, None)
    body = f'{{"job":{dumps(run.job_name)},"payload":{payload or "null"}}}'
    headers = {
        "content-type": "application/json",
        "webhook-id": run.idempotency_key,
        "x-wakeful-run-id": run.id,
        "x-wakeful-attempt": str(attempt.attempt),
        "x-wakeful-scheduled-at": iso_utc(run.scheduled_ms),
        "x-wakeful-trigger": run.trigger,
        "x-wakeful-missed": str(run.missed),
        "traceparent": launch_ids(run.idempotency_key, attempt.attempt).traceparent(),
    }
    own = shown.get("headers")
    if isinstance(own, dict):
        headers.update({name.lower(): str(value) for name, value in own.items()})
    signed = (*headers.items(), *((name, _COMPUTED) for name in _SIGNATURES))
    return AttemptRequest(kind, url, signed, body, shown, _curl(url, headers, body))


def _curl(url: str, headers: Mapping[str, str], body: str) -> str:
    lines = [f"curl -sS -X POST {shlex.quote(url)} \\"]
    lines += [f"  -H {shlex.quote(f'{name}: {value}')} \\" for name, value in headers.items()]
    lines += ['  -H "x-wakeful-signature: $SIGNATURE" \\', '  --data-raw "$BODY"']
    return f"BODY={shlex.quote(body)}\n{_SIGNED}" + "\n".join(lines) + "\n"


def failure_advice(reason: str | None, response_code: int | None) -> str | None:
    """Return what to do about a failed attempt; None if there is nothing to add to its error.

    >>> failure_advice("http", 401)
    'The receiver refused the credentials. Check the headers of the target, and the secret that it verifies.'
    >>> failure_advice(None, None) is None
    True
    """
    if response_code is not None and reason in (None, "http"):
        return _of_status(response_code)
    return _BY_REASON.get(reason or "")


def _of_status(code: int) -> str | None:
    if code in (401, 403):
        return (
            "The receiver refused the credentials. Check the headers of the target, and the secret that it "
            "verifies."
        )
    if code in (404, 405):
        return "Check the URL of the target: the receiver has no such path for POST."
    if code == 429:
        return "The receiver limits requests. Run the job less often, or use another lane."
    if 300 <= code < 400:
        return "Redirects are not followed. Set the URL to which it leads."
    if 400 <= code < 500:
        return "The receiver refused the request. Compare the body with what it expects."
    if code >= 500:
        return "The receiver failed. Read its logs; the id of this run is in x-wakeful-run-id."
    return None


class AttemptDetails(NamedTuple):
    """An attempt with its request and, if it failed, the cause and what to do."""

    attempt: AttemptView
    #: None: the job is not known any more, or cannot be read
    request: AttemptRequest | None
    #: whether it is the last one, whose output is that of the run
    last: bool
    cause: str | None
    advice: str | None


class RunDetails(NamedTuple):
    """A run and what belongs to it."""

    run: RunView
    #: its job as it is now; None: it has none, or it cannot be read
    job: JobRecord | None
    #: whether the job was deleted
    job_deleted: bool
    attempts: list[AttemptDetails]
    #: what it waits for, in words; None: it is over
    waiting: str | None
    verification: VerificationView | None
    #: the run that triggered it
    cause: RunView | None
    #: the run that it replays
    replay_of: RunView | None
    follow_ups: list[RunView]


class RunDetailReader:
    """Reads the details of runs."""

    def __init__(self, store: Store, runs: RunService, finder: RunFinder, waiting: WaitingReasons) -> None:
        self._store = store
        self._runs = runs
        self._finder = finder
        self._waiting = waiting

    async def get(self, principal: Principal, workspace: str, run_id: str) -> RunDetails:
        """Return the run of that id with its details, or raise NotFound."""
        run, attempts = await self._runs.read(principal, workspace, run_id)
        row = await self._store.job_by_id(run.job_id) if run.job_id else None
        alive = row is not None
        if run.job_id is not None and row is None:
            row = await self._store.job_by_id(run.job_id, deleted=True)
        job, work = None, None
        if row is not None:
            with contextlib.suppress(InvalidArgument):  # the page of the job reports it
                job, work = job_from_row(row), work_from_text(row.work)
        payload = payload_of(run, work, None if row is None else row.payload)
        return RunDetails(
            run,
            job,
            run.job_id is not None and not alive,
            [
                _details(
                    run,
                    each,
                    None if work is None else attempt_request(run, each, work.target or PULL, payload),
                )
                for each in attempts
            ],
            await self._waiting.of(run),
            await self._store.verification(run.id) if run.verifying else None,
            await self._visible(principal, workspace, run.triggered_by),
            await self._visible(principal, workspace, run.replay_of),
            await self._finder.follow_ups(principal, workspace, run.id),
        )

    async def _visible(self, principal: Principal, workspace: str, run_id: str | None) -> RunView | None:
        if run_id is None or not is_id(run_id):
            return None
        try:
            return await self._runs.get(principal, workspace, run_id)
        except NotFound:
            return None


def _details(run: RunView, attempt: AttemptView, request: AttemptRequest | None) -> AttemptDetails:
    last = attempt.attempt == run.attempt and run.state not in ("pending",)
    failed = attempt.error is not None and (not last or run.state in ("failed", "retrying"))
    # The reason of an earlier attempt is not kept.
    reason = run.reason if last else "http" if attempt.response_code is not None else None
    return AttemptDetails(
        attempt,
        request,
        last,
        failure_cause(reason, attempt.response_code, attempt.error) if failed else None,
        failure_advice(reason, attempt.response_code) if failed else None,
    )
