"""`wakeful apply`: create, change and delete jobs so that they match a file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import Annotated, Final, TypeVar

import typer
from rich.text import Text

from wakeful.cli.arguments import CreateAgent, now_ms, read_text
from wakeful.cli.exit_codes import OK, exit_code
from wakeful.cli.output import print_error
from wakeful.cli.session import Session, command
from wakeful.cli.show.diff import JobChange, diff
from wakeful.client.types import JobShape
from wakeful.errors import Unavailable, WakefulError

T = TypeVar("T")

#: Concurrent requests.
_BATCH: Final = 8


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
        s: Session,
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

        A file is a list of jobs, or {name, agent, jobs}. If any job in it is invalid, nothing changes.
        """
        from wakeful.cli.manifest import plan, read_manifest

        manifest = read_manifest(await read_text(file), s.agent or "default", file)
        before = await s.out.wait_for(s.client.jobs.list(all_agents=True))
        with_jobs = {job["agentId"] for job in before}
        unknown = [job.agent for job in manifest.jobs if job.agent not in with_jobs]
        if unknown:
            await s.check_agents(*unknown, create=create_agent)
        changes = plan(manifest, before, now_ms=now_ms(), prune=prune)
        await _validate(s, changes)
        saved: dict[tuple[str, str], JobShape] = {}
        refused: list[tuple[JobChange, WakefulError]] = []
        untried: list[JobChange] = []
        if not dry_run:
            versions = {(job["agentId"], job["name"]): job["revision"] for job in before}
            done, refused, untried = await _apply(s, changes, saved)
            changes = [_actual(change, saved, versions) for change in done]
        warnings = {key: job["warnings"] for key, job in saved.items() if job.get("warnings")}
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
        s.out.warn_of(warning for found in warnings.values() for warning in found)
        if not refused:
            return OK
        for change, error in refused:
            was = "may not have been" if error.code == Unavailable.code else "was not"
            print_error(f"job '{change.name}' {was} applied: {error.message}")
        if untried:
            print_error(f"not tried: {', '.join(change.name for change in untried)}")
        print_error(f"{len(changes)} jobs were applied; fix the cause, then apply the same file again")
        return exit_code(refused[0][1])


async def _validate(s: Session, changes: Sequence[JobChange]) -> None:
    """Validate every document on the server; raise one error that lists all that are refused."""
    wanted = [change for change in changes if change.kind != "removed"]
    wrong: list[tuple[JobChange, WakefulError]] = []
    for batch in _batches(wanted):
        wrong += _refused(batch, await _gather(s.jobs(each.agent).dry_run(each.document) for each in batch))
    if wrong:
        lines = [f"job '{change.name}': {line}" for change, e in wrong for line in e.message.splitlines()]
        raise type(wrong[0][1])("\n".join(lines))


async def _apply(
    s: Session, changes: Sequence[JobChange], saved: dict[tuple[str, str], JobShape]
) -> tuple[list[JobChange], list[tuple[JobChange, WakefulError]], list[JobChange]]:
    """Save the file's jobs, then delete the pruned ones; stop at the first batch with a refusal.

    Returns the changes done, refused and not tried. `saved` receives the saved jobs.
    """
    done: list[JobChange] = []
    refused: list[tuple[JobChange, WakefulError]] = []
    with s.out.counting("applying", len(changes)) as step:
        for batch in _batches(changes):
            results = await _gather(_send(s, change) for change in batch)
            refused = _refused(batch, results)
            for change, result in zip(batch, results, strict=True):
                if not isinstance(result, WakefulError):
                    done.append(change)
                    if result is not None:
                        saved[change.agent, change.name] = result
            if refused:
                break
            step(len(batch))
    return done, refused, list(changes[len(done) + len(refused) :])


def _batches(changes: Sequence[JobChange]) -> Iterator[Sequence[JobChange]]:
    return (changes[start : start + _BATCH] for start in range(0, len(changes), _BATCH))


async def _gather(requests: Iterable[Awaitable[T]]) -> list[T | WakefulError]:
    """Return the result or WakefulError of each request; raise any other exception."""
    results: list[T | WakefulError] = []
    for result in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, WakefulError):
            raise result
        results.append(result)
    return results


def _refused(batch: Sequence[JobChange], results: Sequence[object]) -> list[tuple[JobChange, WakefulError]]:
    pairs = zip(batch, results, strict=True)
    return [(change, result) for change, result in pairs if isinstance(result, WakefulError)]


def _failure(
    refused: Sequence[tuple[JobChange, WakefulError]], untried: Sequence[JobChange]
) -> dict[str, object]:
    return {
        "refused": [
            {"agentId": each.agent, "name": each.name, "code": error.code, "message": error.message}
            for each, error in refused
        ],
        "notTried": [{"agentId": each.agent, "name": each.name} for each in untried],
    }


async def _send(s: Session, change: JobChange) -> JobShape | None:
    jobs = s.jobs(change.agent)
    if change.kind == "removed":
        await jobs.delete(change.name)
        return None
    return await jobs.upsert(change.document)


def _actual(
    change: JobChange, saved: dict[tuple[str, str], JobShape], versions: dict[tuple[str, str], int]
) -> JobChange:
    """Return the change that the server made: none if the job's revision is the same as before."""
    key = change.agent, change.name
    if change.kind not in ("changed", "unchanged") or key not in saved:
        return change
    moved = saved[key]["revision"] != versions.get(key)
    if moved == (change.kind == "changed"):
        return change
    return JobChange("changed" if moved else "unchanged", change.agent, change.name, change.document)
