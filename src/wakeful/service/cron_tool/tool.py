"""The tool `cron`: its actions, and the text of their results.

Every result states the time, and for a job when it fires next. An error is a result too, with the message of
the service, so that the model can correct its call; it is never a protocol error.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Final, cast

from wakeful.errors import AlreadyExists, InvalidArgument, NotFound, WakefulError
from wakeful.logs import get_logger
from wakeful.service.cron_tool.instances import list_instances, read_instance, send_signal
from wakeful.service.cron_tool.normalize_arguments import (
    Action,
    ToolCall,
    all_of,
    check_message,
    document,
    name_from,
    normalize,
)
from wakeful.service.cron_tool.port import CallContext, JsonObject, Scheduler
from wakeful.service.cron_tool.port import ToolResult as ToolResult
from wakeful.service.cron_tool.texts import JOB, iso, next_in_words, now_in_words, when_in_words
from wakeful.service.cron_tool.values import empty, plain, read_instant
from wakeful.values.json_value import Json
from wakeful.values.plural import plural

_JOBS: Final = 50
_RUNS: Final = 10
_EXCERPT: Final = 80
_NAMES_TRIED: Final = 50
#: The fields of a run in a result.
_RUN_FIELDS: Final = (
    "id",
    "job",
    "state",
    "reason",
    "trigger",
    "scheduledAt",
    "startedAt",
    "finishedAt",
    "responseCode",
    "output",
    "evidence",
    "instance",
    "signal",
)

log = get_logger("wakeful.mcp")


async def call(
    scheduler: Scheduler, arguments: Mapping[str, object], meta: Mapping[str, object] | None = None
) -> ToolResult:
    """Perform a call and return its result, or its error as a result."""
    context: CallContext | None = None
    try:
        tool_call = normalize(arguments, meta)
        context = await scheduler.context(tool_call.agent)
        return _with_time(await _ACTIONS[tool_call.action](scheduler, tool_call, context), context)
    except WakefulError as error:
        result = ToolResult(error.message, {"error": {"code": error.code, "message": error.message}}, True)
        if context is None:
            with suppress(WakefulError):
                context = await scheduler.context(None)
    except Exception:
        log.exception("mcp.error")
        sentence = "internal error, not caused by the call; try again, or inform the operator"
        result = ToolResult(sentence, {"error": {"code": "internal", "message": sentence}}, True)
    return result if context is None else _with_time(result, context)


async def listed(scheduler: Scheduler) -> JsonObject:
    """Return the jobs of the caller, for the resource."""
    context = await scheduler.context(None)
    return (await _list(scheduler, ToolCall("list", limit=100), context)).content


async def recent(scheduler: Scheduler) -> JsonObject:
    """Return the runs of the caller, for the resource."""
    context = await scheduler.context(None)
    return (await _runs(scheduler, ToolCall("runs", limit=50), context)).content


def _with_time(result: ToolResult, context: CallContext) -> ToolResult:
    now_ms, tz = context.now_ms, context.tz
    words = now_in_words(now_ms, tz)
    content: JsonObject = {"now": iso(now_ms, tz), "nowMs": now_ms, "tz": tz, **result.content}
    return replace(result, text=f"{result.text}\n{words}", content=content)


async def _add(scheduler: Scheduler, tool_call: ToolCall, context: CallContext) -> ToolResult:
    problems = dict(tool_call.problems)
    fields = document(tool_call.fields, now_ms=context.now_ms, tz=context.tz, problems=problems)
    try:
        check_message(fields)
    except InvalidArgument as error:
        _add_problems(problems, error)
    if problems:
        await _add_service_errors(scheduler, context.agent, fields, problems)
        raise all_of(problems)
    if fields.get("name") in (None, ""):
        job = await _create_unnamed(scheduler, context.agent, fields)
    else:
        job = await scheduler.create(context.agent, cast(JsonObject, fields))
    return _describe_job(f"Added '{job['name']}'", job, context)


async def _add_service_errors(
    scheduler: Scheduler, agent: str, fields: Mapping[str, object], problems: dict[str, str]
) -> None:
    """Add the errors of the service, so that a model gets all errors in one result."""
    try:
        await scheduler.dry_run(
            agent, cast(JsonObject, {**fields, "name": fields.get("name") or _name_for(fields)})
        )
    except InvalidArgument as error:
        _add_problems(problems, error)
    except WakefulError:
        pass  # not an error of the arguments


def _add_problems(problems: dict[str, str], error: InvalidArgument) -> None:
    for line in error.message.split("\n"):
        name, _, sentence = line.partition(": ")
        problems.setdefault(name, sentence)


def _name_for(fields: Mapping[str, object]) -> str:
    return name_from(str(fields.get("message") or fields.get("description") or ""))


async def _create_unnamed(scheduler: Scheduler, agent: str, fields: dict[str, object]) -> JsonObject:
    """Create a job without a name, under a free name."""
    name = _name_for(fields)
    for number in count(1):
        own = name if number == 1 else f"{name}-{number}"
        try:
            return await scheduler.create(agent, cast(JsonObject, {**fields, "name": own}))
        except AlreadyExists:
            if number >= _NAMES_TRIED:
                raise
    raise AssertionError


async def _get(scheduler: Scheduler, tool_call: ToolCall, context: CallContext) -> ToolResult:
    _, name, job = await _job(scheduler, tool_call, context)
    result = _describe_job(f"Job '{name}'", job, context)
    text = json.dumps(result.content["job"], ensure_ascii=False)
    return replace(result, text=f"{result.text}\n{text}")


async def _pause(scheduler: Scheduler, tool_call: ToolCall, context: CallContext) -> ToolResult:
    agent, name, old = await _job(scheduler, tool_call, context)
    values = {field: plain(field, value) for field, value in tool_call.fields.items() if not empty(value)}
    if "until" in values:
        tz = str(old.get("tz") or context.tz)
        try:
            values["until"] = read_instant(values["until"], context.now_ms, tz)
        except InvalidArgument as error:
            raise InvalidArgument(f"until: {error.message.removeprefix('schedule: ')}") from error
    job = await scheduler.pause(agent, name, cast(Json, values.get("note")), cast(Json, values.get("until")))
    return _describe_job(f"Paused '{name}'", job, context)


async def _resume(scheduler: Scheduler, tool_call: ToolCall, context: CallContext) -> ToolResult:
    agent, name, _ = await _job(scheduler, tool_call, context)
    return _describe_job(f"Resumed '{name}'", await scheduler.resume(agent, name), context)


async def _update(scheduler: Scheduler, tool_call: ToolCall, context: CallContext) -> ToolResult:
    agent, name, old = await _job(scheduler, tool_call, context)
    # A time without a zone is in the zone of the job.
    tz = context.tz if old.get("schedule") is None else str(old.get("tz") or context.tz)
    fields = tool_call.fields
    if fields.keys() | {"name"} >= JOB.keys():
        # The client sends every field, and null for those that the model left out: they stay as they are.
        fields = {name: value for name, value in fields.items() if value is not None}
    patch = document(fields, now_ms=context.now_ms, tz=tz)
    if not patch:
        raise InvalidArgument("there is nothing to change; give the fields to change")
    job = await scheduler.update(agent, name, cast(JsonObject, patch))
    return _describe_job(f"Changed '{job['name']}'", job, context)


async def _remove(scheduler: Scheduler, tool_call: ToolCall, context: CallContext) -> ToolResult:
    agent, name, job = await _job(scheduler, tool_call, context)
    warnings = await scheduler.delete(agent, name)
    text = f"Removed '{name}'. It does not fire any more; a run in progress continues."
    text += "".join(f"\nWarning: {warning}" for warning in warnings)
    told: JsonObject = {"warnings": [*warnings]} if warnings else {}
    return ToolResult(text, {"removed": {"id": job["id"], "name": name}, **told})


async def _run(scheduler: Scheduler, tool_call: ToolCall, context: CallContext) -> ToolResult:
    agent, name, job = await _job(scheduler, tool_call, context)
    values = {field: plain(field, value) for field, value in tool_call.fields.items()}
    payload, overlap = cast(Json, values.get("payload")), cast(Json, values.get("overlapPolicy"))
    run = await scheduler.run(agent, name, tool_call.mode, payload, overlap)
    if run is None:
        text = f"'{name}' is not due, so nothing was started; {next_in_words(job, context.now_ms)}."
        return ToolResult(text, {"run": None})
    return ToolResult(f"Started '{name}': run {run['id']} is {run['state']}.", {"run": _compact_run(run)})


async def _list(scheduler: Scheduler, tool_call: ToolCall, context: CallContext) -> ToolResult:
    limit = tool_call.limit or _JOBS
    jobs = list(await scheduler.jobs(context.agent, tool_call.include_disabled, tool_call.cursor, limit + 1))
    more, jobs = len(jobs) > limit, jobs[:limit]
    lines = [
        f"{len(jobs)} job{'' if len(jobs) == 1 else 's'} of the agent '{context.agent}'" + ":" * bool(jobs)
    ]
    lines += [f"- {job['name']}: {job['explain']}; {next_in_words(job, context.now_ms)}" for job in jobs]
    if more:
        lines.append(f"There are more: list with cursor '{jobs[-1]['name']}'.")
    cursor = jobs[-1]["name"] if more else None
    return ToolResult("\n".join(lines), {"jobs": [_compact(job, context) for job in jobs], "cursor": cursor})


async def _runs(scheduler: Scheduler, tool_call: ToolCall, context: CallContext) -> ToolResult:
    agent, job_id = context.agent, None
    if tool_call.job is not None:
        agent, _, job = await _job(scheduler, tool_call, context)
        job_id = str(job["id"])
    runs = await scheduler.runs(agent, job_id, tool_call.limit or _RUNS)
    lines = [f"{plural(len(runs), 'run')}, newest first" + ":" * bool(runs)]
    for run in runs:
        at = when_in_words(cast(int, run["scheduledAtMs"]), context.now_ms, context.tz)
        what = run["job"] or run.get("signal") or "wake"
        why = run.get("error") or run.get("reason")
        state = "verifying" if run.get("verifying") else run["state"]
        lines.append(f"- {what}: {state}" + (f" ({why})" if why else "") + f", {at}")
    return ToolResult("\n".join(lines), {"runs": [_compact_run(run) for run in runs]})


async def _status(scheduler: Scheduler, _: ToolCall, context: CallContext) -> ToolResult:
    status = await scheduler.status()
    jobs, runs = cast(JsonObject, status["jobs"]), cast(JsonObject, status["runs"])
    next_ms = status.get("nextAtMs")
    active, running = plural(cast(int, jobs["active"]), "job"), plural(cast(int, runs["running"]), "run")
    lines = [
        f"The workspace '{status['workspace']}': {active} active, {jobs['paused']} paused; "
        f"{running} running, {runs['pending']} pending, {runs['retrying']} retrying.",
        f"You schedule for the agent '{context.agent}'; times without a zone are in {context.tz}.",
    ]
    if isinstance(next_ms, int):
        lines.append(f"next: {when_in_words(next_ms, context.now_ms, context.tz)}")
    return ToolResult("\n".join(lines), {"status": status})


async def _job(
    scheduler: Scheduler, tool_call: ToolCall, context: CallContext
) -> tuple[str, str, JsonObject]:
    """Return the job of a call, by name or id: its agent, its name and its JSON."""
    wanted = tool_call.job
    if not wanted:
        raise InvalidArgument("jobId: it is missing; give the name or the id of the job, which list shows")
    try:
        return context.agent, wanted, await scheduler.get(context.agent, wanted)
    except NotFound as error:
        try:
            agent, name = await scheduler.find_by_id(wanted)
        except NotFound:
            raise error from None
        return agent, name, await scheduler.get(agent, name)


def _describe_job(what: str, job: JsonObject, context: CallContext) -> ToolResult:
    next_words = next_in_words(job, context.now_ms)
    lines = [f"{what} ({job['id']}) of the agent '{job['agentId']}'. {job['explain']}.", next_words]
    if job.get("secret"):
        lines.append(f"Its webhook secret, which is not shown again: {job['secret']}")
    warnings = job.get("warnings")
    if isinstance(warnings, list):
        lines += [f"Warning: {warning}" for warning in warnings]
    shown: JsonObject = {
        name: value for name, value in job.items() if value is not None and value not in ({}, [])
    }
    return ToolResult("\n".join(lines), {"job": shown, "next": next_words.removeprefix("next: ")})


def _compact(job: JsonObject, context: CallContext) -> JsonObject:
    tz, next_ms = str(job.get("tz") or "UTC"), job.get("nextAtMs")
    message = job.get("message")
    compact: JsonObject = {
        "id": job["id"],
        "name": job["name"],
        "enabled": job["enabled"],
        "schedule": job["explain"],
        "nextAt": iso(next_ms, tz) if isinstance(next_ms, int) else None,
        "next": next_in_words(job, context.now_ms).removeprefix("next: "),
    }
    if isinstance(message, str):
        compact["message"] = message if len(message) <= _EXCERPT else f"{message[: _EXCERPT - 1]}…"
    return compact


def _compact_run(run: JsonObject) -> JsonObject:
    return {name: run.get(name) for name in (*_RUN_FIELDS, "error") if run.get(name) is not None}


_ACTIONS: Final[Mapping[Action, Callable[[Scheduler, ToolCall, CallContext], Awaitable[ToolResult]]]] = {
    "add": _add,
    "get": _get,
    "list": _list,
    "update": _update,
    "pause": _pause,
    "resume": _resume,
    "remove": _remove,
    "run": _run,
    "runs": _runs,
    "status": _status,
    "instances": list_instances,
    "instance": read_instance,
    "signal": send_signal,
}
