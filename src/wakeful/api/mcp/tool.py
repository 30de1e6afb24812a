"""The tool `cron`: what each action does, and how it is told.

Every answer says what time it is, and of a job when it fires next. An error is an answer too: the sentence of
the service layer, so that the model can do better, and never a failure of the protocol.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, cast

from wakeful.api.mcp.coercion import empty, plain
from wakeful.api.mcp.normalize_arguments import Asked, all_of, check_message, document, name_from, understand
from wakeful.api.mcp.port import CallContext, JsonObject, Scheduler
from wakeful.api.mcp.schedules import read_instant
from wakeful.api.mcp.time_text import iso, next_in_words, now_in_words, when_in_words
from wakeful.errors import AlreadyExists, InvalidArgument, NotFound, WakefulError
from wakeful.job import Json
from wakeful.logs import get_logger

_JOBS: Final = 50
_RUNS: Final = 10
_EXCERPT: Final = 80
_NAMES_TRIED: Final = 50
#: What is told of a run.
_OF_RUN: Final = (
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
)

log = get_logger("wakeful.mcp")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the tool says, in words and as JSON."""

    text: str
    content: JsonObject
    is_error: bool = False


async def call(
    scheduler: Scheduler, arguments: Mapping[str, object], meta: Mapping[str, object] | None = None
) -> Answer:
    """Do what the arguments ask for, and tell of it; what goes wrong is told as well."""
    standing: CallContext | None = None
    try:
        asked = understand(arguments, meta)
        standing = await scheduler.standing(asked.agent)
        return _timed(await _done(scheduler, asked, standing), standing)
    except WakefulError as error:
        answer = Answer(error.message, {"error": {"code": error.code, "message": error.message}}, True)
        if standing is None:
            with suppress(WakefulError):
                standing = await scheduler.standing(None)
    except Exception:
        log.exception("mcp.error")
        sentence = "something went wrong here, not with the call; try again, or tell the operator"
        answer = Answer(sentence, {"error": {"code": "internal", "message": sentence}}, True)
    return answer if standing is None else _timed(answer, standing)


async def listed(scheduler: Scheduler) -> JsonObject:
    """The jobs of whoever asks, for those who read rather than call."""
    standing = await scheduler.standing(None)
    return (await _list(scheduler, Asked("list", limit=100), standing)).content


async def recent(scheduler: Scheduler) -> JsonObject:
    """The runs of whoever asks, likewise."""
    standing = await scheduler.standing(None)
    return (await _runs(scheduler, Asked("runs", limit=50), standing)).content


async def _done(scheduler: Scheduler, asked: Asked, standing: CallContext) -> Answer:
    match asked.action:
        case "add":
            return await _add(scheduler, asked, standing)
        case "get":
            return await _get(scheduler, asked, standing)
        case "list":
            return await _list(scheduler, asked, standing)
        case "update":
            return await _update(scheduler, asked, standing)
        case "pause":
            return await _pause(scheduler, asked, standing)
        case "resume":
            return await _resume(scheduler, asked, standing)
        case "remove":
            return await _remove(scheduler, asked, standing)
        case "run":
            return await _run(scheduler, asked, standing)
        case "runs":
            return await _runs(scheduler, asked, standing)
        case "status":
            return await _status(scheduler, standing)


def _timed(answer: Answer, standing: CallContext) -> Answer:
    now_ms, tz = standing.now_ms, standing.tz
    words = now_in_words(now_ms, tz)
    content: JsonObject = {"now": iso(now_ms, tz), "nowMs": now_ms, "tz": tz, **answer.content}
    return replace(answer, text=f"{answer.text}\n{words}", content=content)


async def _add(scheduler: Scheduler, asked: Asked, standing: CallContext) -> Answer:
    problems = dict(asked.problems)
    made = document(asked.fields, now_ms=standing.now_ms, tz=standing.tz, problems=problems)
    try:
        check_message(made)
    except InvalidArgument as error:
        _note(problems, error)
    if problems:
        await _judge_rest(scheduler, standing.agent, made, problems)
        raise all_of(problems)
    if made.get("name") in (None, ""):
        job = await _named(scheduler, standing.agent, made)
    else:
        job = await scheduler.create(standing.agent, cast(JsonObject, made))
    return _about(f"Added '{job['name']}'", job, standing)


async def _judge_rest(
    scheduler: Scheduler, agent: str, made: Mapping[str, object], problems: dict[str, str]
) -> None:
    """Add what the service layer finds wrong, so that a model learns of everything in one answer."""
    try:
        await scheduler.check(agent, cast(JsonObject, {**made, "name": made.get("name") or _name_for(made)}))
    except InvalidArgument as error:
        _note(problems, error)
    except WakefulError:
        pass  # it is not the arguments that are wrong


def _note(problems: dict[str, str], error: InvalidArgument) -> None:
    for line in error.message.split("\n"):
        name, _, sentence = line.partition(": ")
        problems.setdefault(name, sentence)


def _name_for(made: Mapping[str, object]) -> str:
    return name_from(str(made.get("message") or made.get("description") or ""))


async def _named(scheduler: Scheduler, agent: str, made: dict[str, object]) -> JsonObject:
    """A job that was given no name, under one that is free."""
    name = _name_for(made)
    for number in count(1):
        own = name if number == 1 else f"{name}-{number}"
        try:
            return await scheduler.create(agent, cast(JsonObject, {**made, "name": own}))
        except AlreadyExists:
            if number >= _NAMES_TRIED:
                raise
    raise AssertionError


async def _get(scheduler: Scheduler, asked: Asked, standing: CallContext) -> Answer:
    _, name, job = await _job(scheduler, asked, standing)
    answer = _about(f"Job '{name}'", job, standing)
    told = json.dumps(answer.content["job"], ensure_ascii=False)
    return replace(answer, text=f"{answer.text}\n{told}")


async def _pause(scheduler: Scheduler, asked: Asked, standing: CallContext) -> Answer:
    agent, name, old = await _job(scheduler, asked, standing)
    given = {field: plain(field, value) for field, value in asked.fields.items() if not empty(value)}
    if "until" in given:
        tz = str(old.get("tz") or standing.tz)
        try:
            given["until"] = read_instant(given["until"], standing.now_ms, tz)
        except InvalidArgument as error:
            raise InvalidArgument(f"until: {error.message.removeprefix('schedule: ')}") from error
    job = await scheduler.pause(agent, name, cast(Json, given.get("note")), cast(Json, given.get("until")))
    answer = _about(f"Paused '{name}'", job, standing)
    until = job.get("pausedUntil")
    return replace(answer, text=f"{answer.text}\nIt resumes by itself at {until}.") if until else answer


async def _resume(scheduler: Scheduler, asked: Asked, standing: CallContext) -> Answer:
    agent, name, _ = await _job(scheduler, asked, standing)
    return _about(f"Resumed '{name}'", await scheduler.resume(agent, name), standing)


async def _update(scheduler: Scheduler, asked: Asked, standing: CallContext) -> Answer:
    agent, name, old = await _job(scheduler, asked, standing)
    # A time without a zone of its own is on the clocks that the job goes by.
    tz = standing.tz if old.get("schedule") is None else str(old.get("tz") or standing.tz)
    patch = document(asked.fields, now_ms=standing.now_ms, tz=tz)
    if not patch:
        raise InvalidArgument("there is nothing to change; give the fields that are to be others")
    job = await scheduler.update(agent, name, cast(JsonObject, patch))
    return _about(f"Changed '{job['name']}'", job, standing)


async def _remove(scheduler: Scheduler, asked: Asked, standing: CallContext) -> Answer:
    agent, name, job = await _job(scheduler, asked, standing)
    await scheduler.delete(agent, name)
    text = f"Removed '{name}'. It does not fire any more; a run of it that is under way goes on."
    return Answer(text, {"removed": {"id": job["id"], "name": name}})


async def _run(scheduler: Scheduler, asked: Asked, standing: CallContext) -> Answer:
    agent, name, job = await _job(scheduler, asked, standing)
    given = {field: plain(field, value) for field, value in asked.fields.items()}
    payload, overlap = cast(Json, given.get("payload")), cast(Json, given.get("overlapPolicy"))
    run = await scheduler.run(agent, name, asked.mode, payload, overlap)
    if run is None:
        text = f"'{name}' is not due, so nothing was started; {next_in_words(job, standing.now_ms)}."
        return Answer(text, {"run": None})
    return Answer(f"Started '{name}': run {run['id']} is {run['state']}.", {"run": _compact_run(run)})


async def _list(scheduler: Scheduler, asked: Asked, standing: CallContext) -> Answer:
    limit = asked.limit or _JOBS
    jobs = list(await scheduler.jobs(standing.agent, asked.include_disabled, asked.cursor, limit + 1))
    more, jobs = len(jobs) > limit, jobs[:limit]
    lines = [
        f"{len(jobs)} job{'' if len(jobs) == 1 else 's'} of the agent '{standing.agent}'" + ":" * bool(jobs)
    ]
    lines += [f"- {job['name']}: {job['explain']}; {next_in_words(job, standing.now_ms)}" for job in jobs]
    if more:
        lines.append(f"There are more: list with cursor '{jobs[-1]['name']}'.")
    cursor = jobs[-1]["name"] if more else None
    return Answer("\n".join(lines), {"jobs": [_compact(job, standing) for job in jobs], "cursor": cursor})


async def _runs(scheduler: Scheduler, asked: Asked, standing: CallContext) -> Answer:
    job_id = None
    if asked.job is not None:
        job_id = str((await _job(scheduler, asked, standing))[2]["id"])
    runs = await scheduler.runs(standing.agent, job_id, asked.limit or _RUNS)
    lines = [f"{len(runs)} run{'' if len(runs) == 1 else 's'}, newest first" + ":" * bool(runs)]
    for run in runs:
        at = when_in_words(cast(int, run["scheduledAtMs"]), standing.now_ms, standing.tz)
        why = run.get("error") or run.get("reason")
        lines.append(f"- {run['job'] or 'wake'}: {run['state']}" + (f" ({why})" if why else "") + f", {at}")
    return Answer("\n".join(lines), {"runs": [_compact_run(run) for run in runs]})


async def _status(scheduler: Scheduler, standing: CallContext) -> Answer:
    status = await scheduler.status()
    jobs, runs = cast(JsonObject, status["jobs"]), cast(JsonObject, status["runs"])
    next_ms = status.get("nextAtMs")
    lines = [
        f"The workspace '{status['workspace']}': {jobs['active']} jobs active, {jobs['paused']} paused; "
        f"{runs['running']} runs running, {runs['pending']} pending, {runs['retrying']} retrying.",
        f"You schedule for the agent '{standing.agent}'; times without a zone are in {standing.tz}.",
    ]
    if isinstance(next_ms, int):
        lines.append(f"next: {when_in_words(next_ms, standing.now_ms, standing.tz)}")
    return Answer("\n".join(lines), {"status": status})


async def _job(scheduler: Scheduler, asked: Asked, standing: CallContext) -> tuple[str, str, JsonObject]:
    """The job that a call is about, by its name or its id: its agent, its name, and all there is to tell."""
    said = asked.job
    if not said:
        raise InvalidArgument("jobId: it is missing; give the name or the id of the job, which list shows")
    try:
        return standing.agent, said, await scheduler.get(standing.agent, said)
    except NotFound as error:
        try:
            agent, name = await scheduler.place_of(said)
        except NotFound:
            raise error from None
        return agent, name, await scheduler.get(agent, name)


def _about(what: str, job: JsonObject, standing: CallContext) -> Answer:
    next_words = next_in_words(job, standing.now_ms)
    lines = [f"{what} ({job['id']}) of the agent '{job['agentId']}'. {job['explain']}.", next_words]
    if job.get("secret"):
        lines.append(f"Its webhook secret, which is not shown again: {job['secret']}")
    told: JsonObject = {
        name: value for name, value in job.items() if value is not None and value not in ({}, [])
    }
    return Answer("\n".join(lines), {"job": told, "next": next_words.removeprefix("next: ")})


def _compact(job: JsonObject, standing: CallContext) -> JsonObject:
    tz, next_ms = str(job.get("tz") or "UTC"), job.get("nextAtMs")
    message = job.get("message")
    made: JsonObject = {
        "id": job["id"],
        "name": job["name"],
        "enabled": job["enabled"],
        "schedule": job["explain"],
        "nextAt": iso(next_ms, tz) if isinstance(next_ms, int) else None,
        "next": next_in_words(job, standing.now_ms).removeprefix("next: "),
    }
    if isinstance(message, str):
        made["message"] = message if len(message) <= _EXCERPT else f"{message[: _EXCERPT - 1]}…"
    return made


def _compact_run(run: JsonObject) -> JsonObject:
    return {name: run.get(name) for name in (*_OF_RUN, "error") if run.get(name) is not None}
