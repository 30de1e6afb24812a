"""The jobs that send alerts, of each agent, and of each workspace, that wants to be told of trouble.

They are jobs like any other, without ticks: their runs can be seen, are tried again, and can be replayed, and
the secret of a webhook can be rotated. They come and go with the `alerts` of the agent or the workspace. What
goes to a webhook and to a channel has a job for each, so that neither waits for the other, or repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from wakeful.document.guards import alerts as read_alerts
from wakeful.document.values import compact
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import AlreadyExists, InvalidArgument
from wakeful.job import Definition, Json, Work
from wakeful.launch.secrets import Keyring, new_secret, read_secret
from wakeful.policy import Backoff, Policy
from wakeful.service.agents.inheritance import needs_secret
from wakeful.service.jobs.job_factory import unscheduled_job
from wakeful.store.alerts import (
    AGENT_ALERTS,
    AGENT_CHANNEL,
    WORKSPACE_AGENT,
    WORKSPACE_ALERTS,
    WORKSPACE_CHANNEL,
)
from wakeful.store.port import Store
from wakeful.store.row_mapping import changed_row, job_of, row_of
from wakeful.store.rows import JobChange, JobRow

Target = Mapping[str, Json]

#: What marks a job as ours.
LABELS: Final = {"system": "alert"}
#: An alert is worth some patience: ten attempts are about half an hour.
_PATIENT: Final = Policy(overlap="allow", max_attempts=10, backoff=Backoff(2_000, 600_000))
#: A message that was being sent when its worker died may have arrived: it is not sent again.
_TO_CHANNEL: Final = replace(_PATIENT, on_lost="fail")


@dataclass(frozen=True, slots=True)
class Alerts:
    """Who is to be told, by a webhook and through a channel; `text` is what is kept, without the secret."""

    text: str | None = None
    webhook: Target | None = None
    channel: Target | None = None
    secret: bytes | None = None


NO_ALERTS: Final = Alerts()


class AlertJobs:
    """Makes, changes and deletes the jobs that send alerts."""

    def __init__(self, store: Store, targets: LauncherRegistry, keyring: Keyring) -> None:
        self._store = store
        self._targets = targets
        self._keyring = keyring

    def read(self, value: object) -> Alerts:
        """The `alerts` of a document, judged whole; null is nobody."""
        if value is None:
            return NO_ALERTS
        try:
            said = read_alerts(value)
            given = said.pop("secret", None)
            secret = read_secret(given) if isinstance(given, str) else None
            webhook, channel = _webhook(said), _channel(said)
            for target in (webhook, channel):
                if target is not None:
                    self._targets.check(target)
        except InvalidArgument as error:
            raise InvalidArgument(f"alerts: {error.message.removeprefix('target: ')}") from error
        return Alerts(compact(said), webhook, channel, secret)

    async def follow(self, workspace: str, agent: str | None, alerts: Alerts) -> None:
        """Have the jobs that these alerts need, and none where nobody is told; no agent: the workspace's.

        A secret that is not given stays what it was; a new job has one that nobody knows until it is rotated.
        """
        context = agent or WORKSPACE_AGENT
        webhook, channel = (
            (WORKSPACE_ALERTS, WORKSPACE_CHANNEL) if agent is None else (AGENT_ALERTS, AGENT_CHANNEL)
        )
        await self._follow(workspace, context, webhook, alerts.webhook, alerts.secret)
        await self._follow(workspace, context, channel, alerts.channel, None)

    @staticmethod
    def owns(row: JobRow) -> bool:
        """Whether a job sends the alerts of its agent, and is not somebody's own."""
        return row.name in (AGENT_ALERTS, AGENT_CHANNEL) and _ours(row)

    async def _follow(
        self, workspace: str, context: str, name: str, target: Target | None, secret: bytes | None
    ) -> None:
        """Have the job of that name send alerts there; no target: have none."""
        row = await self._store.job(workspace, context, name)
        now_ms = self._store.clock.now_ms()
        if target is None:
            if row is not None and _ours(row):
                await self._store.delete_job(row.id, now_ms, "deleted")
            return
        definition = _definition(name, target)
        if row is None:
            try:
                await self._store.create_jobs([self._row(workspace, context, definition, secret, now_ms)])
                return
            except AlreadyExists:  # somebody says the same at this moment
                row = await self._store.job(workspace, context, name)
                if row is None:
                    return
        if not _ours(row):
            raise InvalidArgument(
                f"alerts: agent '{context}' has a job '{name}' already; delete or rename it"
            )

        def changed(old: JobRow) -> JobChange | None:
            new = changed_row(old, replace(job_of(old), definition=definition))
            if secret is not None and (old.secret is None or self._keyring.open(old.secret) != secret):
                new = new._replace(secret=self._keyring.seal(secret))
            return None if new == old else JobChange(new._replace(updated_ms=now_ms))

        await self._store.change_job(row.id, changed)

    def _row(
        self, workspace: str, agent: str, definition: Definition, secret: bytes | None, now_ms: int
    ) -> JobRow:
        job = unscheduled_job(workspace, agent, definition, now_ms)
        signed = needs_secret(definition)
        return row_of(job, self._keyring.seal(secret or new_secret()) if signed else None)


def _definition(name: str, target: Target) -> Definition:
    return Definition(
        name,
        None,
        _TO_CHANNEL if target["kind"] == "channel" else _PATIENT,
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


def _ours(row: JobRow) -> bool:
    return job_of(row).definition.labels.get("system") == LABELS["system"]
