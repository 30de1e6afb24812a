"""`wakeful pause`, `resume`, `toggle`, `skip-next`, `delete` and `rotate-secret`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli.arguments import JobName, now_ms
from wakeful.cli.exit_codes import NOT_DONE, OK
from wakeful.cli.output import full_name
from wakeful.cli.pages import next_at, secret, status
from wakeful.cli.selection import (
    AllOption,
    Filter,
    JobNames,
    LabelOption,
    YesOption,
    build_selection,
    confirm,
    find_jobs,
    named_jobs,
    print_failures,
    read_filter,
    request_in_parts,
)
from wakeful.cli.session import CliSession, command
from wakeful.cli.times import instant, moment
from wakeful.client.fields import given_fields
from wakeful.client.types import BulkResultShape, JobFailureShape, JobIdShape
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.values.json_value import Json
from wakeful.values.plural import plural

_PANEL = "Jobs"
_YES = {"true", "on", "yes", "1"}
_NO = {"false", "off", "no", "0"}


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "pause",
        examples=(
            "wakeful pause digest --note maintenance --until 'in 2h'",
            "wakeful pause digest ops/backup",
            "wakeful pause --agent ops --label team=ops",
            "wakeful pause --all --yes",
        ),
        panel=_PANEL,
    )
    async def pause(
        s: CliSession,
        names: JobNames = None,
        note: Annotated[str | None, typer.Option("--note", help="the reason, shown with the job")] = None,
        until: Annotated[
            str | None, typer.Option("--until", metavar="TIME", help="resume at this time, such as 'in 2h'")
        ] = None,
        label: LabelOption = None,
        all_: AllOption = False,
        yes: YesOption = False,
    ) -> int:
        """Pause jobs. Ticks during a pause do not count as missed.

        A filter pauses the enabled jobs that it finds; jobs that are paused keep their note and their end.
        """
        only = read_filter(s, "pause", names, label, all_)
        if only is None and names is not None and len(names) == 1:
            agent, slug = await s.find_job(names[0])
            job = await s.out.wait_for(s.client.pause_job(agent, slug, note=note, until=until))
            s.out.show(job, Text(f"{job['name']} is ", "yellow").append(status(job)))
            return OK
        how = given_fields({"note": note, "until": until})
        return await _change_several(
            s, "pause", only, names or [], lambda select: s.client.pause_jobs({**select, **how}), yes
        )

    @command(
        app,
        "resume",
        examples=(
            "wakeful resume digest",
            "wakeful resume digest ops/backup",
            "wakeful resume --agent ops --label team=ops",
        ),
        panel=_PANEL,
    )
    async def resume(
        s: CliSession,
        names: JobNames = None,
        label: LabelOption = None,
        all_: AllOption = False,
        yes: YesOption = False,
    ) -> int:
        """Resume jobs. Their next tick is computed from now.

        A filter resumes the paused jobs that it finds, not those that are disabled for another reason.
        """
        only = read_filter(s, "resume", names, label, all_)
        if only is None and names is not None and len(names) == 1:
            agent, slug = await s.find_job(names[0])
            job = await s.out.wait_for(s.client.resume_job(agent, slug))
            s.out.show(job, Text(f"{job['name']} is on, next ", "green").append(next_at(job, now_ms())))
            return OK
        return await _change_several(s, "resume", only, names or [], s.client.resume_jobs, yes)

    @command(app, "skip-next", examples=("wakeful skip-next digest",), panel=_PANEL)
    async def skip_next(s: CliSession, name: JobName) -> None:
        """Skip the next tick of a job. The tick is recorded as a skipped run."""
        agent, slug = await s.find_job(name)
        job = await s.out.wait_for(s.client.skip_next_tick(agent, slug))
        tick = moment(job["skipped"]["scheduledAtMs"], job["tz"])
        line = Text(f"{job['name']} skips {tick}, next ", "yellow").append(next_at(job, now_ms()))
        s.out.show(job, line)

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
        s: CliSession, name: JobName, enabled: Annotated[str, typer.Argument(metavar="true|false")]
    ) -> None:
        """Turn a job on (true) or off (false). Ticks while it is off do not count as missed."""
        if enabled.lower() not in _YES | _NO:
            raise InvalidArgument(
                f"'{enabled}' is neither true nor false; `wakeful toggle {name} false` pauses it"
            )
        agent, name = await s.find_job(name)
        on = enabled.lower() in _YES
        change = s.client.resume_job if on else s.client.pause_job
        job = await s.out.wait_for(change(agent, name))
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
        s: CliSession,
        names: JobNames = None,
        label: LabelOption = None,
        all_: AllOption = False,
        yes: YesOption = False,
    ) -> int:
        """Delete jobs and their runs that have not started. Their other runs remain visible."""
        only = read_filter(s, "delete", names, label, all_)
        if only is None and names is not None and len(names) == 1:
            agent, slug = await s.find_job(names[0])
            warnings = await s.out.wait_for(s.client.delete_job(agent, slug))
            told = {"warnings": warnings} if warnings else {}
            s.out.show({"deleted": slug, **told}, Text(f"{slug} is deleted", "green"))
            s.out.print_warnings(warnings)
            return OK
        found, sure = await find_jobs(s, "delete", only, names or [], s.client.delete_jobs, yes=yes)
        if not sure:
            s.out.show({"deleted": [], "errors": []})
            return NOT_DONE if found else OK
        results, stopped = await request_in_parts(s, found, s.client.delete_jobs)
        deleted = [full_name(job["agentId"], job["name"]) for result in results for job in result["jobs"]]
        errors = [error for result in results for error in result["errors"]]
        warnings = [warning for result in results for warning in result.get("warnings", ())]
        s.out.show(
            {"deleted": deleted, "errors": errors, **({"warnings": warnings} if warnings else {})},
            *(Text(f"  {name}") for name in deleted),
            Text(f"deleted {plural(len(deleted), 'job')}", "bold"),
        )
        s.out.print_warnings(warnings)
        return print_failures("deleted", errors, stopped)

    @command(app, "rotate-secret", examples=("wakeful rotate-secret sync",), panel=_PANEL)
    async def rotate_secret(s: CliSession, name: JobName) -> None:
        """Replace the secret of a webhook; for a day, requests are signed with both secrets."""
        agent, slug = await s.find_job(name)
        job = await s.out.wait_for(s.client.rotate_secret(agent, slug))
        s.out.show(job, *secret(job))


async def _change_several(
    s: CliSession,
    verb: str,
    only: Filter | None,
    names: list[str],
    request: Callable[[dict[str, Json]], Awaitable[BulkResultShape]],
    yes: bool,
) -> int:
    """Pause or resume the named jobs, or those that a filter finds, if the user confirms it."""
    jobs: Sequence[JobIdShape]
    unchanged, errors = 0, list[JobFailureShape]()
    if only is None:
        jobs = await named_jobs(s, names)
    else:
        found = await s.out.wait_for(request({**build_selection(only), "dryRun": True}))
        # Those that are confirmed: the filter may find others by then.
        jobs, unchanged, errors = found["jobs"], found["unchanged"], found["errors"]
        if not confirm(s, verb, only, jobs, yes=yes):
            s.out.show(found)
            print_failures(f"{verb}d", errors)
            return NOT_DONE if jobs else OK
    results, stopped = await request_in_parts(s, jobs, request)
    result = results[0]
    for each in results[1:]:
        result["jobs"] += each["jobs"]
        result["count"] += each["count"]
        result["unchanged"] += each["unchanged"]
        result["errors"] += each["errors"]
    result["unchanged"] += unchanged
    result["errors"] = [*errors, *result["errors"]]
    return _report(s, f"{verb}d", result, stopped)


def _report(s: CliSession, done: str, result: BulkResultShape, stopped: WakefulError | None) -> int:
    lines = []
    for job in result["jobs"]:
        name = full_name(job["agentId"], job["name"])
        next_ms, until_ms = instant(job["nextAt"]), instant(job["pausedUntil"])
        detail = f", next {moment(next_ms, None)}" if next_ms is not None else ""
        detail += f" until {moment(until_ms, None)}" if until_ms is not None else ""
        lines.append(Text(f"  {name}").append(detail, "dim"))
    unchanged = f", {result['unchanged']} unchanged" if result["unchanged"] else ""
    s.out.show(result, *lines, Text(f"{done} {plural(result['count'], 'job')}{unchanged}", "bold"))
    return print_failures(done, result["errors"], stopped)
