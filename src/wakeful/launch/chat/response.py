"""Reads what an endpoint answered, and counts what a run uses. Pure.

Endpoints that call themselves compatible differ: `usage` may be missing, `content` may be null or a list of
parts, the arguments of a tool call may be an object instead of text, its id may be empty, an error may come
with the status 200, at the top or inside the choice. All of these are read; what cannot be read is an
`EndpointError`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from wakeful.launch.chat.request import ANSWER_TOKENS, Message
from wakeful.run.conversations import estimated_tokens
from wakeful.run.usage import Spent, limit_usage
from wakeful.settings.chat import ChatModel
from wakeful.values.json_value import Json, compact

_SHOWN: Final = 300
#: More than any answer has. To parse a million values, or to read as many calls, would hold up the process.
_MAX_VALUES: Final = 250_000
_MAX_CALLS: Final = 128
#: The beginning and the end of reasoning that a local server left in the answer.
_THOUGHTS: Final = re.compile("<(/?)think(?:ing)?>")
_THOUGHTS_END: Final = re.compile("</think(?:ing)?>")
#: Fields of an answer that the same endpoint expects back in the next request of the turn.
_RETURNED: Final = ("reasoning_content", "reasoning", "reasoning_details")
_MAX_TOKENS: Final = 2**53
_MILLION: Final = 1_000_000


class EndpointError(NamedTuple):
    """The endpoint did not answer the request."""

    status: int | None
    message: str
    #: machine-readable names of the error, if it has any
    code: str = ""
    #: the field of the request that it is about
    param: str = ""
    #: what the endpoint counted nevertheless
    usage: TokenUsage | None = None


class TokenUsage(NamedTuple):
    """What the endpoint counted."""

    input: int
    output: int
    #: the part of the input that it had in its cache
    cached: int = 0
    #: in USD, where the endpoint states it
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class ChatToolCall:
    """A call that the model requests."""

    id: str
    name: str
    arguments: Mapping[str, object]
    #: why the arguments cannot be read
    problem: str | None = None

    @property
    def key(self) -> str:
        """Equal for equal calls, as the model wrote them: "in 20 minutes" is another time in a retry."""
        text = json.dumps([self.name, self.arguments], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the model."""

    text: str
    calls: tuple[ChatToolCall, ...]
    #: `stop`, `length`, `tool_calls`, `content_filter` …
    finish: str
    refusal: str | None
    usage: TokenUsage | None
    #: the message, as it goes back in the next request
    message: Message


def read_response(status: int, text: str, step: int = 0) -> Answer | EndpointError:
    """Return the answer of a response, or its error. `step` makes generated ids of tool calls unique."""
    if text.count(",") + text.count("{") > _MAX_VALUES:
        why = f"the response has more than {_MAX_VALUES} values"
        return EndpointError(status if status != 200 else None, why, "not_json")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return EndpointError(status if status != 200 else None, _not_json(status, text), "not_json")
    if isinstance(body, list) and len(body) == 1:  # Gemini wraps errors in a list
        (body,) = body
    if not isinstance(body, dict):
        return EndpointError(status if status != 200 else None, "the response is not an object", "not_json")
    found = _read_body(status, body, step)
    return found._replace(usage=_usage(body.get("usage"))) if isinstance(found, EndpointError) else found


def is_unread(error: EndpointError, text: str) -> bool:
    """Return whether a model answered, in a form that cannot be read: it was used.

    >>> stream, page = 'data: {"choices": []}', "<html></html>"
    >>> [is_unread(read_response(200, text), text) for text in (stream, page, '{"error": "busy"}')]
    [True, False, False]
    """
    unreadable = error.status is None and error.code in ("not_json", "no_choices")
    return unreadable and bool(text.strip()) and not text.lstrip().startswith("<")


def _read_body(status: int, body: Mapping[str, Json], step: int) -> Answer | EndpointError:
    if not 200 <= status < 300 or _is_error(body):
        return _error(status, body)
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return EndpointError(None, "the response has no choices", "no_choices")
    if isinstance(choice.get("error"), dict | str):
        return _error(status, choice)
    message = choice.get("message")
    if not isinstance(message, dict):
        return EndpointError(None, "the choice in the response has no message", "no_choices")
    answer = _text(message.get("content"))
    refusal = message.get("refusal")
    calls, returned_calls = _calls(message.get("tool_calls"), step)
    returned: Message = {"role": "assistant", "content": answer or None}
    if returned_calls:
        returned["tool_calls"] = returned_calls
    returned |= {name: message[name] for name in _RETURNED if message.get(name)}
    return Answer(
        text=_without_thoughts(answer),
        calls=calls,
        finish=str(choice.get("finish_reason") or "stop"),
        refusal=refusal if isinstance(refusal, str) and refusal.strip() else None,
        usage=_usage(body.get("usage")),
        message=returned,
    )


def _is_error(body: Mapping[str, Json]) -> bool:
    return bool(body.get("error")) or (body.get("object") == "error" and "choices" not in body)


def _error(status: int, body: Mapping[str, Json]) -> EndpointError:
    """Return the error of a response. Some endpoints send it with 200, and the real status as its code."""
    error = body.get("error")
    facts: Mapping[str, Json] = error if isinstance(error, dict) else body
    message = error if isinstance(error, str) else facts.get("message") or facts.get("detail")
    code = facts.get("code")
    number = _status(code)
    actual: int | None = status
    if 200 <= status < 300:
        actual = number if 400 <= number <= 599 else None
    names = [str(each) for each in (code, facts.get("type")) if isinstance(each, str)]
    shown = message if isinstance(message, str) and message.strip() else json.dumps(error or body)
    inner = _upstream(facts.get("metadata"))
    return EndpointError(actual, one_line(shown + inner), " ".join(names), str(facts.get("param") or ""))


def _upstream(metadata: Json) -> str:
    """Return what a router adds about the provider behind it."""
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    return f" ({raw})" if isinstance(raw, str) and raw.strip() else ""


def _status(code: Json) -> int:
    """Return the status that the code of an error names; 0 if it names none.

    >>> _status(429), _status("503"), _status("rate_limit"), _status(float("inf"))
    (429, 503, 0, 0)
    """
    if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3:
        return int(code)
    return int(code) if isinstance(code, int | float) and 0 < code < 1_000 else 0


def _not_json(status: int, text: str) -> str:
    beginning = one_line(text)[:100]
    if not beginning:
        return "the response is empty"
    if beginning.startswith("data:"):
        return "the response is a stream, which was not requested"
    if beginning.startswith("<"):
        return "the response is HTML; the url may not be the base URL of the API"
    if status >= 400:
        return beginning
    return f"the response is not JSON: {beginning}"


def one_line(text: str) -> str:
    """Return the beginning of a text in one line."""
    return " ".join(text[: 2 * _SHOWN].split())[:_SHOWN]


def _text(content: Json) -> str:
    """Return the text of a message.

    >>> (
    ...     _text([{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]),
    ...     _text(None),
    ... )
    ('ab', '')
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") if isinstance(part, dict) else part for part in content]
    return "".join(part for part in parts if isinstance(part, str))


def _without_thoughts(answer: str) -> str:
    """Return an answer without the reasoning at its beginning. Each character is searched once.

    The first tag may be missing: some templates end the prompt with it.

    >>> _without_thoughts("<think>Yes?</think> Yes."), _without_thoughts("Yes?</think> Yes.")
    ('Yes.', 'Yes.')
    >>> _without_thoughts("<think>Yes?"), _without_thoughts("Write <think> and </think>.")
    ('<think>Yes?', 'Write <think> and </think>.')
    """
    text = answer.lstrip()
    first = end = _THOUGHTS.search(text)
    if first is not None and not first[1]:
        end = _THOUGHTS_END.search(text, first.end()) if first.start() == 0 else None
    return text[end.end() :].lstrip() if end else answer


def _calls(value: Json, step: int) -> tuple[tuple[ChatToolCall, ...], list[Json]]:
    """Return the first tool calls, and the same as they go back to the endpoint."""
    calls: list[ChatToolCall] = []
    returned: list[Json] = []
    seen: set[str] = set()
    for number, item in enumerate(value[:_MAX_CALLS] if isinstance(value, list) else ()):
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(function, dict):
            continue
        given = item.get("id")
        id_ = given if isinstance(given, str) and given and given not in seen else f"call_{step}_{number}"
        seen.add(id_)
        name = str(function.get("name") or "")
        arguments, text, problem = _arguments(function.get("arguments"))
        calls.append(ChatToolCall(id_, name, arguments, problem))
        back: dict[str, Json] = {
            "id": id_,
            "type": "function",
            "function": {"name": name, "arguments": text},
        }
        if item.get("extra_content"):  # Gemini refuses the next request without it
            back["extra_content"] = item["extra_content"]
        returned.append(back)
    return tuple(calls), returned


def _arguments(value: Json) -> tuple[Mapping[str, object], str, str | None]:
    """Return the arguments, their text, and what is wrong with them."""
    if value is None or value == "":
        return {}, "{}", None
    if isinstance(value, dict):
        return value, json.dumps(value, ensure_ascii=False), None
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        parsed = json.loads(text)
        if isinstance(parsed, str):  # encoded twice
            parsed = json.loads(parsed)
    except (ValueError, RecursionError) as error:
        # Endpoints parse the arguments that they get back, so broken ones do not go back.
        return {}, "{}", f"the arguments are not valid JSON: {error}; send the call again"
    if not isinstance(parsed, dict):
        return {}, "{}", "the arguments are not a JSON object; send the call again"
    return parsed, text, None


def _usage(value: Json) -> TokenUsage | None:
    if not isinstance(value, dict):
        return None
    used = _first(value, ("prompt_tokens", "input_tokens"))
    made = _first(value, ("completion_tokens", "output_tokens"))
    total = _number(value.get("total_tokens"))
    cost = value.get("cost")
    stated = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < 1e9
    if used is None and made is None and total is None and not stated:
        return None
    used, made = used or 0, made or 0
    if total is not None and total > used + made:  # some leave the reasoning out of the parts
        made = total - used
    details = value.get("prompt_tokens_details")
    cached = _number(details.get("cached_tokens")) if isinstance(details, dict) else None
    if cached is None:
        cached = _number(value.get("prompt_cache_hit_tokens"))
    return TokenUsage(used, made, min(cached or 0, used), float(cost) if stated else None)  # type: ignore[arg-type]


def _first(value: Mapping[str, Json], names: Sequence[str]) -> int | None:
    return next((number for name in names if (number := _number(value.get(name))) is not None), None)


def _number(value: Json) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_TOKENS:
        return None
    return int(value)


class Spending:
    """The usage of a run, summed over its requests."""

    def __init__(self, model: ChatModel, window: int) -> None:
        self._model = model
        self.window = window
        self._input = self._output = 0
        self._cost: float | None = None
        self._context = 0
        self._estimated = False
        #: a request without a response so far: the model may be used
        self._sent: Mapping[str, Json] | None = None
        #: rounds of tool calls
        self.steps = 0
        #: earlier entries that were left out; None: there are none to leave out
        self.dropped: int | None = None

    def begin(self, body: Mapping[str, Json]) -> None:
        """Remember a request that is sent. `end` follows when there is a response, or none will come."""
        self._sent = body

    def end(self) -> None:
        """Forget the request."""
        self._sent = None

    def add_unanswered(self) -> bool:
        """Count the request that was sent and is not answered, if there is one. Returns whether there is."""
        if self._sent is None:
            return False
        self.add_unread(self._sent, "")
        self._sent = None
        return True

    def add(self, body: Mapping[str, Json], answer: Answer) -> None:
        """Count a request and its answer. What the endpoint does not count is estimated."""
        usage = answer.usage
        if usage is None or usage[:2] == (0, 0):
            usage = TokenUsage(
                _count_input(body),
                estimated_tokens(json.dumps(answer.message, ensure_ascii=False)),
                cost=None if usage is None else usage.cost,
            )
            self._estimated = True
        self.count(usage)

    def add_unread(self, body: Mapping[str, Json], text: str) -> None:
        """Count a request that was answered with something that cannot be read. All of it is estimated."""
        self._estimated = True
        self.count(TokenUsage(_count_input(body), estimated_tokens(text)))

    def count(self, usage: TokenUsage) -> None:
        """Count what the endpoint stated."""
        self._input += usage.input
        self._output += usage.output
        self._context = usage.input + usage.output
        cost = compute_cost(usage, self._model)
        if cost is not None:
            self._cost = (self._cost or 0) + cost

    @property
    def spent(self) -> Spent:
        """What the requests so far used."""
        return limit_usage(self._input + self._output, self._cost or 0.0)

    def estimate(self, body: Mapping[str, Json]) -> Spent:
        """Return what a request may use: its input, and the longest answer that it allows."""
        limits = (body.get("max_completion_tokens"), body.get("max_tokens"))
        answer = next((each for each in limits if isinstance(each, int) and each > 0), ANSWER_TOKENS)
        usage = TokenUsage(_count_input(body), answer)
        return limit_usage(usage.input + usage.output, compute_cost(usage, self._model) or 0.0)

    def report(self) -> str | None:
        """Return the usage as compact JSON; None if nothing was used."""
        if not self._input and not self._output and not self._cost:
            return None
        usage: dict[str, Json] = {
            "tokens": self._input + self._output,
            "inputTokens": self._input,
            "outputTokens": self._output,
        }
        if self._cost is not None:
            usage["cost"] = round(self._cost, 9)
        usage |= {"contextTokens": self._context, "contextWindow": self.window, "steps": self.steps}
        if self.dropped is not None:
            usage["dropped"] = self.dropped
        if self._estimated:
            usage["estimated"] = True
        return compact(usage)


def compute_cost(usage: TokenUsage, model: ChatModel) -> float | None:
    """Return the cost in USD: by the operator's prices, else what the endpoint states.

    >>> compute_cost(TokenUsage(1_000_000, 100_000), ChatModel(input=0.25, output=2))
    0.45
    """
    if model.input is None or model.output is None:
        return usage.cost
    cached = model.input if model.cached_input is None else model.cached_input
    fresh = usage.input - usage.cached
    return (fresh * model.input + usage.cached * cached + usage.output * model.output) / _MILLION


def _count_input(body: Mapping[str, Json]) -> int:
    said = json.dumps([body.get("messages"), body.get("tools")], ensure_ascii=False)
    return estimated_tokens(said)
