"""Normalize the arguments of the tool to the fields of a job document.

Models write arguments flat or nested, in snake_case, with quoted numbers, and the schedule under several
names. Each form is mapped to one field. An unknown argument is an error, here or in the service; none is
dropped. No value is guessed: no time, no zone, no target.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from wakeful.errors import InvalidArgument, InvalidSchedule
from wakeful.job.job import MAX_NAME
from wakeful.schedule.phrase_words import named_zones, zone_name
from wakeful.service.cron_tool.values import KINDS, WHEN, empty, json_in, plain, read_schedule, text
from wakeful.store.internal_jobs import is_reserved
from wakeful.values.instance_names import check_instance
from wakeful.values.json_value import camel

Action = Literal[
    "add", "get", "list", "update", "pause", "resume", "remove", "run", "runs", "status", "instances",
    "instance", "signal",
]  # fmt: skip
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)

#: Other names of the actions.
_ALIASES: Final[dict[str, Action]] = {
    "create": "add", "new": "add", "schedule": "add",
    "show": "get", "read": "get", "describe": "get",
    "ls": "list", "jobs": "list",
    "edit": "update", "change": "update", "modify": "update", "patch": "update",
    "disable": "pause", "enable": "resume",
    "delete": "remove", "cancel": "remove", "rm": "remove",
    "trigger": "run", "run-now": "run",
    "history": "runs",
    "list-instances": "instances", "get-instance": "instance", "state": "instance",
    "send": "signal", "send-signal": "signal",
}  # fmt: skip
#: Objects that hold the fields of a job.
_NESTED: Final = ("job", "patch", "changes", "updates", "fields")
#: The arguments of each action besides `agentId`; `job` is any field of a job.
TAKES: Final[dict[Action, tuple[str, ...]]] = {
    "add": ("job", "context"),
    "get": ("jobId",),
    "list": ("includeDisabled", "limit", "cursor"),
    "update": ("jobId", "job"),
    "pause": ("jobId", "note", "until"),
    "resume": ("jobId",),
    "remove": ("jobId",),
    "run": ("jobId", "mode", "payload", "overlapPolicy"),
    "runs": ("jobId", "limit"),
    "status": (),
    "instances": ("limit", "cursor"),
    "instance": ("instance",),
    "signal": ("signal", "instance", "data", "id", "subject"),
}
#: The arguments that are no fields of a job.
_NO_FIELDS: Final = frozenset({"note", "until", "instance", "signal", "data"})
#: The actions about instances of the agent.
_OF_INSTANCES: Final = ("instances", "instance", "signal")
#: The arguments of the call, not of the job.
_OF_CALL: Final = frozenset({"limit", "mode", "includeDisabled", "context", "cursor"})
_CONTEXT: Final = ("deliver", "channel", "to")
_NAMES: Final = {
    **dict.fromkeys(("timezone", "timeZone", "zone"), "tz"),
    **dict.fromkeys(("prompt", "text", "input", "instruction", "instructions", "task"), "message"),
    **dict.fromkeys(("agent", "agentName"), "agentId"),
    **dict.fromkeys(("deleteAfterRunning", "deleteWhenDone"), "deleteAfterRun"),
    **dict.fromkeys(("cronExpr", "cronExpression", "expression", "expr"), "cron"),
    **dict.fromkeys(("every", "interval", "repeat"), "every"),
    **dict.fromkeys(("runAt", "atTime"), "at"),
    **dict.fromkeys(("timestamp", "runAtMs", "timestampMs"), "atMs"),
    **dict.fromkeys(("intervalMs", "repeatMs"), "everyMs"),
    "type": "kind",
}
_MAX_WORD: Final = 255


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A normalized call: the action, the job, and the fields of the job."""

    action: Action
    #: the name or the id of the job
    job: str | None = None
    agent: str | None = None
    #: the fields of the job document, except the schedule, which depends on the time
    fields: Mapping[str, object] = field(default_factory=dict)
    limit: int | None = None
    mode: str = "force"
    include_disabled: bool = True
    #: the last name of the previous page
    cursor: str | None = None
    #: the instance of the agent
    instance: str | None = None
    #: the errors of the arguments, by name
    problems: Mapping[str, str] = field(default_factory=dict)


def normalize(arguments: Mapping[str, object], meta: Mapping[str, object] | None = None) -> ToolCall:
    """Return the normalized call; InvalidArgument for an unknown action, or with all errors.

    The errors of an `add` are collected in `problems` instead, to be reported with those of the service.

    `meta` is the address of the conversation (`deliver`, `channel`, `to`), set by the client and not by the
    model: it fills in what the job does not set.

    >>> tool_call = normalize({"action": "add", "message": "look again", "every_minutes": "5"})
    >>> tool_call.action, dict(tool_call.fields)
    ('add', {'message': 'look again', 'everyMinutes': '5'})
    """
    problems: dict[str, str] = {}
    flat = _rename(arguments, problems)
    action = _action(flat.pop("action", None))
    if action in _OF_INSTANCES:
        return _instance_call(action, flat, problems)
    nested: dict[str, object] = {}
    job_value: object = None
    for name in _NESTED:
        inner = json_in(flat.pop(name, None))
        if isinstance(inner, Mapping):
            _merge(nested, _rename(inner, problems), problems)
        elif name == "job" and inner is not None:
            job_value = inner
        elif inner is not None:
            problems[name] = "give an object with the fields of the job"
    call = {name: flat.pop(name) for name in [*flat] if name in _OF_CALL}
    # Some clients send every argument.
    flat = {name: value for name, value in flat.items() if name not in _NO_FIELDS or not empty(value)}
    job, fields = _job_and_fields(action, flat, nested, job_value, problems)
    agent = fields.pop("agentId", None)
    _report_unused(action, call, fields, job, problems)
    if action == "add":
        fields = _fill_context(fields, call.get("context"), meta, problems)
    read = _Reader(problems)
    tool_call = ToolCall(
        action,
        job=read.word("jobId", job) if "jobId" in TAKES[action] else None,
        agent=read.word("agentId", agent),
        fields=fields,
        limit=read.limit(call.get("limit")),
        mode=str(call.get("mode") or "force").strip().lower(),
        include_disabled=plain("includeDisabled", call.get("includeDisabled", True)) is not False,
        cursor=read.word("cursor", call.get("cursor") or None),
        problems=problems,
    )
    if problems and action != "add":
        raise all_of(problems)
    return tool_call


def all_of(problems: Mapping[str, str]) -> InvalidArgument:
    """Return one error with all problems, a line each."""
    return InvalidArgument("\n".join(f"{name}: {sentence}" for name, sentence in problems.items()))


def document(
    fields: Mapping[str, object], *, now_ms: int, tz: str, problems: dict[str, str] | None = None
) -> dict[str, object]:
    """Return the fields of a job document; `tz` is the zone if they name none.

    A schedule that cannot be read is added to `problems` and left out; without `problems` it is raised.

    >>> document({"message": "\\tHello", "when": "in 20 minutes", "maxAttempts": "3"}, now_ms=0, tz="UTC")
    {'message': 'Hello', 'maxAttempts': 3, 'schedule': {'kind': 'at', 'atMs': 1200000}}
    """
    job = {name: plain(name, value) for name, value in fields.items() if name not in WHEN}
    when = {name: fields[name] for name in WHEN if fields.get(name) is not None}
    zone = job.get("tz") if isinstance(job.get("tz"), str) else tz
    try:
        schedule = _schedule(job, when)
        if schedule is not None:
            job["schedule"] = read_schedule(schedule, now_ms, str(zone).strip(), _own_names)
            _check_zones(schedule, job.get("tz"))
    except InvalidArgument as error:
        if problems is None:
            raise
        problems["schedule"] = error.message.removeprefix("schedule: ")
        job.pop("schedule", None)
    own = job.get("payload")
    if isinstance(own, Mapping):
        message = own.get("message")
        if "message" not in job and isinstance(message, str) and set(own) <= {"kind", "message"}:
            job["message"] = text(message)
            del job["payload"]
    return job


def _check_zones(schedule: object, tz: object) -> None:
    """Raise InvalidArgument for the text of a schedule that names another zone than `tz`."""
    given = zone_name(tz.strip()) if isinstance(tz, str) else None
    texts = [*schedule.values()] if isinstance(schedule, Mapping) else [schedule]
    for said in texts if given else ():
        for _, word, named in named_zones(said) if isinstance(said, str) else ():
            if named not in (None, given, str(given).removeprefix("Etc/")):
                raise InvalidArgument(f"it names the zone {word}, and tz is {given}; give one of them")


def check_message(fields: Mapping[str, object]) -> None:
    """Raise InvalidArgument for a new job without a message, payload, workflow or target."""
    if all(fields.get(name) is None for name in ("message", "payload", "workflowId", "target")):
        raise InvalidArgument(
            "message: it is missing; write what the agent must do then, so that it is clear without this "
            "conversation"
        )


def name_from(text: str) -> str:
    """Return a name for a job that has none, from its text.

    >>> name_from("Check the build, and tell Ada!"), name_from("…"), name_from("Heartbeat")
    ('check-the-build-and-tell-ada', 'job', 'job-heartbeat')
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    name = ""
    for word in words[:8]:
        if len(name) + len(word) > MAX_NAME - 24:  # room for a number that makes it unique
            break
        name = f"{name}-{word}" if name else word
    name = name or (words[0][: MAX_NAME - 24] if words else "job")
    return f"job-{name}" if is_reserved(name) else name


# --- internal ----------------------------------------------------------------------------------------


def _action(value: object) -> Action:
    word = re.sub(r"[\s_]+", "-", value.strip().lower()) if isinstance(value, str) else ""
    word = word.removeprefix("cron.").removeprefix("cron-")
    for action in ACTIONS:
        if word == action:
            return action
    if word in _ALIASES:
        return _ALIASES[word]
    what = "it is missing" if value is None else f"there is no action {json.dumps(value, default=str)[:64]}"
    raise InvalidArgument(f"action: {what}; there are {', '.join(ACTIONS)}")


def _instance_call(action: Action, flat: dict[str, object], problems: dict[str, str]) -> ToolCall:
    """Return the call of an action about instances. The signal may be its type, or an event."""
    event = json_in(flat.get("signal"))
    if isinstance(event, Mapping):
        del flat["signal"]
        _merge(flat, _rename(event, problems), problems)
    aliases = {"kind": "signal", "instanceId": "instance"}
    if action == "instance":
        aliases |= {"id": "instance", "name": "instance", "jobId": "instance"}
    for other in [name for name in flat if name in aliases]:
        _merge(flat, {aliases[other]: flat.pop(other)}, problems)
    agent = flat.pop("agentId", None)
    call = {name: flat.pop(name) for name in [*flat] if name in _OF_CALL}
    _report_unused(action, call, flat, None, problems)
    read = _Reader(problems)
    tool_call = ToolCall(
        action,
        agent=read.word("agentId", agent),
        fields=flat,
        limit=read.limit(call.get("limit")),
        cursor=read.instance("cursor", call.get("cursor") or None),
        instance=read.instance("instance", flat.pop("instance", None)),
    )
    if problems:
        raise all_of(problems)
    return tool_call


def _rename(arguments: Mapping[str, object], problems: dict[str, str]) -> dict[str, object]:
    """Return the arguments under their standard names. Two values for one name are a problem."""
    named: dict[str, object] = {}
    spelled: dict[str, str] = {}
    for key, value in arguments.items():
        name = camel(key.strip())
        name = _NAMES.get(name, name)
        if name in named and named[name] is not None and value is not None and named[name] != value:
            problems[name] = f"it is given twice, as {spelled[name][:64]} and {key[:64]}; give it once"
        if name not in named or named[name] is None:
            named[name], spelled[name] = value, key
    return named


def _own_names(arguments: Mapping[str, object]) -> dict[str, object]:
    problems: dict[str, str] = {}
    named = _rename(arguments, problems)
    for name, sentence in problems.items():
        raise InvalidSchedule(f"schedule: {name}: {sentence}")
    return named


def _merge(into: dict[str, object], more: Mapping[str, object], problems: dict[str, str]) -> None:
    for name, value in more.items():
        if into.get(name) is not None and value is not None and into[name] != value:
            problems[name] = "it is given twice, with two values; give it once"
        if into.get(name) is None:
            into[name] = value


def _job_and_fields(
    action: Action,
    flat: dict[str, object],
    nested: dict[str, object],
    job_value: object,
    problems: dict[str, str],
) -> tuple[object, dict[str, object]]:
    """Return the job of a call, and the job fields that it gives."""
    named = [flat.pop("jobId", None), flat.pop("id", None) if action != "add" else None]
    named += [job_value, nested.pop("jobId", None), nested.pop("id", None) if action != "add" else None]
    if action != "add":
        for fields in (flat, nested):
            if all(each is None for each in named):
                named.append(fields.pop("name", None))
    jobs = [each for each in named if each is not None]
    if any(each != jobs[0] for each in jobs):
        problems["jobId"] = "two jobs are named; name one"
    fields = {**nested}
    _merge(fields, flat, problems)
    job = jobs[0] if jobs else None
    if action != "add":
        return job, fields
    # A new job has no id yet: an id in the call is its name.
    for name in (job, fields.get("id")):
        if name is not None and fields.get("name") in (None, ""):
            fields["name"] = name
            fields.pop("id", None)
        elif name is not None and job is not None and name != fields["name"]:
            problems["jobId"] = "a new job has no id yet; leave it out"
    return None, fields


def _report_unused(
    action: Action,
    call: Mapping[str, object],
    fields: dict[str, object],
    job: object,
    problems: dict[str, str],
) -> None:
    """Add the arguments that the action does not take to the problems. Empty ones are ignored."""
    takes = TAKES[action]
    unused = [name for name, value in call.items() if name not in takes and not empty(value)]
    if "job" not in takes:
        unused += [
            name for name, value in fields.items() if name not in (*takes, "agentId") and not empty(value)
        ]
    if "jobId" not in takes and action != "add" and not empty(job):
        unused.append("jobId")
    choice = f"it takes {_listed(takes)}" if takes else "it takes no arguments"
    for name in unused:
        problems.setdefault(name[:64], f"the action {action} takes no such argument; {choice}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join((*names, "agentId"))


def _fill_context(
    fields: dict[str, object], context: object, meta: Mapping[str, object] | None, problems: dict[str, str]
) -> dict[str, object]:
    own = json_in(context)
    if isinstance(own, Mapping):
        unknown = [name[:64] for name in _rename(own, problems) if name not in _CONTEXT]
        if unknown:
            problems["context"] = f"it has no {', '.join(unknown)}; it has {', '.join(_CONTEXT)}"
    elif not empty(own):
        problems["context"] = f"give an object with {', '.join(_CONTEXT)}"
    for each in (own, meta):
        if isinstance(each, Mapping):
            known = _rename(each, {})
            where: dict[str, object] = {name: known[name] for name in _CONTEXT if name in known}
            if where.get("channel") is not None:  # a job that is made in a conversation reports there
                where.setdefault("deliver", True)
            if fields.get("channel") not in (None, where.get("channel")):
                where.pop("to", None)  # a recipient of another channel
            fields |= {name: value for name, value in where.items() if fields.get(name) is None}
    return fields


def _schedule(fields: dict[str, object], when: dict[str, object]) -> object:
    """Return the schedule of the fields, under any of its names, or None."""
    if fields.get("schedule") == "" and when:
        del fields["schedule"]
    schedule, kind = fields.get("schedule"), fields.get("kind")
    if schedule is not None and when:
        raise InvalidSchedule(f"it is given twice, as schedule and {', '.join(when)}; give it once")
    if isinstance(kind, str) and kind.strip().lower() in KINDS and (when or schedule is not None):
        del fields["kind"]
        if not isinstance(schedule, Mapping):
            return {"kind": kind, **(when or {"schedule": schedule})}
        if str(schedule.get("kind", kind)).strip().lower() != kind.strip().lower():
            raise InvalidSchedule(f"its kind is given twice, as {kind[:64]} and in the schedule; give one")
        return {**schedule, "kind": kind}
    return when if schedule is None and when else schedule


class _Reader:
    """Reads single arguments, and collects their errors."""

    def __init__(self, problems: dict[str, str]) -> None:
        self._problems = problems

    def word(self, name: str, value: object) -> str | None:
        """Return a name or an id."""
        if value is None:
            return None
        word = value.strip() if isinstance(value, str) else ""
        if not word or len(word) > _MAX_WORD or not word.isprintable():
            self._problems.setdefault(name, "give a name or an id, as list shows them")
            return None
        return word

    def instance(self, name: str, value: object) -> str | None:
        """Return the name of an instance, which is any text; spaces around it are mistakes of models."""
        try:
            given = value.strip() if isinstance(value, str) else value
            return None if value is None else check_instance(given, name)
        except InvalidArgument as error:
            self._problems.setdefault(name, error.message.removeprefix(f"{name}: "))
            return None

    def limit(self, value: object) -> int | None:
        """Return the limit of a list."""
        number = plain("limit", value)
        if number is None:
            return None
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            self._problems.setdefault("limit", "write a whole number, such as 10")
            return None
        return min(number, 100)
