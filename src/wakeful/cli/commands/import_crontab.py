"""`wakeful import crontab`: create jobs from the lines of a crontab."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import CreateAgent, json_argument, now_ms, read_text
from wakeful.cli.crontab import Planned, Remark, plan, read_crontab
from wakeful.cli.crontab.documents import LABEL, SOURCE
from wakeful.cli.session import Session, command, command_group
from wakeful.cli.show.tables import Cell, escaped, first_line, table
from wakeful.cli.times import local_zone
from wakeful.errors import InvalidArgument, NotFound, Unauthenticated, Unavailable
from wakeful.json_value import Json
from wakeful.plural import plural


def register(app: typer.Typer) -> None:
    """Register the commands."""
    group = command_group(app, "import", "Import jobs from a crontab.", panel="Files")

    @command(
        group,
        "crontab",
        examples=(
            "wakeful import crontab /etc/crontab --dry-run",
            "wakeful import crontab jobs.txt --url https://example.com/hook",
        ),
    )
    async def crontab(
        s: Session,
        file: Annotated[str, typer.Argument(metavar="FILE|-", help="the crontab; - is stdin")] = "-",
        user_field: Annotated[
            bool | None,
            typer.Option(
                "--user-field/--no-user-field", help="a system crontab, with a user before the command"
            ),
        ] = None,
        url: Annotated[str | None, typer.Option("--url", help="the webhook that the jobs call")] = None,
        target: Annotated[
            str | None,
            typer.Option("--target", metavar="JSON", help="the target of the jobs (default: pull)"),
        ] = None,
        as_commands: Annotated[
            bool,
            typer.Option(
                "--as-commands",
                help="the server runs each line with /bin/sh; WAKEFUL_COMMANDS must allow it",
            ),
        ] = False,
        tz: Annotated[
            str | None, typer.Option("--tz", help="the time zone of the crontab (default: this machine's)")
        ] = None,
        paused: Annotated[bool, typer.Option("--paused", help="create the jobs paused")] = False,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="show the jobs without saving them")] = False,
        create_agent: CreateAgent = False,
    ) -> int:
        """Create a job for each line of a crontab. Lines that cannot become jobs are listed with the reason.

        A job's payload is {"command": …}, with "stdin", "env" and "user" if the line has them.
        With --as-commands there is no payload: the server runs the line itself.
        Importing a crontab again changes only the jobs that were imported from a crontab.
        """
        if file == "-" and sys.stdin.isatty():
            raise InvalidArgument("name a crontab file, or pipe one: crontab -l | wakeful import crontab -")
        if bool(url) + bool(target) + as_commands > 1:
            raise InvalidArgument("--url, --target and --as-commands exclude each other; give one of them")
        system = file.startswith(("/etc/crontab", "/etc/cron.d/")) if user_field is None else user_field
        job_target: Json = {"kind": "webhook", "url": url} if url else await json_argument("--target", target)
        read = read_crontab(await read_text(file), user_field=system)
        taken = await _taken_names(s, dry_run)
        planned, refused = plan(
            read,
            target=None if as_commands else job_target or {"kind": "pull"},
            tz=tz or local_zone(),
            now_ms=now_ms(),
            paused=paused,
            taken=taken,
        )
        notes = [*read.notes, *(_user_notes(planned) if as_commands else [])]
        if not dry_run:
            await s.check_agents(create=create_agent)
            with s.out.counting("importing", len(planned)) as step:
                for each in planned:
                    await s.out.wait_for(s.jobs().upsert(each.document))
                    step(1)
        result = {
            "dryRun": dry_run,
            "jobs": [
                {
                    "line": each.entry.line,
                    "name": each.name,
                    "explain": each.explain,
                    "document": each.document,
                }
                for each in planned
            ],
            "refused": [_remark(each) for each in refused],
            "notes": [_remark(each) for each in notes],
        }
        s.out.show(result)
        _print(s, planned, refused, notes, dry_run)
        return exit_codes.NOT_DONE if refused else exit_codes.OK


async def _taken_names(s: Session, dry_run: bool) -> set[str]:
    """Return the names of the jobs that were not imported from a crontab."""
    try:
        jobs = await s.out.wait_for(s.jobs().list())
    except NotFound:  # a missing agent is created with its first job
        return set()
    except (Unavailable, Unauthenticated) as error:
        if not dry_run:
            raise
        s.out.warn(f"without the server, the final names may differ: {error.message}")
        return set()
    return {job["name"] for job in jobs if job["labels"].get(LABEL) != SOURCE}


def _user_notes(planned: Sequence[Planned]) -> list[Remark]:
    """Return a note for each line that cron ran as a named user."""
    return [
        Remark(each.entry.line, each.entry.text, f"runs as the server's user, not as '{each.entry.user}'")
        for each in planned
        if each.entry.user is not None
    ]


def _print(
    s: Session, planned: Sequence[Planned], refused: Sequence[Remark], notes: Sequence[Remark], dry_run: bool
) -> None:
    rows: list[list[Cell]] = [
        [str(each.entry.line), Text(each.name, "bold"), each.explain, first_line(each.entry.command)]
        for each in planned
    ]
    if rows:
        s.out.say(table(["LINE", "JOB", "WHEN", "COMMAND"], rows))
    for remarks, colour, what in ((notes, "yellow", "note"), (refused, "red", "refused")):
        for each in remarks:
            head = Text(f"line {each.line}, {what}: ", colour).append(each.why)
            s.out.say(head, Text(f"    {escaped(first_line(each.text, 100))}", "dim"))
    done = "would be created or changed" if dry_run else "created or changed"
    s.out.say(Text(f"{plural(len(planned), 'job')} {done}, {plural(len(refused), 'line')} refused", "bold"))


def _remark(remark: Remark) -> dict[str, object]:
    return {"line": remark.line, "text": remark.text, "why": remark.why}
