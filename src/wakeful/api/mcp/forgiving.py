"""What a model most likely meant by the arguments of a tool: the same in the words of a job document.

Models write arguments flat or nested, in snake_case, with numbers in quotes, with the schedule under half a
dozen names. Each of these has one meaning, and is given it here. What has none is left as it is: the service
layer refuses it in its own words. Nothing is made up: no time, no zone, no target.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any, Final, Literal, cast, get_args

from wakeful.document.values import camel
from wakeful.errors import InvalidArgument, InvalidSchedule
from wakeful.job import MAX_NAME
from wakeful.spoken import read_spoken

Action = Literal["add", "list", "update", "remove", "run", "runs", "status"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)

#: What models call the actions instead. Pausing is an update of one field.
_ALSO: Final[dict[str, tuple[Action, dict[str, object]]]] = {
    **dict.fromkeys(("create", "new", "schedule"), ("add", {})),
    **dict.fromkeys(("ls", "jobs"), ("list", {})),
    **dict.fromkeys(("edit", "change", "modify", "patch"), ("update", {})),
    **dict.fromkeys(("pause", "disable"), ("update", {"enabled": False})),
    **dict.fromkeys(("resume", "enable"), ("update", {"enabled": True})),
    **dict.fromkeys(("delete", "cancel", "rm"), ("remove", {})),
    **dict.fromkeys(("trigger", "run-now"), ("run", {})),
    "history": ("runs", {}),
}
#: Objects that hold the fields of a job.
_NESTED: Final = ("job", "patch", "changes", "updates", "fields")
#: What is about the call and not about the job.
_OF_CALL: Final = frozenset(
    {"action", "limit", "mode", "includeDisabled", "context", "jobId", "id", "cursor"}
)
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
_UNITS: Final = {"Seconds": 1_000, "Minutes": 60_000, "Hours": 3_600_000, "Days": 86_400_000}
_EVERY: Final = {
    **{f"every{unit}": ms for unit, ms in _UNITS.items()},
    **{f"interval{unit}": ms for unit, ms in _UNITS.items()},
}
_IN: Final = {
    **{f"in{unit}": ms for unit, ms in _UNITS.items()},
    **{f"delay{unit}": ms for unit, ms in _UNITS.items()},
}
#: Fields that say when, wherever they stand.
_WHEN: Final = ("cron", "atMs", "at", "everyMs", "every", *_EVERY, "in", *_IN, "when")
_WHOLE: Final = frozenset({"limit", "maxAttempts", "maxQueued", "maxRuns", "disableAfter", "version"})
_FLAGS: Final = frozenset(
    {"enabled", "deleteAfterRun", "deliver", "stateless", "wakeHeartbeat", "includeDisabled"}
)
_FLAG_WORDS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NUMBER: Final = re.compile(r"[0-9]{1,16}")
_DECIMAL: Final = re.compile(r"[0-9]{1,16}(?:\.[0-9]{1,6})?")
_LONGEST_WORD: Final = 255
_END_OF_1970_MS: Final = 31_536_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for: the action, which job, and what the job is to be."""

    action: Action
    #: the name or the id of the job that it is about
    job: str | None = None
    agent: str | None = None
    #: the fields of the job, as a document has them, all but the schedule, which depends on the time
    fields: Mapping[str, object] = field(default_factory=dict)
    limit: int | None = None
    mode: str = "force"
    include_disabled: bool = True
    #: the name that the list before this one ended with
    cursor: str | None = None


def understand(arguments: Mapping[str, object], meta: Mapping[str, object] | None = None) -> Asked:
    """What a call asks for; InvalidArgument for an action that there is not.

    `meta` is where the conversation is (`deliver`, `channel`, `to`), said by who called rather than by the
    model: it fills in what the job does not say itself.

    >>> asked = understand({"action": "add", "message": "look again", "every_minutes": "5"})
    >>> asked.action, dict(asked.fields)
    ('add', {'message': 'look again', 'everyMinutes': '5'})
    """
    given = _renamed(arguments)
    action, implied = _action(given.get("action"))
    nested: dict[str, object] = {}
    job: object = None
    for name in _NESTED:
        inner = _object(given.pop(name, None))
        if isinstance(inner, Mapping):
            nested |= _renamed(inner)
        elif name == "job" and inner is not None:
            job = inner
    flat = {name: value for name, value in given.items() if name not in _OF_CALL}
    named: list[object] = [given.get("jobId"), given.get("id"), job, nested.pop("jobId", None)]
    if action != "add":
        named.append(nested.pop("id", None))
        for fields in (flat, nested):
            if not any(each is not None for each in named):
                named.append(fields.pop("name", None))
    fields = {**implied, **flat, **nested}
    agent = fields.pop("agentId", None)
    if action == "add":
        fields = _filled(fields, [given.get("context"), meta])
    return Asked(
        action,
        job=_word("jobId", next((each for each in named if each is not None), None)),
        agent=_word("agentId", agent),
        fields=fields,
        limit=_limit(given.get("limit")),
        mode=str(given.get("mode") or "force").strip().lower(),
        include_disabled=_plain("includeDisabled", given.get("includeDisabled", True)) is not False,
        cursor=_word("cursor", given.get("cursor")),
    )


def document(fields: Mapping[str, object], *, now_ms: int, tz: str) -> dict[str, object]:
    """The fields as a job document has them, whatever they were called; `tz` where they name no zone.

    >>> document({"message": "\\tHello", "when": "in 20 minutes", "maxAttempts": "3"}, now_ms=0, tz="UTC")
    {'message': 'Hello', 'maxAttempts': 3, 'schedule': {'kind': 'at', 'atMs': 1200000}}
    """
    made = {name: _plain(name, value) for name, value in fields.items() if name not in (*_WHEN, "kind")}
    when = {name: fields[name] for name in _WHEN if fields.get(name) is not None}
    zone = made.get("tz") if isinstance(made.get("tz"), str) else tz
    said = _object(made.get("schedule"))
    if said is None and when:
        said = when
    if said is not None:
        made["schedule"] = _schedule(said, now_ms, str(zone).strip())
    own = _object(made.get("payload"))
    if isinstance(own, Mapping):
        made["payload"] = own
        message = own.get("message")
        if "message" not in made and isinstance(message, str) and set(own) <= {"kind", "message"}:
            made["message"] = _text(message)
            del made["payload"]
    return made


def check_message(made: Mapping[str, object]) -> None:
    """Refuse a new job that would tell its agent nothing."""
    if all(made.get(name) is None for name in ("message", "payload", "workflowId", "target")):
        raise InvalidArgument(
            "message: it is missing; write what is to be done then, in words that can be understood without "
            "this conversation"
        )


def name_from(text: str) -> str:
    """A name for a job that has none, from what it says.

    >>> name_from("Check the build, and tell Ada!"), name_from("…")
    ('check-the-build-and-tell-ada', 'job')
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    name = ""
    for word in words[:8]:
        if len(name) + len(word) > MAX_NAME - 24:  # room for what makes it unique
            break
        name = f"{name}-{word}" if name else word
    return name or (words[0][: MAX_NAME - 24] if words else "job")


# --- inside ------------------------------------------------------------------------------------------


def _action(value: object) -> tuple[Action, dict[str, object]]:
    word = re.sub(r"[\s_]+", "-", value.strip().lower()) if isinstance(value, str) else ""
    word = word.removeprefix("cron.").removeprefix("cron-")
    for action in ACTIONS:
        if word == action:
            return action, {}
    if word in _ALSO:
        return _ALSO[word]
    what = "it is missing" if value is None else f"there is no action {json.dumps(value, default=str)[:64]}"
    raise InvalidArgument(f"action: {what}; there are {', '.join(ACTIONS)}")


def _renamed(given: Mapping[str, object]) -> dict[str, object]:
    """The same by the names that we use; what is said twice counts by its own name."""
    names = {key: camel(key.strip()) for key in given}
    own = {name: given[key] for key, name in names.items() if name not in _NAMES}
    also = {_NAMES[name]: given[key] for key, name in names.items() if name in _NAMES}
    return {**also, **own}


def _object(value: object) -> object:
    """What stands in a string as JSON, if an object does."""
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        with suppress(ValueError, RecursionError):
            return cast(object, json.loads(value))
    return value


def _filled(fields: dict[str, object], contexts: list[object]) -> dict[str, object]:
    for each in contexts:
        context = _object(each)
        if isinstance(context, Mapping):
            known = _renamed(context)
            where: dict[str, object] = {
                name: known[name] for name in ("deliver", "channel", "to") if name in known
            }
            fields = {**where, **fields}
    return fields


def _word(name: str, value: object) -> str | None:
    """Something that is looked up by what it is called."""
    if value is None:
        return None
    word = value.strip() if isinstance(value, str) else ""
    if not word or len(word) > _LONGEST_WORD or not word.isprintable():
        raise InvalidArgument(f"{name}: give a name or an id, as list shows them")
    return word


def _limit(value: object) -> int | None:
    number = _plain("limit", value)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InvalidArgument("limit: write a whole number, such as 10")
    return min(number, 100)


def _plain(name: str, value: object) -> object:
    """A value as its field has it: numbers and truth without quotes, texts without indentation."""
    if not isinstance(value, str):
        return value
    bare = value.strip()
    if name in _FLAGS:
        return _FLAG_WORDS.get(bare.lower(), value)
    if (name in _WHOLE or name.endswith("Ms")) and _NUMBER.fullmatch(bare):
        return int(bare)
    if name in ("message", "description"):
        return _text(value)
    if name in ("name", "tz", "channel", "to"):
        return bare
    if name in ("target", "backoff", "labels", "precheck", "budget"):
        return _object(value)
    return value


def _text(value: str) -> str:
    """A text without the indentation of the code that it was written in."""
    text = dedent(value.lstrip("\r\n")).strip()
    first, newline, rest = text.partition("\n")
    # Only the first line stood right behind its quotation mark.
    if re.match(r"(?:\t| {4})", rest) and not value[:1].isspace():
        return f"{first}{newline}{dedent(rest)}"
    return text


def _schedule(said: object, now_ms: int, tz: str) -> object:
    """A schedule in one of the forms that the service layer knows, or as it was where it is in none."""
    number = _number(said)
    if number is not None:
        return {"kind": "at", "atMs": _milliseconds(number)}
    if isinstance(said, str):
        return _spoken(said, now_ms, tz)
    if not isinstance(said, Mapping):
        return said
    given = {name: value for name, value in _renamed(said).items() if value is not None}
    kind, own = given.pop("kind", None), given.pop("tz", None)
    if isinstance(kind, str) and " " in kind.strip() and not given:  # {"kind": "every 15m"}
        made = _spoken(kind, now_ms, tz)
    else:
        if isinstance(kind, str) and kind.strip().lower() == "cron" and "schedule" in given:
            given["cron"] = given.pop("schedule")
        made = _one_way(given, now_ms, str(own).strip() if isinstance(own, str) else tz)
    if made is None:
        return said
    if own is not None and isinstance(made, dict):
        return {**made, "tz": own} if "tz" not in made else made
    if own is not None and isinstance(made, str):
        return _with_zone(made, own) or said
    return made


def _one_way(given: Mapping[str, Any], now_ms: int, tz: str) -> object:
    """What an object says that says when in one way; None where it says it in two, or in none."""
    if len(given) != 1:
        return None
    ((name, value),) = given.items()
    number = _number(value)
    if name == "cron":
        made = _spoken(value, now_ms, tz) if isinstance(value, str) else None
        return {"kind": "cron", "expr": made} if isinstance(made, str) else made
    if name in ("at", "atMs"):
        if number is not None:
            return {"kind": "at", "atMs": _milliseconds(number)}
        made = _spoken(value, now_ms, tz) if isinstance(value, str) else None
        return {"kind": "at", "at": made} if isinstance(made, str) else made
    if name == "everyMs":
        return None if number is None else {"kind": "every", "everyMs": int(number)}
    if name in _EVERY:
        return None if number is None else {"kind": "every", "everyMs": round(number * _EVERY[name])}
    if name in _IN:
        return None if number is None else {"kind": "at", "atMs": now_ms + round(number * _IN[name])}
    if name in ("every", "in", "when") and isinstance(value, str):
        text = value.strip()
        opening = "" if name == "when" or text.lower().startswith(f"{name} ") else f"{name} "
        return _spoken(opening + text, now_ms, tz)
    if name == "every" and number is not None:  # a number alone is milliseconds, as everywhere
        return {"kind": "every", "everyMs": int(number)}
    return None


def _spoken(text: str, now_ms: int, tz: str) -> object:
    try:
        return read_spoken(text, now_ms=now_ms, tz=tz) or text.strip()
    except InvalidSchedule as error:
        if "time zone" in error.message:  # the service layer says it of the zone, where it belongs
            return text.strip()
        raise InvalidSchedule(f"schedule: {error.message}") from error


def _with_zone(text: str, tz: object) -> object:
    """A schedule as text, with a zone of its own: only a time and an expression have one."""
    if re.match(r"[0-9]{4}-", text):
        return {"kind": "at", "at": text, "tz": tz}
    return {"kind": "cron", "expr": text, "tz": tz} if len(text.split()) in (5, 6, 7) else None


def _number(value: object) -> float | None:
    if isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e16:
        return value
    return None


def _milliseconds(number: float) -> int:
    """An instant: what would be in 1970 is in seconds."""
    return round(number * 1000) if number < _END_OF_1970_MS else round(number)
