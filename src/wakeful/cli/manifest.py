"""The file of jobs that `apply` reads, and the changes that it makes.

A file is a list of job documents, or an object with `name`, `agent` and `jobs`. With a `name`, its jobs get
the label `managed-by: NAME`, and only jobs with that label are ever removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from wakeful.cli.pages import changed_fields
from wakeful.client.fields import document as plain
from wakeful.client.types import JobShape
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.job.job import check_slug
from wakeful.values.json_value import Json
from wakeful.values.yaml_text import YamlLines, load_yaml

LABEL: Final = "managed-by"
#: What becomes of a job.
Kind = Literal["created", "changed", "unchanged", "removed"]
_KEYS: Final = ("name", "agent", "jobs")


@dataclass(frozen=True, slots=True)
class ManifestChange:
    """The change to one job, and its changed fields as (old, new)."""

    kind: Kind
    agent: str
    name: str
    #: of a job that is removed, only its id
    document: dict[str, Json] = field(default_factory=dict)
    fields: dict[str, tuple[Json, Json]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ManifestJob:
    """A job in the file."""

    agent: str
    name: str
    document: dict[str, Json]
    #: its place in the list, from 0
    position: int = 0


class ManifestError(NamedTuple):
    """An error of a file; `job` is None if it is about the file."""

    job: str | None
    agent: str | None
    #: the place of the job in the list
    position: int | None
    #: `field: sentence`, or a sentence
    message: str
    code: str = InvalidArgument.code

    @property
    def field(self) -> str | None:
        """The field that the error is about."""
        field, colon, _ = self.message.partition(": ")
        return field.partition(".")[0] if colon and field.replace(".", "").isalnum() else None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A file of jobs. The jobs that are no documents are in `errors`."""

    name: str | None
    jobs: tuple[ManifestJob, ...]
    errors: tuple[ManifestError, ...] = ()


def read_manifest(text: str, agent: str, where: str = "the file") -> Manifest:
    """Read a file, YAML or JSON. Raise InvalidArgument if it is not a file of jobs.

    >>> read_manifest("agent: writer\\njobs: [{name: digest, schedule: '@daily'}]", "default").jobs[0].agent
    'writer'
    """
    manifest = parse_manifest(text, agent, where)
    if manifest.errors:
        raise InvalidArgument("\n".join(f"{where}: {error.message}" for error in manifest.errors))
    return manifest


def parse_manifest(text: str, agent: str, where: str = "the file") -> Manifest:
    """Do `read_manifest`; jobs without a name, or with a name that appears twice, are in `errors`."""
    content = load_yaml(text, where)
    name: object = None
    if isinstance(content, Mapping):
        unknown = [str(key) for key in content if key not in _KEYS]
        if unknown or "jobs" not in content:
            what = f"unknown key {', '.join(unknown)}" if unknown else "the key 'jobs' is missing"
            raise InvalidArgument(
                f"{where}: {what}; write a list of jobs, or an object with {', '.join(_KEYS)}"
            )
        name, agent = content.get("name"), str(content.get("agent") or agent)
        content = content["jobs"]
    if not isinstance(content, list) or not all(isinstance(each, Mapping) for each in content):
        raise InvalidArgument(f"{where}: write a list of jobs, each an object with a name and a schedule")
    if name is not None:
        check_slug(str(name), f"{where}: name")
    errors: list[ManifestError] = []
    jobs = tuple(_jobs(content, agent, name, errors))
    return Manifest(None if name is None else str(name), jobs, tuple(errors))


def locate_errors(
    errors: Iterable[ManifestError], text: str, where: str
) -> list[tuple[ManifestError, int | None]]:
    """Return the errors with their lines in the text of the file."""
    lines = YamlLines(text)
    in_object = isinstance(load_yaml(text, where), Mapping)
    found: list[tuple[ManifestError, int | None]] = []
    for error in errors:
        line = None
        if error.position is not None:
            field = [error.field] if error.field else []
            line = lines.of([*(["jobs"] if in_object else []), error.position, *field])
        found.append((error, line))
    return found


def plan(
    manifest: Manifest,
    jobs: Iterable[JobShape],
    would_be: Mapping[tuple[str, str], JobShape],
    *,
    prune: bool = False,
    agent: str | None = None,
) -> list[ManifestChange]:
    """Return the changes that turn `jobs` into the file's.

    `would_be` has each job of the file that exists as the server would save it: only the server knows its
    defaults. One that is missing counts as changed: the server does not say. With an `agent`, jobs of agents
    that neither it nor the file names are not removed: one file may be applied to several agents.
    """
    existing = {(job["agentId"], job["name"]): job for job in jobs}
    changes: list[ManifestChange] = []
    for wanted in manifest.jobs:
        key = wanted.agent, wanted.name
        if key not in existing:
            changes.append(ManifestChange("created", *key, wanted.document))
            continue
        old, new = existing[key], would_be.get(key)
        kind: Kind = "unchanged" if new and old["revision"] == new["revision"] else "changed"
        fields = changed_fields(old, new) if new and kind == "changed" else {}
        changes.append(ManifestChange(kind, *key, wanted.document, fields))
    if prune:
        if manifest.name is None:
            raise InvalidArgument(
                "--prune removes jobs by the file's `name`, and the file has none; add a `name`"
            )
        kept = {(wanted.agent, wanted.name) for wanted in manifest.jobs}
        own = None if agent is None else {agent, *(wanted.agent for wanted in manifest.jobs)}
        changes += [
            ManifestChange("removed", *key, {"id": job["id"]})
            for key, job in existing.items()
            if key not in kept
            and job["labels"].get(LABEL) == manifest.name
            and (own is None or job["agentId"] in own)
        ]
    return changes


def job_errors(job: ManifestJob, error: WakefulError) -> list[ManifestError]:
    """Return the errors of one document, one for each line of the message."""
    lines = error.message.splitlines()
    return [ManifestError(job.name, job.agent, job.position, line, error.code) for line in lines]


def _jobs(
    content: Sequence[Mapping[str, object]], default_agent: str, name: object, errors: list[ManifestError]
) -> Iterable[ManifestJob]:
    seen: set[tuple[str, str]] = set()
    for index, entry in enumerate(content):
        job = plain(entry)
        agent = str(job.pop("agentId", None) or job.pop("agent_id", None) or default_agent)
        slug = job.get("name")
        if not isinstance(slug, str):
            message = f"job {index + 1} has no name; add one such as 'daily-report'"
            errors.append(ManifestError(None, agent, index, message))
            continue
        try:
            check_slug(agent, "agent")
        except InvalidArgument as error:
            errors.append(ManifestError(slug, agent, index, error.message))
            continue
        if (agent, slug) in seen:
            message = f"job '{slug}' of the agent '{agent}' appears twice"
            errors.append(ManifestError(slug, agent, index, message))
            continue
        seen.add((agent, slug))
        if name is not None:
            labels = job.get("labels") or {}
            if isinstance(labels, dict):  # read_definition refuses other types
                job["labels"] = {**labels, LABEL: str(name)}
        yield ManifestJob(agent, slug, job, index)
