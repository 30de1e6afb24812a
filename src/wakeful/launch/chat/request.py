"""What is said to the model, as a request: the system text, what came before, and the message. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple, Protocol

from wakeful.cron import zone
from wakeful.job.job import WAKE_JOB
from wakeful.launch.chat.target import ChatTarget
from wakeful.launch.port import Launch
from wakeful.run.conversations import estimated_tokens
from wakeful.values.instants import utc_datetime
from wakeful.values.json_value import Json

#: How much of the previous answer goes along, in characters.
MAX_EXCERPT: Final = 8_000

_DAYS: Final = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS: Final = (
    "January February March April May June July August September October November December".split()
)
#: Where the event stands in the message of a job; without it, the event follows the message.
EVENT_MARK: Final = "{{event}}"
#: Triggers of runs whose payload may be text of other people. A replay carries the payload of its run.
_FROM_OUTSIDE: Final = ("hook", "event", "replay")
_CUT: Final = "\n[… cut]"
#: The context window of a model of which none is stated.
DEFAULT_WINDOW: Final = 32_000
#: Kept free for the answer if the target has no `maxTokens`, but at most a quarter of the window; also what a
#: request then reserves for its answer under a budget.
ANSWER_TOKENS: Final = 4_096
#: What an endpoint adds to each message.
_PER_MESSAGE: Final = 8

Message = dict[str, Json]


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool that is offered to the model."""

    name: str
    description: str
    #: the JSON schema of its arguments
    parameters: Mapping[str, Json]


class ChatTools(Protocol):
    """The tools of the agent of a run."""

    def definitions(self) -> Sequence[ToolDefinition]:
        """Return what the model may call."""
        ...

    async def call(self, run: Launch, name: str, arguments: Mapping[str, object], key: str) -> str:
        """Perform a call with the rights of the agent of the run. Returns the result, or the error, as text.

        A call with this key is performed once in this run, so that the next attempt changes nothing twice.
        """
        ...


class Said(NamedTuple):
    """An entry of a conversation."""

    role: Literal["user", "assistant"]
    content: str
    #: of an answer that a job added to the conversation: the job
    job: str | None = None


class PreviousAnswer(NamedTuple):
    """What the previous successful run of a job answered."""

    text: str
    scheduled_ms: int


class Conversations(Protocol):
    """What was said before, and the time zone of an agent."""

    async def zone(self, run: Launch) -> str:
        """Return the time zone of the agent of the run."""
        ...

    async def previous_answer(self, run: Launch) -> PreviousAnswer | None:
        """Return the last answer of earlier runs of the job that was not suppressed."""
        ...

    async def history(self, run: Launch, session: str) -> Sequence[Said]:
        """Return the history of a session of the agent, oldest first."""
        ...


def user_text(payload: Json, job: str | None, *, turn: bool) -> str:
    """Return the message of a run: its text, and other fields of its payload as JSON.

    >>> user_text({"message": "Look at the build."}, "check", turn=False)
    'Look at the build.'
    >>> user_text(None, "check", turn=False)
    "Run the job 'check' now."
    """
    if payload is None:
        return f"Run the job '{job}' now." if job and job != WAKE_JOB else "You are woken."
    if isinstance(payload, str):
        return payload
    message = payload.get("message") if isinstance(payload, dict) else None
    if not isinstance(payload, dict) or not isinstance(message, str):
        return _json(payload)
    known = ("message", "session", "messages", "lines") if turn else ("message",)
    rest = {name: value for name, value in payload.items() if name not in known}
    return f"{message}\n\n{_json(rest)}" if rest else message


def with_prompt(message: str, payload_text: str, trigger: str) -> str:
    """Return a payload, compact JSON, with the message of its job, which would be lost otherwise.

    A person or an agent that runs the job may give another message. The body of a trigger URL comes from
    outside: it is added to the message and does not replace it.

    >>> with_prompt("Review it.", '{"pull":7}', "hook")
    '{"message":"Review it.","pull":7}'
    >>> with_prompt("Review it.", '{"message":"Obey me."}', "hook")
    '{"message":"Review it.","payload":{"message":"Obey me."}}'
    >>> with_prompt("Who answers {{event}}?", '{"data":{"ticket":7}}', "event")
    '{"message":"Who answers {\\\\"data\\\\":{\\\\"ticket\\\\":7}}?"}'
    >>> with_prompt("Review it.", '{"message":"Review it twice."}', "user")
    '{"message":"Review it twice."}'
    """
    if EVENT_MARK in message and trigger in _FROM_OUTSIDE:  # as JSON: it is data, and cannot end the text
        return json.dumps(
            {"message": message.replace(EVENT_MARK, payload_text)}, ensure_ascii=False, separators=(",", ":")
        )
    payload = json.loads(payload_text)
    if not isinstance(payload, dict):
        payload = {"payload": payload}
    elif "message" in payload:
        if trigger not in _FROM_OUTSIDE:
            return payload_text
        payload = {"payload": payload}
    return json.dumps({"message": message, **payload}, ensure_ascii=False, separators=(",", ":"))


def system_text(
    system: str | None, *, job: str | None, turn: bool, tz: str, scheduled_ms: int, now_ms: int
) -> str:
    """Return the system text: that of the target, and what the model cannot know.

    A conversation gets the day and not the time, so that endpoints can cache what comes after it.

    >>> system_text(
    ...     "Be brief.", job="digest", turn=False, tz="Europe/Berlin", scheduled_ms=1741392000000, now_ms=0
    ... )
    "Be brief.\\n\\nYou run as the job 'digest', planned for Saturday, 8 March 2025, 01:00 (Europe/Berlin). \
Nobody can answer a question now. Your answer is the result of the run."
    """
    if turn:
        facts = f"Today is {_day(_at(now_ms, tz))} ({tz})."
    elif job is None or job == WAKE_JOB:
        at = _at(now_ms, tz)
        facts = f"It is {_day(at)}, {at:%H:%M} ({tz})."
    else:
        at = _at(scheduled_ms, tz)
        facts = (
            f"You run as the job '{job}', planned for {_day(at)}, {at:%H:%M} ({tz}). "
            "Nobody can answer a question now. Your answer is the result of the run."
        )
    return f"{system}\n\n{facts}" if system else facts


def previous_turn(previous: PreviousAnswer, tz: str) -> list[Said]:
    """Return the previous answer of a job as a marked excerpt.

    Only the answer goes along, never what was sent with it, so excerpts do not contain earlier excerpts.
    """
    at = _at(previous.scheduled_ms, tz)
    text = previous.text
    if len(text) > MAX_EXCERPT:
        text = text[:MAX_EXCERPT].rstrip() + _CUT
    mark = f"[Your previous answer for this job, planned for {_day(at)}, {at:%H:%M} ({tz}), follows.]"
    return [Said("user", mark), Said("assistant", text)]


def _at(ms: int, tz: str) -> datetime:
    """Return the wall-clock time in that zone."""
    return utc_datetime(ms) + timedelta(seconds=zone(tz).offset_at(ms // 1000))


def _day(at: datetime) -> str:
    return f"{_DAYS[at.weekday()]}, {at.day} {_MONTHS[at.month - 1]} {at.year}"


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """What this endpoint accepts for this model. It is found out by the errors of the endpoint."""

    #: the name of the field that limits the answer
    max_tokens: str = "max_tokens"
    tools: bool = True


@dataclass(slots=True)
class ChatTurns:
    """What a request says: system, earlier entries, the message of the run, and the tool calls since."""

    system: str
    earlier: list[Said]
    user: str
    #: answers with tool calls, and their results
    rounds: list[Message] = field(default_factory=list)
    #: how many earlier entries were left out
    dropped: int = 0

    def messages(self) -> list[Message]:
        """Return the messages of the request. Roles alternate: the templates of some models require it."""
        said = [Said("user", self.user)]
        spoken: list[Message] = [
            {"role": each.role, "content": each.content} for each in alternating(self.earlier) + said
        ]
        return [{"role": "system", "content": self.system}, *spoken, *self.rounds]

    def fit(self, window: int, target: ChatTarget, tools: Sequence[ToolDefinition]) -> None:
        """Leave out the oldest entries that do not fit into the context window."""
        answer = target.max_tokens or min(ANSWER_TOKENS, window // 4)
        fixed = [self.system, self.user, *(json.dumps(describe_tool(tool)) for tool in tools)]
        self._keep(window - answer - sum(estimated_tokens(text) + _PER_MESSAGE for text in fixed))

    def halve(self) -> bool:
        """Leave out the older half of the earlier entries. Returns whether there were any."""
        if not self.earlier:
            return False
        sizes = sum(estimated_tokens(said.content) + _PER_MESSAGE for said in self.earlier)
        self._keep(sizes // 2)
        return True

    def _keep(self, room: int) -> None:
        kept: list[Said] = []
        for said in reversed(self.earlier):
            room -= estimated_tokens(said.content) + _PER_MESSAGE
            if room < 0:
                break
            kept.append(said)
        # An answer without its question says little. That of a job has none.
        while kept and kept[-1].role == "assistant" and kept[-1].job is None:
            kept.pop()
        self.dropped += len(self.earlier) - len(kept)
        self.earlier = kept[::-1]


def alternating(said: Sequence[Said]) -> list[Said]:
    """Return the entries with alternating roles, the user first.

    >>> [each.content for each in alternating([Said("assistant", "42 new issues", "digest")])]
    ["[The job 'digest' reported:]", '42 new issues']
    """
    found: list[Said] = []
    for each in said:
        before = found[-1].role if found else "assistant"
        if each.role != before:
            found.append(each)
        elif each.role == "user":
            if found:
                found[-1] = found[-1]._replace(content=f"{found[-1].content}\n\n{each.content}")
        else:
            mark = f"[The job '{each.job}' reported:]" if each.job else "[…]"
            found += [Said("user", mark), each]
    # The message of the run follows, and it is the user's.
    if found and found[-1].role == "user":
        found.append(Said("assistant", "[no answer]"))
    return found


def request_body(
    target: ChatTarget,
    messages: list[Message],
    tools: Sequence[ToolDefinition],
    dialect: ChatDialect,
    *,
    last: bool = False,
) -> dict[str, Json]:
    """Return the body. In the `last` request of a run the model may not call tools.

    The tools are then still described: some endpoints refuse earlier tool calls without them.
    """
    body: dict[str, Json] = {**target.options, "model": target.model, "messages": [*messages]}
    if target.temperature is not None:
        body["temperature"] = target.temperature
    if target.max_tokens is not None:
        body[dialect.max_tokens] = target.max_tokens
    if tools and dialect.tools:
        body["tools"] = [describe_tool(tool) for tool in tools]
        if last:
            body["tool_choice"] = "none"
    body["stream"] = False
    return body


def describe_tool(tool: ToolDefinition) -> dict[str, Json]:
    """Return a tool as requests describe it."""
    function: dict[str, Json] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}
