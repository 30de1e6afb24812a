"""Making the server's jobs what a file says: `apply`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.text import Text

from wakeful.cli.arguments import now_ms, read_text
from wakeful.cli.changes import Change
from wakeful.cli.session import Session, command
from wakeful.cli.show.diff import diff
from wakeful.client.shapes import JobShape
from wakeful.errors import WakefulError

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
    ) -> None:
        """Make the jobs what a file says; the same file again changes nothing.

        A file is a list of jobs, or {name, agent, jobs}. Nothing is changed if anything in it is wrong.
        """
        from wakeful.cli.manifest import plan, read_manifest

        manifest = read_manifest(await read_text(file), s.agent or "default", file)
        before = await s.out.ask(s.client.jobs.list(all_agents=True))
        changes = plan(manifest, before, now_ms=now_ms(), prune=prune)
        saved: dict[tuple[str, str], JobShape] = {}
        if not dry_run:
            versions = {(job["agentId"], job["name"]): job["revision"] for job in before}
            saved = await _carry_out(s, changes)
            changes = [_as_it_was(change, saved, versions) for change in changes]
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
        }
        s.out.show(answer, *diff(changes, dry_run=dry_run))
        for (_, name), secret in secrets.items():
            s.out.say(Text(f"secret of {name}, not shown again: ").append(str(secret), "green"))


async def _carry_out(s: Session, changes: Sequence[Change]) -> dict[tuple[str, str], JobShape]:
    """Send what the file has, then remove what it does not have; what fails first ends it."""
    saved: dict[tuple[str, str], JobShape] = {}
    with s.out.counting("applying", len(changes)) as step:
        for start in range(0, len(changes), _AT_ONCE):
            some = changes[start : start + _AT_ONCE]
            results = await asyncio.gather(*(_send(s, change) for change in some), return_exceptions=True)
            for change, result in zip(some, results, strict=True):
                if isinstance(result, WakefulError):
                    told = f"{result.message} (job '{change.name}'; {len(saved)} were applied before it)"
                    raise type(result)(told) from result
                if isinstance(result, BaseException):
                    raise result
                if result is not None:
                    saved[change.agent, change.name] = result
            step(len(some))
    return saved


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
