"""The operator's API keys of chat endpoints, and where each may be sent. Pure.

The author of a job chooses the URL. Without a list of hosts (`WAKEFUL_CHAT_HOSTS_NAME`), anyone who may
create a chat job could have a key sent to a server of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, cast

from yarl import URL

from wakeful.errors import InvalidArgument
from wakeful.settings import PREFIX

#: A longer name of an unknown key is not shown in errors.
_LONGEST_SHOWN: Final = 24
#: A shorter key is not searched for in texts of an endpoint: it could be part of ordinary text.
_SHORTEST_SECRET: Final = 8
_AZURE: Final = (".azure.com", ".azure.us", ".azure.cn")


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
