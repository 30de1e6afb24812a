"""The operator's settings of chat endpoints: API keys by name, the hosts that may get them, and models.

WAKEFUL_CHAT_KEY_OPENAI=sk-…                  the key `openai`
WAKEFUL_CHAT_HOSTS_OPENAI=api.openai.com      it is sent to these hosts only
WAKEFUL_CHAT_MODELS={"gpt-5-mini": {"input": 0.25, "output": 2, "contextWindow": 400000}}
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from wakeful.errors import InvalidArgument

KEY: Final = "chat_key_"
HOSTS: Final = "chat_hosts_"
MODELS: Final = "chat_models"

_SLUG: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_HOST: Final = re.compile(
    r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9])?(:[0-9]{1,5})?|\[[0-9a-f:.]+\](:[0-9]{1,5})?"
)
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")
_PRICES: Final = ("input", "output", "cachedInput")
_MAX_PRICE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ChatModel:
    """What the operator states about a model: prices in USD per million tokens, and its context window."""

    input: float | None = None
    output: float | None = None
    #: the price of input tokens that the endpoint had in its cache; None: the price of other input
    cached_input: float | None = None
    context_window: int | None = None


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """The part of the settings about chat endpoints."""

    keys: Mapping[str, str]
    #: by the name of the key: the hosts that may get it
    hosts: Mapping[str, tuple[str, ...]]
    models: Mapping[str, ChatModel]


def is_chat(key: str) -> bool:
    """Return whether this is the name of a setting that this module reads.

    >>> is_chat("chat_key_openai"), is_chat("chat_models"), is_chat("channel_ops")
    (True, True, False)
    """
    return key.startswith((KEY, HOSTS)) or key == MODELS


def read_chat(values: Mapping[str, tuple[str, object]]) -> ChatSettings:
    """Read the settings: by key, the name for errors and the value. Errors do not contain API keys.

    >>> read_chat({"chat_key_my_llm": ("WAKEFUL_CHAT_KEY_MY_LLM", "sk-1")}).keys
    {'my-llm': 'sk-1'}
    """
    keys: dict[str, str] = {}
    hosts: dict[str, tuple[str, ...]] = {}
    models: dict[str, ChatModel] = {}
    for key, (name, value) in values.items():
        if key == MODELS:
            models = _models(name, value)
        elif key.startswith(HOSTS):
            hosts[_key_name(name, key.removeprefix(HOSTS))] = _hosts(name, value)
        else:
            keys[_key_name(name, key.removeprefix(KEY))] = _api_key(name, value)
    for key, (name, _) in values.items():
        if key.startswith(HOSTS) and _key_name(name, key.removeprefix(HOSTS)) not in keys:
            other = name.replace("CHAT_HOSTS_", "CHAT_KEY_").replace(HOSTS, KEY)
            raise InvalidArgument(f"{name}: there is no key of that name; set {other} too, or remove it")
    return ChatSettings(keys, hosts, models)


def _key_name(name: str, text: str) -> str:
    key = text.replace("_", "-")
    if not _SLUG.fullmatch(key) or len(key) > 64:
        raise InvalidArgument(f"{name}: '{key[:64]}' is not the name of a key; use a-z, 0-9 and _")
    return key


def _api_key(name: str, value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not _PRINTABLE.fullmatch(text):
        raise InvalidArgument(f"{name}: set the API key of the endpoint: printable ASCII without spaces")
    return text


def _hosts(name: str, value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else str(value).split(",")
    hosts = tuple(part.strip().lower() for part in map(str, parts) if part.strip())
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise InvalidArgument(
                f"{name}: '{host[:100]}' is not a host; write api.openai.com, *.openai.azure.com or "
                "localhost:11434, without https://"
            )
    if not hosts:
        raise InvalidArgument(f"{name}: name at least one host, such as api.openai.com")
    return hosts


def _models(name: str, value: object) -> dict[str, ChatModel]:
    example = '{"gpt-5-mini": {"input": 0.25, "output": 2}}'
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except ValueError as error:
            raise InvalidArgument(f"{name}: it is not JSON ({error}); write {example}") from error
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{name}: it is not an object; write {example}")
    return {str(model): _model(f"{name}: {model}", facts) for model, facts in value.items()}


def _model(name: str, facts: object) -> ChatModel:
    if not isinstance(facts, Mapping):
        raise InvalidArgument(f'{name}: it is not an object; write {{"input": 0.25, "output": 2}}')
    unknown = sorted(str(key) for key in facts if key not in (*_PRICES, "contextWindow"))
    if unknown:
        raise InvalidArgument(
            f"{name}: it has no '{unknown[0][:64]}'; it has {', '.join(_PRICES)} and contextWindow"
        )
    prices = {price: _price(f"{name}: {price}", facts.get(price)) for price in _PRICES}
    if (prices["input"] is None) != (prices["output"] is None):
        raise InvalidArgument(f"{name}: give both input and output, in USD per million tokens")
    window = facts.get("contextWindow")
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise InvalidArgument(f"{name}: contextWindow: give a number of tokens, such as 128000")
    return ChatModel(prices["input"], prices["output"], prices["cachedInput"], window)


def _price(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidArgument(f"{name}: give a price in USD per million tokens, such as 0.25")
    if not 0 <= value <= _MAX_PRICE:
        raise InvalidArgument(f"{name}: give a price from 0 to {_MAX_PRICE} USD per million tokens")
    return float(value)
