"""The controls of the job form, derived from the declarations of the job fields; the kinds of targets. Pure.

A field that no group names appears in the last group, so that a new field can be edited without a change
here. The objects of targets are not declared as fields: their parts are listed here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

from wakeful.document.fields import DECLARED, OTHER, Field
from wakeful.job.target_kinds import TARGET_KINDS, TargetKind, describe_target, find_kind
from wakeful.values.duration import format_duration
from wakeful.values.json_value import Json

#: The fields with a place of their own in the form.
_PLACED: Final = (
    "name", "agentId", "description", "labels", "enabled", "schedule", "tz", "after", "target", "message",
    "payload",
)  # fmt: skip
#: Other names of a target, which has a control.
_SHORT: Final = ("webhookUrl", "workflowId", "version", "userId")
_CLOCK_CHANGES: Final = ("dstGap", "dstOverlap")
#: The groups of the other fields: id, title, fields.
_GROUPS: Final = (
    (
        "timing",
        "Start, end, excluded days and clock changes",
        ("on", "triggerUrl", "startAt", "endAt", "exclude", "activeHours", "jitterMs", *_CLOCK_CHANGES),
    ),
    (
        "retries",
        "Retries and timeouts",
        ("maxAttempts", "backoff", "timeoutMs", "onLost", "lostLimit", "disableAfter", "claimTimeoutMs"),
    ),
    (
        "overlap",
        "Overlap and missed ticks",
        ("overlapPolicy", "maxQueued", "catchupPolicy", "catchupWindowMs", "misfireGraceMs"),
    ),
    ("delivery", "Delivery of the output", ("deliver", "channel", "to", "wakeHeartbeat")),
    ("checks", "Checks before and after a run", ("precheck", "verify", "evidence")),
    (
        "limits",
        "Limits and conversation",
        ("maxRuns", "deleteAfterRun", "budget", "lane", "continuity", "stateless"),
    ),
)  # fmt: skip
_OTHER_GROUP: Final = ("other", "Other fields")
_LABELS: Final = {
    "startAt": "Start",
    "endAt": "End",
    "exclude": "Excluded days and hours",
    "tz": "Time zone",
    "dstGap": "Time that a clock change skips",
    "dstOverlap": "Time that a clock change repeats",
    "to": "Recipient",
    "deliver": "Deliver the output",
    "onLost": "If the worker dies",
    "lostLimit": "Losses together with other runs",
    "after": "After another job",
    "triggerUrl": "Start it by its trigger URL, without a schedule",
    "on": "On an event of an MCP server",
}
#: The parts of fields whose value is an object: name, form, further words.
_PARTS: Final[Mapping[str, tuple[tuple[str, str, tuple[str, ...]], ...]]] = {
    "backoff": (("base", "duration", ()), ("max", "duration", ())),
    "budget": (
        ("tokensPerDay", "number", ()),
        ("costPerDay", "number", ()),
        ("tokensPerRun", "number", ()),
        ("costPerRun", "number", ()),
    ),
    "after": (
        ("job", "line", ()),
        ("on", "choice", ("succeeded", "failed", "finished")),
        ("output", "flag", ()),
    ),
}
_LINES: Final = ("exclude", "evidence")
_EXAMPLES: Final = {
    "precheck": '{"kind": "webhook", "url": "https://example.com/anything-new"}',
    "verify": '{"kind": "http", "url": "https://example.com/report.html", "newerThanMs": 60000}',
    "exclude": "2027-12-24/2028-01-01\nholidays:DE-BY\nweekends",
    "on": '{"server": "crm", "event": "ticket.created", "arguments": {"queue": "billing"}}',
    "evidence": "external_id\nresult_url",
    "startAt": "2027-03-01T09:00",
    "endAt": "2027-03-31T00:00",
    "activeHours": "08:00-22:00",
}


class Control(NamedTuple):
    """A control of the form, for a field or for a part of an object."""

    #: the name in the document: that of the duration, where the field takes one
    name: str
    label: str
    #: line, text, number, duration, choice, flag, json, lines, pairs, object
    form: str
    #: its text; of a flag `true`, or empty
    value: str = ""
    hint: str = ""
    placeholder: str = ""
    words: tuple[str, ...] = ()
    parts: tuple[Control, ...] = ()
    #: of pairs: what separates a name from its value
    separator: str = "="

    @property
    def is_set(self) -> bool:
        """Whether it has a value of its own."""
        return bool(self.value) or any(part.is_set for part in self.parts)


class Group(NamedTuple):
    """Fields that are shown together."""

    id: str
    title: str
    controls: tuple[Control, ...]

    @property
    def number(self) -> int:
        """How many of its fields are set."""
        return sum(control.is_set for control in self.controls)


def groups(job: Mapping[str, Json], defaults: Mapping[str, Json]) -> list[Group]:
    """Return the groups of rare fields with the values of a job; values equal to the defaults are empty.

    >>> [group.id for group in groups({}, {})]
    ['timing', 'retries', 'overlap', 'delivery', 'checks', 'limits']
    """
    fields = {field.name: field for field in (*DECLARED, *OTHER)}
    named = {name for _, _, names in _GROUPS for name in names}
    rest = [name for name in fields if name not in (*named, *_PLACED, *_SHORT)]
    found = [
        Group(id_, title, tuple(field_control(fields[name], job, defaults) for name in names))
        for id_, title, names in _GROUPS
    ]
    if rest:
        found.append(Group(*_OTHER_GROUP, tuple(field_control(fields[name], job, defaults) for name in rest)))
    return found


def placed_controls(job: Mapping[str, Json], defaults: Mapping[str, Json]) -> dict[str, Control]:
    """Return the controls of the fields with a place of their own, except for target and agent."""
    fields = {field.name: field for field in (*DECLARED, *OTHER)}
    return {name: field_control(fields[name], job, defaults) for name in _PLACED if name not in _HANDMADE}


_HANDMADE: Final = ("agentId", "enabled", "target")


def field_control(field: Field, job: Mapping[str, Json], defaults: Mapping[str, Json]) -> Control:
    """Return the control of a field with its value in a job."""
    value, default = job.get(field.name), defaults.get(field.name)
    if value is not None and value == default and repr(value) == repr(default):
        value = None
    form = _form(field, value)
    control = Control(
        field.duration_name or field.name,
        _LABELS.get(field.name) or label_text(field.duration_name or field.name),
        form,
        "" if form == "object" else control_text(form, value),
        field.doc.replace("`", ""),
        _EXAMPLES.get(field.name) or _placeholder(form, default),
        _words(field),
    )
    if form != "object":
        return control
    given = value if isinstance(value, dict) else {}
    return control._replace(parts=tuple(_part(*part, given, default) for part in _PARTS[field.name]))


def _form(field: Field, value: Json) -> str:
    name, form = field.name, field.kind.form
    if name in _PARTS:
        known = {part for part, _, _ in _PARTS[name]} | {f"{part}Ms" for part, _, _ in _PARTS[name]}
        return "object" if not isinstance(value, dict) or value.keys() <= known else "json"
    if name in _LINES:
        return "lines"
    if name == "labels":
        return "pairs" if are_pairs(value, "=") else "json"
    if name == "deleteAfterRun":  # its default depends on the schedule
        return "choice"
    if name == "schedule":  # as text
        return "line"
    return {"slug": "line", "instant": "line"}.get(form, form)


def _words(field: Field) -> tuple[str, ...]:
    if field.name == "deleteAfterRun":
        return ("true", "false")
    enum = (field.kind.schema or {}).get("enum")
    return tuple(str(word) for word in enum) if isinstance(enum, list) else ()


def _part(name: str, form: str, words: tuple[str, ...], given: dict[str, Json], default: Json) -> Control:
    usual = default if isinstance(default, dict) else {}
    value, preset = given.get(name), usual.get(name)
    if form == "duration":
        value, preset = given.get(f"{name}Ms", value), usual.get(f"{name}Ms")
    return Control(
        name, label_text(name), form, control_text(form, value), "", _placeholder(form, preset), words
    )


def control_text(form: str, value: Json) -> str:
    """Return the text of a value in a control of this form.

    >>> control_text("duration", 90_000), control_text("json", {"a": 1.0}), control_text("lines", ["a", "b"])
    ('1m30s', '{"a": 1.0}', 'a\\nb')
    """
    if value is None:
        return ""
    if form == "duration" and isinstance(value, int):
        return format_duration(value)
    if form == "number" and isinstance(value, float):  # form_fields.js reads no exponents
        return f"{Decimal(repr(value)):f}"
    if form == "lines" and isinstance(value, list):
        return "\n".join(str(each) for each in value)
    if form == "pairs" and isinstance(value, dict):
        return "\n".join(f"{name}={each}" for name, each in value.items())
    if form == "headers" and isinstance(value, dict):
        return "\n".join(f"{name}: {each}" for name, each in value.items())
    if form == "json":
        line = json.dumps(value, ensure_ascii=False)
        return line if len(line) <= _SHORT_JSON else json.dumps(value, ensure_ascii=False, indent=2)
    if isinstance(value, bool):
        return "true" if value else "false" if form == "choice" else ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_SHORT_JSON: Final = 60


def are_pairs(value: Json, separator: str) -> bool:
    """Return whether an object can be written as lines of a name and a value.

    >>> are_pairs({"team": "ops"}, "="), are_pairs({"a=b": "c"}, "="), are_pairs({"a": "b\\nc"}, "=")
    (True, False, False)
    """
    if value is None:
        return True
    return isinstance(value, dict) and all(
        isinstance(text, str) and name.strip() == name and separator not in name and _is_line(name, text)
        for name, text in value.items()
    )


def _is_line(name: str, text: str) -> bool:
    return text.strip() == text and not any(len(each.splitlines()) > 1 for each in (name, text))


def _placeholder(form: str, default: Json) -> str:
    return "" if default in (None, "", [], {}) or form == "flag" else control_text(form, default)


def label_text(name: str) -> str:
    """Return the name of a field as words.

    >>> label_text("maxAttempts"), label_text("tz")
    ('Max attempts', 'Tz')
    """
    text = re.sub("[A-Z]", lambda found: f" {found[0].lower()}", name)
    return text[0].upper() + text[1:]


class TargetForm(NamedTuple):
    """A kind of target with its controls."""

    kind: str
    title: str
    parts: tuple[Control, ...]
    #: whether a test sends a request
    sends_test: bool


class TargetControl(NamedTuple):
    """The control of a target."""

    #: the chosen kind; empty: that of the agent; `json`: the text below
    chosen: str
    kinds: tuple[TargetForm, ...]
    #: the target as JSON
    text: str
    #: the target of the agent in words; empty: it has none
    inherited: str
    #: whether a test of the target of the agent sends a request
    sends_test: bool


def target_control(target: Json, agent_target: Json) -> TargetControl:
    """Return the control of a target. A target with fields that have no control is edited as JSON.

    >>> target_control({"kind": "webhook", "url": "https://a.example"}, None).chosen
    'webhook'
    >>> target_control({"kind": "webhook", "url": "https://a.example", "new": 1}, None).chosen
    'json'
    """
    given = target if isinstance(target, dict) else {}
    kind = str(given.get("kind", ""))
    declared = TARGET_KINDS.get(kind)
    known = {part.name: part for part in _target_parts(declared)} if declared else {}
    fits = given.keys() <= {"kind", *known} and all(
        _fits(known[name], given[name]) for name in given if name in known
    )
    kinds = tuple(
        TargetForm(
            each.name,
            each.title,
            tuple(
                part._replace(
                    value=control_text(part.form, given.get(part.name)) if each.name == kind and fits else ""
                )
                for part in _target_parts(each)
            ),
            each.is_signed,
        )
        for each in TARGET_KINDS.values()
        if each.fields is not None
    )
    chosen = "" if not given else kind if fits else "json"
    inherited = agent_target if isinstance(agent_target, dict) else None
    return TargetControl(
        chosen,
        kinds,
        control_text("json", target),
        describe_target(inherited) if inherited else "",
        (each := find_kind(inherited)) is not None and each.is_signed,
    )


def _target_parts(kind: TargetKind) -> Iterator[Control]:
    for field in kind.fields or ():
        yield Control(
            field.name,
            field.label,
            field.form,
            hint=field.hint,
            placeholder=field.placeholder,
            words=field.words,
            separator=":" if field.form == "headers" else "=",
        )


def _fits(part: Control, value: Json) -> bool:
    if part.form in ("pairs", "headers"):
        return are_pairs(value, part.separator)
    if part.form == "lines":
        return isinstance(value, list) and all(
            isinstance(each, str) and each and each.strip() == each and each.splitlines() == [each]
            for each in value
        )
    return True
