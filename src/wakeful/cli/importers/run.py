"""The options of an import; check its jobs on the server, save them, and show the result."""

from __future__ import annotations

import hashlib
import inspect
import platform
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import CreateAgent, json_argument, now_ms
from wakeful.cli.concurrency import raise_if_unreachable
from wakeful.cli.importers.entries import STDIN, ImportEntry, ReadResult, Remark
from wakeful.cli.importers.planner import (
    ENTRY_LABEL,
    KIND_LABEL,
    Choices,
    ExistingJob,
    PlannedJob,
    absent_jobs,
    plan,
    read_source,
)
from wakeful.cli.new_jobs import check_documents, create_together, group_new_jobs
from wakeful.cli.output import Cell, escape, first_line, table
from wakeful.cli.session import CliSession
from wakeful.cli.times import local_zone
from wakeful.client.types import JobShape
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.values.json_value import Json
from wakeful.values.plural import plural

_OPTIONS: Final = {
    "url": (
        Annotated[str | None, typer.Option("--url", help="the webhook that the jobs call")],
        None,
    ),
    "target": (
        Annotated[str | None, typer.Option("--target", metavar="JSON", help="the target of the jobs")],
        None,
    ),
    "tz": (
        Annotated[
            str | None,
            typer.Option("--tz", help="the zone of schedules that name none (default: this machine's)"),
        ],
        None,
    ),
    "source": (
        Annotated[
            str | None,
            typer.Option(
                "--source",
                metavar="NAME",
                help="the identity of the input (default: host and path): "
                "importing it again changes only its own jobs",
            ),
        ],
        None,
    ),
    "paused": (Annotated[bool, typer.Option("--paused", help="create new jobs paused")], False),
    "dry_run": (
        Annotated[bool, typer.Option("--dry-run", help="have the server check the jobs without saving them")],
        False,
    ),
    "create_agent": (CreateAgent, False),
}
_AS_COMMANDS: Final = Annotated[
    bool,
    typer.Option("--as-commands", help="the server runs the commands itself; WAKEFUL_COMMANDS must allow it"),
]


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The values of the shared options."""

    url: str | None = None
    target: str | None = None
    tz: str | None = None
    source: str | None = None
    paused: bool = False
    dry_run: bool = False
    create_agent: bool = False
    as_commands: bool = False

    def __post_init__(self) -> None:
        if bool(self.url) + bool(self.target) + self.as_commands > 1:
            raise InvalidArgument("--url, --target and --as-commands exclude each other; give one of them")
        if self.source is not None and not self.source.strip():
            raise InvalidArgument("--source is empty; give a name such as web1-crontab")


def import_options(*, commands: bool) -> list[inspect.Parameter]:
    """Return the shared options as parameters; with `commands`, also --as-commands."""
    options = dict(_OPTIONS)
    if commands:
        options = {"as_commands": (_AS_COMMANDS, False), **options}
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, keyword, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]


@dataclass(slots=True)
class _Outcome:
    """What became of the planned jobs."""

    accepted: list[PlannedJob] = field(default_factory=list)
    refused: list[Remark] = field(default_factory=list)
    #: the response of the server, by agent and name
    saved: dict[tuple[str, str], JobShape] = field(default_factory=dict)


async def run_import(s: CliSession, reading: ReadResult, kind: str, given: ImportOptions) -> int:
    """Create or change the jobs of a reading, and return the exit code.

    The server checks every document first. With --dry-run that is all, so a dry run refuses what the import
    would refuse.
    """
    choices = Choices(
        kind=kind,
        tz=given.tz or local_zone(),
        agent=s.agent or "default",
        target=await _target(given, commands=any(entry.command for entry in reading.entries)),
        paused=given.paused,
    )
    if s.agent is not None:
        reading = ReadResult(
            tuple(replace(entry, agent=s.agent) for entry in reading.entries), reading.refused, reading.notes
        )
    jobs = await s.out.wait_for(s.client.list_every_job())
    existing = [
        ExistingJob(
            job["agentId"],
            job["name"],
            job["labels"].get(KIND_LABEL, ""),
            read_source(job["labels"]),
            job["labels"].get(ENTRY_LABEL, ""),
            job["labels"],
        )
        for job in sorted(jobs, key=lambda job: job["id"])  # ids are in the order of creation
    ]
    planned, refused = plan(
        reading,
        choices,
        source=lambda entry: given.source or identity(entry),
        existing=existing,
        now_ms=now_ms(),
    )
    if planned:
        await s.check_agents(*sorted({each.agent for each in planned}), create=given.create_agent)
    known = {(job.agent, job.name) for job in existing}
    outcome = await _check(s, planned, known)
    outcome.refused = [*refused, *outcome.refused]
    try:
        if not given.dry_run:
            await _save(s, outcome, known)
    finally:  # also if the server is lost on the way: secrets of new jobs are not shown again
        notes = [*reading.notes, *(_user_notes(outcome.accepted) if given.as_commands else [])]
        absent = absent_jobs(planned, existing, kind)
        s.out.show(_result(outcome, notes, absent, given.dry_run))
        _print(s, outcome, notes, absent, given.dry_run)
    return exit_codes.NOT_DONE if outcome.refused else exit_codes.OK


def identity(entry: ImportEntry) -> str:
    """Return what identifies the file of an entry: host and path. On stdin, the line identifies itself."""
    if entry.place.file == STDIN:
        return f"stdin:{hashlib.sha256(f'{entry.tz} {entry.text}'.encode()).hexdigest()[:16]}"
    return f"{platform.node()}:{Path(entry.place.file).resolve()}"


async def _target(given: ImportOptions, *, commands: bool) -> Json:
    if given.as_commands:
        return None
    if given.url:
        return {"kind": "webhook", "url": given.url}
    target = await json_argument("--target", given.target)
    return {"kind": "pull"} if target is None and commands else target


async def _check(
    s: CliSession, planned: Sequence[PlannedJob], known: Collection[tuple[str, str]]
) -> _Outcome:
    """Have the server check the documents; `known` are the jobs that exist."""
    _, failed = await check_documents(s, planned, lambda each: (each.agent, each.name) not in known)
    refused = {id(each) for each, _ in failed}
    accepted = [each for each in planned if id(each) not in refused]
    return _Outcome(accepted, [_remark(each, error) for each, error in failed])


async def _save(s: CliSession, outcome: _Outcome, known: Collection[tuple[str, str]]) -> None:
    """Save the accepted jobs. What the server refuses only now, such as a used-up quota, is refused too.

    New jobs come first, many in one request; if that is refused, each is saved alone.
    """
    accepted, outcome.accepted = outcome.accepted, []
    with s.out.show_progress("importing", len(accepted)) as step:
        for group in group_new_jobs([each for each in accepted if (each.agent, each.name) not in known]):
            created = await create_together(s, group)
            if created is not None:
                outcome.accepted += group
                outcome.saved |= {(job["agentId"], job["name"]): job for job in created}
                step(len(group))
        for each in accepted:
            if (each.agent, each.name) in outcome.saved:
                continue
            try:
                saved, _ = await s.out.wait_for(s.client.save_job(each.agent, each.document))
            except WakefulError as error:
                raise_if_unreachable([error])
                outcome.refused.append(_remark(each, error))
            else:
                outcome.accepted.append(each)
                outcome.saved[each.agent, each.name] = saved
            step(1)
    places = {id(each): place for place, each in enumerate(accepted)}
    outcome.accepted.sort(key=lambda each: places[id(each)])


def _remark(planned: PlannedJob, error: WakefulError) -> Remark:
    return Remark(planned.entry.place, planned.entry.text, error.message.replace("\n", "; "))


def _user_notes(planned: Sequence[PlannedJob]) -> list[Remark]:
    """Return a note for each command that ran as a named user."""
    return [
        Remark(each.entry.place, each.entry.text, f"runs as the server's user, not as '{command.user}'")
        for each in planned
        if (command := each.entry.command) is not None and command.user is not None
    ]


def _result(
    outcome: _Outcome, notes: Sequence[Remark], absent: Sequence[tuple[str, str]], dry_run: bool
) -> dict[str, object]:
    return {
        "dryRun": dry_run,
        "jobs": [_job_result(each, outcome.saved.get((each.agent, each.name))) for each in outcome.accepted],
        "refused": [_remark_result(each) for each in outcome.refused],
        "notes": [_remark_result(each) for each in notes],
        "absent": [{"agentId": agent, "name": name} for agent, name in absent],
    }


def _job_result(each: PlannedJob, saved: JobShape | None) -> dict[str, object]:
    place = each.entry.place
    result: dict[str, object] = {
        "file": place.file,
        "line": place.line,
        "item": place.item or None,
        "agentId": each.agent,
        "name": each.name,
        "explain": each.explain,
        "document": each.document,
    }
    if saved is not None and saved.get("secret"):
        result["secret"] = saved["secret"]
    if saved is not None and saved.get("warnings"):
        result["warnings"] = saved["warnings"]
    return result


def _remark_result(remark: Remark) -> dict[str, object]:
    return {
        "file": remark.place.file,
        "line": remark.place.line,
        "item": remark.place.item or None,
        "field": remark.field,
        "text": remark.text,
        "why": remark.why,
    }


def _print(
    s: CliSession,
    outcome: _Outcome,
    notes: Sequence[Remark],
    absent: Sequence[tuple[str, str]],
    dry_run: bool,
) -> None:
    several = len({each.entry.place.file for each in outcome.accepted}) > 1
    agents = len({each.agent for each in outcome.accepted}) > 1
    rows: list[list[Cell]] = [
        [
            _where(each.entry, several),
            Text(f"{each.agent}/{each.name}" if agents else each.name, "bold"),
            each.explain,
            first_line(_work(each.entry)),
        ]
        for each in outcome.accepted
    ]
    if rows:
        s.out.say(table(["FROM", "JOB", "WHEN", "WORK"], rows))
    for remarks, colour, what in ((notes, "yellow", "note"), (outcome.refused, "red", "refused")):
        for each in remarks:
            about = f"{each.field}: {each.why}" if each.field else each.why
            head = Text(f"{each.place}, {what}: ", colour).append(about)
            s.out.say(head, Text(f"    {escape(first_line(each.text, 100))}", "dim"))
    for (_, name), job in outcome.saved.items():
        if job.get("secret"):
            s.out.say(Text(f"secret of {name}, not shown again: ").append(str(job.get("secret")), "green"))
    warnings = [warning for job in outcome.saved.values() for warning in job.get("warnings") or ()]
    s.out.print_warnings(dict.fromkeys(warnings))
    if absent:
        names = ", ".join(f"{agent}/{name}" for agent, name in absent)
        s.out.say(Text(f"imported earlier, and no longer in the input; delete them yourself: {names}"))
    done = "would be imported" if dry_run else "imported"
    s.out.say(Text(f"{plural(len(rows), 'job')} {done}, {len(outcome.refused)} refused", "bold"))


def _where(entry: ImportEntry, several: bool) -> str:
    if several:
        return str(entry.place)
    return entry.place.item or f"line {entry.place.line}"


def _work(entry: ImportEntry) -> str:
    if entry.command is not None:
        return entry.command.line
    message = entry.fields.get("message")
    return message if isinstance(message, str) else ""
