"""How jobs are made: from a document to a row, one by one or by the ten thousand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from wakeful.document import Defaults, read_definition
from wakeful.document.values import json_text
from wakeful.engine.targets import Targets
from wakeful.errors import InvalidArgument
from wakeful.ids import new_id
from wakeful.job import Definition, Job, anchor_of, check_slug
from wakeful.launch.secrets import Keyring, new_secret, shown
from wakeful.planning import begin
from wakeful.store.records import job_of, row_of
from wakeful.store.rows import JobRow


@dataclass(frozen=True, slots=True)
class Saved:
    """A job as it was saved, and its webhook secret where one was made just now: it is not shown again."""

    row: JobRow
    secret: str | None = None
    created: bool = False
    changed: bool = True

    @property
    def job(self) -> Job:
        """The job."""
        return job_of(self.row)


class Maker:
    """Makes rows of new jobs. What documents have in common, all but name and payload, is read once."""

    def __init__(self, targets: Targets, keyring: Keyring, defaults: Defaults, now_ms: int) -> None:
        self._targets = targets
        self._keyring = keyring
        self._defaults = defaults
        self._now_ms = now_ms
        self._read: dict[str, tuple[Definition, JobRow]] = {}

    def make(self, workspace: str, agent: str, document: Mapping[str, object]) -> Saved:
        """The row of a new job that is what the document says."""
        now_ms = self._now_ms
        definition, like = self._alike(workspace, agent, document)
        job_id = new_id(now_ms)
        row = like._replace(id=job_id)
        if definition.policy.jitter_ms and like.enabled:  # which is each job's own
            place = begin(job_id, definition, like.anchor_ms, now_ms)
            row = row._replace(next_ms=place.next_ms, wake_ms=place.wake_ms)
        secret = new_secret() if needs_secret(definition) else None
        if secret is None:
            return Saved(row, created=True)
        return Saved(row._replace(secret=self._keyring.seal(secret)), shown(secret), created=True)

    def _alike(self, workspace: str, agent: str, document: Mapping[str, object]) -> tuple[Definition, JobRow]:
        """The definition and the row of a document, all but what is the job's own."""
        rest = dict(document)
        name, payload = rest.pop("name", None), rest.pop("payload", None)
        longest = self._defaults.max_payload_bytes
        try:
            common = json.dumps(rest)
            own = check_slug(str(name)), None if payload is None else json_text(payload, longest)
        except (TypeError, ValueError, InvalidArgument):
            # Python's own values, or a mistake: either is read whole.
            return self._first(workspace, agent, document)
        known = self._read.get(common)
        if known is None:
            known = self._read[common] = self._first(workspace, agent, document)
        definition, like = known
        if definition.after is not None:  # whether it comes after itself depends on its name
            return self._first(workspace, agent, document)
        return definition, like._replace(name=own[0], payload=own[1])

    def _first(self, workspace: str, agent: str, document: Mapping[str, object]) -> tuple[Definition, JobRow]:
        now_ms = self._now_ms
        definition = read_definition(document, now_ms=now_ms, defaults=self._defaults)
        self._targets.check(definition.work.target)
        enabled = document.get("enabled", True)
        if not isinstance(enabled, bool):
            raise InvalidArgument("enabled: write true or false")
        anchor_ms = anchor_of(definition, now_ms)
        next_ms, wake_ms = begin("", definition, anchor_ms, now_ms) if enabled else (None, None)
        job = Job(
            id="",
            workspace=workspace,
            agent=agent,
            definition=definition,
            enabled=enabled,
            anchor_ms=anchor_ms,
            next_ms=next_ms,
            wake_ms=wake_ms,
            created_ms=now_ms,
            updated_ms=now_ms,
            disabled_reason=None if enabled else "paused",
        )
        return definition, row_of(job)


def needs_secret(definition: Definition) -> bool:
    """Whether its runs are signed: they go to a webhook, or a workflow hands them to one."""
    target = definition.work.target
    inner = target.get("to") if target else None
    return any(isinstance(each, Mapping) and each.get("kind") == "webhook" for each in (target, inner))
