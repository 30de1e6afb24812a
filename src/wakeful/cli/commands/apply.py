"""`wakeful apply`: create, change and delete jobs so that they match a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli.arguments import CreateAgent, read_text
from wakeful.cli.concurrency import batches, gather
from wakeful.cli.exit_codes import DRIFT, OK, exit_code
from wakeful.cli.new_jobs import check_documents, create_together, group_new_jobs
from wakeful.cli.output import field_lines, full_name, print_error
from wakeful.cli.session import CliSession, command
from wakeful.cli.unknown_names import UnknownName
from wakeful.client.connection import error_of_code
from wakeful.client.types import JobShape
from wakeful.errors import InvalidArgument, Unavailable, WakefulError
from wakeful.values.plural import plural

if TYPE_CHECKING:
    from wakeful.cli.manifest import Kind, Manifest, ManifestChange, ManifestError

_MARKS: Final[dict[Kind, tuple[str, str]]] = {
    "created": ("+", "green"),
    "changed": ("~", "yellow"),
    "unchanged": ("=", "dim"),
    "removed": ("-", "red"),
}


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "apply",
        examples=(
            "wakeful apply jobs.yaml --dry-run",
            "wakeful apply jobs.yaml --prune",
        ),
        panel="Files",
    )
    async def apply(
        s: CliSession,
        file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - is stdin")],
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="show the changes without making them")
        ] = False,
        prune: Annotated[
            bool, typer.Option("--prune", help="delete jobs that an earlier version of the file created")
        ] = False,
        create_agent: CreateAgent = False,
    ) -> int:
        """Create and change jobs to match a file. Applying the same file again changes nothing.

        A file is a list of jobs, or {name, agent, jobs}. If a job is invalid, all errors are listed, and
        nothing changes. With --dry-run the exit code is 2 if the file would change something, else 0.
        """
        from wakeful.cli.manifest import job_errors, locate_errors, parse_manifest, plan

        text = await read_text(file)
        manifest = parse_manifest(text, s.agent or "default", file)
        others = [job.agent for job in manifest.jobs if job.agent != s.agent]
        if others and s.agent_option:
            raise InvalidArgument(
                f"{file}: it names the agent '{others[0]}', but --agent is '{s.agent}'; remove one of them"
            )
        before = await s.out.wait_for(s.client.list_every_job())
        errors = [*manifest.errors, *await _agent_errors(s, manifest, before, create_agent)]
        existing = {(job["agentId"], job["name"]) for job in before}
        checked, failed = await check_documents(
            s, manifest.jobs, lambda job: (job.agent, job.name) not in existing
        )
        errors += [each for job, error in failed for each in job_errors(job, error)]
        if errors:
            raise _build_error(s, locate_errors(errors, text, file), file, dry_run)
        would_be = {(wanted.agent, wanted.name): job for wanted, job in checked}
        changes = plan(manifest, before, would_be, prune=prune, agent=s.agent)
        saved: dict[tuple[str, str], JobShape] = {}
        warnings: dict[tuple[str, str], list[str]] = {}
        refused: list[tuple[ManifestChange, WakefulError]] = []
        untried: list[ManifestChange] = []
        if not dry_run:
            versions = {(job["agentId"], job["name"]): job["revision"] for job in before}
            done, refused, untried = await _apply(s, _steps(changes, before), saved, warnings)
            changes = [_actual(change, saved, versions) for change in done]
        warnings |= {key: job["warnings"] for key, job in saved.items() if job.get("warnings")}
        secrets = {key: job["secret"] for key, job in saved.items() if job.get("secret")}
        result = {
            "dryRun": dry_run,
            "changes": [
                {
                    "change": each.kind,
                    "agentId": each.agent,
                    "name": each.name,
                    "fields": {name: {"old": old, "new": new} for name, (old, new) in each.fields.items()},
                    **(
                        {"secret": secrets[each.agent, each.name]}
                        if (each.agent, each.name) in secrets
                        else {}
                    ),
                    **(
                        {"warnings": warnings[each.agent, each.name]}
                        if (each.agent, each.name) in warnings
                        else {}
                    ),
                }
                for each in changes
            ],
            **(_failure(refused, untried) if refused else {}),
        }
        s.out.show(result, *diff(changes, dry_run=dry_run))
        for (_, name), secret in secrets.items():
            s.out.say(Text(f"secret of {name}, not shown again: ").append(str(secret), "green"))
        s.out.print_warnings(warning for found in warnings.values() for warning in found)
        if not refused:
            changing = any(each.kind != "unchanged" for each in changes)
            return DRIFT if dry_run and changing else OK
        for error, names in _group_by_error(refused):
            not_done = "may not have been" if error.code == Unavailable.code else "was not"
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            print_error(f"job '{names[0]}'{more} {not_done} applied: {error.message}")
        if untried:
            print_error(f"not tried: {', '.join(change.name for change in untried)}")
        were = "was" if len(changes) == 1 else "were"
        print_error(
            f"{plural(len(changes), 'job')} {were} applied; fix the cause, then apply the same file again"
        )
        return exit_code(refused[0][1])


async def _agent_errors(
    s: CliSession, manifest: Manifest, jobs: Iterable[JobShape], create: bool
) -> list[ManifestError]:
    """Return an error if the file names an agent that is perhaps a typing error."""
    from wakeful.cli.manifest import ManifestError

    with_jobs = {job["agentId"] for job in jobs}
    unknown = [job for job in manifest.jobs if job.agent not in with_jobs]
    for job in {job.agent: job for job in reversed(unknown)}.values():
        try:
            await s.check_agents(job.agent, create=create)
        except UnknownName as error:
            return [ManifestError(job.name, job.agent, job.position, error.message, error.code)]
    return []


def _build_error(
    s: CliSession, errors: Sequence[tuple[ManifestError, int | None]], file: str, dry_run: bool
) -> WakefulError:
    """Return one error that lists all errors of the file; with --json, print them."""
    name = "stdin" if file == "-" else file
    lines, details = [], []
    for error, line in errors:
        at = name if line is None else f"{name}:{line}"
        job = "" if error.job is None else f"job '{error.job}': "
        lines.append(f"{at}: {job}{error.message}")
        details.append(
            {
                "file": name,
                "line": line,
                "agentId": error.agent,
                "name": error.job,
                "field": error.field,
                "code": error.code,
                "message": error.message,
            }
        )
    s.out.show({"dryRun": dry_run, "changes": [], "errors": details})
    return error_of_code(errors[0][0].code)("\n".join(lines))


def _steps(changes: Sequence[ManifestChange], before: Iterable[JobShape]) -> list[list[ManifestChange]]:
    """Return the jobs to save, then those to delete, each after the jobs that follow it in a chain.

    So the server warns of no job that is deleted too.
    """
    upstream = {
        (job["agentId"], job["name"]): (job["agentId"], after["job"])
        for job in before
        if (after := job.get("after"))
    }
    left = {(each.agent, each.name): each for each in changes if each.kind == "removed"}
    steps = [[each for each in changes if each.kind != "removed"]]
    while left:
        followed = {upstream[key] for key in left if key in upstream}
        ends = [key for key in left if key not in followed] or [*left]
        steps.append([left.pop(key) for key in ends])
    return steps


async def _apply(
    s: CliSession,
    steps: Sequence[Sequence[ManifestChange]],
    saved: dict[tuple[str, str], JobShape],
    warnings: dict[tuple[str, str], list[str]],
) -> tuple[list[ManifestChange], list[tuple[ManifestChange, WakefulError]], list[ManifestChange]]:
    """Save the file's jobs, then delete the pruned ones; stop at the first batch with a refusal.

    New jobs come first, many in one request; if that is refused, each is saved alone. Returns the changes
    done, refused and not tried. `saved` receives the saved jobs, and `warnings` what the deletions mean for
    jobs that are left.
    """
    changes = [change for step in steps for change in step]
    done: list[ManifestChange] = []
    refused: list[tuple[ManifestChange, WakefulError]] = []
    with s.out.show_progress("applying", len(changes)) as count:
        for group in group_new_jobs([change for change in changes if change.kind == "created"]):
            try:
                created = await create_together(s, group)
            except WakefulError as error:
                refused = [(change, error) for change in group]
                break
            if created is not None:
                done += group
                saved |= {(job["agentId"], job["name"]): job for job in created}
                count(len(group))
        left = [[each for each in step if (each.agent, each.name) not in saved] for step in steps]
        for batch in (batch for step in left for batch in batches(step) if not refused):
            results = await gather(_send(s, change) for change in batch)
            refused = _find_refused(batch, results)
            for change, result in zip(batch, results, strict=True):
                if not isinstance(result, WakefulError):
                    done.append(change)
                    if not isinstance(result, list):
                        saved[change.agent, change.name] = result
                    elif result:
                        warnings[change.agent, change.name] = result
            if refused:
                break
            count(len(batch))
    tried = {id(change) for change in done} | {id(change) for change, _ in refused}
    places = {id(change): place for place, change in enumerate(changes)}
    done.sort(key=lambda change: places[id(change)])
    return done, refused, [change for change in changes if id(change) not in tried]


def _group_by_error(
    refused: Sequence[tuple[ManifestChange, WakefulError]],
) -> Iterable[tuple[WakefulError, list[str]]]:
    """Return each error with the names of the jobs that have it."""
    names: dict[int, tuple[WakefulError, list[str]]] = {}
    for change, error in refused:
        names.setdefault(id(error), (error, []))[1].append(change.name)
    return names.values()


def _find_refused(
    batch: Sequence[ManifestChange], results: Sequence[object]
) -> list[tuple[ManifestChange, WakefulError]]:
    pairs = zip(batch, results, strict=True)
    return [(change, result) for change, result in pairs if isinstance(result, WakefulError)]


def _failure(
    refused: Sequence[tuple[ManifestChange, WakefulError]], untried: Sequence[ManifestChange]
) -> dict[str, object]:
    return {
        "refused": [
            {"agentId": each.agent, "name": each.name, "code": error.code, "message": error.message}
            for each, error in refused
        ],
        "notTried": [{"agentId": each.agent, "name": each.name} for each in untried],
    }


async def _send(s: CliSession, change: ManifestChange) -> JobShape | list[str]:
    """Save a job, or delete it and return the warnings."""
    if change.kind == "removed":
        return await s.client.delete_job(
            change.agent, str(change.document["id"])
        )  # another may have its name
    saved, _ = await s.client.save_job(change.agent, change.document)
    return saved


def _actual(
    change: ManifestChange, saved: dict[tuple[str, str], JobShape], versions: dict[tuple[str, str], int]
) -> ManifestChange:
    """Return the change that the server made: none if the job's revision is the same as before."""
    key = change.agent, change.name
    if change.kind not in ("changed", "unchanged") or key not in saved:
        return change
    moved = saved[key]["revision"] != versions.get(key)
    if moved == (change.kind == "changed"):
        return change
    return replace(change, kind="changed" if moved else "unchanged", fields={})


def diff(changes: Sequence[ManifestChange], *, dry_run: bool) -> Iterator[RenderableType]:
    """Yield a line for each job, a line for each changed field, and the totals."""
    for change in changes:
        mark, colour = _MARKS[change.kind]
        yield Text(f"{mark} {full_name(change.agent, change.name)}", colour).append(f"  {change.kind}", "dim")
        yield from field_lines(change.fields)
    counts = Counter(change.kind for change in changes)
    totals = ", ".join(f"{counts[kind]} {kind}" for kind in _MARKS)
    yield Text(totals + (" (dry run)" if dry_run else ""), "bold")
