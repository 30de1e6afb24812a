"""`wakeful keys`, `channels`, `subscriptions` and `audit`: API keys, channels, MCP events, the audit log."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Mapping
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import CreateAgent, Cursor, Limit, now_ms
from wakeful.cli.concurrency import full_page
from wakeful.cli.exit_codes import NOT_DONE, OK
from wakeful.cli.help import DefaultCommandGroup
from wakeful.cli.output import compact, escape, first_line
from wakeful.cli.session import CliSession, command, command_group
from wakeful.cli.tables import Column, ResourceTable
from wakeful.cli.times import instant, relative, relative_text, span
from wakeful.client.types import ChannelShape, DeliveryShape, EntryShape, KeyShape, SubscriptionShape
from wakeful.model import Page
from wakeful.values.plural import plural

#: What the outcome of a test message means, and its colour.
_OUTCOMES: Final = {
    "accepted": ("the service accepted the message", "green"),
    "not_sent": ("the message was not sent", "red"),
    "unknown": ("the message may have arrived: the service did not respond", "yellow"),
}
_COLOURS: Final = {"delivered": "green", "accepted": "green", "failed": "red", "not_delivered": "red"}


def register(app: typer.Typer) -> None:
    """Register the commands."""

    _register_keys(app)
    _register_channels(app)
    _register_subscriptions(app)
    _register_audit(app)


def _register_keys(app: typer.Typer) -> None:
    group = command_group(
        app,
        "keys",
        "API keys: create, list, revoke, export.",
        panel="Administration",
        cls=DefaultCommandGroup,
    )

    @command(
        group,
        "create",
        examples=(
            "wakeful keys create ci",
            "wakeful keys create bot --agent writer --expires 2030-01-01T00:00:00Z",
        ),
    )
    async def create(
        s: CliSession,
        name: Annotated[str, typer.Argument(metavar="NAME", help="the owner or purpose of the key")],
        role: Annotated[str, typer.Option("--role", help="admin, member or agent")] = "member",
        expires: Annotated[
            str | None, typer.Option("--expires", metavar="TIME", help="as in 2030-01-01T00:00:00Z")
        ] = None,
        create_agent: CreateAgent = False,
    ) -> None:
        """Create a key. It is shown only once. With --agent, the key is limited to that agent."""
        role = "agent" if s.agent and role == "member" else role
        # The server refuses an admin's key with an agent; WAKEFUL_AGENT alone does not ask for one.
        agent = s.agent if role == "agent" or s.agent_option else None
        if role == "agent" and agent is not None:
            await s.check_agents(create=create_agent)
        key = await s.out.wait_for(s.client.create_key(name=name, role=role, agent=agent, expires_at=expires))
        s.out.show(
            key,
            Text("key  ", "bold").append(str(key.get("key", "")), "green"),
            Text("     store it now: it is not shown again. The CLI reads it from WAKEFUL_KEY", "dim"),
        )

    @command(group, "list", examples=("wakeful keys list",))
    async def list_keys(s: CliSession) -> None:
        """Show the keys of the workspace, without their secrets. `list` may be left out."""
        keys = await s.out.wait_for(s.client.list_keys())
        s.out.show({"keys": keys}, KEYS.render(keys, now_ms()))

    @command(group, "env", examples=("wakeful keys env",))
    async def env(s: CliSession) -> None:
        """Print the URL and the key that this command line uses, as variables for a shell.

        Use it as `eval "$(wakeful keys env)"`: then curl and other programs can use $WAKEFUL_URL and
        $WAKEFUL_KEY. The server is asked first, so the key is valid.
        """
        await s.out.wait_for(s.client.get_status())
        variables = {"WAKEFUL_URL": s.client.url, "WAKEFUL_KEY": s.client.key or ""}
        s.out.show(
            variables, *(Text(f"export {name}={shlex.quote(value)}") for name, value in variables.items())
        )

    @command(group, "revoke", examples=("wakeful keys revoke 01980000-0000-7000-8000-000000000000",))
    async def revoke(
        s: CliSession,
        key_id: Annotated[str, typer.Argument(metavar="KEY", help="the key's id from `wakeful keys list`")],
    ) -> None:
        """Revoke a key, effective at once."""
        await s.out.wait_for(s.client.revoke_key(key_id))
        s.out.show({"revoked": key_id}, Text(f"revoked {key_id}", "green"))


def _key_state(key: KeyShape, now_ms: int) -> Text:
    if key["revokedAt"]:
        return Text("revoked", "red")
    expires = instant(key["expiresAt"])
    if expires is not None and expires <= now_ms:
        return Text("expired", "yellow")
    return Text("valid" if expires is None else f"expires {relative(expires, now_ms)}", "green")


KEYS: Final = ResourceTable[KeyShape](
    Column("KEY", "id", "dim"),
    Column("NAME", "name"),
    Column("ROLE", lambda key, _: key["role"] + (f" {key['agent']}" if key["agent"] else "")),
    Column("WORKSPACE", lambda key, _: key["workspace"] or "all workspaces"),
    Column("CREATED", "createdAt"),
    Column("BY", lambda key, _: key["createdByName"] or key["createdBy"], wide=True),
    Column("USED", lambda key, now_ms: relative_text(key["lastUsedAt"], now_ms) or "never"),
    Column("STATE", _key_state),
    elastic=["NAME"],
)


def _register_channels(app: typer.Typer) -> None:
    group = command_group(
        app,
        "channels",
        "Channels that output and alerts go to: list, test.",
        panel="Administration",
        cls=DefaultCommandGroup,
    )

    @command(group, "list", examples=("wakeful channels list", "wakeful channels list --json"))
    async def list_channels(s: CliSession) -> None:
        """Show the channels and the recent deliveries. `list` may be left out. Requires an admin's key."""
        found = await s.out.wait_for(s.client.list_channels())
        shown: list[RenderableType] = [Text("no channels; set WAKEFUL_CHANNEL_NAME on the server", "dim")]
        if found["channels"]:
            shown = [CHANNELS.render(found["channels"], now_ms())]
        if found["deliveries"]:
            shown += ["", DELIVERIES.render(found["deliveries"], now_ms())]
        s.out.show(found, *shown)

    @command(
        group,
        "test",
        examples=("wakeful channels test team-ops", "wakeful channels test telegram --to 12345678"),
    )
    async def test(
        s: CliSession,
        name: Annotated[str, typer.Argument(metavar="NAME", help="the channel's name")],
        to: Annotated[
            str | None, typer.Option("--to", help="the recipient, if the channel takes one")
        ] = None,
    ) -> int:
        """Send a test message and wait for the result. The exit code is 0 only if it is accepted.

        At most six a minute for each channel. Requires an admin's key.
        """
        result = await s.out.wait_for(s.client.test_channel(name, to=to), "waiting for the service")
        text, colour = _OUTCOMES[result["outcome"]]
        why = f": {escape(result['error']).plain}" if result["error"] else ""
        s.out.show(result, Text(f"{text}{why} ({span(result['durationMs'])})", colour))
        return OK if result["outcome"] == "accepted" else NOT_DONE


CHANNELS: Final = ResourceTable[ChannelShape](
    Column("CHANNEL", "name", "bold"),
    Column("KIND", "kind"),
    Column("TAKES RECIPIENT", "takesRecipient"),
    Column("LAST 24 H", lambda channel, _: _delivery_counts(channel["deliveries"])),
)


def _delivery_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {state}" for state, number in counts.items()) or "none"


DELIVERIES: Final = ResourceTable[DeliveryShape](
    Column("RUN", "runId", "dim"),
    Column("JOB", lambda delivery, _: f"{delivery['agentId']}/{delivery['job'] or '—'}"),
    Column("CHANNEL", "channel"),
    Column("TO", "to"),
    Column("STATE", lambda delivery, _: Text(delivery["state"], _COLOURS.get(delivery["state"], ""))),
    Column("ATTEMPT", "attempt"),
    Column("WHEN", "at"),
    Column("ERROR", lambda delivery, _: Text(first_line(delivery["error"]), "red")),
)


def _register_subscriptions(app: typer.Typer) -> None:
    group = command_group(
        app,
        "subscriptions",
        "Subscriptions to MCP events: list, end.",
        panel="Administration",
        cls=DefaultCommandGroup,
    )

    @command(group, "list", examples=("wakeful subscriptions list",))
    async def list_subscriptions(s: CliSession, limit: Limit = 50, cursor: Cursor = None) -> None:
        """Show who is subscribed to what, and the newest delivery of each. `list` may be left out."""
        found = await s.out.wait_for(s.client.list_subscriptions(agent=s.agent, limit=limit, cursor=cursor))
        none = Text("no subscriptions; assistants subscribe at /mcp", "dim")
        s.out.show_page("subscriptions", found, SUBSCRIPTIONS.render(found, now_ms()), none=none)

    @command(group, "end", examples=("wakeful subscriptions end sub_0123456789abcdef0123456789abcdef",))
    async def end(
        s: CliSession, id_: Annotated[str, typer.Argument(metavar="ID", help="the id of the subscription")]
    ) -> None:
        """End a subscription and cancel its waiting deliveries."""
        await s.out.wait_for(s.client.end_subscription(id_))
        s.out.show({"id": id_, "ended": True}, Text(f"ended {id_}", "green"))


SUBSCRIPTIONS: Final = ResourceTable[SubscriptionShape](
    Column("ID", "id", "dim"),
    Column("EVENT", "event", "bold"),
    Column("BY", lambda row, _: row["principalName"] or row["principal"]),
    Column("CALLBACK", "url"),
    Column("STATE", lambda row, _: f"ended: {row['reason']}" if row["endedAt"] else "active"),
    Column("UNTIL", lambda row, now_ms: relative_text(row["expiresAt"], now_ms) or "—"),
    Column("LAST DELIVERY", lambda row, now_ms: _last_delivery(row, now_ms)),
    elastic=["CALLBACK"],
)


def _last_delivery(row: SubscriptionShape, now_ms: int) -> str:
    return f"{row['lastState']} {relative_text(row['lastAt'], now_ms)}" if row["lastState"] else "none"


def _register_audit(app: typer.Typer) -> None:
    group = command_group(
        app, "audit", "The audit log: list, verify.", panel="Administration", cls=DefaultCommandGroup
    )

    @command(group, "list", examples=("wakeful audit list --limit 10", "wakeful audit list --action key"))
    async def list_entries(
        s: CliSession,
        actor: Annotated[
            str | None, typer.Option("--actor", help="only of this actor, such as key:ID")
        ] = None,
        action: Annotated[
            str | None, typer.Option("--action", help="only this action, or this kind, such as job")
        ] = None,
        subject: Annotated[
            str | None, typer.Option("--subject", help="only about this subject, such as agent/job")
        ] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> None:
        """Show the audit log, newest first. `list` may be left out."""

        def fetch(size: int, after: str | None) -> Awaitable[Page[EntryShape]]:
            return s.client.list_audit(actor=actor, action=action, subject=subject, limit=size, cursor=after)

        entries = await s.out.wait_for(full_page(fetch, limit, cursor))
        none = "no entry matches" if actor or action or subject else "the audit log is empty"
        s.out.show_page("entries", entries, ENTRIES.render(entries, now_ms()), none=Text(none, "dim"))

    @command(group, "verify", examples=("wakeful audit verify",))
    async def verify(s: CliSession) -> int:
        """Verify the hash chain of the audit log. The exit code is 1 if it is broken."""
        found = await s.out.wait_for(s.client.verify_audit(), "verifying the hash chain")
        flaw, count = found.get("flaw"), found.get("count", 0)
        entries = plural(count, "entry", "entries")
        shown = (
            Text(
                f"{entries} verified: none was changed, removed or reordered",
                "green",
            )
            if flaw is None
            else Text(f"the hash chain is broken: {flaw}", "red")
        )
        s.out.show(found, shown)
        return exit_codes.OK if flaw is None else exit_codes.NOT_DONE


ENTRIES: Final = ResourceTable[EntryShape](
    Column("SEQ", "seq"),
    Column("WHEN", "at"),
    Column("ACTOR", lambda entry, _: entry["actorName"] or entry["actor"]),
    Column("ACTION", "action", "bold"),
    Column("SUBJECT", lambda entry, _: entry["subjectName"] or entry["subject"]),
    Column("DETAILS", lambda entry, _: compact(entry["details"]) if entry["details"] else ""),
    Column("ADDRESS", "address"),
    elastic=["DETAILS"],
)
