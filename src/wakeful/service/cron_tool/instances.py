"""The actions of the tool about instances of the agent: list them, read one, send a signal to one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, cast

from wakeful.errors import InvalidArgument
from wakeful.job.job import DEFAULT_INSTANCE
from wakeful.service.cron_tool.normalize_arguments import ToolCall
from wakeful.service.cron_tool.port import CallContext, JsonObject, Scheduler, ToolResult
from wakeful.service.cron_tool.texts import next_in_words
from wakeful.service.cron_tool.values import empty, json_in
from wakeful.signal.signals import Signal
from wakeful.values.plural import plural

_INSTANCES: Final = 50
_SHOWN: Final = ("id", "status", "note", "waiting", "runId", "handledAt")


async def list_instances(scheduler: Scheduler, tool_call: ToolCall, context: CallContext) -> ToolResult:
    """List the instances of the agent, by id."""
    limit = tool_call.limit or _INSTANCES
    found = list(await scheduler.instances(context.agent, tool_call.cursor, limit + 1))
    more, found = len(found) > limit, found[:limit]
    lines = [f"{plural(len(found), 'instance')} of the agent '{context.agent}'" + ":" * bool(found)]
    lines += [f"- {each['id']}: {_status(each)}" for each in found]
    if more:
        lines.append(f"There are more: list with cursor '{found[-1]['id']}'.")
    shown: JsonObject = {
        "instances": [{name: each[name] for name in _SHOWN if each[name] is not None} for each in found],
        "cursor": found[-1]["id"] if more else None,
    }
    return ToolResult("\n".join(lines), shown)


async def read_instance(scheduler: Scheduler, tool_call: ToolCall, context: CallContext) -> ToolResult:
    """Read an instance with its schedules, and its state if the key may see it."""
    instance = await scheduler.instance(context.agent, tool_call.instance or DEFAULT_INSTANCE)
    jobs = cast(list[JsonObject], instance["schedules"])
    lines = [f"Instance '{instance['id']}' of the agent '{context.agent}': {_status(instance)}."]
    lines += [f"- {job['name']}: {job['explain']}; {next_in_words(job, context.now_ms)}" for job in jobs]
    shown: JsonObject = {
        name: value for name, value in instance.items() if name != "schedules" and value is not None
    }
    lines.append(json.dumps(shown, ensure_ascii=False))
    shown["schedules"] = [
        {name: job[name] for name in ("id", "name", "enabled", "explain", "nextAt")} for job in jobs
    ]
    return ToolResult("\n".join(lines), {"instance": shown})


async def send_signal(scheduler: Scheduler, tool_call: ToolCall, context: CallContext) -> ToolResult:
    """Send a signal to an instance of the agent."""
    data = json_in(tool_call.fields.get("data"))  # an empty object is data too
    given = {name: value for name, value in tool_call.fields.items() if not empty(value)}
    if "signal" not in given:
        raise InvalidArgument("signal: it is missing; write its type, such as 'report.generate'")
    signal = Signal(
        cast(str, given["signal"]),  # the class checks each value
        None if data == "" else data,
        id=cast(str | None, given.get("id")),
        subject=cast(str | None, given.get("subject")),
    )
    to = tool_call.instance or DEFAULT_INSTANCE
    run = await scheduler.send(context.agent, to, signal)
    text = f"Sent the signal {signal.type} to the instance '{to}': run {run['id']} is {run['state']}."
    if run["duplicate"]:
        text = f"The instance '{to}' has received this signal before: run {run['id']} is {run['state']}."
    names = ("id", "state", "trigger", "instance", "signal", "duplicate")
    return ToolResult(text, {"run": {name: run[name] for name in names}})


def _status(instance: Mapping[str, object]) -> str:
    note = f" ({instance['note']})" if instance.get("note") else ""
    run = f", run {instance['runId']} is in progress" if instance.get("runId") else ""
    return f"{instance['status']}{note}, {plural(cast(int, instance['waiting']), 'signal')} waiting{run}"
