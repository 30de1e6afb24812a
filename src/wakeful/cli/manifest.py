"""A file of jobs: what `apply` reads, and what it would change.

A file is a list of job documents, or an object of `name`, `agent` and `jobs`. A `name` makes its jobs the
file's own: they carry it as the label `managed-by`, and only such jobs are ever removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import yaml

from wakeful.cli.changes import Change
from wakeful.client.fields import document as plain
from wakeful.client.types import JobShape
from wakeful.document import Defaults, read_definition, write_definition
from wakeful.document.fields import ABOUT, POLICY, TIMING, WORK
from wakeful.errors import InvalidArgument
from wakeful.job import Definition, Json, check_slug

LABEL: Final = "managed-by"
_KEYS: Final = ("name", "agent", "jobs")
#: What a definition is made of, as a job shows it.
_FIELDS: Final = (
    "name",
    "tz",
    "payload",
    *(f.name for table in (TIMING, WORK, POLICY, ABOUT) for f in table),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job that the file has."""

    agent: str
    name: str
    document: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A file of jobs."""

    name: str | None
    jobs: tuple[Wanted, ...]


def read_manifest(text: str, agent: str, where: str = "the file") -> Manifest:
    """The jobs of a file, YAML or JSON; InvalidArgument where it is no such file.

    >>> read_manifest("agent: writer\\njobs: [{name: digest, schedule: '@daily'}]", "default").jobs[0].agent
    'writer'
    """
    content = _load(text, where)
    name: object = None
    if isinstance(content, Mapping):
        unknown = [str(key) for key in content if key not in _KEYS]
        if unknown or "jobs" not in content:
            what = f"it has no {', '.join(unknown)}" if unknown else "its jobs are missing"
            raise InvalidArgument(
                f"{where}: {what}; write a list of jobs, or an object of {', '.join(_KEYS)}"
            )
        name, agent = content.get("name"), str(content.get("agent") or agent)
        content = content["jobs"]
    if not isinstance(content, list) or not all(isinstance(each, Mapping) for each in content):
        raise InvalidArgument(f"{where}: jobs are a list, each an object with a name and a schedule")
    if name is not None:
        check_slug(str(name), f"{where}: name")
    return Manifest(None if name is None else str(name), tuple(_wanted(content, agent, name, where)))


def plan(
    manifest: Manifest,
    jobs: Iterable[JobShape],
    *,
    now_ms: int,
    prune: bool = False,
    defaults: Defaults | None = None,
) -> list[Change]:
    """What the file would change about these jobs; InvalidArgument if any document is wrong, saying all.

    A schedule that names no zone is taken to stay in the one it is in: which one a new one is given, only the
    server knows.
    """
    there = {(job["agentId"], job["name"]): job for job in jobs}
    changes: list[Change] = []
    wrong: list[str] = []
    for wanted in manifest.jobs:
        try:
            old = there.get((wanted.agent, wanted.name))
            changes.append(_change(wanted, old, now_ms, defaults or Defaults()))
        except InvalidArgument as error:
            wrong += [f"job '{wanted.name}': {line}" for line in error.message.splitlines()]
    if wrong:
        raise InvalidArgument("\n".join(wrong))
    if prune:
        if manifest.name is None:
            raise InvalidArgument(
                "--prune removes the jobs of the file's name, and it has none; give it a `name`"
            )
        kept = {(wanted.agent, wanted.name) for wanted in manifest.jobs}
        changes += [
            Change("removed", agent, name)
            for (agent, name), job in there.items()
            if (agent, name) not in kept and job["labels"].get(LABEL) == manifest.name
        ]
    return changes


def _change(wanted: Wanted, job: JobShape | None, now_ms: int, defaults: Defaults) -> Change:
    if job is None:
        read_definition(wanted.document, now_ms=now_ms, defaults=defaults)
        return Change("created", wanted.agent, wanted.name, wanted.document)
    old = _definition(job, now_ms)
    tz = job["tz"] or defaults.tz
    new = read_definition(wanted.document, now_ms=now_ms, defaults=_in_zone(defaults, tz), old=old)
    before, after = write_definition(old), write_definition(new)
    fields = {key: (before[key], after[key]) for key in after if before.get(key) != after[key]}
    enabled = wanted.document.get("enabled")
    if isinstance(enabled, bool) and enabled != job["enabled"]:
        fields["enabled"] = (job["enabled"], enabled)
    return Change("changed" if fields else "unchanged", wanted.agent, wanted.name, wanted.document, fields)


def _definition(job: JobShape, now_ms: int) -> Definition:
    shown = cast(Mapping[str, Json], job)
    document = {key: shown[key] for key in _FIELDS if key in shown}
    return read_definition(document, now_ms=now_ms, defaults=Defaults(), stored=True)


def _in_zone(defaults: Defaults, tz: str) -> Defaults:
    return Defaults(tz, defaults.overlap, defaults.catchup, defaults.jitter_ms)


def _wanted(
    content: Sequence[Mapping[str, object]], agent: str, name: object, where: str
) -> Iterable[Wanted]:
    seen: set[tuple[str, str]] = set()
    for index, given in enumerate(content, 1):
        job = plain(given)
        whose = str(job.pop("agentId", None) or job.pop("agent_id", None) or agent)
        if not isinstance(job.get("name"), str):
            raise InvalidArgument(f"{where}: job {index} has no name; give it one such as 'daily-report'")
        check_slug(whose, f"{where}: agent")
        slug = str(job["name"])
        if (whose, slug) in seen:
            raise InvalidArgument(f"{where}: job '{slug}' of the agent '{whose}' is there twice")
        seen.add((whose, slug))
        if name is not None:
            labels = job.get("labels") or {}
            if isinstance(labels, dict):  # what else they are, the reader of documents refuses
                job["labels"] = {**labels, LABEL: str(name)}
        yield Wanted(whose, slug, job)


# --- YAML as people mean it -------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML 1.2: `on` is a word, `09:30` is no number of seconds, a date is text; and no key stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping, if each key is in it once."""
        keys: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key_node.tag != "tag:yaml.org,2002:merge" and key in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"'{key}' is there twice", problem_mark=key_node.start_mark
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
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise InvalidArgument(f"{where}: this is neither YAML nor JSON: {line}{problem}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{where}: this is neither YAML nor JSON: {error}") from error
