"""The jobs that send alerts: one for each agent, and for each workspace, that wants to be told of trouble.

They are jobs like any other, without ticks: their runs can be seen, are tried again, and can be replayed, and
their secret can be rotated. They come and go with the `alerts` of the agent or the workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from wakeful.document.guards import alerts as read_alerts
from wakeful.document.values import compact
from wakeful.engine.targets import Targets
from wakeful.errors import AlreadyExists, InvalidArgument
from wakeful.ids import new_id
from wakeful.job import Definition, Job, Json, Work
from wakeful.launch.secrets import Keyring, new_secret, read_secret
from wakeful.policy import Backoff, Policy
from wakeful.store.guarding import AGENT_ALERTS, WORKSPACE_AGENT, WORKSPACE_ALERTS
from wakeful.store.port import Store
from wakeful.store.records import changed_row, job_of, row_of
from wakeful.store.rows import JobChange, JobRow

#: What marks a job as ours.
LABELS: Final = {"system": "alert"}
#: An alert is worth some patience: ten attempts are about half an hour.
_PATIENT: Final = Policy(overlap="allow", max_attempts=10, backoff=Backoff(2_000, 600_000))


@dataclass(frozen=True, slots=True)
class Alerts:
    """Who is to be told; `text` is what is kept of it, without the secret."""

    text: str | None = None
    url: str | None = None
    secret: bytes | None = None


NOBODY: Final = Alerts()


class Senders:
    """Makes, changes and deletes the jobs that send alerts."""

    def __init__(
        self, store: Store, targets: Targets, keyring: Keyring, secret_changed: Callable[[str], None]
    ) -> None:
        self._store = store
        self._targets = targets
        self._keyring = keyring
        self._secret_changed = secret_changed

    def read(self, value: object) -> Alerts:
        """The `alerts` of a document, judged whole; null is nobody."""
        if value is None:
            return NOBODY
        try:
            said = read_alerts(value)
            given = said.pop("secret", None)
            secret = read_secret(given) if isinstance(given, str) else None
            url = str(said["url"])
            self._targets.check(_target(url))
        except InvalidArgument as error:
            raise InvalidArgument(f"alerts: {error.message.removeprefix('target: ')}") from error
        return Alerts(compact(said), url, secret)

    async def follow(self, workspace: str, agent: str | None, alerts: Alerts) -> None:
        """Have the job that these alerts need, and none where nobody is told; no agent: the workspace's.

        A secret that is not given stays what it was; a new job has one that nobody knows until it is rotated.
        """
        name = WORKSPACE_ALERTS if agent is None else AGENT_ALERTS
        home = agent or WORKSPACE_AGENT
        row = await self._store.job(workspace, home, name)
        now_ms = self._store.clock.now_ms()
        if alerts.url is None:
            if row is not None and _ours(row):
                await self._store.delete_job(row.id, now_ms, "deleted")
            return
        if row is None:
            try:
                await self._store.create_jobs([self._row(workspace, home, name, alerts, now_ms)])
                return
            except AlreadyExists:  # somebody says the same at this moment
                row = await self._store.job(workspace, home, name)
                if row is None:
                    return
        if not _ours(row):
            raise InvalidArgument(f"alerts: agent '{home}' has a job '{name}' already; delete or rename it")
        definition = _definition(name, alerts.url)

        def changed(old: JobRow) -> JobChange | None:
            new = changed_row(old, replace(job_of(old), definition=definition))
            if alerts.secret is not None and (
                old.secret is None or self._keyring.open(old.secret) != alerts.secret
            ):
                new = new._replace(secret=self._keyring.seal(alerts.secret))
            return None if new == old else JobChange(new._replace(updated_ms=now_ms))

        await self._store.change_job(row.id, changed)
        self._secret_changed(row.id)

    def _row(self, workspace: str, agent: str, name: str, alerts: Alerts, now_ms: int) -> JobRow:
        job = Job(
            id=new_id(now_ms),
            workspace=workspace,
            agent=agent,
            definition=_definition(name, alerts.url or ""),
            enabled=True,
            anchor_ms=now_ms,
            next_ms=None,
            wake_ms=None,
            created_ms=now_ms,
            updated_ms=now_ms,
        )
        return row_of(job, self._keyring.seal(alerts.secret or new_secret()))


def _definition(name: str, url: str) -> Definition:
    return Definition(
        name,
        None,
        _PATIENT,
        Work(target=_target(url)),
        description="Sends the alerts of its agent."
        if name == AGENT_ALERTS
        else "Sends the workspace's alerts.",
        labels=LABELS,
    )


def _target(url: str) -> Mapping[str, Json]:
    return {"kind": "webhook", "url": url}


def _ours(row: JobRow) -> bool:
    return job_of(row).definition.labels.get("system") == LABELS["system"]
