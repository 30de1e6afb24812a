"""Chat endpoints: the HTTP client, the keys that may be sent to each, and what an error means for a run.

The author of a job chooses the URL. Without a list of hosts (`WAKEFUL_CHAT_HOSTS_NAME`), anyone who may
create a chat job could have a key of the operator sent to a server of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Final, NamedTuple, cast

from yarl import URL

from wakeful.errors import InvalidArgument
from wakeful.launch.address_guard import AddressGuard, AddressRefused
from wakeful.launch.chat.request import ChatDialect
from wakeful.launch.chat.response import EndpointError
from wakeful.launch.http.client import HttpClient
from wakeful.launch.http.messages import HttpError, Response, connection_failure
from wakeful.launch.port import truncate
from wakeful.launch.webhook_response import MAX_RETRY_AFTER_MS, read_text, retry_after_ms
from wakeful.run.outcome import Failed
from wakeful.settings import PREFIX
from wakeful.values.clock import Clock
from wakeful.values.json_value import Json, compact
from wakeful.values.package import VERSION

#: A longer name of an unknown key is not shown in errors.
_LONGEST_SHOWN: Final = 24
#: A shorter key is not searched for in texts of an endpoint: it could be part of ordinary text.
_SHORTEST_SECRET: Final = 8
_AZURE: Final = (".azure.com", ".azure.us", ".azure.cn")

#: Statuses that a retry may change, besides 5xx.
_RETRIED: Final = frozenset({408, 409, 421, 423, 425, 429})
_OVERFLOW_CODES: Final = ("context_length", "context_window", "exceed_context_size", "prompt_too_long")
_OVERFLOW: Final = re.compile(
    r"context[ _-]?(length|window|size)|maximum (context|prompt|input) length|reduce the length"
    r"|(prompt|input|request) (is )?too (long|many tokens)|too many (input )?tokens|tokens? exceeds?"
    r"|exceeds? the (maximum|limit|max)\b.*\btokens?|longer than the (maximum|model)",
    re.IGNORECASE,
)
#: Statuses with which endpoints report an overflow; None: the error had none.
_OVERFLOW_STATUSES: Final = frozenset({None, 400, 413, 422, 500})
_RATE: Final = re.compile(r"per (minute|day|hour|second)|rate.?limit|\b[TR]P[MD]\b", re.IGNORECASE)
_NO_TOOLS: Final = re.compile(
    r"not support(ed)?.{0,20}\b(tool|function)|\b(tool|function)[ _-]?(use|call|calling|choice|s)?\b.{0,40}"
    r"(not supported|unsupported|not enabled|requires --)|support tool use",
    re.IGNORECASE,
)
#: The largest response that is read, in bytes, and the largest request: it has the answers of a turn.
MAX_RESPONSE: Final = 4 * 1024 * 1024
MAX_REQUEST: Final = 2 * MAX_RESPONSE
_CONNECTIONS: Final = 500


class ChatKeys:
    """The keys by name."""

    def __init__(
        self, keys: Mapping[str, str], hosts: Mapping[str, tuple[str, ...]], *, plain_http: bool = False
    ) -> None:
        self._keys = keys
        self._hosts = hosts
        #: whether keys without a list of hosts may be sent without TLS
        self._plain_http = plain_http

    def check(self, name: str | None, url: URL) -> None:
        """Raise InvalidArgument if there is no such key, or it may not be sent to that URL.

        >>> ChatKeys({"openai": "sk-1"}, {"openai": ("api.openai.com",)}).check(
        ...     "openai", URL("https://evil.example")
        ... )
        Traceback (most recent call last):
        wakeful.errors.InvalidArgument: target: the key 'openai' may not be sent to evil.example; the \
operator lists its hosts in WAKEFUL_CHAT_HOSTS_OPENAI
        """
        if name is None:
            return
        if name not in self._keys:
            raise InvalidArgument(_no_key(name))
        hosts = self._hosts.get(name)
        if hosts is None:
            if url.scheme != "https" and not self._plain_http:
                raise InvalidArgument(
                    f"target: the key '{name}' is sent over https only; the operator can allow this host "
                    f"with {setting('HOSTS', name)}"
                )
        elif not any(_is_host(url, host) for host in hosts):
            raise InvalidArgument(
                f"target: the key '{name}' may not be sent to {url.host}; the operator lists its hosts in "
                f"{setting('HOSTS', name)}"
            )

    def headers(self, name: str | None, url: URL) -> dict[str, str]:
        """Return the headers that authenticate a request. Raises InvalidArgument as `check` does."""
        if name is None:
            return {}
        self.check(name, url)
        headers = {"authorization": f"Bearer {self._keys[name]}"}
        if (url.host or "").endswith(_AZURE):
            headers = {"api-key": self._keys[name]}
        return headers

    def redact(self, text: str) -> str:
        """Return the text without any of the keys: an endpoint may repeat what it got."""
        for key in self._keys.values():
            if len(key) >= _SHORTEST_SECRET:
                text = text.replace(key, "***")
        return text

    def redact_json(self, value: Mapping[str, object]) -> Mapping[str, object]:
        """Return a JSON object without any of the keys."""
        text = json.dumps(value, ensure_ascii=False)
        safe = self.redact(text)
        return value if safe == text else cast(Mapping[str, object], json.loads(safe))


def setting(kind: str, name: str) -> str:
    """Return the environment variable of a key.

    >>> setting("KEY", "my-llm")
    'WAKEFUL_CHAT_KEY_MY_LLM'
    """
    return f"{PREFIX}CHAT_{kind}_{name.replace('-', '_').upper()}"


def _no_key(name: str) -> str:
    """Return the error for an unknown key. A name that may be an API key itself is not shown.

    >>> _no_key("openai")
    "target: there is no key 'openai'; the operator sets it as WAKEFUL_CHAT_KEY_OPENAI"
    """
    if len(name) > _LONGEST_SHOWN or name.startswith("sk-"):
        return (
            "target: there is no key of that name; give the name of an API key that the operator has set, "
            "such as 'openai' for WAKEFUL_CHAT_KEY_OPENAI; an API key itself is never part of a job"
        )
    return f"target: there is no key '{name}'; the operator sets it as {setting('KEY', name)}"


def _is_host(url: URL, pattern: str) -> bool:
    """Return whether a URL has this host: `api.openai.com`, `*.openai.azure.com` or `localhost:11434`."""
    host = (url.raw_host or "").lower().rstrip(".")
    name, colon, port = pattern.rpartition(":") if not pattern.endswith("]") else (pattern, "", "")
    if not colon:
        name, port = pattern, ""
    name = name.strip("[]")
    if port and port != str(url.port):
        return False
    return host.endswith(name[1:]) if name.startswith("*.") else host == name


def is_overflow(error: EndpointError) -> bool:
    """Return whether the request was larger than the context window of the model.

    >>> is_overflow(EndpointError(400, "This model's maximum context length is 8192 tokens."))
    True
    >>> is_overflow(EndpointError(429, "Request too large: tokens per minute exceeded"))
    False
    """
    if error.status not in _OVERFLOW_STATUSES:
        return False
    if any(code in error.code for code in _OVERFLOW_CODES):
        return True
    return bool(_OVERFLOW.search(error.message)) and not _RATE.search(error.message)


def choose_dialect(dialect: ChatDialect, error: EndpointError, *, tools: bool) -> ChatDialect | None:
    """Return the dialect that this error asks for; None if another one would not help.

    >>> error = EndpointError(400, "Unsupported parameter: 'max_tokens'", param="max_tokens")
    >>> choose_dialect(ChatDialect(), error, tools=False)
    ChatDialect(max_tokens='max_completion_tokens', tools=True)
    """
    if error.status not in (None, 400, 404, 422, 500, 501):
        return None
    about = f"{error.code} {error.message}".lower()
    renamed = "max_completion_tokens" in about or ("max_tokens" in about and "unsupported" in about)
    if renamed and dialect.max_tokens == "max_tokens":
        return ChatDialect("max_completion_tokens", dialect.tools)
    if tools and dialect.tools and _NO_TOOLS.search(error.message):
        return replace(dialect, tools=False)
    return None


def read_failure(error: EndpointError, *, key: str | None, retry_after_ms: int | None = None) -> Failed:
    """Return the failure: permanent where only a change of the job or of the settings helps."""
    status, sentence = error.status, error.message
    if is_overflow(error):
        return Failed(
            truncate(
                f"the message does not fit into the context window of the model: {sentence}; shorten it, or "
                "use a model with a larger window"
            ),
            permanent=True,
            reason="context_length",
            response_code=status,
        )
    if status is None:
        return Failed(truncate(f"the endpoint sent an unusable response: {sentence}"), reason="bad_response")
    text = f"{_phrase(status)}: {sentence}" if sentence else _phrase(status)
    if status in (401, 403):
        what = (
            f"check {setting('KEY', key)}"
            if key
            else "the target has no `key`; name one that the operator sets"
        )
        text = f"{text}; {what}"
    elif status == 404:
        text = f"{text}; check the url and the model of the target"
    elif 300 <= status < 400:
        text = f"{text}; redirects are not followed: set the final url"
    permanent = status < 500 and status not in _RETRIED
    return Failed(
        truncate(text),
        permanent=permanent,
        retry_after_ms=retry_after_ms,
        reason="http",
        response_code=status,
    )


def _phrase(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


class ChatReply(NamedTuple):
    """The response of an endpoint."""

    status: int
    text: str
    #: the delay that it requests
    retry_after_ms: int | None


class ChatEndpoint:
    """Posts requests to allowed addresses. `on_response` is called with each status, or None."""

    def __init__(
        self,
        guard: AddressGuard,
        clock: Clock,
        on_response: Callable[[int | None], None],
    ) -> None:
        self._guard = guard
        self._clock = clock
        self._on_response = on_response
        self._agent = f"wakeful/{VERSION}"
        self._client: HttpClient | None = None

    async def open(self) -> None:
        """Create the client."""
        self._client = HttpClient(self._guard, connections=_CONNECTIONS, per_host=_CONNECTIONS)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def check(self, url: URL) -> None:
        """Raise InvalidArgument for a host that can never be reached."""
        try:
            self._guard.check_host(url.raw_host or "")
        except AddressRefused as error:
            raise InvalidArgument(f"target: {error}") from error

    async def post(
        self,
        url: URL,
        headers: Mapping[str, str],
        body: dict[str, Json],
        on_sent: Callable[[], None] | None = None,
    ) -> ChatReply | Failed:
        """Post a request and return the response, or why there is none. `on_sent`: see `HttpClient`."""
        assert self._client is not None, "open() comes first"
        sent = {
            "content-type": "application/json",
            "accept": "application/json",
            "accept-encoding": "identity",
            "user-agent": self._agent,
            **headers,
        }
        try:
            self._guard.check_host(url.raw_host or "")  # for a clear error; the socket does the real check
            data = compact(body).encode("utf-8", "replace")
            if len(data) > MAX_REQUEST:
                return Failed(
                    f"the request is larger than {MAX_REQUEST // 1024} KB, with what the model has answered "
                    "in this turn",
                    permanent=True,
                    reason="context_length",
                )
            response = await self._client.request("POST", url, sent, data, MAX_RESPONSE, on_sent)
        except (HttpError, OSError) as error:
            self._on_response(None)
            return connection_failure(error)
        except ValueError as error:  # a header that cannot be sent
            return Failed(truncate(f"target: {error}"), permanent=True, reason="invalid_target")
        self._on_response(response.status)
        text = read_text(response, MAX_RESPONSE)
        if len(text) >= MAX_RESPONSE:
            return Failed(f"the response is larger than {MAX_RESPONSE // 1024} KB", reason="bad_response")
        return ChatReply(response.status, text, self._wait_ms(response))

    def _wait_ms(self, response: Response) -> int | None:
        exact = response.header(b"retry-after-ms") or ""
        if exact.isascii() and exact.isdigit() and len(exact) < 20:
            return min(int(exact), MAX_RETRY_AFTER_MS)
        return retry_after_ms(response.header(b"retry-after"), self._clock.now_ms())
