"""The kinds of targets in the job form, and the parts of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from wakeful.dashboard.job_controls import Control, are_pairs, control_text
from wakeful.job.target_kinds import TARGET_KINDS
from wakeful.values.json_value import Json

_CONTINUITY: Final = ("output", "session", "none")
_YES_NO: Final = ("true", "false")

#: The parts of each kind: name, form, hint, words, placeholder. A kind that is not listed is edited as JSON.
_PARTS: Final[Mapping[str, tuple[Control, ...]]] = {
    "webhook": (
        Control("url", "URL", "line", placeholder="https://example.com/hook"),
        Control(
            "headers", "Headers", "headers", hint="One per line, as in x-team: news.", separator=":",
            placeholder="x-team: news",
        ),
        Control(
            "completion", "Completion", "choice", words=("response", "callback"),
            hint="callback: the run stays running until a request completes it.",
        ),
    ),
    "function": (Control("name", "Function", "line", placeholder="digest"),),
    "agent": (
        Control("instance", "Instance", "line", placeholder="default"),
        Control("signal", "Signal", "line", placeholder="wakeful.job"),
    ),
    "command": (
        Control(
            "argv", "Program and arguments", "lines", placeholder="/usr/local/bin/report\n--daily",
            hint="One per line. There is no shell.",
        ),
        Control("env", "Environment", "pairs", hint="One variable per line, as in NAME=value."),
        Control("cwd", "Directory", "line", placeholder="/srv"),
    ),
    "chat": (
        Control("url", "Endpoint", "line", placeholder="https://api.openai.com/v1"),
        Control("model", "Model", "line", placeholder="gpt-5-mini"),
        Control(
            "key", "Key", "line", placeholder="openai",
            hint="The name of an API key of the operator, as in WAKEFUL_CHAT_KEY_OPENAI; never the key.",
        ),
        Control("system", "Instructions", "text"),
        Control("continuity", "Continuity", "choice", words=_CONTINUITY),
        Control("temperature", "Temperature", "number"),
        Control("maxTokens", "Max tokens", "number"),
        Control("contextWindow", "Context window", "number"),
        Control("maxSteps", "Max rounds of tool calls", "number", placeholder="8"),
        Control("tools", "May schedule work", "choice", words=_YES_NO),
        Control("options", "Further fields of the request", "json", placeholder='{"top_p": 0.9}'),
    ),
    "queue": (
        Control(
            "subject", "Subject", "line", placeholder="reports.daily",
            hint="The operator allows subjects. Empty: that of the workspace, for wakeful worker --nats.",
        ),
        Control("function", "Function", "line", hint="Empty: that of the name of the job."),
        Control("stream", "Stream", "line", hint="Empty: the stream that has the subject."),
        Control(
            "headers", "Headers", "headers", hint="One per line, as in x-team: news.", separator=":",
            placeholder="x-team: news",
        ),
    ),
    "celery": (
        Control("task", "Task", "line", placeholder="app.tasks.add"),
        Control("args", "Arguments", "json", placeholder="[1, 2]"),
        Control("kwargs", "Keyword arguments", "json", placeholder='{"to": "me"}'),
        Control("queue", "Queue", "line", placeholder="celery"),
        Control("options", "Further options", "json", placeholder='{"priority": 5}'),
        Control("app", "App", "line", hint="Empty: any Celery app of a running process.", placeholder="shop"),
    ),
    "workflow": (
        Control("workflowId", "Workflow", "line"),
        Control("version", "Version", "number"),
        Control("userId", "User", "line"),
        Control("to", "Target of the DAG", "json", placeholder='{"kind": "webhook", "url": "https://…"}'),
    ),
    "echo": (),
    "pull": (
        Control("claimTimeoutMs", "Claim timeout in ms", "number", placeholder="3600000"),
    ),
}  # fmt: skip


class TargetForm(NamedTuple):
    """A kind of target with its controls."""

    kind: str
    title: str
    parts: tuple[Control, ...]


class TargetControl(NamedTuple):
    """The control of a target."""

    #: the chosen kind; empty: that of the agent; `json`: the text below
    chosen: str
    kinds: tuple[TargetForm, ...]
    #: the target as JSON
    text: str
    #: the target of the agent in words; empty: it has none
    inherited: str


def target_control(target: Json, agent_target: Json) -> TargetControl:
    """Return the control of a target. A target with fields that have no control is edited as JSON.

    >>> target_control({"kind": "webhook", "url": "https://a.example"}, None).chosen
    'webhook'
    >>> target_control({"kind": "webhook", "url": "https://a.example", "new": 1}, None).chosen
    'json'
    """
    given = target if isinstance(target, dict) else {}
    kind = str(given.get("kind", ""))
    known = {part.name: part for part in _PARTS.get(kind, ())}
    fits = given.keys() <= {"kind", *known} and all(
        _fits(known[name], given[name]) for name in given if name in known
    )
    kinds = tuple(
        TargetForm(
            each,
            TARGET_KINDS[each].title,
            tuple(
                part._replace(
                    value=control_text(part.form, given.get(part.name)) if each == kind and fits else ""
                )
                for part in _PARTS[each]
            ),
        )
        for each in TARGET_KINDS
        if each in _PARTS
    )
    chosen = "" if not given else kind if fits else "json"
    return TargetControl(chosen, kinds, control_text("json", target), _summary(agent_target))


def _fits(part: Control, value: Json) -> bool:
    if part.form in ("pairs", "headers"):
        return are_pairs(value, part.separator)
    if part.form == "lines":
        return isinstance(value, list) and all(
            isinstance(each, str) and each and each.strip() == each and each.splitlines() == [each]
            for each in value
        )
    return True


def _summary(target: Json) -> str:
    if not isinstance(target, dict):
        return ""
    detail = (
        target.get("url") or target.get("name") or target.get("workflowId") or target.get("subject") or ""
    )
    return f"{target.get('kind')} {detail}".strip()
