"""Taking over from others: `import crontab`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import json_argument, now_ms, read_text
from wakeful.cli.crontab import Planned, Remark, plan, read_crontab
from wakeful.cli.crontab.documents import LABEL, SOURCE
from wakeful.cli.session import Session, command
from wakeful.cli.show.tables import Cell, first_line, harmless, table
from wakeful.cli.times import local_zone
from wakeful.errors import InvalidArgument, NotFound, Unauthenticated, Unavailable
from wakeful.job import Json


def register(app: typer.Typer) -> None:
    """Put these commands on the app."""
    group = typer.Typer(help="Take over from others: a crontab.", no_args_is_help=True)
    app.add_typer(group, name="import", rich_help_panel="Files")

    @command(group, "crontab")
    async def crontab(
        s: Session,
        file: Annotated[str, typer.Argument(metavar="FILE|-", help="the crontab; - is stdin")] = "-",
        user_field: Annotated[
            bool | None,
            typer.Option(
                "--user-field/--no-user-field", help="a system crontab: a user stands before the command"
            ),
        ] = None,
        url: Annotated[str | None, typer.Option("--url", help="the jobs call this webhook")] = None,
        target: Annotated[
            str | None, typer.Option("--target", metavar="JSON", help="the target of the jobs (pull)")
        ] = None,
        as_commands: Annotated[
            bool,
            typer.Option(
                "--as-commands",
                help="the server runs the lines, by /bin/sh; WAKEFUL_COMMANDS must allow that",
            ),
        ] = False,
        tz: Annotated[
            str | None, typer.Option("--tz", help="the zone of the crontab (this machine's)")
        ] = None,
        paused: Annotated[bool, typer.Option("--paused", help="do not fire yet")] = False,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="change nothing, say what would be")] = False,
    ) -> int:
        """Make jobs of the lines of a crontab, and say of each that cannot be one why not.

        What a job carries is {"command": …}, with "stdin", "env" and "user" where the line has them.
        With --as-commands it carries nothing: it is the line itself that is run, on the server.
        Importing a crontab again changes the jobs that came from it, and no others.
        """
        if file == "-" and sys.stdin.isatty():
            raise InvalidArgument("which crontab? name a file, or: crontab -l | wakeful import crontab -")
        if bool(url) + bool(target) + as_commands > 1:
            raise InvalidArgument(
                "--url, --target and --as-commands say each where the jobs go; give one of them"
            )
        system = file.startswith(("/etc/crontab", "/etc/cron.d/")) if user_field is None else user_field
        where: Json = {"kind": "webhook", "url": url} if url else await json_argument("--target", target)
        read = read_crontab(await read_text(file), user_field=system)
        taken = await _taken(s, dry_run)
        planned, refused = plan(
            read,
            target=None if as_commands else where or {"kind": "pull"},
            tz=tz or local_zone(),
            now_ms=now_ms(),
            paused=paused,
            taken=taken,
        )
        notes = [*read.notes, *(_users(planned) if as_commands else [])]
        if not dry_run:
            with s.out.counting("importing", len(planned)) as step:
                for each in planned:
                    await s.out.ask(s.jobs().send(each.document))
                    step(1)
        answer = {
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
        s.out.show(answer)
        _tell(s, planned, refused, notes, dry_run)
        return exit_codes.NOT_DONE if refused else exit_codes.OK


async def _taken(s: Session, dry_run: bool) -> set[str]:
    """The names that others have: all but those of jobs that came from a crontab."""
    try:
        jobs = await s.out.ask(s.jobs().list())
    except NotFound:  # an agent that nobody has heard of is made with its first job
        return set()
    except (Unavailable, Unauthenticated) as error:
        if not dry_run:
            raise
        s.out.warn(f"without a server, names may turn out otherwise: {error.message}")
        return set()
    return {job["name"] for job in jobs if job["labels"].get(LABEL) != SOURCE}


def _users(planned: Sequence[Planned]) -> list[Remark]:
    """What is to be said of lines that cron ran as somebody."""
    return [
        Remark(each.entry.line, each.entry.text, f"it runs as the server's user, not as '{each.entry.user}'")
        for each in planned
        if each.entry.user is not None
    ]


def _tell(
    s: Session, planned: Sequence[Planned], refused: Sequence[Remark], notes: Sequence[Remark], dry_run: bool
) -> None:
    rows: list[list[Cell]] = [
        [str(each.entry.line), Text(each.name, "bold"), each.explain, first_line(each.entry.command)]
        for each in planned
    ]
    if rows:
        s.out.say(table(["LINE", "JOB", "WHEN", "COMMAND"], rows))
    for remarks, colour, what in ((notes, "yellow", "note"), (refused, "red", "not taken")):
        for each in remarks:
            head = Text(f"line {each.line}, {what}: ", colour).append(each.why)
            s.out.say(head, Text(f"    {harmless(first_line(each.text, 100))}", "dim"))
    done = "would be made or changed" if dry_run else "made or changed"
    s.out.say(Text(f"{len(planned)} jobs {done}, {len(refused)} lines not taken", "bold"))


def _remark(remark: Remark) -> dict[str, object]:
    return {"line": remark.line, "text": remark.text, "why": remark.why}
