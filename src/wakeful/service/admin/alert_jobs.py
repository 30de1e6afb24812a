"""The internal jobs that send the alerts of an agent or a workspace.

They are ordinary jobs without ticks: their runs are listed, retried and replayed, and the secret of a webhook
can be rotated. They are created and deleted with the `alerts` of the agent or workspace, in the same
transaction. Webhook and channel have a job each, so that neither delays or repeats the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from wakeful.document.guards import alerts as read_alerts
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import InvalidArgument
from wakeful.job.job import Definition, Work
from wakeful.job.policy import Backoff, Policy
from wakeful.launch.secrets import Keyring, new_secret, read_secret
from wakeful.service.agents.inheritance import needs_secret
from wakeful.service.jobs.job_factory import unscheduled_job
from wakeful.store.internal_jobs import (
    AGENT_ALERTS,
    AGENT_CHANNEL,
    WORKSPACE_AGENT,
    WORKSPACE_ALERTS,
    WORKSPACE_CHANNEL,
    InternalChange,
    InternalRules,
)
from wakeful.store.port import Store
from wakeful.store.row_mapping import changed_row, job_from_row, job_to_row
from wakeful.store.rows import JobChange, JobRow
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
