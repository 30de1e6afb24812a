"""Counts what a run uses: tokens, cost, and how full the context window is. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from wakeful.document.values import compact
from wakeful.job.job import Json
from wakeful.launch.chat.request import ANSWER_TOKENS
from wakeful.launch.chat.response import Answer, TokenUsage
from wakeful.run.conversations import estimated_tokens
from wakeful.run.usage import Spent, capped
from wakeful.settings.chat import ChatModel

_MILLION: Final = 1_000_000


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
        cost = cost_of(usage, self._model)
        if cost is not None:
            self._cost = (self._cost or 0) + cost

    @property
    def spent(self) -> Spent:
        """What the requests so far used."""
        return capped(self._input + self._output, self._cost or 0.0)

    def estimate(self, body: Mapping[str, Json]) -> Spent:
        """Return what a request may use: its input, and the longest answer that it allows."""
        limits = (body.get("max_completion_tokens"), body.get("max_tokens"))
        answer = next((each for each in limits if isinstance(each, int) and each > 0), ANSWER_TOKENS)
        usage = TokenUsage(_count_input(body), answer)
        return capped(usage.input + usage.output, cost_of(usage, self._model) or 0.0)

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


def cost_of(usage: TokenUsage, model: ChatModel) -> float | None:
    """Return the cost in USD: by the operator's prices, else what the endpoint states.

    >>> cost_of(TokenUsage(1_000_000, 100_000), ChatModel(input=0.25, output=2))
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
