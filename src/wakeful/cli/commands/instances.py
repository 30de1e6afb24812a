"""`wakeful instances`: list, show, start, stop, pause, resume, hibernate, delete."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli.arguments import AgentName, Cursor, Limit, json_argument, now_ms, read_stdin
from wakeful.cli.exit_codes import exit_code
from wakeful.cli.help import DefaultCommandGroup
from wakeful.cli.output import first_line, page, print_error
from wakeful.cli.pages import job_table
from wakeful.cli.selection import confirm_sentence
from wakeful.cli.session import CliSession, command, command_group
from wakeful.cli.tables import Column, ResourceTable
from wakeful.cli.times import moment_text
from wakeful.client.instances import delete_all
from wakeful.client.types import InstanceDelayShape, InstanceFailureShape, InstanceShape
from wakeful.errors import InvalidArgument, Unavailable, WakefulError
from wakeful.values.json_value import Json
from wakeful.values.plural import plural

InstanceId = Annotated[str, typer.Argument(metavar="ID", help="the instance (default: default)")]
_STATUS: Final = {
    "active": "green", "paused": "yellow", "blocked": "red", "stopped": "magenta", "deleting": "magenta",
}  # fmt: skip
#: How many instances one request starts, and how many bytes it has.
_AT_ONCE: Final = 1_000
_BYTES: Final = 200_000


def register(app: typer.Typer) -> None:
    """Register the commands."""
    group = command_group(
        app,
        "instances",
        "Instances of agents: list, show, start, stop, pause, resume, hibernate, delete.",
        panel="Administration",
        cls=DefaultCommandGroup,
    )

    @command(
        group,
        "list",
        examples=(
            "wakeful instances list",
            "wakeful instances list daily-report --status blocked",
        ),
    )
    async def list_instances(
        s: CliSession,
        name: Annotated[str | None, typer.Argument(metavar="AGENT", help="only those of this agent")] = None,
        status: Annotated[
            str | None,
            typer.Option("--status", help="only those with this status, such as blocked"),
        ] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> None:
        """Show the instances of an agent, or of all agents. `list` may be left out."""
        agent = name or s.agent
        if agent is not None:
            s.named_agent(agent)
        found = await s.out.wait_for(
            s.client.list_all_instances(agent=agent, status=status, limit=limit, cursor=cursor)
        )
        s.out.show_page("instances", found, INSTANCES.render(found, now_ms()))

    @command(group, "show", examples=("wakeful instances show daily-report eu",))
    async def show(s: CliSession, name: AgentName, id_: InstanceId = "default") -> None:
        """Show an instance with its schedules and signals, and for an admin its state."""
        instance = await s.out.wait_for(s.client.get_instance(s.named_agent(name), id_))
        s.out.show(instance, *instance_page(instance, now_ms()))

    @command(
        group,
        "start",
        examples=(
            "wakeful instances start daily-report eu",
            'wakeful instances start daily-report us --state \'{"region": "us"}\'',
            'wakeful instances start daily-report us --state \'{"region": "us"}\' --replace',
            "wakeful instances start daily-report --from customers.txt",
        ),
    )
    async def start(
        s: CliSession,
        name: AgentName,
        id_: InstanceId = "default",
        state: Annotated[
            str | None,
            typer.Option(
                "--state", metavar="JSON", help="an object with keys of the initial state; @file reads a file"
            ),
        ] = None,
        replace: Annotated[
            bool, typer.Option("--replace", help="give this state also to an instance that is not stopped")
        ] = False,
        source: Annotated[
            str | None,
            typer.Option(
                "--from",
                metavar="FILE",
                help="start those of a file, one id in a line; - reads stdin",
            ),
        ] = None,
    ) -> None:
        """Start an instance, or those of a file. A new or stopped one begins with its initial state."""
        value = await json_argument("--state", state)
        if not isinstance(value, dict | None):
            raise InvalidArgument('--state: give an object, such as \'{"region": "eu"}\'')
        agent = s.named_agent(name)
        if source is not None:
            await _start_many(s, agent, await read_stdin(_read_ids, source), value, replace)
            return
        call = s.client.start_instance(agent, id_, state=value, replace=replace or None)
        _show(s, await s.out.wait_for(call))

    @command(group, "stop", examples=("wakeful instances stop daily-report eu",))
    async def stop(s: CliSession, name: AgentName, id_: InstanceId = "default") -> None:
        """Stop an instance: delete its schedules and cancel its runs."""
        _show(s, await s.out.wait_for(s.client.stop_instance(s.named_agent(name), id_)))

    @command(
        group,
        "pause",
        examples=("wakeful instances pause daily-report eu --note 'maintenance of the API'",),
    )
    async def pause(
        s: CliSession,
        name: AgentName,
        id_: InstanceId = "default",
        note: Annotated[str | None, typer.Option("--note", help="why, for other people")] = None,
    ) -> None:
        """Pause an instance: its signals wait until it is resumed."""
        _show(s, await s.out.wait_for(s.client.pause_instance(s.named_agent(name), id_, note=note)))

    @command(group, "resume", examples=("wakeful instances resume daily-report eu",))
    async def resume(s: CliSession, name: AgentName, id_: InstanceId = "default") -> None:
        """Resume an instance that is paused or blocked."""
        _show(s, await s.out.wait_for(s.client.resume_instance(s.named_agent(name), id_)))

    @command(group, "hibernate", examples=("wakeful instances hibernate daily-report eu",))
    async def hibernate(s: CliSession, name: AgentName, id_: InstanceId = "default") -> None:
        """Remove an instance from the memory of every process. Its next signal loads it again."""
        instance = await s.out.wait_for(s.client.hibernate_instance(s.named_agent(name), id_))
        s.out.show(instance, Text(f"{_name(instance)} hibernates", "green"))

    @command(
        group,
        "delete",
        examples=(
            "wakeful instances delete daily-report eu",
            "wakeful instances delete daily-report eu --erase --yes",
        ),
    )
    async def delete(
        s: CliSession,
        name: AgentName,
        id_: Annotated[str, typer.Argument(metavar="ID", help="the instance")],
        erase: Annotated[
            bool, typer.Option("--erase", help="delete its runs too, with all that they contain")
        ] = False,
        yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    ) -> None:
        """Delete an instance with its state, mailbox and schedules; its runs stay without --erase."""
        agent = s.named_agent(name)
        what = f"deletes instance {agent}/{id_} with its state, mailbox and schedules"
        if erase:
            what += ", and erases its runs: signals, outputs, errors, conversations"
        if not confirm_sentence(s, what, yes=yes):
            return

        async def delete_once(name: str, id: str, *, erase: bool) -> bool:
            left = await s.out.wait_for(s.client.delete_instance(name, id, erase=erase or None))
            if left is None:
                return False
            if left.get("status") != "deleting":
                raise Unavailable("the server responded, but not as Wakeful does: it deleted nothing")
            s.out.say(Text(f"{agent}/{id_} is being erased …", "dim"))
            return True

        await delete_all(delete_once, agent, id_, erase=erase)
        done = "deleted, and its history is erased" if erase else "deleted"
        s.out.show({"agentId": agent, "id": id_, "erased": erase}, Text(f"{agent}/{id_} is {done}", "green"))


def _read_ids(source: str) -> list[str]:
    """Return the ids in a file, one in a line; `-` is stdin."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"--from: '{source}' cannot be read: {error}") from None
    ids = [line for line in text.split("\n") if line.strip()]
    if not ids:
        raise InvalidArgument(f"--from: '{source}' has no ids; write one in each line")
    return [each.removesuffix("\r") for each in ids]


async def _start_many(
    s: CliSession, agent: str, ids: list[str], state: dict[str, Json] | None, replace: bool
) -> None:
    """Start these instances, in requests of as many as one takes; report those that cannot be started."""
    started: list[InstanceShape] = []
    errors: list[InstanceFailureShape] = []
    stopped: WakefulError | None = None
    for group in _groups(dict.fromkeys(ids), state):
        call = s.client.start_instances(agent, instances=group, replace=replace or None)
        try:
            done = await s.out.wait_for(call)
        except WakefulError as error:
            if not started and not errors:
                raise
            stopped = error
            break
        started += done["instances"]
        errors += done["errors"]
    lines = [Text(f"{plural(len(started), 'instance')} of {agent} started", "green")]
    lines += [Text(f"{each['id']}: {each['message']}", "red") for each in errors]
    s.out.show({"instances": started, "errors": errors}, *lines)
    if stopped is not None:
        print_error(f"those from '{group[0]['id']}' on may not have been started: {stopped.message}")
        raise typer.Exit(exit_code(stopped))
    if errors:
        raise typer.Exit(1)


def _groups(ids: Iterable[str], state: dict[str, Json] | None) -> Iterator[list[Mapping[str, object]]]:
    """Return the instances to start in groups that one request can have."""
    group: list[Mapping[str, object]] = []
    size = 0
    for each in ids:
        wanted = {"id": each, "state": state}
        length = len(json.dumps(wanted)) + 2
        if group and (len(group) == _AT_ONCE or size + length > _BYTES):
            yield group
            group, size = [], 0
        group.append(wanted)
        size += length
    yield group


def _show(s: CliSession, instance: InstanceShape) -> None:
    style = _STATUS.get(instance["status"], "")
    s.out.show(instance, Text(f"{_name(instance)} is {instance['status']}", style))


def _name(instance: InstanceShape) -> str:
    return f"{instance['agentId']}/{instance['id']}"


def status(instance: InstanceShape) -> Text:
    """Return the status of an instance in its colour."""
    return Text(instance["status"], _STATUS.get(instance["status"], ""))


INSTANCES: Final = ResourceTable[InstanceShape](
    Column("INSTANCE", "id", "bold"),
    Column("AGENT", "agentId"),
    Column("STATUS", lambda instance, _: status(instance)),
    Column("WAITING", "waiting"),
    Column("RUN", "runId", "dim"),
    Column("LAST SIGNAL", "handledAt"),
    Column("NOTE", lambda instance, _: first_line(instance["note"])),
)


_DELAYS: Final = ResourceTable[InstanceDelayShape](
    Column("DELAY", "id", "bold"),
    Column("SIGNAL", "signal"),
    Column("DUE", "at"),
    Column("RUN", "runId", "dim"),
)


def instance_page(instance: InstanceShape, now_ms: int) -> list[RenderableType]:
    """Return a page with all fields of an instance, and tables of its schedules and delays."""
    error = instance.get("stateError")
    fields = page(
        {
            "instance": Text(instance["id"], "bold"),
            "agent": f"{instance['agentId']} in {instance['workspace']}",
            "status": status(instance),
            "note": instance["note"],
            "waiting": f"{instance['waiting']} (wakeful runs --agent {instance['agentId']} --instance "
            f"{shlex.quote(instance['id'])} --state pending)"
            if instance["waiting"]
            else "0",
            "run": instance["runId"],
            "last signal": moment_text(instance["handledAt"], now_ms),
            "hibernated": moment_text(instance["hibernatedAt"], now_ms),
            "created": moment_text(instance["createdAt"], now_ms),
            "class version": str(instance["version"]) if instance["version"] else "none: initial state",
            "revision": str(instance["revision"]),
            "state": instance.get("state", "only an admin sees it"),
            "state error": None if error is None else Text(error, "red"),
        }
    )
    parts: list[RenderableType] = [fields]
    if schedules := instance.get("schedules"):
        parts += ["", job_table(schedules, now_ms)]
    if delays := instance.get("delays"):
        parts += ["", _DELAYS.render(delays, now_ms)]
    return parts
