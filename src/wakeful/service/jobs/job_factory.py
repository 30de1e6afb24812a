"""Create job rows from documents. What similar documents share is read once."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from wakeful.document import read_definition
from wakeful.document.target import read_target
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import InvalidArgument
from wakeful.job.job import Definition, JobRecord, Work, check_slug, choose_anchor, inherit
from wakeful.job.start_rules import NOTHING, Requirement, find_requirement
from wakeful.launch.secrets import Keyring, format_secret, new_secret
from wakeful.run.planning import begin
from wakeful.schedule.schedules import At
from wakeful.service.agents.inheritance import INACTIVE, needs_secret, signed_by_agent, with_agents_secret
from wakeful.service.auth.accounts import JobContext
from wakeful.service.jobs.save_warnings import Untargeted, untargeted
from wakeful.store.row_mapping import job_from_row, job_to_row
from wakeful.store.rows import JobRow
from wakeful.values.bounded_cache import MB, BoundedCache
from wakeful.values.ids import new_id
from wakeful.values.json_value import json_text

#: The creator of internal jobs.
WAKEFUL: Final = "admin:wakeful"
#: The size of the template cache, in bytes.
_BUDGET: Final = 8 * MB
_NAME, _PAYLOAD, _CREATED_BY = (JobRow._fields.index(field) for field in ("name", "payload", "created_by"))


class SaveResult(NamedTuple):
    """A saved job, and its webhook secret if it is new: it is not returned again."""

    row: JobRow
    secret: str | None = None
    created: bool = False
    changed: bool = True
    #: set if its runs wait for an executor because no target is set
    untargeted: Untargeted | None = None
    #: what its runs require of a process
    requirement: Requirement = NOTHING
    warnings: tuple[str, ...] = ()

    @property
    def job(self) -> JobRecord:
        """The job."""
        return job_from_row(self.row)


class _Template(NamedTuple):
    """What documents share that differ only in name and payload."""

    definition: Definition
    row: JobRow
    secret: bool
    untargeted: Untargeted | None
    requirement: Requirement


class JobFactory:
    """Creates rows of new jobs. A document that differs only in name and payload is not read again."""

    def __init__(self, launchers: LauncherRegistry, keyring: Keyring, lanes: Collection[str] | None) -> None:
        self._launchers = launchers
        self._lanes = lanes
        self._keyring = keyring
        self._known: BoundedCache[tuple[str, bytes], _Template] = BoundedCache(_BUDGET)

    def make(
        self, context: JobContext, document: Mapping[str, object], now_ms: int, created_by: str = ""
    ) -> SaveResult:
        """Return the row of a new job from its document."""
        rest = dict(document)
        name, payload = rest.pop("name", None), rest.pop("payload", None)
        try:
            common = context.key, marshal.dumps(rest, 2)
            own_name = check_slug(name if isinstance(name, str) else "")
            own_payload = None if payload is None else json_text(payload, context.defaults.max_payload_bytes)
        except (ValueError, InvalidArgument):
            # The document holds Python objects or an error: read it whole.
            template = self._read(context, document, now_ms)
            row = template.row._replace(id=new_id(now_ms), created_by=created_by)
        else:
            template = self._template(common, context, document, now_ms)
            row = _completed(template.row, new_id(now_ms), own_name, own_payload, created_by)
        if template.definition.policy.jitter_ms and row.enabled:  # the jitter depends on the id
            next_ms, wake_ms = begin(row.id, template.definition, row.anchor_ms, now_ms)
            row = row._replace(next_ms=next_ms, wake_ms=wake_ms)
        if signed_by_agent(template.definition.work, context.inherited):
            return SaveResult(with_agents_secret(row, context.inherited, now_ms), created=True)
        if not template.secret:
            return SaveResult(
                row, created=True, untargeted=template.untargeted, requirement=template.requirement
            )
        secret = new_secret()
        return SaveResult(
            row._replace(secret=self._keyring.seal(secret)),
            format_secret(secret),
            created=True,
            untargeted=template.untargeted,
            requirement=template.requirement,
        )

    def _template(
        self,
        common: tuple[str, bytes],
        context: JobContext,
        document: Mapping[str, object],
        now_ms: int,
    ) -> _Template:
        """Return the template of a document, cached if possible."""
        known = self._known.get(common)
        if known is not None and known.row.created_ms == now_ms:
            return known
        if known is not None and _timeless(known.definition):
            known = self._later(known, now_ms)
        else:
            known = self._read(context, document, now_ms)
            if known.definition.after is not None:  # whether it follows itself depends on its name
                return known
        # A row and a definition hold about eight copies of the document, as text and as values.
        self._known.put(common, known, 4_096 + 8 * (len(common[0]) + len(common[1])))
        return known

    def _read(self, context: JobContext, document: Mapping[str, object], now_ms: int) -> _Template:
        read: list[Definition] = []
        enabled: list[bool] = []
        errors = _collect_errors(
            lambda: read.append(read_definition(document, now_ms=now_ms, defaults=context.defaults)),
            lambda: enabled.append(read_enabled(document) is not False),
        )
        if read:
            own = read[0].work
            definition = replace(read[0], work=inherit(own, context.target))
            errors += _collect_errors(
                lambda: self._launchers.check(own.target),
                lambda: self._launchers.check_precheck(definition.work),
                lambda: self._launchers.check_verify(definition.work),
                lambda: check_lane(definition.work, self._lanes),
            )
        else:
            errors += _collect_errors(lambda: self._check_target(document.get("target")))
        if errors:  # report all of them at once
            raise (
                errors[0]
                if len(errors) == 1
                else InvalidArgument("\n".join(error.message for error in errors))
            )
        return self._new_template(context, definition, enabled[0], now_ms)

    def _check_target(self, value: object) -> None:
        """Raise InvalidArgument for a readable target that no launcher of this process accepts."""
        try:
            target = read_target(value)
        except InvalidArgument:
            return  # reported with the rest of the document
        if target is not None:
            self._launchers.check(target)

    def _new_template(
        self, context: JobContext, definition: Definition, wanted: bool, now_ms: int
    ) -> _Template:
        enabled = wanted and context.active
        anchor_ms = choose_anchor(definition, now_ms)
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
        return _Template(
            definition,
            job_to_row(job),
            needs_secret(definition),
            untargeted(definition),
            find_requirement(definition.work, context.workspace, context.agent),
        )

    def _later(self, known: _Template, now_ms: int) -> _Template:
        """Return the template for another creation time."""
        definition, row = known.definition, known.row
        self._launchers.check(definition.work.target)
        self._launchers.check_precheck(definition.work)
        self._launchers.check_verify(definition.work)
        anchor_ms = choose_anchor(definition, now_ms)
        next_ms, wake_ms = begin("", definition, anchor_ms, now_ms) if row.enabled else (None, None)
        row = row._replace(
            anchor_ms=anchor_ms, next_ms=next_ms, wake_ms=wake_ms, created_ms=now_ms, updated_ms=now_ms
        )
        return known._replace(row=row)


def _completed(row: JobRow, job_id: str, name: str, payload: str | None, created_by: str) -> JobRow:
    """Return `row._replace(…)` of these fields, in a third of the time."""
    return JobRow._make(
        (job_id, *row[1:_NAME], name, *row[_NAME + 1 : _PAYLOAD], payload, *row[_PAYLOAD + 1 : _CREATED_BY],
         created_by, *row[_CREATED_BY + 1 :])
    )  # fmt: skip


def read_enabled(document: Mapping[str, object]) -> bool | None:
    """Return the field `enabled` of a document; None if it is absent or null."""
    enabled = document.get("enabled")
    if enabled is None or isinstance(enabled, bool):
        return enabled
    raise InvalidArgument("enabled: write true or false")


def _collect_errors(*checks: Callable[[], object]) -> list[InvalidArgument]:
    errors = []
    for check in checks:
        try:
            check()
        except InvalidArgument as error:
            errors.append(error)
    return errors


def unscheduled_job(workspace: str, agent: str, definition: Definition, now_ms: int) -> JobRecord:
    """Return a new internal job without ticks."""
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
    """Return whether the schedule does not depend on the creation time: no `at`, no end."""
    timing = definition.timing
    return timing is None or (not isinstance(timing.schedule, At) and timing.end_ms is None)


def check_lane(work: Work, lanes: Collection[str] | None) -> None:
    """Raise InvalidArgument for a lane without workers: its runs would wait forever. Pull runs need none."""
    if lanes is not None and work.lane not in lanes and not work.pulled:
        raise InvalidArgument(
            f"lane: there is no lane '{work.lane}', only {', '.join(sorted(lanes))}; "
            f"WAKEFUL_LANE_{work.lane.upper().replace('-', '_')}=10 would create it"
        )
