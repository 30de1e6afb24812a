"""How jobs are made: from a document to a row, one by one or by the ten thousand."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from wakeful.bounded_cache import MB, BoundedCache
from wakeful.document import read_definition
from wakeful.document.target import read_target
from wakeful.document.values import json_text
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import InvalidArgument
from wakeful.ids import new_id
from wakeful.job import Definition, JobRecord, Work, anchor_of, check_slug, inherit
from wakeful.launch.secrets import Keyring, format_secret, new_secret
from wakeful.planning import begin
from wakeful.schedule import At
from wakeful.service.agents.inheritance import INACTIVE, needs_secret, signed_by_agent, with_agents_secret
from wakeful.service.auth.accounts import JobContext
from wakeful.store.row_mapping import job_of, row_of
from wakeful.store.rows import JobRow

#: The creator of the jobs that Wakeful makes for itself.
WAKEFUL: Final = "admin:wakeful"
#: Bytes of documents that are remembered, so that one like them need not be read again.
_BUDGET: Final = 8 * MB


@dataclass(frozen=True, slots=True)
class SaveResult:
    """A saved job, and its webhook secret if one was created now: it is not shown again."""

    row: JobRow
    secret: str | None = None
    created: bool = False
    changed: bool = True

    @property
    def job(self) -> JobRecord:
        """The job."""
        return job_of(self.row)


class _Template(NamedTuple):
    """What documents that differ in name and payload alone have in common."""

    definition: Definition
    row: JobRow
    secret: bool


class JobFactory:
    """Makes rows of new jobs. What documents have in common, all but name and payload, is read once."""

    def __init__(self, targets: LauncherRegistry, keyring: Keyring, lanes: Collection[str] | None) -> None:
        self._targets = targets
        self._lanes = lanes
        self._keyring = keyring
        self._known: BoundedCache[tuple[str, bytes], _Template] = BoundedCache(_BUDGET)

    def make(
        self, context: JobContext, document: Mapping[str, object], now_ms: int, created_by: str = ""
    ) -> SaveResult:
        """The row of a new job that is what the document says."""
        rest = dict(document)
        name, payload = rest.pop("name", None), rest.pop("payload", None)
        try:
            common = context.key, marshal.dumps(rest, 2)
            own_name = check_slug(str(name))
            own_payload = None if payload is None else json_text(payload, context.defaults.max_payload_bytes)
        except (ValueError, InvalidArgument):
            # Python's own values, or a mistake: either is read whole.
            alike = self._first(context, document, now_ms)
            row = alike.row._replace(id=new_id(now_ms), created_by=created_by)
        else:
            alike = self._alike(common, context, document, now_ms)
            row = alike.row._replace(
                id=new_id(now_ms), name=own_name, payload=own_payload, created_by=created_by
            )
        if alike.definition.policy.jitter_ms and row.enabled:  # which is each job's own
            place = begin(row.id, alike.definition, row.anchor_ms, now_ms)
            row = row._replace(next_ms=place.next_ms, wake_ms=place.wake_ms)
        if signed_by_agent(alike.definition.work, context.inherited):
            return SaveResult(with_agents_secret(row, context.inherited, now_ms), created=True)
        if not alike.secret:
            return SaveResult(row, created=True)
        secret = new_secret()
        return SaveResult(
            row._replace(secret=self._keyring.seal(secret)), format_secret(secret), created=True
        )

    def _alike(
        self,
        common: tuple[str, bytes],
        context: JobContext,
        document: Mapping[str, object],
        now_ms: int,
    ) -> _Template:
        """What a document says, all but what is the job's own."""
        known = self._known.get(common)
        if known is not None and known.row.created_ms == now_ms:
            return known
        if known is not None and _timeless(known.definition):
            known = self._later(known, now_ms)
        else:
            known = self._first(context, document, now_ms)
            if known.definition.after is not None:  # whether it comes after itself depends on its name
                return known
        # A row and a definition hold the document about eight times, as text and as values.
        self._known.put(common, known, 4_096 + 8 * (len(common[0]) + len(common[1])))
        return known

    def _first(self, context: JobContext, document: Mapping[str, object], now_ms: int) -> _Template:
        read: list[Definition] = []
        wanted: list[bool] = []
        refused = _refusals(
            lambda: read.append(read_definition(document, now_ms=now_ms, defaults=context.defaults)),
            lambda: wanted.append(read_enabled(document) is not False),
        )
        if read:
            own = read[0].work
            definition = replace(read[0], work=inherit(own, context.target))
            refused += _refusals(
                lambda: self._targets.check(own.target),
                lambda: self._targets.check_precheck(definition.work),
                lambda: check_lane(definition.work, self._lanes),
            )
        else:
            refused += _refusals(lambda: self._check_target(document.get("target")))
        if refused:  # all of them in one answer: else whoever asks learns of them one by one
            raise (
                refused[0]
                if len(refused) == 1
                else InvalidArgument("\n".join(error.message for error in refused))
            )
        return self._alike_of(context, definition, wanted[0], now_ms)

    def _check_target(self, said: object) -> None:
        """Refuse a target that no launcher here can reach, where it can be read at all."""
        try:
            target = read_target(said)
        except InvalidArgument:
            return  # it is refused with the rest of the document
        if target is not None:
            self._targets.check(target)

    def _alike_of(self, context: JobContext, definition: Definition, wanted: bool, now_ms: int) -> _Template:
        enabled = wanted and context.active
        anchor_ms = anchor_of(definition, now_ms)
        next_ms, wake_ms = begin("", definition, anchor_ms, now_ms) if enabled else (None, None)
        job = JobRecord(
            id="",
            workspace=context.workspace,
            agent=context.agent,
            definition=definition,
            enabled=enabled,
            anchor_ms=anchor_ms,
            next_ms=next_ms,
            wake_ms=wake_ms,
            created_ms=now_ms,
            updated_ms=now_ms,
            disabled_reason=None if enabled else INACTIVE if wanted else "paused",
        )
        return _Template(definition, row_of(job), needs_secret(definition))

    def _later(self, known: _Template, now_ms: int) -> _Template:
        """The same, created at another time."""
        definition, row, _ = known
        self._targets.check(definition.work.target)
        self._targets.check_precheck(definition.work)
        anchor_ms = anchor_of(definition, now_ms)
        next_ms, wake_ms = begin("", definition, anchor_ms, now_ms) if row.enabled else (None, None)
        row = row._replace(
            anchor_ms=anchor_ms, next_ms=next_ms, wake_ms=wake_ms, created_ms=now_ms, updated_ms=now_ms
        )
        return known._replace(row=row)


def read_enabled(document: Mapping[str, object]) -> bool | None:
    """Return the field `enabled` of a document; None if it is absent or null."""
    enabled = document.get("enabled")
    if enabled is None or isinstance(enabled, bool):
        return enabled
    raise InvalidArgument("enabled: write true or false")


def _refusals(*checks: Callable[[], object]) -> list[InvalidArgument]:
    """What these checks refuse."""
    refused = []
    for check in checks:
        try:
            check()
        except InvalidArgument as error:
            refused.append(error)
    return refused


def unscheduled_job(workspace: str, agent: str, definition: Definition, now_ms: int) -> JobRecord:
    """A new job that runs only when somebody says so."""
    return JobRecord(
        id=new_id(now_ms),
        workspace=workspace,
        agent=agent,
        definition=definition,
        enabled=True,
        anchor_ms=now_ms,
        next_ms=None,
        wake_ms=None,
        created_ms=now_ms,
        updated_ms=now_ms,
        created_by=WAKEFUL,
    )


def _timeless(definition: Definition) -> bool:
    """Whether the same document says the same at any time: it neither counts from now nor ends."""
    timing = definition.timing
    return timing is None or (not isinstance(timing.schedule, At) and timing.end_ms is None)


def check_lane(work: Work, lanes: Collection[str] | None) -> None:
    """Refuse a lane that nobody here has: its runs would wait for ever. Executors outside have their own."""
    if lanes is not None and work.lane not in lanes and not work.pulled:
        raise InvalidArgument(
            f"lane: there is no lane '{work.lane}', only {', '.join(sorted(lanes))}; "
            f"WAKEFUL_LANE_{work.lane.upper().replace('-', '_')}=10 would make it"
        )
