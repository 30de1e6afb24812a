"""The internal jobs that send the alerts of an agent or a workspace, and the heartbeat of an agent.

Those for alerts are ordinary jobs without ticks: their runs are listed, retried and replayed, and the secret
of a webhook can be rotated. They are created and deleted with the `alerts` of the agent or workspace, in the
same transaction. Webhook and channel have a job each, so that neither delays or repeats the other.

The heartbeat wakes an agent at intervals, if its document has a `heartbeat`. It is an ordinary job with the
target of the agent: its runs are listed, and people may pause and run it. It is created, changed and deleted
with the agent's document, in the same transaction. Keys of the role `agent` may only read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from wakeful.document import read_definition
from wakeful.document.agents import heartbeat, heartbeat_job
from wakeful.document.guards import alerts as read_alerts
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import InvalidArgument
from wakeful.job.job import Definition, Work, inherit
from wakeful.job.policy import Backoff, Policy
from wakeful.launch.secrets import Keyring, new_secret, read_secret
from wakeful.run.job_transitions import edit_job
from wakeful.service.agents.inheritance import needs_secret
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import JobContext
from wakeful.service.jobs.job_editor import audit_details
from wakeful.service.jobs.job_factory import JobFactory, unscheduled_job
from wakeful.service.jobs.revision_rules import new_revision
from wakeful.store.audit import AuditEntry
from wakeful.store.internal_jobs import (
    AGENT_ALERTS,
    AGENT_CHANNEL,
    WORKSPACE_AGENT,
    WORKSPACE_ALERTS,
    WORKSPACE_CHANNEL,
    InternalChange,
    InternalRules,
)
from wakeful.store.job_changes import schedule_change
from wakeful.store.port import Store
from wakeful.store.row_mapping import changed_row, job_from_row, job_to_row
from wakeful.store.rows import JobChange, JobRow
from wakeful.store.sessions import HEARTBEAT, HEARTBEAT_LABELS
from wakeful.values.json_value import Json, compact

Target = Mapping[str, Json]

#: The labels of an alert job.
LABELS: Final = {"system": "alert"}
#: Ten attempts take about half an hour.
_POLICY: Final = Policy(overlap="allow", max_attempts=10, backoff=Backoff(2_000, 600_000))
#: A message whose worker died may have been delivered: it is not sent again.
_TO_CHANNEL: Final = replace(_POLICY, on_lost="fail")


@dataclass(frozen=True, slots=True)
class Alerts:
    """The targets of alerts: a webhook and a channel. `text` is the stored document, without the secret."""

    text: str | None = None
    webhook: Target | None = None
    channel: Target | None = None
    secret: bytes | None = None


NO_ALERTS: Final = Alerts()


class AlertJobs:
    """Decides about the jobs that send alerts, in the transaction that writes their agent or workspace."""

    def __init__(self, store: Store, launchers: LauncherRegistry, keyring: Keyring) -> None:
        self._store = store
        self._launchers = launchers
        self._keyring = keyring

    def read(self, value: object) -> Alerts:
        """Read and check the `alerts` of a document; null is no alerts."""
        if value is None:
            return NO_ALERTS
        try:
            document = read_alerts(value)
            secret_text = document.pop("secret", None)
            secret = read_secret(secret_text) if isinstance(secret_text, str) else None
            webhook, channel = _webhook(document), _channel(document)
            for target in (webhook, channel):
                if target is not None:
                    self._launchers.check(target)
        except InvalidArgument as error:
            raise InvalidArgument(f"alerts: {error.message.removeprefix('target: ')}") from error
        return Alerts(compact(document), webhook, channel, secret)

    def rules(self, workspace: str, agent: str | None, alerts: Alerts) -> InternalRules:
        """Return what creates, changes or deletes the alert jobs to match; without an agent, the workspace's.

        Without a secret in the document, the stored one is kept; a new job gets a random one.
        """
        context = agent or WORKSPACE_AGENT
        webhook, channel = (
            (WORKSPACE_ALERTS, WORKSPACE_CHANNEL) if agent is None else (AGENT_ALERTS, AGENT_CHANNEL)
        )
        return {
            webhook: partial(self._decide, workspace, context, webhook, alerts.webhook, alerts.secret),
            channel: partial(self._decide, workspace, context, channel, alerts.channel, None),
        }

    @staticmethod
    def owns(row: JobRow) -> bool:
        """Return whether a job is an alert job of its agent, and not a user's job of that name."""
        return row.name in (AGENT_ALERTS, AGENT_CHANNEL) and _is_alert_job(row)

    def _decide(
        self,
        workspace: str,
        context: str,
        name: str,
        target: Target | None,
        secret: bytes | None,
        row: JobRow | None,
    ) -> InternalChange | None:
        """Create, change or delete the job of that name, to send alerts to the target."""
        if target is None:
            return InternalChange(delete=True) if row is not None and _is_alert_job(row) else None
        definition, now_ms = _definition(name, target), self._store.clock.now_ms()
        if row is None:
            return InternalChange(add=self._row(workspace, context, definition, secret, now_ms))
        if not _is_alert_job(row):
            raise InvalidArgument(
                f"alerts: agent '{context}' has a job '{name}' already; delete or rename it"
            )
        new = changed_row(row, replace(job_from_row(row), definition=definition))
        if secret is not None and (row.secret is None or self._keyring.open(row.secret) != secret):
            new = new._replace(secret=self._keyring.seal(secret))
        return None if new == row else InternalChange(change=JobChange(new._replace(updated_ms=now_ms)))

    def _row(
        self, workspace: str, agent: str, definition: Definition, secret: bytes | None, now_ms: int
    ) -> JobRow:
        job = unscheduled_job(workspace, agent, definition, now_ms)
        signed = needs_secret(definition)
        return job_to_row(job, self._keyring.seal(secret or new_secret()) if signed else None)


def _definition(name: str, target: Target) -> Definition:
    return Definition(
        name,
        None,
        _TO_CHANNEL if target["kind"] == "channel" else _POLICY,
        Work(target=target),
        description="Sends the alerts of its agent."
        if name in (AGENT_ALERTS, AGENT_CHANNEL)
        else "Sends the workspace's alerts.",
        labels=LABELS,
    )


def _webhook(alerts: Target) -> Target | None:
    return {"kind": "webhook", "url": alerts["url"]} if "url" in alerts else None


def _channel(alerts: Target) -> Target | None:
    if "channel" not in alerts:
        return None
    to: dict[str, Json] = {"to": alerts["to"]} if "to" in alerts else {}
    return {"kind": "channel", "channel": alerts["channel"], **to}


def _is_alert_job(row: JobRow) -> bool:
    return job_from_row(row).definition.labels.get("system") == LABELS["system"]


# --- heartbeats ------------------------------------------------------------------------------------

_LABELS: Final[dict[str, Json]] = json.loads(HEARTBEAT_LABELS)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The heartbeat of a document: `text` is stored with the agent, `job` is the document of its job."""

    text: str | None = None
    job: Mapping[str, Json] | None = None


NO_HEARTBEAT: Final = Heartbeat()


class Heartbeats:
    """Decides about heartbeat jobs, in the transaction that writes their agent."""

    def __init__(self, store: Store, factory: JobFactory) -> None:
        self._store = store
        self._factory = factory

    def read(self, value: object, tz: str | None, channel: str | None) -> Heartbeat:
        """Read the `heartbeat` of a document; `tz` and `channel` are those of its agent."""
        try:
            beat = heartbeat(value)
        except InvalidArgument as error:
            raise _refusal(error) from error
        if beat is None:
            return NO_HEARTBEAT
        about: dict[str, Json] = {"description": "Lets its agent look around by itself.", "labels": _LABELS}
        return Heartbeat(compact(beat), {"name": HEARTBEAT, **heartbeat_job(beat, tz, channel), **about})

    def rules(self, principal: Principal, context: JobContext, beat: Heartbeat) -> InternalRules:
        """Return what creates, changes or deletes the heartbeat job to match.

        The same heartbeat again changes nothing: not the pause, nor the next tick.
        """
        return {HEARTBEAT: partial(self._decide, principal, context, beat.job)}

    @staticmethod
    def owns(row: JobRow) -> bool:
        """Return whether a job is a heartbeat, and not a user's job of that name."""
        return row.name == HEARTBEAT and row.labels == HEARTBEAT_LABELS

    def _decide(
        self,
        principal: Principal,
        context: JobContext,
        document: Mapping[str, Json] | None,
        row: JobRow | None,
    ) -> InternalChange | None:
        def entry(action: str, details: str = "{}") -> AuditEntry:
            return principal.entry(context.workspace, action, f"{context.agent}/{HEARTBEAT}", details)

        if document is None:
            owned = row is not None and self.owns(row)
            return InternalChange(delete=True, entry=entry("job.delete")) if owned else None
        if row is not None and not self.owns(row):
            raise InvalidArgument(
                f"heartbeat: agent '{context.agent}' has a job '{HEARTBEAT}' that is not a heartbeat; "
                "delete or rename it"
            )
        now_ms, about = self._store.clock.now_ms(), audit_details(document)
        try:
            made = self._factory.make(context, document, now_ms, principal.creator)
            if row is None:
                return InternalChange(add=made.row, entry=entry("job.create", about))
            change = _change_heartbeat(principal, context, document, row, now_ms)
        except InvalidArgument as error:
            raise _refusal(error) from error
        return None if change is None else InternalChange(change=change, entry=entry("job.update", about))


def _change_heartbeat(
    principal: Principal, context: JobContext, document: Mapping[str, Json], row: JobRow, now_ms: int
) -> JobChange | None:
    """Return the change of a heartbeat to match the document. What it inherits is written already."""
    old = job_from_row(row)
    definition = read_definition(document, now_ms=now_ms, defaults=context.defaults, old=old.definition)
    definition = replace(definition, work=inherit(definition.work, context.target))
    if changed_row(row, replace(old, definition=definition)) == row:
        return None
    new = changed_row(row, edit_job(old, definition, now_ms))
    revision = new_revision(old.definition, definition, principal.creator)
    return schedule_change(row, new, now_ms)._replace(revision=revision)


def _refusal(error: InvalidArgument) -> InvalidArgument:
    return InvalidArgument("\n".join(f"heartbeat: {line}" for line in error.message.splitlines()))
