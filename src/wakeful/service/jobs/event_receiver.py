"""Events of other MCP servers (`on`): what they send to the callback of a subscription, and their runs.

The id of the subscription in the path is no secret: each message is signed with the secret of the
subscription, and a signature is valid for five minutes. An event starts one run, however often it arrives:
its key is stored with the run, and kept for three days.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Final

from wakeful.document import payload_to_text
from wakeful.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from wakeful.job.job import MAX_CHAIN, JobRecord
from wakeful.launch.secrets import Keyring, is_signed
from wakeful.logs import get_logger
from wakeful.run.factory import as_skipped
from wakeful.run.outcome import Finished
from wakeful.service.jobs.job_editor import run_as_it_is
from wakeful.service.runs.manual_runs import apply_overlap, event_run
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.settings.event_servers import EventServer
from wakeful.signal.mcp_events import (
    SUBSCRIPTION_HEADER,
    Gap,
    McpEvent,
    Verification,
    read_message,
)
from wakeful.store.idempotency import AlreadyPerformed, Keyed
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import JobRow, RunView
from wakeful.store.sql.driver import current_tenant
from wakeful.store.sql.event_sources import EventSource
from wakeful.values.instants import iso_utc
from wakeful.values.json_value import Json, json_from_stored

#: How long the id of an event is kept.
KEPT_MS: Final = 3 * 24 * 3_600_000
#: When a job subscribes again after its server ended the subscription.
AGAIN_MS: Final = 600_000
log = get_logger("wakeful.events")


class EventDeliveries:
    """Receives the messages of subscriptions."""

    def __init__(
        self,
        store: Store,
        keyring: Keyring,
        telemetry: RunTelemetry,
        servers: Mapping[str, EventServer],
    ) -> None:
        self._servers = servers
        self._store = store
        self._keyring = keyring
        self._telemetry = telemetry

    async def receive(
        self, source_id: str, headers: Mapping[str, str], body: bytes
    ) -> dict[str, Json] | None:
        """Receive a message; return the answer to a verification. `headers` have names in lower case.

        NotFound: the subscription has ended. Unauthenticated: its server did not sign the message, or did so
        too long ago. PermissionDenied: the operator does not allow the agent any more. InvalidArgument: the
        message cannot be read.
        """
        source = await self._store.event_source(source_id)
        if source is None or source.secret is None or source.state == "ending":
            raise _ended()
        current_tenant.set(source.workspace)  # the sender has no key
        secret = self._keyring.open(source.secret)
        if not is_signed([secret], headers, body, self._store.clock.now_ms()):
            log.warning("event.unsigned", source=source.id)
            raise Unauthenticated("the signature is missing, wrong or too old")
        server = self._servers.get(json_from_stored(source.source)["server"])
        if server is not None and not server.admits(source.workspace, source.agent):
            raise PermissionDenied(f"agent '{source.agent}' may not get events of this server any more")
        message, message_id = read_message(body), headers["webhook-id"]
        if isinstance(message, Verification):  # its server may have given the subscription a new id
            return {"challenge": message.challenge}
        if source.remote_id not in (None, headers.get(SUBSCRIPTION_HEADER)):
            raise InvalidArgument(f"{SUBSCRIPTION_HEADER}: it is not the id of this subscription")
        if isinstance(message, McpEvent):
            if message.id != message_id:
                raise InvalidArgument("webhook-id: it is not the eventId of the body")
            await self.start(source, message)
        elif isinstance(message, Gap):
            lost = source._replace(position=message.cursor)
            await self.report(lost, "event_gap", "the server lost events", message_id=message_id)
        else:
            error = f"the server ended the subscription: {message.message} ({message.code})"
            await self.report(source, "event_ended", error, message_id=message_id)
        return None

    async def start(self, source: EventSource, event: McpEvent) -> bool:
        """Start the run of an event. NotFound: the subscription has ended.

        False: it has one; or the event is about a run of this database, and more than `MAX_CHAIN` runs in a
        row led to that: jobs that fire each other by events end there.
        """
        wanted = json_from_stored(source.source)
        if event.name != wanted["event"]:
            raise InvalidArgument(f"name: the subscription is to {wanted['event']}")
        payload = event.to_json()
        del payload["cursor"]
        text = payload_to_text(payload)
        keyed = self._keyed(source, event.id, event.name)
        before = await self._store.chain_length(str(event.data.get("runId")))
        if before is not None and before >= MAX_CHAIN:
            log.warning("event.chain_limit", source=source.id, event_id=event.id)
            await self._skip(source, event)
            return False
        chain = 0 if before is None else before + 1

        @run_as_it_is
        async def start() -> RunView:
            row, job = await self._job(source)
            run = event_run(wanted["server"], job, self._store.clock.now_ms(), text, chain)
            policy = job.definition.policy
            judge = partial(
                apply_overlap, overlap=policy.overlap, max_queued=policy.max_queued, now_ms=run.fire_ms
            )
            return await self._store.add_event_run(source.id, event.cursor, run, judge, keyed, row.version)

        try:
            run = await start()
        except AlreadyPerformed:
            await self._skip(source, event)
            return False
        log.info("event.received", **run.log_fields, source=source.id, event_id=event.id)
        self._telemetry.record_trigger(run)
        return True

    async def _skip(self, source: EventSource, event: McpEvent) -> None:
        if event.cursor is not None:
            await self._store.repeat_event(source.id, event.cursor)

    async def report(
        self, source: EventSource, reason: str, error: str, *, message_id: str | None = None
    ) -> None:
        """Open an incident, once for the id of a message. NotFound: the subscription has ended."""
        keyed = None if message_id is None else self._keyed(source, message_id, reason)
        server = json_from_stored(source.source)["server"]
        _, job = await self._job(source)
        now_ms = self._store.clock.now_ms()
        again_ms = now_ms + AGAIN_MS if reason == "event_ended" else None
        run = as_skipped(event_run(server, job, now_ms, None), reason, now_ms)
        finished = Finished(run.id, job.id, 0, "failed", now_ms, now_ms, error=error, reason=reason)
        try:
            await self._store.record_event_problem(source.id, source.position, run, finished, keyed, again_ms)
        except AlreadyPerformed:
            return
        log.warning(
            "event_source.problem", workspace=job.workspace, agent=job.agent, job=job.name,
            source=source.id, reason=reason, error=error,
        )  # fmt: skip

    async def _job(self, source: EventSource) -> tuple[JobRow, JobRecord]:
        row = await self._store.job_by_id(source.job_id)
        if row is None or not row.enabled:
            raise _ended()
        return row, job_from_row(row)

    @staticmethod
    def _keyed(source: EventSource, message_id: str, fingerprint: str) -> Keyed[object]:
        digest = hashlib.sha256(f"event {source.id} {message_id}".encode("utf-8", "replace")).hexdigest()
        return Keyed(source.workspace, digest, fingerprint, lambda _: (204, ""), KEPT_MS)


def subscription_json(source: EventSource) -> dict[str, Json]:
    """Return the state of a subscription, without its secret."""
    instants = source.due_ms, source.expires_ms, source.received_ms
    due, expires, received = (None if ms is None else iso_utc(ms) for ms in instants)
    return {
        "state": source.state, "delivery": source.mode, "error": source.error, "failures": source.failures,
        "nextRequestAt": due, "expiresAt": expires, "lastEventAt": received,
    }  # fmt: skip


def _ended() -> NotFound:
    return NotFound("there is no such subscription: it has ended")
