"""Commands that change jobs: `add`, `toggle`, `delete`, `rotate-secret`."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli.arguments import CreateAgent, JobName, Payload, json_argument, now_ms
from wakeful.cli.concurrency import for_each
from wakeful.cli.exit_codes import NOT_DONE, OK, exit_code_of
from wakeful.cli.job_options import job_fields, job_options
from wakeful.cli.selection import (
    AllOption,
    JobNames,
    LabelOption,
    YesOption,
    confirmed,
    failure,
    filtered_jobs,
    full_name,
    named_jobs,
    print_failures,
    read_filter,
)
from wakeful.cli.session import Session, command
from wakeful.cli.show.jobs import next_at, secret, ticks
from wakeful.errors import InvalidArgument
from wakeful.json_value import Json
from wakeful.plural import plural

_PANEL = "Jobs"
#: Words that only a shell interprets.
_SHELL = {"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1"}
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
        options=job_options(),
    )
    async def add(
        s: Session,
        /,
        name: Annotated[str, typer.Argument(metavar="NAME", help="a slug such as daily-report")],
        schedule: Annotated[
            str | None,
            typer.Option("--schedule", "-s", help="'0 9 * * 1-5', '@daily', 'every 15m', 'in 20m', a time"),
        ] = None,
        tz: Annotated[str | None, typer.Option("--tz", help="an IANA zone such as Europe/Berlin")] = None,
        url: Annotated[str | None, typer.Option("--url", help="call this webhook")] = None,
        function: Annotated[
            str | None, typer.Option("--function", help="run the Python function of this name")
        ] = None,
        program: Annotated[
            str | None,
            typer.Option("--command", help="run this program on the server, which must allow it"),
        ] = None,
        target: Annotated[
            str | None, typer.Option("--target", metavar="JSON", help='as in \'{"kind": "pull"}\'')
        ] = None,
        payload: Payload = None,
        label: Annotated[
            list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="a label; may be repeated")
        ] = None,
        field: Annotated[
            list[str] | None,
            typer.Option(
                "--set",
                metavar="FIELD=JSON",
                help="any other field, as in budget='{\"tokensPerDay\": 9000}'",
            ),
        ] = None,
        paused: Annotated[bool, typer.Option("--paused", help="create the job paused")] = False,
        replace: Annotated[bool, typer.Option("--replace", help="update the job if the name exists")] = False,
        create_agent: CreateAgent = False,
        **options: object,
    ) -> None:
        """Add a job. Shows when it fires next, and once the secret of its webhook."""
        document: dict[str, Json] = {
            "name": name,
            "schedule": schedule,
            "tz": tz,
            "webhookUrl": url,
            "target": _target(function, program, await json_argument("--target", target)),
            "payload": await json_argument("--payload", payload),
            "labels": dict(_pair("--label", each) for each in label) if label else None,
            **job_fields(options),
            "enabled": False if paused else None,
        }
        for each in field or []:
            key, value = _pair("--set", each)
            document[key] = await json_argument(f"--set {key}", value)
        document = {key: value for key, value in document.items() if value is not None}
        await s.check_agents(create=create_agent)
        jobs = s.jobs()
        job = await s.out.wait_for(jobs.upsert(document) if replace else jobs.create(document))
        now = now_ms()
        done = Text("added ", "green").append(job["name"], "bold").append(f": {job['explain']}")
        s.out.show(job, done, *ticks(job, now), *secret(job))
        s.out.warn_of(job.get("warnings", ()))

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
            await s.out.wait_for(jobs.delete(slug))
            s.out.show({"deleted": slug}, Text(f"{slug} is deleted", "green"))
            return OK
        if only is None:
            found = await named_jobs(s, names or [])
        else:
            found = await filtered_jobs(s, only, include_disabled=True)
            shown = [full_name(job["agentId"], job["name"]) for job in found]
            if not confirmed(s, "delete", only, shown, yes=yes):
                s.out.show({"deleted": [], "errors": []})
                return NOT_DONE if found else OK
        done, failed = await s.out.wait_for(
            for_each(found, lambda job: s.jobs(job["agentId"]).delete(job["id"]))
        )
        deleted = [full_name(job["agentId"], job["name"]) for job, _ in done]
        errors = [failure(job, error) for job, error in failed]
        s.out.show(
            {"deleted": deleted, "errors": errors},
            *(Text(f"  {name}") for name in deleted),
            Text(f"deleted {plural(len(deleted), 'job')}", "bold"),
        )
        print_failures("deleted", errors)
        return exit_code_of(errors[0]["code"]) if errors else OK

    @command(app, "rotate-secret", examples=("wakeful rotate-secret sync",), panel=_PANEL)
    async def rotate_secret(s: Session, name: JobName) -> None:
        """Replace the secret of a webhook; for a day, requests are signed with both secrets."""
        jobs, slug = await s.find_job(name)
        job = await s.out.wait_for(jobs.rotate_secret(slug))
        s.out.show(job, *secret(job))


def _target(function: str | None, program: str | None, target: Json) -> Json:
    targets = {"--function": function, "--command": program, "--target": target}
    named = [option for option, value in targets.items() if value is not None]
    if len(named) > 1:
        raise InvalidArgument(f"{' and '.join(named)} are {len(named)} targets; give one of them")
    if function is not None:
        return {"kind": "function", "name": function}
    return target if program is None else {"kind": "command", "argv": [*_split(program)]}


def _split(program: str) -> list[str]:
    """Return the words of a command, split as in a shell; refuse words that only a shell interprets.

    >>> _split("rsync -a '/my files' /b")
    ['rsync', '-a', '/my files', '/b']
    """
    try:
        words = shlex.split(program)
    except ValueError as error:
        raise InvalidArgument(f"--command: {error}; close the quotation, or use --target") from error
    if not words:
        raise InvalidArgument("--command: it is empty; write a program, as in --command 'rsync -a /a /b'")
    shell = sorted(_SHELL.intersection(words))
    if shell:
        raise InvalidArgument(
            f"--command: it runs without a shell, so {shell[0]} would be an argument; start a shell, as in "
            "--command \"/bin/sh -c 'a | b'\", or use --target"
        )
    return words


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidArgument(f"{option}: {json.dumps(text)} is not a pair; write KEY=VALUE")
    return key, value
