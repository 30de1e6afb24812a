"""`wakeful agents`: list, show, put, set, rotate-secret, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, cast

import typer
from rich.table import Table
from rich.text import Text

from wakeful.cli.arguments import (
    AgentName,
    CreateAgent,
    Unset,
    check_given,
    json_argument,
    now_ms,
    split_pair,
)
from wakeful.cli.help import DefaultCommandGroup
from wakeful.cli.output import compact, page
from wakeful.cli.pages import secret
from wakeful.cli.session import CliSession, command, command_group
from wakeful.cli.tables import Column, ResourceTable
from wakeful.client.types import AgentShape
from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json

#: The fields of an agent that are text; the others are JSON.
_TEXT_FIELDS: Final = frozenset({"tz", "channel", "to", "description", "approval", "evolution"})


def register(app: typer.Typer) -> None:
    """Register the commands."""

    group = command_group(
        app,
        "agents",
        "Agents: list, show, put, set, rotate-secret, delete.",
        panel="Administration",
        cls=DefaultCommandGroup,
    )

    @command(group, "list", examples=("wakeful agents list",))
    async def list_agents(s: CliSession) -> None:
        """Show the agents of the workspace. `list` may be left out."""
        agents = await s.out.wait_for(s.client.list_agents())
        s.out.show({"agents": agents}, AGENTS.render(agents, now_ms()))

    @command(group, "show", examples=("wakeful agents show writer",))
    async def show(s: CliSession, name: AgentName) -> None:
        """Show an agent."""
        agent = await s.out.wait_for(s.client.get_agent(s.named_agent(name)))
        s.out.show(agent, agent_page(agent))

    @command(
        group,
        "put",
        examples=(
            "wakeful agents put writer --tz Europe/Berlin --url https://example.com/agent",
            "wakeful agents put writer --tz Europe/Berlin --url https://example.com/agent --inactive",
        ),
    )
    async def put(
        s: CliSession,
        name: AgentName,
        tz: Annotated[
            str | None, typer.Option("--tz", help="the time zone of its jobs that set none")
        ] = None,
        url: Annotated[str | None, typer.Option("--url", help="the webhook that its jobs call")] = None,
        target: Annotated[str | None, typer.Option("--target", metavar="JSON")] = None,
        channel: Annotated[
            str | None, typer.Option("--channel", help="the channel that run output is delivered to")
        ] = None,
        to: Annotated[str | None, typer.Option("--to", help="the recipient in the channel")] = None,
        description: Annotated[str | None, typer.Option("--description")] = None,
        active: Annotated[bool | None, typer.Option("--active/--inactive")] = None,
        budget: Annotated[
            str | None,
            typer.Option("--budget", metavar="JSON", help="as in '{\"tokensPerDay\": 200000}'"),
        ] = None,
        alerts: Annotated[
            str | None,
            typer.Option("--alerts", metavar="JSON", help="where alerts about failing jobs are sent"),
        ] = None,
        queue: Annotated[
            str | None, typer.Option("--queue", metavar="JSON", help="the message queue of its sessions")
        ] = None,
        heartbeat: Annotated[
            str | None,
            typer.Option("--heartbeat", metavar="JSON", help="the heartbeat job's settings, or true"),
        ] = None,
        deliver_to: Annotated[
            str | None,
            typer.Option(
                "--deliver-to", metavar="JSON", help="further channels that its keys may deliver to"
            ),
        ] = None,
        approval: Annotated[
            str | None,
            typer.Option("--approval", help="'required': its jobs wait until a person resumes them"),
        ] = None,
        self_scheduling: Annotated[
            str | None,
            typer.Option(
                "--self-scheduling", metavar="JSON", help="bounds of the jobs that it makes for itself"
            ),
        ] = None,
        evolution: Annotated[
            str | None,
            typer.Option("--evolution", help="suggest: analyze its jobs for better settings; off (default)"),
        ] = None,
        create_agent: CreateAgent = False,
    ) -> None:
        """Create an agent, or replace all its fields: those that are not given are removed."""
        await s.check_agents(name, create=create_agent)
        check_given("--url", url)
        if url and target:
            raise InvalidArgument("--url and --target are 2 targets; give one of them")
        target_json = await json_argument("--target", target)
        fields: dict[str, Json] = {
            "tz": tz,
            "target": {"kind": "webhook", "url": url} if url else target_json,
            "channel": channel,
            "to": to,
            "description": description,
            "active": active,
            "budget": await json_argument("--budget", budget),
            "alerts": await json_argument("--alerts", alerts),
            "queue": await json_argument("--queue", queue),
            "heartbeat": await json_argument("--heartbeat", heartbeat),
            "evolution": evolution,
            "deliverTo": await json_argument("--deliver-to", deliver_to),
            "approval": approval,
            "selfScheduling": await json_argument("--self-scheduling", self_scheduling),
        }
        agent = await s.out.wait_for(
            s.client.put_agent(name, {key: value for key, value in fields.items() if value is not None})
        )
        _show_saved(s, agent)

    @command(
        group,
        "set",
        examples=(
            "wakeful agents set writer active=false",
            "wakeful agents set writer tz=Europe/Berlin budget='{\"tokensPerDay\": 200000}'",
            "wakeful agents set writer --unset heartbeat",
        ),
    )
    async def set_fields(
        s: CliSession,
        name: AgentName,
        fields: Annotated[
            list[str] | None,
            typer.Argument(metavar="[FIELD=VALUE]...", help="text, or the JSON of a field that is not text"),
        ] = None,
        unset: Unset = None,
    ) -> None:
        """Change fields of an agent. All its other fields stay."""
        from wakeful.values.json_value import camel

        patch: dict[str, Json] = {}
        for key, text in (split_pair("agents set", each) for each in fields or ()):
            field = camel(key)
            patch[field] = text if field in _TEXT_FIELDS else await json_argument(field, text)
        patch |= dict.fromkeys((camel(field) for field in unset or ()), None)
        if not patch:
            raise InvalidArgument(
                "nothing to change; write FIELD=VALUE, as in active=false, or --unset FIELD"
            )
        agent = await s.out.wait_for(s.client.update_agent(s.named_agent(name), patch))
        _show_saved(s, agent)

    @command(group, "rotate-secret", examples=("wakeful agents rotate-secret writer",))
    async def rotate_secret(s: CliSession, name: AgentName) -> None:
        """Replace the secret of the agent's webhook. For a day, requests are signed with both."""
        agent = await s.out.wait_for(s.client.rotate_agent_secret(s.named_agent(name)))
        s.out.show(agent, *secret(agent))

    @command(group, "delete", examples=("wakeful agents delete writer",))
    async def delete(s: CliSession, name: AgentName) -> None:
        """Delete an agent that has no jobs. Its internal jobs are deleted with it."""
        await s.out.wait_for(s.client.delete_agent(s.named_agent(name)))
        s.out.show({"deleted": name}, Text(f"deleted {name}", "green"))


def _show_saved(s: CliSession, agent: AgentShape) -> None:
    s.out.show(agent, Text(f"saved {agent['name']}", "green"), *secret(agent))
    s.out.print_warnings(agent.get("warnings", ()))


AGENTS: Final = ResourceTable[AgentShape](
    Column("AGENT", "name", "bold"),
    Column("STATE", lambda a, _: Text("active", "green") if a["active"] else Text("not active", "yellow")),
    Column("ZONE", "tz"),
    Column("TARGET", lambda agent, _: "pull" if agent["target"] is None else compact(agent["target"])),
    Column("CHANNEL", "channel"),
    Column("SINCE", "createdAt"),
    elastic=["TARGET"],
)


def agent_page(agent: AgentShape) -> Table:
    """Return a page with all fields of an agent."""
    return page(dict(_flat(cast(Mapping[str, Json], agent))))


def _flat(fields: Mapping[str, Json], prefix: str = "") -> list[tuple[str, str]]:
    flat: list[tuple[str, str]] = []
    for name, value in fields.items():
        if isinstance(value, dict):
            flat += _flat(value, f"{prefix}{name} ")
        elif isinstance(value, float):
            flat.append((prefix + name, f"{value:g}"))
        elif value is not None:
            flat.append((prefix + name, compact(value)))
    return flat
