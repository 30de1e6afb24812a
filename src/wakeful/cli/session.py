"""What every command has: the options that say of whom it asks, and the client that asks.

A command is an async function of a session and its own arguments; `command` gives it the options that all
have, runs it, and makes of what it returns the exit code.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Concatenate, Final, ParamSpec

import typer

from wakeful.cli.output import Output
from wakeful.client import AsyncClient, tls
from wakeful.client.jobs import Jobs
from wakeful.client.runs import Runs
from wakeful.errors import InvalidArgument

P = ParamSpec("P")
Command = Callable[Concatenate["Session", P], Awaitable[int | None]]

_WHERE: Final = "Of whom"
KEY_PREFIX: Final = "wk_"
WorkspaceOption = Annotated[
    str,
    typer.Option("--workspace", envvar="WAKEFUL_WORKSPACE", rich_help_panel=_WHERE, help="the workspace"),
]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent", envvar="WAKEFUL_AGENT", rich_help_panel=_WHERE, help="the agent"),
]
ServerOption = Annotated[
    str | None,
    typer.Option("--server", envvar="WAKEFUL_URL", rich_help_panel=_WHERE, help="the server's address"),
]
CertOption = Annotated[
    str | None,
    typer.Option(
        "--cert",
        metavar="FILE",
        envvar=tls.CERT,
        rich_help_panel=_WHERE,
        help="a client certificate (PEM), where the server asks for one",
    ),
]
CertKeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="FILE",
        envvar=tls.KEY,
        rich_help_panel=_WHERE,
        help="its private key (PEM), unless it is in the same file",
    ),
]
CaOption = Annotated[
    str | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        envvar=tls.CA,
        rich_help_panel=_WHERE,
        help="the authorities to trust (PEM) instead of the system's",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="answer with JSON, and with nothing else")]

_COMMON: Final = (
    ("workspace", WorkspaceOption, "default"),
    ("agent", AgentOption, None),
    ("server", ServerOption, None),
    ("cert", CertOption, None),
    ("cert_key", CertKeyOption, None),
    ("ca", CaOption, None),
    ("as_json", JsonOption, False),
)


@dataclass(frozen=True, slots=True)
class Session:
    """One command: whom it asks, about whom, and where it speaks."""

    client: AsyncClient
    out: Output
    workspace: str
    #: the agent that was named; None: none was
    agent: str | None

    @property
    def all_agents(self) -> bool:
        """Whether lists go over all agents: unless one is named, they do."""
        return self.agent is None

    def job(self, name: str) -> tuple[Jobs, str]:
        """Where a job is: the jobs of its agent, and its name. `agent/name` says both."""
        agent, slash, rest = name.partition("/")
        if not slash:
            return self.jobs(), name
        if self.agent not in (None, agent):
            raise InvalidArgument(f"'{name}' is of the agent '{agent}', and --agent says '{self.agent}'")
        return self.jobs(agent), rest

    def jobs(self, agent: str | None = None) -> Jobs:
        """The jobs of an agent: this one, else the one that was named, else `default`."""
        return self.client.jobs.of(agent or self.agent or "default")

    def runs(self) -> Runs:
        """The runs of the agent that was named."""
        return self.client.runs.of(self.agent or "default")


def command(
    app: typer.Typer, name: str, *, panel: str | None = None, asks: bool = True
) -> Callable[[Command[P]], Command[P]]:
    """Make an async function a command of this name, with the options that all of them have.

    One that `asks` no server has none that say which.
    """

    def register(function: Command[P]) -> Command[P]:
        signature = inspect.signature(function, eval_str=True)
        own = list(signature.parameters.values())[1:]
        common = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for option, kind, default in _COMMON
            if asks or option == "as_json"
        ]
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own] + common

        def invoke(**given: object) -> int:
            return asyncio.run(_invoke(function, given))

        invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        invoke.__annotations__ = {each.name: each.annotation for each in parameters}
        invoke.__doc__ = function.__doc__
        app.command(name, rich_help_panel=panel)(invoke)
        return function

    return register


async def _invoke(function: Callable[..., Awaitable[int | None]], given: dict[str, object]) -> int:
    workspace, agent = str(given.pop("workspace", "default")), given.pop("agent", None)
    server, as_json = given.pop("server", None), bool(given.pop("as_json"))
    cert, cert_key, ca = (_text(given.pop(name, None)) for name in ("cert", "cert_key", "ca"))
    if cert_key is not None and cert_key.startswith(KEY_PREFIX):
        raise InvalidArgument("--key: it takes the file of a private key; an API key goes into WAKEFUL_KEY")
    client = AsyncClient(_text(server), workspace=workspace, cert=cert, cert_key=cert_key, ca=ca)
    async with client:
        session = Session(client, Output(as_json), workspace, str(agent) if agent else None)
        return await function(session, **given) or 0


def _text(value: object) -> str | None:
    return str(value) if value else None
