"""Tables of workers, channels, settings and groups of dead letters, and the page of a test of a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wakeful.cli.show.tables import Cell, escaped, first_line, page, table
from wakeful.cli.times import instant, relative, span
from wakeful.client.operation_types import (
    ChannelShape,
    DeadLetterGroupsShape,
    DeliveryShape,
    ExecutorShape,
    SettingShape,
    TargetTestShape,
    WorkerShape,
)
from wakeful.values.plural import plural

_COLOURS: Final = {"delivered": "green", "accepted": "green", "failed": "red", "not_delivered": "red"}


def worker_table(workers: Sequence[WorkerShape], now_ms: int) -> Table:
    """Return a table with a line per worker."""
    rows: list[list[Cell]] = [
        [
            Text(each["name"], "bold"),
            Text("alive", "green") if each["alive"] else Text("not alive", "red"),
            _relative(each["startedAt"], now_ms),
            _relative(each["lastHeartbeatAt"], now_ms),
            str(each["runs"]),
            ", ".join(f"{lane} {slots['used']}/{slots['size']}" for lane, slots in each["lanes"].items()),
            ", ".join(each["capabilities"]),
        ]
        for each in workers
    ]
    columns = ["WORKER", "STATE", "STARTED", "HEARTBEAT", "RUNS", "LANES", "FUNCTIONS"]
    return table(columns, rows)


def executor_table(executors: Sequence[ExecutorShape], now_ms: int) -> Table:
    """Return a table with a line per executor."""
    rows: list[list[Cell]] = [
        [Text(each["name"], "bold"), str(each["runs"]), _relative(each["lastHeartbeatAt"], now_ms)]
        for each in executors
    ]
    return table(["EXECUTOR", "RUNS", "HEARTBEAT"], rows)


def channel_table(channels: Sequence[ChannelShape]) -> Table:
    """Return a table with a line per channel."""
    rows: list[list[Cell]] = [
        [
            Text(each["name"], "bold"),
            each["kind"],
            "yes" if each["takesRecipient"] else "no",
            ", ".join(f"{number} {state}" for state, number in each["deliveries"].items()) or "none",
        ]
        for each in channels
    ]
    return table(["CHANNEL", "KIND", "TAKES RECIPIENT", "LAST 24 H"], rows)


def delivery_table(deliveries: Sequence[DeliveryShape], now_ms: int) -> Table:
    """Return a table with a line per delivery."""
    rows: list[list[Cell]] = [
        [
            Text(each["runId"], "dim"),
            f"{each['agentId']}/{each['job'] or '—'}",
            each["channel"] or "",
            each["to"] or "",
            Text(each["state"], _COLOURS.get(each["state"], "")),
            str(each["attempt"]),
            _relative(each["at"], now_ms),
            Text(first_line(each["error"]), "red"),
        ]
        for each in deliveries
    ]
    return table(["RUN", "JOB", "CHANNEL", "TO", "STATE", "ATTEMPT", "WHEN", "ERROR"], rows)


def setting_table(settings: Sequence[SettingShape], *, wide: bool = True) -> Table:
    """Return a table with a line per setting; with a description if there is room."""
    rows: list[list[Cell]] = []
    for each in settings:
        source = Text(each["source"], "dim" if each["source"] == "default" else "cyan")
        about: list[Cell] = [Text(each["description"], "dim")] if wide else []
        rows.append([Text(each["name"], "bold"), _value(each), source, *about])
    columns = ["SETTING", "VALUE", "SOURCE", *(["MEANING"] if wide else [])]
    return table(columns, rows, elastic="" if wide else "VALUE")


def _value(setting: SettingShape) -> Text:
    if setting["secret"]:
        return Text("set (secret)" if setting["set"] else "not set", "dim")
    value = setting["value"]
    return Text("not set", "dim") if value is None else Text(value)


def group_lines(found: DeadLetterGroupsShape, now_ms: int, limit: int) -> list[RenderableType]:
    """Return a table of up to `limit` groups of dead letters, and what it leaves out."""
    groups = found["groups"][:limit]
    if not groups:
        return [Text("no dead letters", "green")]
    rows: list[list[Cell]] = [
        [
            Text(str(each["count"]), "bold"),
            f"{each['agentId']}/{each['job'] or '—'}",
            each["cause"],
            _relative(each["firstFailedAt"], now_ms),
            _relative(each["lastFailedAt"], now_ms),
            Text(each["newestRunId"], "dim"),
            Text(first_line(each["error"]), "red"),
        ]
        for each in groups
    ]
    lines: list[RenderableType] = [
        table(["NUMBER", "JOB", "CAUSE", "FIRST", "LAST", "NEWEST RUN", "ERROR"], rows)
    ]
    if hidden := len(found["groups"]) - len(groups):
        lines.append(Text(f"{plural(hidden, 'more group')}; raise --limit to show them", "dim"))
    if found["more"]:
        lines.append(Text(f"only the newest {found['counted']:,} dead letters are counted", "dim"))
    return lines


def target_test_page(test: TargetTestShape) -> list[RenderableType]:
    """Return the result of a test, and the request and the response if one was sent."""
    took = "" if test["durationMs"] is None else f" ({span(test['durationMs'])})"
    message = Text(f"{escaped(test['message']).plain}{took}", "green" if test["ok"] else "red")
    lines: list[RenderableType] = [message]
    request, response = test["request"], test["response"]
    if request is not None:
        sent = {"request": f"{request['method']} {request['url']}", **request["headers"]}
        lines += ["", page({**sent, "body": request["body"]})]
    if response is not None:
        received: dict[str, str | Text | None] = {"response": f"HTTP {response['status']}"}
        for name, value in response["headers"]:
            known = received.get(name)
            received[name] = value if known is None else f"{known}, {value}"
        lines += ["", page({**received, "body": response["body"]})]
    if secret := test.get("secret"):
        lines += ["", Text("signed with a secret for this test only: ", "dim").append(secret, "bold")]
    return lines


def _relative(text: str | None, now_ms: int) -> str:
    ms = instant(text)
    return "" if ms is None else relative(ms, now_ms)
