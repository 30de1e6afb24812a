"""Turn entries into job documents."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from wakeful.cli.importers.entries import ImportedCommand, ImportEntry, ReadResult, Remark, choose_name
from wakeful.document import Defaults, read_definition
from wakeful.errors import InvalidArgument
from wakeful.schedule.schedules import explain_schedule
from wakeful.values.duration import DAY
from wakeful.values.json_value import Json

#: The label with the kind of the original: `crontab`, `systemd`, `openclaw` or `hermes`.
KIND_LABEL: Final = "imported-from"
#: The label with the identity of the original file. An import changes only jobs of its own files.
SOURCE_LABEL: Final = "import-source"
#: The label with a hash of the work of the entry, by which an import finds a job that was renamed.
ENTRY_LABEL: Final = "import-entry"
_LONGEST_LABEL: Final = 255
#: The shell that cron runs a line with, unless the crontab sets SHELL.
SHELL: Final = "/bin/sh"
#: How long a command may take that has no limit of its own: cron and systemd never end one, and a job that
#: sets no timeout would end it after ten minutes.
_COMMAND_TIMEOUT_MS: Final = DAY


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """An entry and the job made from it."""

    entry: ImportEntry
    agent: str
    name: str
    document: dict[str, Json]
    explain: str

    @property
    def source(self) -> str:
        """Return the identity of its file."""
        return read_source(self.document.get("labels"))

    @property
    def work(self) -> str:
        """Return the hash of its work."""
        return _label(self.document.get("labels"), ENTRY_LABEL)


@dataclass(frozen=True, slots=True)
class ExistingJob:
    """A job on the server, with the labels that say where it comes from."""

    agent: str
    name: str
    kind: str
    source: str
    #: the hash of its entry; '': imported by an earlier version
    entry: str = ""
    #: all its labels, also those that people gave it
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choices:
    """What the options of the command say about all jobs."""

    #: `crontab`, `systemd`, `openclaw` or `hermes`
    kind: str
    #: the zone of entries that name none
    tz: str
    #: the agent of entries that name none
    agent: str = "default"
    #: None: a command is run by the server; other entries inherit the target of their agent
    target: Json = None
    paused: bool = False


def plan(
    reading: ReadResult,
    choices: Choices,
    *,
    source: Callable[[ImportEntry], str],
    existing: Iterable[ExistingJob] = (),
    now_ms: int,
) -> tuple[list[PlannedJob], list[Remark]]:
    """Return the jobs of the entries, and the entries that cannot become one.

    `source` returns the identity of an entry's file. Among the existing jobs, only those of the same kind and
    source are changed: the job with the same work, else the one with the name; a name that another job has
    gets a number. Of several jobs with the same work, the first is changed: `existing` has the oldest first,
    and the others are copies of it. A job that exists keeps its other labels, and stays on or paused as it
    is.
    """
    planned: list[PlannedJob] = []
    refused = list(reading.refused)
    names: dict[str, dict[str, tuple[str, str] | None]] = {}
    known: dict[tuple[str, str, str, str], str] = {}
    old: dict[tuple[str, str], ExistingJob] = {}
    for job in existing:
        old[job.agent, job.name] = job
        first = job.name
        if job.entry:
            first = known.setdefault((job.agent, job.kind, job.source, job.entry), first)
        # A copy that a person made has the labels of the job that was imported.
        names.setdefault(job.agent, {})[job.name] = (job.kind, job.source) if first == job.name else None
    keys: list[tuple[str, str, str, str]] = []
    counts: Counter[tuple[str, str, str]] = Counter()
    for entry in reading.entries:
        agent, own_source, work = entry.agent or choices.agent, label_value(source(entry)), _work_hash(entry)
        counts[agent, own_source, work] += 1
        number = counts[agent, own_source, work]
        keys.append((agent, choices.kind, own_source, work if number == 1 else f"{work}-{number}"))
    for key in keys:
        if key in known:
            names[key[0]][known[key]] = None
    for entry, key in zip(reading.entries, keys, strict=True):
        agent, kind, own_source, work = key
        taken = names.setdefault(agent, {})
        name = known.get(key) or choose_name(entry.name, (kind, own_source), taken)
        labels: dict[str, Json] = {KIND_LABEL: kind, SOURCE_LABEL: own_source, ENTRY_LABEL: work}
        document = _document(entry, name, labels, choices)
        if (before := old.get((agent, name))) is not None:
            document["labels"] = {**before.labels, **labels}
            document.pop("enabled", None)  # else the import would pause what was resumed since the last one
        try:
            definition = read_definition(document, now_ms=now_ms, defaults=Defaults())
        except InvalidArgument as error:
            refused.append(Remark(entry.place, entry.text, error.message.replace("\n", "; ")))
            continue
        assert definition.timing is not None
        taken[name] = None
        planned.append(PlannedJob(entry, agent, name, document, explain_schedule(definition.timing.schedule)))
    return planned, refused


def absent_jobs(
    planned: Sequence[PlannedJob], existing: Iterable[ExistingJob], kind: str
) -> list[tuple[str, str]]:
    """Return agent and name of jobs that an earlier import of the same files made, and this one does not.

    Copies of the jobs that this one makes are not among them.
    """
    sources = {each.source for each in planned}
    kept = {(each.agent, each.name) for each in planned}
    made = {(each.agent, each.source, each.work) for each in planned}
    return sorted(
        (job.agent, job.name)
        for job in existing
        if job.kind == kind
        and job.source in sources
        and (job.agent, job.name) not in kept
        and (job.agent, job.source, job.entry) not in made
    )


def label_value(text: str) -> str:
    """Return a text that fits into a label: a long one is cut, and ends with its hash.

    >>> label_value("host:/etc/crontab"), len(label_value("x" * 300))
    ('host:/etc/crontab', 255)
    """
    if len(text) <= _LONGEST_LABEL:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[: _LONGEST_LABEL - len(digest) - 1]}#{digest}"


def read_source(labels: object) -> str:
    """Return the identity of the file in the labels of a job, or ''."""
    return _label(labels, SOURCE_LABEL)


def _label(labels: object, name: str) -> str:
    return str(labels.get(name, "")) if isinstance(labels, Mapping) else ""


def _work_hash(entry: ImportEntry) -> str:
    """Return a hash of what an entry does: not of its schedule, which may change."""
    command = entry.command
    work = (
        [entry.place.item or entry.name] if command is None else [command.line, command.stdin, command.user]
    )
    return hashlib.sha256(json.dumps(work).encode()).hexdigest()[:16]


def _document(entry: ImportEntry, name: str, labels: dict[str, Json], choices: Choices) -> dict[str, Json]:
    document: dict[str, Json] = {"name": name, "schedule": entry.schedule, "tz": entry.tz or choices.tz}
    if entry.command is not None:
        own = choices.target is None
        document["target"] = _target(entry.command) if own else choices.target
        document["payload"] = None if own else _payload(entry.command)
        if own:
            document["timeoutMs"] = _COMMAND_TIMEOUT_MS
    elif choices.target is not None:
        document["target"] = choices.target
    document.update(entry.fields)
    document.setdefault("description", f"{choices.kind}, {entry.place}: {entry.text}"[:10_000])
    document["labels"] = labels
    return {**document, "enabled": False} if choices.paused else document


def _target(command: ImportedCommand) -> Json:
    """Return a command target that runs a program, or a line in a shell as cron does."""
    if command.argv is not None:
        program: dict[str, Json] = {"kind": "command", "argv": list(command.argv)}
        if command.cwd is not None:
            program["cwd"] = command.cwd
        return {**program, "env": dict(command.env)} if command.env else program
    # The shell sets the variables, so `WAKEFUL_COMMAND_ENV` does not have to allow them.
    env = dict(command.env)
    shell = env.pop("SHELL", "") or SHELL
    line = command.line
    if command.stdin is not None:
        # The newline ends a comment at the end of the line.
        line = f"printf %s {shlex.quote(command.stdin)} | {{ {line}\n}}"
    named = {name: value for name, value in env.items() if name.isascii() and name.isidentifier()}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in named.items())
    target: dict[str, Json] = {"kind": "command", "argv": [shell, "-c", exports + line]}
    if command.cwd is not None:
        target["cwd"] = command.cwd
    # A shell cannot set the other names; the server refuses the job and names them.
    others: dict[str, Json] = {name: value for name, value in env.items() if name not in named}
    return {**target, "env": others} if others else target


def _payload(command: ImportedCommand) -> Json:
    """Return what an executor needs to run the command."""
    payload: dict[str, Json] = {"command": command.line}
    optional = {"stdin": command.stdin, "user": command.user, "cwd": command.cwd}
    payload.update({name: value for name, value in optional.items() if value is not None})
    if command.env:
        payload["env"] = dict(command.env)
    return payload
