"""`wakeful open`, `status`, `mcp`, `workers` and `settings`: the dashboard and the state of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wakeful.cli.arguments import now_ms
from wakeful.cli.output import page
from wakeful.cli.session import CliSession, command
from wakeful.cli.tables import Column, ResourceTable
from wakeful.cli.times import moment, relative, span
from wakeful.client.types import (
    ExecutorShape,
    LaneUseShape,
    SettingShape,
    WorkerShape,
)
from wakeful.errors import FailedPrecondition
from wakeful.values.json_value import Json
from wakeful.values.package import install_command


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "open",
        examples=(
            "wakeful open",
            "wakeful open --browser",
        ),
        panel="Server",
    )
    async def open_dashboard(
        s: CliSession,
        browser: Annotated[bool, typer.Option("--browser", help="open it in a browser")] = False,
    ) -> None:
        """Print a link that signs in to the dashboard, with the key that this command line uses.

        The link works once, for five minutes.
        """
        link = await s.out.wait_for(s.client.sign_in_link())
        s.out.show(link, Text(str(link["url"])))
        s.out.say(Text("it works once, for 5 minutes", "dim"))
        if browser:
            import webbrowser

            if not webbrowser.open(str(link["url"])):
                s.out.warn("no browser was found; open the link yourself")

    @command(
        app,
        "status",
        examples=(
            "wakeful status",
            "wakeful status --json",
        ),
        panel="Server",
    )
    async def status(s: CliSession) -> None:
        """Show the state of the server and its service level objectives."""
        status, slo = await s.out.wait_for(asyncio.gather(s.client.get_status(), s.client.get_slo()))
        s.out.show({**status, "slo": slo}, status_page(s.client.url, status, slo))

    @command(app, "mcp", examples=("wakeful mcp --agent writer",), panel="Server")
    async def mcp(s: CliSession) -> None:
        """Serve MCP on stdin and stdout, for an agent that schedules its own work.

        The key of an agent determines the agent; with any other key, set --agent. Logs go to stderr.
        """
        if find_spec("mcp") is None:
            raise FailedPrecondition(f"the MCP library is not installed: {install_command('mcp')}")
        from wakeful.api.mcp.stdio import serve_stdio
        from wakeful.logs.setup import configure

        configure("console", "warning")
        await serve_stdio(s.client, s.agent)

    @command(app, "workers", examples=("wakeful workers", "wakeful workers --json"), panel="Server")
    async def workers(s: CliSession) -> None:
        """Show the processes that take runs, and the executors that hold claimed runs.

        A worker is alive if its last heartbeat is less than 30 s old. Only the process that answers knows the
        slots of its lanes. Requires an admin's key.
        """
        found = await s.out.wait_for(s.client.list_workers())
        now = now_ms()
        shown: list[RenderableType] = [Text("no workers", "yellow")]
        if found["workers"]:
            shown = [WORKERS.render(found["workers"], now)]
        if found["executors"]:
            shown += ["", EXECUTORS.render(found["executors"], now)]
        s.out.show(found, *shown)

    @command(
        app,
        "settings",
        examples=("wakeful settings", "wakeful settings retention", "wakeful settings --changed --json"),
        panel="Server",
    )
    async def settings(
        s: CliSession,
        text: Annotated[
            str | None, typer.Argument(metavar="TEXT", help="only settings whose name contains this")
        ] = None,
        changed: Annotated[
            bool, typer.Option("--changed", help="only settings that do not have their default")
        ] = False,
    ) -> None:
        """Show the settings of the server and where they come from; of a secret, only whether it is set.

        Requires a key for all workspaces.
        """
        found = [
            each
            for each in await s.out.wait_for(s.client.list_settings())
            if (text or "").lower() in each["name"].lower() and not (changed and each["source"] == "default")
        ]
        shown = (
            SETTINGS.render(found, now_ms(), wide=s.out.wide) if found else Text("no such settings", "dim")
        )
        s.out.show({"settings": found}, shown)


def status_page(url: str, status: Mapping[str, Json], slo: Mapping[str, Json]) -> Table:
    """Return a page with the server's status and its objectives."""
    next_ms, now_ms = status.get("nextAtMs"), status.get("nowMs")
    soon = None
    if isinstance(next_ms, int) and isinstance(now_ms, int):
        soon = f"{relative(next_ms, now_ms)} · {moment(next_ms, None, now_ms)}"
    return page(
        {
            "server": Text(url, "bold"),
            "version": f"{status.get('version')}, on {status.get('database')}",
            "engine": Text("running", "green") if status.get("engine") else Text("not running", "red"),
            "replicas": str(status.get("replicas")),
            "executors": str(status.get("executors")),
            "jobs": _counts(status.get("jobs")),
            "runs": _counts(status.get("runs")),
            "incidents": _incidents(status.get("incidents")),
            "next": soon,
            "dead letters": _objective(slo.get("deadLetterRatio"), lambda ratio: f"{ratio:.2%}"),
            "start delay": _objective(slo.get("dispatchLatencyMs"), lambda ms: span(round(ms))),
        }
    )


def _counts(counts: Json) -> str | None:
    if not isinstance(counts, dict):
        return None
    return ", ".join(f"{number} {name}" for name, number in counts.items())


def _incidents(counts: Json) -> Text | None:
    """Return the numbers of incidents; red if one is open."""
    text = _counts(counts)
    if text is None or not isinstance(counts, dict):
        return None
    return Text(text, "red" if counts.get("open") else "")


def _objective(objective: Json, format_value: Callable[[float], str]) -> Text | None:
    """Return an objective's current value and its target."""
    if not isinstance(objective, dict) or not isinstance(target := objective.get("target"), int | float):
        return None
    value, below = objective.get("value"), f" (target: below {format_value(target)})"
    if not isinstance(value, int | float):
        return Text(f"no runs{below}", "dim")
    return Text(format_value(value), "green" if objective.get("ok") else "red").append(below, "dim")


def _lane(name: str, slots: LaneUseShape) -> str:
    return f"{name} {slots['used']}/{slots['size']}"


WORKERS: Final = ResourceTable[WorkerShape](
    Column("WORKER", "name", "bold"),
    Column("STATE", lambda each, _: Text("alive", "green") if each["alive"] else Text("not alive", "red")),
    Column("STARTED", "startedAt"),
    Column("HEARTBEAT", "lastHeartbeatAt"),
    Column("RUNS", "runs"),
    Column("LANES", lambda each, _: ", ".join(_lane(*lane) for lane in each["lanes"].items())),
    Column("FUNCTIONS", lambda each, _: ", ".join(each["capabilities"])),
)


EXECUTORS: Final = ResourceTable[ExecutorShape](
    Column("EXECUTOR", "name", "bold"),
    Column("RUNS", "runs"),
    Column("HEARTBEAT", "lastHeartbeatAt"),
)


def _value(setting: SettingShape) -> Text:
    if setting["secret"]:
        return Text("set (secret)" if setting["set"] else "not set", "dim")
    value = setting["value"]
    return Text("not set", "dim") if value is None else Text(value)


SETTINGS: Final = ResourceTable[SettingShape](
    Column("SETTING", "name", "bold"),
    Column("VALUE", lambda setting, _: _value(setting)),
    Column("SOURCE", lambda each, _: Text(each["source"], "dim" if each["source"] == "default" else "cyan")),
    Column("MEANING", "description", "dim", wide=True),
    elastic=["MEANING", "VALUE"],
)
