"""The fields of a job document, derived from the declarations in `Timing`, `Policy`, `Work` and `Definition`.

A plain field (a flag, number, duration, choice or text) takes its kind from the type and the bounds of its
declaration. Fields with a special format are listed in `_KINDS`. Fields of a document that
are no attribute of a part are in `OTHER`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from wakeful.document.guards import budget, evidence, precheck, verify
from wakeful.document.kinds import (
    MAX_NUMBER,
    MAX_TEXT,
    Kind,
    after,
    backoff,
    choice,
    description,
    event,
    exclude,
    flag,
    hours,
    instant,
    labels,
    milliseconds,
    slug,
    text,
    whole,
)
from wakeful.job.job import Definition, Origin, Timing, Work
from wakeful.job.policy import FieldSpec, Policy
from wakeful.schedule.schedules import schedule_from_json
from wakeful.values.duration import LONGEST
from wakeful.values.json_value import Json, camel

MAX_MESSAGE: Final = 65536
MAX_URL: Final = 2048


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a job document."""

    #: its name in JSON
    name: str
    #: the attribute of the part of a definition that has its value
    attr: str
    kind: Kind
    spec: FieldSpec
    default: Any = None
    #: whether a job can be without a value: it is shown as null then
    nullable: bool = False

    @property
    def duration_name(self) -> str | None:
        """The name that takes a duration: `timeout` for `timeoutMs`."""
        return self.name.removesuffix("Ms") if self.kind.form == "duration" else None

    @property
    def option(self) -> str:
        """Its name in Python: that of the duration, where it takes one."""
        return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", self.duration_name or self.name)

    @property
    def flags(self) -> tuple[str, ...]:
        """Its flags on the command line; none for a value that is JSON."""
        if self.kind.form == "json":
            return ()
        return self.spec.flags or (f"--{self.option.replace('_', '-')}",)

    @property
    def doc(self) -> str:
        """Its documentation without links."""
        return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", self.spec.doc)

    @property
    def summary(self) -> str:
        """The first sentence of its documentation."""
        return re.split(r"(?<=\.) (?=[A-Z`])", self.doc)[0]


def _object(value: Mapping[str, Json] | None) -> Json:
    return None if value is None else dict(value)


#: Kinds that a type and bounds do not describe.
_KINDS: Final[dict[str, Kind]] = {
    "schedule": Kind(
        "json", None, None, "ScheduleLike", "Schedule", lambda s: s.to_json(), schedule_from_json
    ),
    "startAt": instant,
    "endAt": instant,
    "exclude": exclude,
    "target": Kind("json", None, None, "Target | Mapping[str, object]", "Mapping[str, Json]", _object),
    "message": text(MAX_MESSAGE, form="text"),
    "lane": slug("lane"),
    "activeHours": hours,
    "precheck": Kind("json", precheck, None, "Mapping[str, object]", "Mapping[str, Json]", _object),
    "verify": Kind("json", verify, None, "str | Mapping[str, object]", "Mapping[str, Json]", _object),
    "evidence": Kind("json", evidence, None, "str | Sequence[str]", "tuple[str, ...]", list, tuple),
    "budget": Kind("json", budget, None, "Mapping[str, object]", "Mapping[str, Json]", _object),
    "backoff": backoff,
    "after": after,
    "on": event,
    "description": description,
    "labels": labels,
}


def declared_fields(part: type[Any]) -> tuple[Field, ...]:
    """Return the fields that a part of a definition declares, in the order of its attributes.

    >>> [field.name for field in declared_fields(Timing)][:3]
    ['schedule', 'startAt', 'endAt']
    """
    hints = get_type_hints(part, include_extras=True)
    found = []
    for attr in dataclasses.fields(part):
        hint = hints[attr.name]
        if get_origin(hint) is not Annotated:
            continue
        type_, spec = get_args(hint)
        name = spec.name or camel(attr.name)
        default = None if attr.default is MISSING else attr.default
        if attr.default_factory is not MISSING:
            default = attr.default_factory()
        kind = _KINDS[name] if name in _KINDS else _plain_kind(name, type_, spec)
        # A job without a schedule has no timing.
        nullable = default is None or part is Timing
        found.append(Field(name, attr.name, kind, spec, default, nullable))
    return tuple(found)


def _plain_kind(name: str, type_: Any, spec: FieldSpec) -> Kind:
    (plain,) = [each for each in get_args(type_) if each is not NoneType] if _is_union(type_) else [type_]
    if plain is bool:
        return flag
    if get_origin(plain) is Literal:
        return choice(plain)
    if plain is int and name.endswith("Ms"):
        return milliseconds(spec.low, LONGEST if spec.high is None else spec.high)
    if plain is int:
        return whole(spec.low, MAX_NUMBER if spec.high is None else spec.high)
    if plain is str:
        return text(MAX_TEXT if spec.high is None else spec.high)
    raise TypeError(f"{name}: {plain} is not a plain type; give the field a kind in _KINDS")


def _is_union(type_: Any) -> bool:
    return NoneType in get_args(type_)


TIMING: Final = declared_fields(Timing)
WORK: Final = declared_fields(Work)
POLICY: Final = declared_fields(Policy)
ABOUT: Final = declared_fields(Definition)
#: The fields that a part of a definition declares.
DECLARED: Final = (*TIMING, *WORK, *POLICY, *ABOUT)

_STORED_FLAG: Final = FieldSpec("")
_ORIGIN: Final = Kind(
    "json",
    None,
    None,
    "",
    "",
    lambda origin: None if origin is None else [*origin],
    lambda read: Origin(*read),
)
#: The work in a store also has what follows from the agent, from the timing and from how the job was made.
STORED_WORK: Final = (
    *WORK,
    Field("inherited", "inherited", flag, _STORED_FLAG, False),
    Field("hoursTz", "hours_tz", text(), _STORED_FLAG),
    Field("afterOutput", "after_output", flag, _STORED_FLAG, False),
    Field("origin", "origin", _ORIGIN, _STORED_FLAG),
    Field("depth", "depth", whole(0, MAX_NUMBER), _STORED_FLAG, 0),
)

_ANY: Final = Kind("json", None, None, "JsonLike", "Json")
#: Short forms of a workflow target.
WORKFLOW: Final = (
    Field("workflowId", "", text(), FieldSpec("Short for a workflow `target`: its id.", "target")),
    Field(
        "version", "", whole(1, 2**31 - 1), FieldSpec("Short for a workflow `target`: its version.", "target")
    ),
    Field("userId", "", text(), FieldSpec("Short for a workflow `target`: the user it runs for.", "target")),
)
#: The fields that no part declares: their values depend on other fields, on the caller or on the operator.
OTHER: Final = (
    Field(
        "name",
        "name",
        slug("name"),
        FieldSpec(
            "A slug, unique in its agent: lowercase letters, digits, inner hyphens, at most 64. `heartbeat`, "
            "`woken-by-hand` and names that begin with `wakeful-` are reserved.",
            section="schedule",
            tool="lowercase letters, digits and hyphens, such as check-build; derived from the message if "
            "left out",
        ),
    ),
    Field(
        "tz",
        "",
        text(),
        FieldSpec(
            "An IANA time zone such as `Europe/Berlin`.",
            section="schedule",
            default="the agent's, the workspace's, `WAKEFUL_DEFAULT_TZ`",
            tool="the time zone of the schedule, such as Europe/Berlin",
        ),
        nullable=True,
    ),
    Field(
        "enabled",
        "",
        flag,
        FieldSpec(
            "`false`: the job is created paused. An upsert without it keeps a pause.",
            section="schedule",
            default="`true`",
            tool="false pauses the job, true resumes it",
        ),
    ),
    Field(
        "payload",
        "payload",
        _ANY,
        FieldSpec("Any JSON, up to 64 KB; sent as it is.", section="target", default="`null`"),
        nullable=True,
    ),
    Field(
        "agentId",
        "",
        slug("agentId"),
        FieldSpec("Its agent. The path names it; a document that names another is refused.", "target"),
    ),
    Field(
        "webhookUrl",
        "",
        text(MAX_URL),
        FieldSpec("Short for a webhook `target`; not shown in responses.", section="target"),
    ),
    *WORKFLOW,
)
#: What a response adds to a document. A document that was read may be sent back: these are ignored.
RESPONSE_ONLY: Final = (
    "id", "workspace", "disabledReason", "nextAt", "nextAtMs", "explain", "runCount", "failures", "revision",
    "createdAt", "createdBy", "createdByName", "origin", "depth", "updatedAt", "nextTicks", "spent",
    "pauseNote", "pausedUntil", "lastRuns", "warnings", "scheduleOrigin", "scheduleId", "hook",
    "precheckState", "subscription", "may",
)  # fmt: skip
