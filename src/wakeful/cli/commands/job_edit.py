"""Commands that change jobs: `add`, `toggle`, `delete`, `rotate-secret`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli.arguments import CreateAgent, JobName, now_ms
from wakeful.cli.document_options import document_options, read_document
from wakeful.cli.exit_codes import NOT_DONE, OK
from wakeful.cli.selection import (
    AllOption,
    JobNames,
    LabelOption,
    YesOption,
    confirmed,
    full_name,
    in_parts,
    named_jobs,
    print_failures,
    read_filter,
    selection_of,
)
from wakeful.cli.session import Session, command
from wakeful.cli.show.jobs import next_at, secret, ticks
from wakeful.client.types import JobIdShape, JobShape
from wakeful.errors import InvalidArgument
from wakeful.values.plural import plural

_PANEL = "Jobs"
_YES = {"true", "on", "yes", "1"}
_NO = {"false", "off", "no", "0"}


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "add",
        examples=(
            "wakeful add digest -s '0 9 * * 1-5' --tz Europe/Berlin -m 'Summarize the news.'",
            "wakeful add sync -s 'every 15m' --url https://example.com/hook --payload '{\"full\": false}'",
            "wakeful add reminder -s 'in 20m' -m 'Check the build.' --agent ops",
        ),
        panel=_PANEL,
        options=document_options(),
    )
    async def add(
        s: Session,
        /,
        name: Annotated[str, typer.Argument(metavar="NAME", help="a slug such as daily-report")],
        paused: Annotated[bool, typer.Option("--paused", help="create the job paused")] = False,
        replace: Annotated[bool, typer.Option("--replace", help="update the job if the name exists")] = False,
        create_agent: CreateAgent = False,
        **options: object,
    ) -> None:
        """Add a job. Shows when it fires next, and once the secret of its webhook."""
        given = {**await read_document(options), "name": name, "enabled": False if paused else None}
        document = {key: value for key, value in given.items() if value is not None}
        await s.check_agents(create=create_agent)
        jobs = s.jobs()
        job = await s.out.wait_for(jobs.upsert(document) if replace else jobs.create(document))
        now = now_ms()
        done = Text("added ", "green").append(job["name"], "bold").append(f": {job['explain']}")
        s.out.show(job, done, *ticks(job, now), *secret(job))
        s.out.warn_of(job.get("warnings", ()))
        full_name = job["name"] if s.agent is None else f"{s.agent}/{job['name']}"
        s.out.say(Text(f"run it now with: wakeful run {full_name} --wait", "dim"))

    @command(
        app,
        "toggle",
        examples=(
            "wakeful toggle digest false",
            "wakeful toggle ops/backup true",
        ),
        panel=_PANEL,
    )
    async def toggle(
        s: Session, name: JobName, enabled: Annotated[str, typer.Argument(metavar="true|false")]
    ) -> None:
        """Turn a job on (true) or off (false). Ticks while it is off do not count as missed."""
        if enabled.lower() not in _YES | _NO:
            raise InvalidArgument(
                f"'{enabled}' is neither true nor false; `wakeful toggle {name} false` pauses it"
            )
        jobs, name = await s.find_job(name)
        on = enabled.lower() in _YES
        job = await s.out.wait_for(jobs.resume(name) if on else jobs.pause(name))
        done = Text(f"{name} is {'on' if on else 'off'}", "green" if on else "yellow")
        s.out.show(job, done.append(", next ").append(next_at(job, now_ms())) if on else done)

    @command(
        app,
        "delete",
        examples=(
            "wakeful delete digest",
            "wakeful delete digest ops/backup",
            "wakeful delete --agent ops --label team=ops",
        ),
        panel=_PANEL,
    )
    async def delete(
        s: Session,
        names: JobNames = None,
        label: LabelOption = None,
        all_: AllOption = False,
        yes: YesOption = False,
    ) -> int:
        """Delete jobs and their runs that have not started. Their other runs remain visible."""
        only = read_filter(s, "delete", names, label, all_)
        if only is None and names is not None and len(names) == 1:
            jobs, slug = await s.find_job(names[0])
            warnings = await s.out.wait_for(jobs.delete(slug))
            told = {"warnings": warnings} if warnings else {}
            s.out.show({"deleted": slug, **told}, Text(f"{slug} is deleted", "green"))
            s.out.warn_of(warnings)
            return OK
        found: Sequence[JobIdShape] | Sequence[JobShape]
        if only is None:
            found = await named_jobs(s, names or [])
        else:
            found = (await s.out.wait_for(s.jobs().delete_many(selection_of(only), dry_run=True)))["jobs"]
            shown = [full_name(job["agentId"], job["name"]) for job in found]
            if not confirmed(s, "delete", only, shown, yes=yes):
                s.out.show({"deleted": [], "errors": []})
                return NOT_DONE if found else OK
        results, stopped = await in_parts(s, found, s.jobs().delete_many)
        deleted = [full_name(job["agentId"], job["name"]) for result in results for job in result["jobs"]]
        errors = [error for result in results for error in result["errors"]]
        warnings = [warning for result in results for warning in result.get("warnings", ())]
        s.out.show(
            {"deleted": deleted, "errors": errors, **({"warnings": warnings} if warnings else {})},
            *(Text(f"  {name}") for name in deleted),
            Text(f"deleted {plural(len(deleted), 'job')}", "bold"),
        )
        s.out.warn_of(warnings)
        return print_failures("deleted", errors, stopped)

    @command(app, "rotate-secret", examples=("wakeful rotate-secret sync",), panel=_PANEL)
    async def rotate_secret(s: Session, name: JobName) -> None:
        """Replace the secret of a webhook; for a day, requests are signed with both secrets."""
        jobs, slug = await s.find_job(name)
        job = await s.out.wait_for(jobs.rotate_secret(slug))
        s.out.show(job, *secret(job))
