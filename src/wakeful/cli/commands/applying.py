"""Making the server's jobs what a file says: `apply`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import Annotated, Final, TypeVar

import typer
from rich.text import Text

from wakeful.cli.arguments import now_ms, read_text
from wakeful.cli.changes import Change
from wakeful.cli.exit_codes import OK, exit_code
from wakeful.cli.output import complain
from wakeful.cli.session import Session, command
from wakeful.cli.show.diff import diff
from wakeful.client.types import JobShape
from wakeful.errors import Unavailable, WakefulError

T = TypeVar("T")

#: How many are sent at once.
_AT_ONCE: Final = 8


def register(app: typer.Typer) -> None:
    """Put these commands on the app."""

    @command(app, "apply", panel="Files")
    async def apply(
        s: Session,
        file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - is stdin")],
        dry_run: Annotated[bool, typer.Option("--dry-run", help="change nothing, say what would be")] = False,
        prune: Annotated[
            bool, typer.Option("--prune", help="delete the jobs of this file that it does not have any more")
        ] = False,
    ) -> int:
        """Make the jobs what a file says; the same file again changes nothing.

        A file is a list of jobs, or {name, agent, jobs}. Nothing is changed if anything in it is wrong.
        """
        from wakeful.cli.manifest import plan, read_manifest

        manifest = read_manifest(await read_text(file), s.agent or "default", file)
        before = await s.out.ask(s.client.jobs.list(all_agents=True))
        changes = plan(manifest, before, now_ms=now_ms(), prune=prune)
        await _rehearse(s, changes)
        saved: dict[tuple[str, str], JobShape] = {}
        refused: list[tuple[Change, WakefulError]] = []
        left: list[Change] = []
        if not dry_run:
            versions = {(job["agentId"], job["name"]): job["revision"] for job in before}
            done, refused, left = await _carry_out(s, changes, saved)
            changes = [_as_it_was(change, saved, versions) for change in done]
        secrets = {key: job["secret"] for key, job in saved.items() if job.get("secret")}
        answer = {
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
                }
                for each in changes
            ],
            **(_stopped(refused, left) if refused else {}),
        }
        s.out.show(answer, *diff(changes, dry_run=dry_run))
        for (_, name), secret in secrets.items():
            s.out.say(Text(f"secret of {name}, not shown again: ").append(str(secret), "green"))
        if not refused:
            return OK
        for change, error in refused:
            was = "may not have been" if error.code == Unavailable.code else "was not"
            complain(f"job '{change.name}' {was} applied: {error.message}")
        if left:
            complain(f"not tried: {', '.join(change.name for change in left)}")
        complain(f"{len(changes)} were applied; apply the same file again when that is settled")
        return exit_code(refused[0][1])


async def _rehearse(s: Session, changes: Sequence[Change]) -> None:
    """Have the server judge what it will be sent: what it would refuse it says now, all of it."""
    wanted = [change for change in changes if change.kind != "removed"]
    wrong: list[tuple[Change, WakefulError]] = []
    for some in _batches(wanted):
        wrong += _refused(some, await _at_once(s.jobs(each.agent).check(each.document) for each in some))
    if wrong:
        lines = [f"job '{change.name}': {line}" for change, e in wrong for line in e.message.splitlines()]
        raise type(wrong[0][1])("\n".join(lines))


async def _carry_out(
    s: Session, changes: Sequence[Change], saved: dict[tuple[str, str], JobShape]
) -> tuple[list[Change], list[tuple[Change, WakefulError]], list[Change]]:
    """Send what the file has, then remove what it does not have; what is refused ends it.

    Returns what was done, what was refused, and what was not tried; `saved` gets the jobs as they are now.
    """
    done: list[Change] = []
    refused: list[tuple[Change, WakefulError]] = []
    with s.out.counting("applying", len(changes)) as step:
        for some in _batches(changes):
            results = await _at_once(_send(s, change) for change in some)
            refused = _refused(some, results)
            for change, result in zip(some, results, strict=True):
                if not isinstance(result, WakefulError):
                    done.append(change)
                    if result is not None:
                        saved[change.agent, change.name] = result
            if refused:
                break
            step(len(some))
    return done, refused, list(changes[len(done) + len(refused) :])


def _batches(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    return (changes[start : start + _AT_ONCE] for start in range(0, len(changes), _AT_ONCE))


async def _at_once(sent: Iterable[Awaitable[T]]) -> list[T | WakefulError]:
    """What came of each; whatever is no refusal is raised."""
    results: list[T | WakefulError] = []
    for result in await asyncio.gather(*sent, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, WakefulError):
            raise result
        results.append(result)
    return results


def _refused(some: Sequence[Change], results: Sequence[object]) -> list[tuple[Change, WakefulError]]:
    both = zip(some, results, strict=True)
    return [(change, result) for change, result in both if isinstance(result, WakefulError)]


def _stopped(refused: Sequence[tuple[Change, WakefulError]], left: Sequence[Change]) -> dict[str, object]:
    return {
        "refused": [
            {"agentId": each.agent, "name": each.name, "code": error.code, "message": error.message}
            for each, error in refused
        ],
        "notTried": [{"agentId": each.agent, "name": each.name} for each in left],
    }


async def _send(s: Session, change: Change) -> JobShape | None:
    jobs = s.jobs(change.agent)
    if change.kind == "removed":
        await jobs.delete(change.name)
        return None
    return await jobs.send(change.document)


def _as_it_was(
    change: Change, saved: dict[tuple[str, str], JobShape], versions: dict[tuple[str, str], int]
) -> Change:
    """The change as the server made it: where its version is the same, nothing was."""
    key = change.agent, change.name
    if change.kind not in ("changed", "unchanged") or key not in saved:
        return change
    moved = saved[key]["revision"] != versions.get(key)
    if moved == (change.kind == "changed"):
        return change
    return Change("changed" if moved else "unchanged", change.agent, change.name, change.document)
