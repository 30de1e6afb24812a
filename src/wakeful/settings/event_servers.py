"""The operator's MCP servers whose events start jobs (`on`): addresses, credentials, and who may use them.

WAKEFUL_EVENT_SERVER_CRM=https://crm.example.com/mcp   the server `crm`
WAKEFUL_EVENT_KEY_CRM=…                                its bearer token
WAKEFUL_EVENT_AGENTS_CRM=support, acme/sales           only jobs of these agents get its events
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from wakeful.errors import InvalidArgument

SERVER: Final = "event_server_"
KEY: Final = "event_key_"
AGENTS: Final = "event_agents_"

_SLUG: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_URL: Final = re.compile(r"https?://[^\s/?#@]+(/[^\s#]*)?")
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_AGENT: Final = re.compile(r"([a-z0-9-]+/)?([a-z0-9-]+|\*)")


@dataclass(frozen=True, slots=True)
class EventServer:
    """An MCP server."""

    url: str
    #: its bearer token
    key: str | None = field(default=None, repr=False)
    #: agents, as `agent` in any workspace or `workspace/agent`; None: all
    agents: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return self.url.partition("?")[0]

    def admits(self, workspace: str, agent: str) -> bool:
        """Return whether jobs of this agent may get its events.

        >>> EventServer("https://a.example/mcp", agents=("support", "acme/*")).admits("acme", "sales")
        True
        """
        names = agent, f"{workspace}/{agent}", f"{workspace}/*", "*"
        return self.agents is None or any(name in self.agents for name in names)


def is_event_server(key: str) -> bool:
    """Return whether this is the name of a setting that this module reads."""
    return key.startswith((SERVER, KEY, AGENTS))


def setting_name(server: str) -> str:
    """Return the name of the setting that adds a server.

    >>> setting_name("my-crm")
    'WAKEFUL_EVENT_SERVER_MY_CRM'
    """
    return f"WAKEFUL_{SERVER.upper()}{server.upper().replace('-', '_')}"


def refusal(servers: Mapping[str, EventServer], server: str, workspace: str, agent: str) -> str | None:
    """Return why jobs of an agent get no events of a server, and what to do; None: they may get them.

    >>> refusal({}, "crm", "default", "support")
    "this process has no event server 'crm'; the operator sets it with WAKEFUL_EVENT_SERVER_CRM"
    """
    known = servers.get(server)
    name = setting_name(server)
    if known is None:
        return f"this process has no event server '{server}'; the operator sets it with {name}"
    if known.admits(workspace, agent):
        return None
    name = name.replace(SERVER.upper(), AGENTS.upper())
    return f"agent '{agent}' may not get events of '{server}'; the operator allows it with {name}"


def read_event_servers(values: Mapping[str, tuple[str, object]]) -> dict[str, EventServer]:
    """Read the settings: by key, the name for errors and the value. Errors do not contain credentials.

    >>> read_event_servers({"event_server_my_crm": ("…", "https://crm.example.com/mcp")})
    {'my-crm': EventServer(url='https://crm.example.com/mcp', agents=None)}
    """
    urls: dict[str, str] = {}
    keys: dict[str, str] = {}
    agents: dict[str, tuple[str, ...]] = {}
    for key, (name, value) in values.items():
        if key.startswith(SERVER):
            urls[_server(name, key.removeprefix(SERVER))] = _url(name, value)
        elif key.startswith(KEY):
            keys[_server(name, key.removeprefix(KEY))] = _token(name, value)
        else:
            agents[_server(name, key.removeprefix(AGENTS))] = _agents(name, value)
    for server in sorted({*keys, *agents} - urls.keys()):
        raise InvalidArgument(
            f"{setting_name(server)}: set the address of this server, such as https://…/mcp"
        )
    return {server: EventServer(url, keys.get(server), agents.get(server)) for server, url in urls.items()}


def _server(name: str, text: str) -> str:
    server = text.replace("_", "-")
    if not _SLUG.fullmatch(server) or len(server) > 64:
        raise InvalidArgument(f"{name}: '{server[:64]}' is not the name of a server; use a-z, 0-9 and _")
    return server


def _url(name: str, value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not _URL.fullmatch(text):
        raise InvalidArgument(f"{name}: set the URL of an MCP server, such as https://crm.example.com/mcp")
    return text


def _token(name: str, value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not _TOKEN.fullmatch(text):
        raise InvalidArgument(f"{name}: set the bearer token of the server: printable ASCII without spaces")
    return text


def _agents(name: str, value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else str(value).split(",")
    agents = tuple(part.strip() for part in map(str, parts) if part.strip())
    for agent in agents:
        if not _AGENT.fullmatch(agent):
            raise InvalidArgument(f"{name}: '{agent[:64]}' is not an agent; write agent or workspace/agent")
    if not agents:
        raise InvalidArgument(f"{name}: name at least one agent, or remove the setting to allow all")
    return agents
