"""The body of a request: a conversation within the context window of the model. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from wakeful.job.job import Json
from wakeful.launch.chat.ports import Said, ToolDefinition
from wakeful.launch.chat.target import ChatTarget
from wakeful.run.conversations import estimated_tokens

#: The context window of a model of which none is stated.
DEFAULT_WINDOW: Final = 32_000
#: Kept free for the answer if the target has no `maxTokens`, but at most a quarter of the window; also what a
#: request then reserves for its answer under a budget.
ANSWER_TOKENS: Final = 4_096
#: What an endpoint adds to each message.
_PER_MESSAGE: Final = 8

Message = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What this endpoint accepts for this model. It is found out by the errors of the endpoint."""

    #: the name of the field that limits the answer
    max_tokens: str = "max_tokens"
    tools: bool = True


@dataclass(slots=True)
class Conversation:
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
        fixed = [self.system, self.user, *(json.dumps(function_of(tool)) for tool in tools)]
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
    dialect: Dialect,
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
        body["tools"] = [function_of(tool) for tool in tools]
        if last:
            body["tool_choice"] = "none"
    body["stream"] = False
    return body


def function_of(tool: ToolDefinition) -> dict[str, Json]:
    """Return a tool as requests describe it."""
    function: dict[str, Json] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def without_tools(dialect: Dialect) -> Dialect:
    """Return the dialect of a model that takes no tools."""
    return replace(dialect, tools=False)
