"""The options, client and output that every command shares.

A command is an async function of a `CliSession` and its own arguments. The decorator `command` adds the
shared options, runs the function and turns its result into the exit code.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Concatenate, Final, ParamSpec

import typer

from wakeful.cli.arguments import check_given
from wakeful.cli.help import HelpCommand, HelpGroup
from wakeful.cli.output import Output
from wakeful.cli.unknown_names import NamedObject, UnknownName, add_suggestion, check_new_agents
from wakeful.client import tls
from wakeful.client.rest import RestClient
from wakeful.errors import InvalidArgument, NotFound, Unavailable, WakefulError
from wakeful.values.ids import is_id

P = ParamSpec("P")
#: What remains to be done after the event loop of the command has ended; returns the exit code.
Afterwards = Callable[[], int]
Command = Callable[Concatenate["CliSession", P], Awaitable[int | Afterwards | None]]

_CONNECTION: Final = "Connection"
KEY_PREFIX: Final = "wk_"
WorkspaceOption = Annotated[
    str,
    typer.Option(
        "--workspace", envvar="WAKEFUL_WORKSPACE", rich_help_panel=_CONNECTION, help="the workspace"
    ),
]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent", envvar="WAKEFUL_AGENT", rich_help_panel=_CONNECTION, help="the agent"),
]
ServerOption = Annotated[
    str | None,
    typer.Option("--server", envvar="WAKEFUL_URL", rich_help_panel=_CONNECTION, help="the server's URL"),
]
CertOption = Annotated[
    str | None,
    typer.Option(
        "--cert",
        metavar="FILE",
        envvar=tls.CERT,
        rich_help_panel=_CONNECTION,
        help="the client certificate (PEM), if the server requires one",
    ),
]
CertKeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="FILE",
        envvar=tls.KEY,
        rich_help_panel=_CONNECTION,
        help="the certificate's private key (PEM), unless it is in the same file",
    ),
]
CaOption = Annotated[
    str | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        envvar=tls.CA,
        rich_help_panel=_CONNECTION,
        help="the CA certificates to trust (PEM) instead of the system's",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print only JSON")]

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
class CliSession:
    """One call of a command: its client, output, workspace and agent."""

    client: RestClient
    out: Output
    workspace: str
    #: the agent of --agent; None if the option is absent
    agent: str | None
    #: the agents and jobs that the command named so far; an error about one suggests similar names
    named: list[NamedObject] = field(default_factory=list, compare=False)

    @property
    def own_agent(self) -> str:
        """The agent of --agent, else the agent `default`."""
        return self.agent or "default"

    @property
    def agent_option(self) -> bool:
        """Whether --agent names the agent, and not only WAKEFUL_AGENT."""
        return self.agent is not None and self.agent != os.environ.get("WAKEFUL_AGENT")

    async def find_job(self, name: str) -> tuple[str, str]:
        """Return the agent of a job, and the job's name or id.

        `agent/name` gives both. Without an agent, an id is of any agent, and a name of the agent `default`:
        if several agents have it, the error lists them.
        """
        agent, slash, rest = name.partition("/")
        if not agent or (slash and not rest):
            raise InvalidArgument(f"'{name}' names no job; write its name, agent/name or id")
        if slash and self.agent not in (None, agent):
            raise InvalidArgument(f"'{name}' names the agent '{agent}', but --agent is '{self.agent}'")
        named = NamedObject(agent, rest) if slash else NamedObject(self.own_agent, name)
        self.named.append(named)
        if slash or self.agent is not None:
            return named.agent, named.job or name
        try:
            job = await self.out.wait_for(self.client.find_job(name))
        except NotFound:
            if is_id(name):
                raise
            return self.own_agent, name  # the command itself reports the unknown name
        own = job["agentId"] == "default" or job["id"] == name or await self._is_own_agent(job["agentId"])
        if not own:
            raise UnknownName(
                f"no job '{name}' of the agent 'default'; did you mean '{job['agentId']}/{name}'?"
            )
        return job["agentId"], job["name"]

    def split_filter(self, job: str | None) -> tuple[str | None, str | None]:
        """Return the agent and the job of the filters `--agent` and `--job`."""
        agent, slash, name = (job or "").partition("/")
        if not slash:
            return self.agent, job
        if self.agent not in (None, agent):
            raise InvalidArgument(f"'{job}' names the agent '{agent}', but --agent is '{self.agent}'")
        return agent, name

    async def check_filter(self, agent: str | None, job: str | None) -> None:
        """Raise NotFound if a list is empty because no job has this name or id."""
        if job is None:
            return
        self.named.append(NamedObject(agent or self.own_agent, job))
        try:
            await (self.client.find_job(job) if agent is None else self.client.get_job(agent, job))
        except NotFound:
            raise
        except WakefulError:  # several agents have a job of this name
            pass

    async def _is_own_agent(self, agent: str) -> bool:
        """Return whether the key is limited to this agent."""
        return (await self.client.get_status()).get("agentId") == agent

    def named_agent(self, name: str) -> str:
        """Return the name of an agent that an argument gives."""
        self.named.append(NamedObject(name))
        return name

    async def check_agents(self, *agents: str, create: bool) -> None:
        """Raise NotFound if an agent (of --agent, or these) is unknown and resembles one that exists.

        With `create`, its jobs create it nevertheless. A command that saves jobs calls this first.
        """
        await check_new_agents(self.client, agents or [self.own_agent], create=create)

    async def add_suggestion(self, error: NotFound, *names: str) -> NotFound:
        """Return the error with names that resemble the unknown one, if there are any.

        With `names`, it is about one of these jobs; else about any name of the command.
        """
        named = self.named
        if names:
            own = [(self.own_agent, name) for name in names]
            named = [
                NamedObject(*(name.split("/", 1) if "/" in name else (agent, name))) for agent, name in own
            ]
        if self.agent:
            named = [*named, NamedObject(self.agent)]
        return await add_suggestion(self.client, error, named)


def command_group(
    app: typer.Typer, name: str, help_text: str, *, panel: str, cls: type[HelpGroup] = HelpGroup
) -> typer.Typer:
    """Add a group of commands, such as `wakeful keys`, and return it."""
    group = typer.Typer(cls=cls, help=help_text, no_args_is_help=True)
    app.add_typer(group, name=name, rich_help_panel=panel)
    return group


def command(
    app: typer.Typer,
    name: str,
    *,
    examples: Sequence[str],
    panel: str | None = None,
    calls_server: bool = True,
    options: Sequence[inspect.Parameter] = (),
) -> Callable[[Command[P]], Command[P]]:
    """Register an async function as a command, with the shared options and examples for its help.

    Without `calls_server` it gets only --json, and no connection options. It gets the values of `options` as
    keyword arguments. It returns its exit code, or a function that is called outside of the event loop.
    """

    def register(function: Command[P]) -> Command[P]:
        signature = inspect.signature(function, eval_str=True)
        own = [
            each
            for each in list(signature.parameters.values())[1:]
            if each.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        common = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for option, kind, default in _COMMON
            if calls_server or option == "as_json"
        ]
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        parameters = [*options, *parameters, *common]

        def invoke(**options: object) -> int:
            result = asyncio.run(_invoke(function, options))
            return result if isinstance(result, int) else result()

        invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        invoke.__annotations__ = {each.name: each.annotation for each in parameters}
        invoke.__doc__ = function.__doc__
        epilog = "\n".join(["Examples:", *(f"  {example}" for example in examples)])
        app.command(name, cls=HelpCommand, epilog=epilog, rich_help_panel=panel)(invoke)
        return function

    return register


async def _invoke(
    function: Callable[..., Awaitable[int | Afterwards | None]], options: dict[str, object]
) -> int | Afterwards:
    workspace, agent = str(options.pop("workspace", "default")), options.pop("agent", None)
    server, as_json = options.pop("server", None), bool(options.pop("as_json"))
    check_given("--agent", agent)
    check_given("--server", server)
    cert, cert_key, ca = (_text(options.pop(name, None)) for name in ("cert", "cert_key", "ca"))
    if cert_key is not None and cert_key.startswith(KEY_PREFIX):
        raise InvalidArgument("--key takes the file of a private key; set an API key as WAKEFUL_KEY")
    client = RestClient(_text(server), workspace=workspace, cert=cert, cert_key=cert_key, ca=ca)
    async with client:
        session = CliSession(client, Output(as_json), workspace, _text(agent))
        try:
            return await function(session, **options) or 0
        except NotFound as error:
            raise await session.add_suggestion(error) from error
        except KeyError as error:  # of a response: commands read their fields by name
            raise Unavailable(
                f"{client.url} responded, but not as Wakeful does: there is no {error}; check the address"
            ) from error


def _text(value: object) -> str | None:
    return str(value) if value else None
