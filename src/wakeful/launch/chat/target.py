"""The fields of a chat target, validated. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn, get_args

from yarl import URL

from wakeful.document.fields import MAX_URL
from wakeful.errors import InvalidArgument
from wakeful.job.job import Continuity, check_slug
from wakeful.values.json_value import Json, quote

FIELDS: Final = (
    "url", "model", "system", "key", "temperature", "maxTokens", "contextWindow", "continuity", "maxSteps",
    "tools", "options",
)  # fmt: skip
#: Fields of a request that a target cannot set in `options`.
RESERVED: Final = frozenset(
    {
        "messages", "model", "stream", "stream_options", "tools", "tool_choice", "functions", "function_call",
        "n", "temperature", "max_tokens", "max_completion_tokens",
    }
)  # fmt: skip
DEFAULT_STEPS: Final = 8
MAX_STEPS: Final = 50
_MIN_WINDOW: Final = 512
_MAX_TOKENS: Final = 10_000_000
_MAX_MODEL: Final = 256
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f]")
_COMPLETIONS: Final = "/chat/completions"


@dataclass(frozen=True, slots=True)
class ChatTarget:
    """A target, read from its JSON."""

    #: the URL of requests
    url: URL
    model: str
    system: str | None = None
    #: the name of an API key in the operator's settings; None: requests have none
    key: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    context_window: int | None = None
    continuity: Continuity | None = None
    #: the most rounds of tool calls
    max_steps: int = DEFAULT_STEPS
    tools: bool = True
    #: further fields of the request
    options: Mapping[str, Json] = field(default_factory=dict)


def read_chat_target(target: Mapping[str, Json]) -> ChatTarget:
    """Return the target. Raises InvalidArgument that names the field.

    >>> str(read_chat_target({"kind": "chat", "url": "https://api.openai.com/v1", "model": "gpt-5-mini"}).url)
    'https://api.openai.com/v1/chat/completions'
    """
    unknown = sorted(target.keys() - {"kind", *FIELDS})
    if unknown:
        _refuse(f"a chat target has no field '{unknown[0][:64]}'; it has {', '.join(FIELDS)}")
    steps = _whole(target, "maxSteps", 0, MAX_STEPS)
    tools = target.get("tools")
    if not isinstance(tools, bool | None):
        _refuse("tools: write true or false; true offers the tool `cron` to the model")
    continuity = target.get("continuity")
    if continuity not in (None, *get_args(Continuity)):
        _refuse(f"continuity: it is {', '.join(get_args(Continuity))}")
    return ChatTarget(
        url=completions_url(target.get("url")),
        model=_text(target, "model", _MAX_MODEL, "such as 'gpt-5-mini'") or _refuse("a chat needs a model"),
        system=_text(target, "system", None, "such as 'You are a helpful assistant.'"),
        key=_key(target.get("key")),
        temperature=_temperature(target.get("temperature")),
        max_tokens=_whole(target, "maxTokens", 1, _MAX_TOKENS),
        context_window=_whole(target, "contextWindow", _MIN_WINDOW, _MAX_TOKENS),
        continuity=continuity,  # type: ignore[arg-type]
        max_steps=DEFAULT_STEPS if steps is None else steps,
        tools=tools is not False,
        options=_options(target.get("options")),
    )


def completions_url(value: Json) -> URL:
    """Return the URL of requests: of a base URL, or one that ends in `/chat/completions`.

    >>> str(completions_url("http://localhost:11434"))
    'http://localhost:11434/v1/chat/completions'
    >>> str(completions_url("https://me.openai.azure.com/openai/deployments/gpt?api-version=2024-10-21"))
    'https://me.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2024-10-21'
    """
    example = "such as 'https://api.openai.com/v1'"
    if not isinstance(value, str):
        _refuse(f"a chat needs the url of an endpoint, {example}")
    if len(value) > MAX_URL:
        _refuse(f"the url has {len(value)} characters; at most {MAX_URL}")
    if _UNPRINTABLE.search(value):
        _refuse(f"{quote(value)} has a space or a control character in it; write a url {example}")
    try:
        url = URL(value)
        valid = url.scheme in ("http", "https") and bool(url.raw_host) and bool(url.port)
    except ValueError:
        valid = False
    if not valid:
        _refuse(f"'{value[:200]}' is not an http or https URL; write one {example}")
    if url.user is not None or url.password is not None:
        _refuse("the url has a user in it; set `key` to the name of an API key of the operator instead")
    path = url.raw_path.rstrip("/")
    if not path.endswith(_COMPLETIONS):
        path = f"{path or '/v1'}{_COMPLETIONS}"
    return url.with_path(path, encoded=True, keep_query=True, keep_fragment=False)


def _text(target: Mapping[str, Json], name: str, limit: int | None, example: str) -> str | None:
    value = target.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        _refuse(f"{name}: write text, {example}")
    if limit is not None and len(value) > limit:
        _refuse(f"{name}: it has {len(value)} characters; at most {limit}")
    return value


def _key(value: Json) -> str | None:
    if value is None:
        return None
    try:
        return check_slug(value if isinstance(value, str) else "", "key")
    except InvalidArgument:
        # The value is not shown: it may be an API key.
        _refuse(
            "key: give the name of an API key that the operator has set, such as 'openai' for "
            "WAKEFUL_CHAT_KEY_OPENAI; an API key itself is never part of a job"
        )


def _temperature(value: Json) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2:
        _refuse("temperature: give a number from 0 to 2")
    return value


def _whole(target: Mapping[str, Json], name: str, low: int, high: int) -> int | None:
    value = target.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        _refuse(f"{name}: give a whole number from {low} to {high}")
    return value


def _options(value: Json) -> Mapping[str, Json]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        _refuse('options: write an object with further fields of the request, such as {"top_p": 0.9}')
    for name in value:
        if name in RESERVED:
            _refuse(f"options: a job cannot set '{name}' there; use the fields of the target")
    return value


def _refuse(sentence: str) -> NoReturn:
    raise InvalidArgument(f"target: {sentence}")
