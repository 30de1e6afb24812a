"""The file of jobs that `apply` reads, and the changes that it makes.

A file is a list of job documents, or an object with `name`, `agent` and `jobs`. With a `name`, its jobs get
the label `managed-by: NAME`, and only jobs with that label are ever removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import yaml

from wakeful.cli.show.diff import JobChange
from wakeful.client.fields import document as plain
from wakeful.client.types import JobShape
from wakeful.document import Defaults, read_definition, write_definition
from wakeful.document.fields import DECLARED
from wakeful.errors import InvalidArgument
from wakeful.job import Definition, Json, check_slug

LABEL: Final = "managed-by"
_KEYS: Final = ("name", "agent", "jobs")
#: The fields of a job that belong to its definition.
_FIELDS: Final = ("name", "tz", "payload", *(field.name for field in DECLARED))


@dataclass(frozen=True, slots=True)
class ManifestJob:
    """A job in the file."""

    agent: str
    name: str
    document: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A file of jobs."""

    name: str | None
    jobs: tuple[ManifestJob, ...]


def read_manifest(text: str, agent: str, where: str = "the file") -> Manifest:
    """Read a file, YAML or JSON. Raise InvalidArgument if it is not a file of jobs.

    >>> read_manifest("agent: writer\\njobs: [{name: digest, schedule: '@daily'}]", "default").jobs[0].agent
    'writer'
    """
    content = _load(text, where)
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
    return Manifest(None if name is None else str(name), tuple(_jobs(content, agent, name, where)))


def plan(
    manifest: Manifest,
    jobs: Iterable[JobShape],
    *,
    now_ms: int,
    prune: bool = False,
    defaults: Defaults | None = None,
) -> list[JobChange]:
    """Return the changes that turn `jobs` into the file's. Raise InvalidArgument with all wrong documents.

    A schedule without a zone keeps the job's current one, since only the server knows the default.
    """
    existing = {(job["agentId"], job["name"]): job for job in jobs}
    changes: list[JobChange] = []
    wrong: list[str] = []
    for wanted in manifest.jobs:
        try:
            old = existing.get((wanted.agent, wanted.name))
            changes.append(_change(wanted, old, now_ms, defaults or Defaults()))
        except InvalidArgument as error:
            wrong += [f"job '{wanted.name}': {line}" for line in error.message.splitlines()]
    if wrong:
        raise InvalidArgument("\n".join(wrong))
    if prune:
        if manifest.name is None:
            raise InvalidArgument(
                "--prune removes jobs by the file's `name`, and the file has none; add a `name`"
            )
        kept = {(wanted.agent, wanted.name) for wanted in manifest.jobs}
        changes += [
            JobChange("removed", agent, name)
            for (agent, name), job in existing.items()
            if (agent, name) not in kept and job["labels"].get(LABEL) == manifest.name
        ]
    return changes


def _change(wanted: ManifestJob, job: JobShape | None, now_ms: int, defaults: Defaults) -> JobChange:
    if job is None:
        read_definition(wanted.document, now_ms=now_ms, defaults=defaults)
        return JobChange("created", wanted.agent, wanted.name, wanted.document)
    old = _definition(job, now_ms)
    tz = job["tz"] or defaults.tz
    new = read_definition(wanted.document, now_ms=now_ms, defaults=_in_zone(defaults, tz), old=old)
    before, after = write_definition(old), write_definition(new)
    fields = {key: (before[key], after[key]) for key in after if before.get(key) != after[key]}
    enabled = wanted.document.get("enabled")
    if isinstance(enabled, bool) and enabled != job["enabled"]:
        fields["enabled"] = (job["enabled"], enabled)
    return JobChange("changed" if fields else "unchanged", wanted.agent, wanted.name, wanted.document, fields)


def _definition(job: JobShape, now_ms: int) -> Definition:
    shown = cast(Mapping[str, Json], job)
    document = {key: shown[key] for key in _FIELDS if key in shown}
    return read_definition(document, now_ms=now_ms, defaults=Defaults(), stored=True)


def _in_zone(defaults: Defaults, tz: str) -> Defaults:
    return Defaults(tz, defaults.overlap, defaults.catchup, defaults.jitter_ms)


def _jobs(
    content: Sequence[Mapping[str, object]], default_agent: str, name: object, where: str
) -> Iterable[ManifestJob]:
    seen: set[tuple[str, str]] = set()
    for index, entry in enumerate(content, 1):
        job = plain(entry)
        agent = str(job.pop("agentId", None) or job.pop("agent_id", None) or default_agent)
        if not isinstance(job.get("name"), str):
            raise InvalidArgument(f"{where}: job {index} has no name; add one such as 'daily-report'")
        check_slug(agent, f"{where}: agent")
        slug = str(job["name"])
        if (agent, slug) in seen:
            raise InvalidArgument(f"{where}: job '{slug}' of the agent '{agent}' appears twice")
        seen.add((agent, slug))
        if name is not None:
            labels = job.get("labels") or {}
            if isinstance(labels, dict):  # read_definition refuses other types
                job["labels"] = {**labels, LABEL: str(name)}
        yield ManifestJob(agent, slug, job)


class _Loader(yaml.SafeLoader):
    """YAML 1.2: `on`, `09:30` and dates are text. Duplicate keys are an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping; raise MarkedYAMLError if a key appears twice."""
        keys: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key_node.tag != "tag:yaml.org,2002:merge" and key in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"the key '{key}' appears twice", problem_mark=key_node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":timestamp", ":int"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_BOOL: Final = re.compile(r"(true|True|TRUE|false|False|FALSE)$")
_INT: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))


def _load(text: str, where: str) -> object:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or "unreadable"
        raise InvalidArgument(f"{where}: not valid YAML or JSON: {line}{problem}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{where}: not valid YAML or JSON: {error}") from error
