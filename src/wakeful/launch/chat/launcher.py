"""Chat targets: a turn of a model at an OpenAI-compatible endpoint.

    {"kind": "chat", "url": "https://api.openai.com/v1", "model": "gpt-5-mini", "key": "openai"}

The message of the run is sent with what was said before (`continuity`). The model may call the tool `cron` of
its agent, in at most `maxSteps` rounds. Its answer is the output of the run. Every outcome, failed ones too,
reports the tokens that the attempt used.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from wakeful.errors import InvalidArgument, Unavailable, WakefulError
from wakeful.launch.address_guard import AddressGuard
from wakeful.launch.budgets import BudgetGate
from wakeful.launch.chat.endpoint import (
    ChatEndpoint,
    ChatKeys,
    choose_dialect,
    is_overflow,
    read_failure,
)
from wakeful.launch.chat.request import (
    DEFAULT_WINDOW,
    ChatDialect,
    ChatTools,
    ChatTurns,
    Conversations,
    Message,
    Said,
    ToolDefinition,
    previous_turn,
    request_body,
    system_text,
    user_text,
)
from wakeful.launch.chat.response import (
    Answer,
    ChatToolCall,
    EndpointError,
    Spending,
    is_unread,
    read_response,
)
from wakeful.launch.chat.target import ChatTarget, read_chat_target
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, MAX_OUTPUT, Launch, launch_ids, truncate
from wakeful.logs import get_logger
from wakeful.run.conversations import find_continuity, job_session
from wakeful.run.outcome import Failed, Outcome, Skipped, Succeeded
from wakeful.settings import Settings
from wakeful.settings.chat import ChatModel
from wakeful.values.clock import Clock
from wakeful.values.json_value import Json

#: The most tool calls that are performed in one round.
MAX_CALLS: Final = 16
#: The largest result of a tool call that goes to the model, in bytes.
MAX_RESULT: Final = 32 * 1024
#: How long before the timeout of the attempt it ends by itself, so that its usage is recorded.
_MARGIN_MS: Final = 500
_CUT_OFF: Final = "\n[cut off: the answer reached its limit of tokens]"
_DIALECTS: Final = 1_000
#: Seconds at the end to write what stopped runs have used.
_COUNT_S: Final = 3.0

log = get_logger("wakeful.launch.chat")


class ChatLauncher:
    """Sends runs to models. `tools` and `conversations` are set by the process that has the services."""

    kind = "chat"
    default_timeout_ms = DEFAULT_TIMEOUT_MS

    def __init__(
        self, endpoint: ChatEndpoint, keys: ChatKeys, models: Mapping[str, ChatModel], clock: Clock
    ) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._models = models
        self._clock = clock
        #: what models may call; None: nothing
        self.tools: ChatTools | None = None
        #: what was said before; None: nothing
        self.conversations: Conversations | None = None
        #: reserves what requests of runs under a budget may use; None: there are no budgets
        self.budget: BudgetGate | None = None
        #: what endpoints accept, by workspace, URL and model: a cache
        self._dialects: OrderedDict[tuple[str, str, str], ChatDialect] = OrderedDict()
        self._counting: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Open the HTTP client."""
        await self._endpoint.open()

    async def close(self) -> None:
        """Close the HTTP client, and write what stopped runs have used."""
        if self._counting:
            await asyncio.wait(self._counting, timeout=_COUNT_S)
        await self._endpoint.close()

    def check(self, target: Mapping[str, Json]) -> None:
        """Raise InvalidArgument for a target that is invalid, or whose key may not be sent there."""
        chat = read_chat_target(target)
        self._endpoint.check(chat.url)
        self._keys.check(chat.key, chat.url)

    async def start(self, run: Launch) -> Outcome:
        """Send the message of the run, perform the tool calls of the model, and return its answer."""
        try:
            target = read_chat_target(run.target)
        except InvalidArgument as error:
            return Failed(truncate(error.message), permanent=True, reason="invalid_target")
        try:
            headers = self._keys.headers(target.key, target.url)
        except InvalidArgument as error:
            return Failed(truncate(error.message), reason="chat_key")
        model = self._models.get(target.model) or self._models.get("*") or ChatModel()
        spending = Spending(model, target.context_window or model.context_window or DEFAULT_WINDOW)
        limit_ms = run.timeout_ms or self.default_timeout_ms
        try:
            async with asyncio.timeout((limit_ms - min(_MARGIN_MS, limit_ms // 10)) / 1000) as limit:
                outcome = await self._turn(run, target, headers, spending)
        except TimeoutError:
            if not limit.expired():
                raise
            spending.add_unanswered()
            outcome = Failed(f"timed out after {limit_ms / 1000:g} s", reason="timeout")
        except asyncio.CancelledError:
            if spending.add_unanswered():
                self._count(run, spending)
            raise
        except Unavailable as error:
            outcome = Failed(truncate(error.message), reason="unavailable", counted=False)
        except WakefulError as error:
            outcome = Failed(truncate(error.message), reason="history_unreadable")
        if isinstance(outcome, Skipped):
            return outcome
        if isinstance(outcome, Failed):
            outcome = outcome._replace(error=self._keys.redact(outcome.error))
        elif outcome.output is not None:
            outcome = outcome._replace(output=self._keys.redact(outcome.output))
        return outcome._replace(usage=spending.report())

    async def _turn(
        self, run: Launch, target: ChatTarget, headers: Mapping[str, str], spending: Spending
    ) -> Succeeded | Failed | Skipped:
        tools = self.tools.definitions() if self.tools and target.tools and target.max_steps else ()
        conversation = await self._conversation(run, target)
        if conversation.earlier:
            conversation.fit(spending.window, target, tools)
            spending.dropped = conversation.dropped
        headers = {
            **headers,
            "x-wakeful-run-id": run.id,
            "x-wakeful-attempt": str(run.attempt),
            "traceparent": run.traceparent or launch_ids(run.idempotency_key, run.attempt).traceparent(),
        }
        trimmed, made = False, Counter[str]()
        while True:
            last = spending.steps >= target.max_steps
            answer = await self._ask(run, target, headers, conversation, tools, spending, last=last)
            if isinstance(answer, Skipped):
                return answer
            if isinstance(answer, EndpointError | Failed):
                overflow = isinstance(answer, EndpointError) and is_overflow(answer)
                if overflow and not trimmed and conversation.halve():
                    trimmed = True
                    spending.dropped = conversation.dropped
                    log.info("chat.trimmed", **run.log_fields, dropped=conversation.dropped)
                    continue
                return answer if isinstance(answer, Failed) else read_failure(answer, key=target.key)
            if not answer.calls or last or not tools:
                return _outcome(answer, target, acted=bool(conversation.rounds))
            said = [*conversation.messages(), answer.message]
            refused = await self._reserve(run, spending, request_body(target, said, tools, ChatDialect()))
            if refused is not None:
                return refused
            spending.steps += 1
            results = await self._perform(run, answer.calls, made)
            conversation.rounds += [answer.message, *results]

    async def _conversation(self, run: Launch, target: ChatTarget) -> ChatTurns:
        session = run.session
        turn = session is not None
        continuity = find_continuity(run, run.job, turn=turn)
        tz, earlier = "UTC", list[Said]()
        if self.conversations is not None:
            tz = await self.conversations.zone(run)
            if continuity == "session" or (continuity == "output" and turn):
                said = await self.conversations.history(run, session or job_session(str(run.job)))
                # Of a conversation, `output` is its last answer.
                earlier = list(said) if continuity == "session" else list(said[-2:])
            elif continuity == "output":
                previous = await self.conversations.previous_answer(run)
                earlier = previous_turn(previous, tz) if previous else []
        system = system_text(
            target.system,
            job=run.job,
            turn=turn,
            tz=tz,
            scheduled_ms=run.scheduled_ms,
            now_ms=self._clock.now_ms(),
        )
        return ChatTurns(system, earlier, user_text(run.payload, run.job, turn=turn))

    async def _reserve(
        self, run: Launch, spending: Spending, body: Mapping[str, Json]
    ) -> Failed | Skipped | None:
        """Reserve what a request may use, if the run has a budget. Returns the outcome of a run that ends."""
        if not run.budgeted or self.budget is None:
            return None
        return await self.budget.reserve(run, spending.spent, spending.estimate(body))

    def _count(self, run: Launch, spending: Spending) -> None:
        """Count in the background what a stopped run has used, if it has a budget."""
        if not run.budgeted or self.budget is None:
            return
        counting = asyncio.get_running_loop().create_task(self.budget.count(run, spending.spent))
        self._counting.add(counting)
        counting.add_done_callback(partial(self._end_count, run))

    def _end_count(self, run: Launch, counting: asyncio.Task[None]) -> None:
        self._counting.discard(counting)
        error = None if counting.cancelled() else counting.exception()
        if error is not None:
            log.warning("chat.not_counted", **run.log_fields, error=str(error))

    async def _ask(
        self,
        run: Launch,
        target: ChatTarget,
        headers: Mapping[str, str],
        conversation: ChatTurns,
        tools: Sequence[ToolDefinition],
        spending: Spending,
        *,
        last: bool,
    ) -> Answer | EndpointError | Failed | Skipped:
        """Send a request, and again in another dialect if the endpoint asks for it."""
        place = run.workspace, str(target.url), target.model  # the options of its jobs can cause the error
        while True:
            dialect = self._dialects.get(place, ChatDialect())
            body = request_body(target, conversation.messages(), tools, dialect, last=last)
            refused = await self._reserve(run, spending, body)
            if refused is not None:
                return refused
            reply = await self._endpoint.post(target.url, headers, body, partial(spending.begin, body))
            if isinstance(reply, Failed):  # cut off, too large, or no HTTP: the model was used if it was sent
                spending.add_unanswered()
                return reply
            spending.end()
            answer = read_response(reply.status, reply.text, spending.steps)
            if isinstance(answer, Answer):
                spending.add(body, answer)
                return answer
            if answer.usage is not None:
                spending.count(answer.usage)
            elif is_unread(answer, reply.text):
                spending.add_unread(body, reply.text)
            other = choose_dialect(dialect, answer, tools="tools" in body)
            if other is None or other == dialect:
                if is_overflow(answer):
                    return answer
                return read_failure(answer, key=target.key, retry_after_ms=reply.retry_after_ms)
            log.info("chat.adapted", host=target.url.host, model=target.model, error=answer.message)
            self._dialects[place] = other
            while len(self._dialects) > _DIALECTS:
                self._dialects.popitem(last=False)

    async def _perform(self, run: Launch, calls: Sequence[ChatToolCall], made: Counter[str]) -> list[Message]:
        """Perform tool calls in order and return their results as messages. `made` counts equal ones."""
        assert self.tools is not None
        names = {tool.name for tool in self.tools.definitions()}
        results: list[Message] = []
        for number, call in enumerate(calls):
            if number >= MAX_CALLS:
                result = f"not performed: at most {MAX_CALLS} calls at once; call it again"
            elif call.problem is not None:
                result = call.problem
            elif call.name not in names:
                result = f"there is no tool '{call.name[:64]}'; there is {', '.join(sorted(names))}"
            else:
                made[call_key := call.key] += 1
                arguments = self._keys.redact_json(call.arguments)  # they are stored with a job
                result = await self.tools.call(run, call.name, arguments, f"{call_key}:{made[call_key]}")
            results.append({"role": "tool", "tool_call_id": call.id, "content": truncate(result, MAX_RESULT)})
        return results


def chat_launcher(
    settings: Settings, guard: AddressGuard, clock: Clock, on_response: Callable[[int | None], None]
) -> ChatLauncher:
    """Return the launcher with the keys and models of the settings. `on_response` gets each status."""
    keys = ChatKeys(settings.chat_keys, settings.chat_hosts, plain_http=guard.allow_private)
    return ChatLauncher(ChatEndpoint(guard, clock, on_response), keys, settings.chat_models, clock)


def _outcome(answer: Answer, target: ChatTarget, *, acted: bool) -> Succeeded | Failed:
    """Return the outcome of the last answer. `acted`: the model has called tools before."""
    text = answer.text.strip()
    refused = partial(Failed, permanent=True, response_code=200)
    if answer.refusal is not None and not text:
        return refused(truncate(f"the model refused: {answer.refusal}"), reason="refused")
    if answer.finish == "content_filter":
        why = "the endpoint removed the answer (content_filter); change the message"
        return refused(why, reason="content_filter")
    if answer.finish == "length":
        if not text:
            what = "raise maxTokens" if target.max_tokens else "set a larger maxTokens"
            why = f"the answer reached its limit of tokens before it had any text; {what}"
            return refused(why, reason="answer_length")
        return Succeeded(truncate(text, MAX_OUTPUT - len(_CUT_OFF)) + _CUT_OFF, response_code=200)
    if text:
        return Succeeded(truncate(text), response_code=200)
    if answer.calls:
        why = f"the model still called tools after {target.max_steps} rounds (maxSteps)"
        return refused(why, reason="max_steps")
    if acted:  # it did what it was to do, and had nothing to add
        return Succeeded(None, response_code=200)
    return Failed("the model sent an empty answer", reason="empty_answer", response_code=200)
