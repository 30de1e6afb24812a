"""`wakeful list`, `show` and `history`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli.arguments import JobName, now_ms
from wakeful.cli.commands.incidents import INCIDENTS
from wakeful.cli.output import escape, field_lines
from wakeful.cli.pages import RUNS, job_page, job_table, ticks
from wakeful.cli.session import CliSession, command
from wakeful.cli.times import moment_text
from wakeful.client.types import RevisionShape, RunShape
from wakeful.run.run import RunState

_PANEL = "Jobs"


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "list",
        examples=(
            "wakeful list",
            "wakeful list --all --agent ops",
            "wakeful list --label team=ops --json",
            "wakeful list --search report --state failing",
        ),
        panel=_PANEL,
    )
    async def list_jobs(
        s: CliSession,
        all_: Annotated[bool, typer.Option("--all", "-a", help="include disabled jobs")] = False,
        label: Annotated[
            list[str] | None,
            typer.Option(
                "--label", metavar="NAME=VALUE", help="only jobs with this label; NAME matches any value"
            ),
        ] = None,
        search: Annotated[
            str | None,
            typer.Option("--search", "-q", metavar="TEXT", help="only jobs whose agent/name has it"),
        ] = None,
        state: Annotated[
            str | None,
            typer.Option(
                "--state", help="only active, paused, failing, approval (waiting), inactive or ended jobs"
            ),
        ] = None,
        creator: Annotated[
            str | None, typer.Option("--creator", help="only jobs that a person or an agent created")
        ] = None,
        next_: Annotated[
            bool, typer.Option("--next", help="by the next tick, without jobs that have none")
        ] = False,
    ) -> None:
        """Show the jobs of all agents, or of --agent."""
        jobs = await s.out.wait_for(
            s.client.list_every_job(
                s.agent,
                include_disabled=all_,
                labels=label or (),
                q=search,
                state=state,
                creator=creator,
                sort="next" if next_ else None,
            )
        )
        hint = "no jobs" if all_ else "no enabled jobs; --all includes disabled ones"
        shown = job_table(jobs, now_ms(), wide=s.out.wide) if jobs else Text(hint, "dim")
        s.out.show({"jobs": jobs, "cursor": None}, shown)

    @command(
        app,
        "show",
        examples=(
            "wakeful show digest",
            "wakeful show ops/backup --json",
        ),
        panel=_PANEL,
    )
    async def show(s: CliSession, name: JobName) -> None:
        """Show a job: its definition, its next ticks, its open incidents and its last runs."""
        agent, name = await s.find_job(name)
        job = await s.out.wait_for(s.client.get_job(agent, name))
        if s.out.as_json:
            s.out.show(job)
            return
        last = job.get("lastRuns")
        now = now_ms()
        s.out.say(job_page(job, now), "", *ticks(job, now))
        s.out.print_warnings(job.get("warnings", ()))
        troubles = await s.client.list_incidents(state="open,acknowledged", job=job["id"])
        if troubles:
            s.out.say("", Text("incidents", "bold"), INCIDENTS.render(troubles, now, wide=s.out.wide))
        if last:
            last = await _read_reasons(s, last)
            s.out.say("", Text("last runs", "bold"), RUNS.render(last, now, wide=s.out.wide))

    @command(
        app,
        "history",
        examples=("wakeful history digest", "wakeful history digest --restore 3"),
        panel="Jobs",
    )
    async def history(
        s: CliSession,
        name: JobName,
        restore: Annotated[
            int | None, typer.Option("--restore", help="give the job the fields of this revision")
        ] = None,
    ) -> None:
        """Show who changed which fields of a job, and when; or restore an earlier revision.

        To restore is an edit: the pause and the secret of the job stay.
        """
        agent, slug = await s.find_job(name)
        if restore is not None:
            job = await s.out.wait_for(s.client.restore_revision(agent, slug, restore))
            done = f"{slug} has the fields of revision {restore} (revision {job['revision']} now)"
            s.out.show(job, Text(done, "green"))
            return
        found = await s.out.wait_for(s.client.list_revisions(agent, slug))
        s.out.show({"revisions": found}, *_revision_lines(found))


async def _read_reasons(s: CliSession, runs: Sequence[RunShape]) -> list[RunShape]:
    """Return the runs; those that are not over with what they wait for, which only a read of one run says."""
    over = [RunState(run["state"]).terminal for run in runs]
    return [run if done else await s.client.get_run(run["id"]) for run, done in zip(runs, over, strict=True)]


def _revision_lines(revisions: list[RevisionShape]) -> Iterator[RenderableType]:
    for each in revisions:
        line = Text(f"{each['revision']:>4}", "bold").append(f"  {moment_text(each['at'], now_ms())}  ")
        line.append(escape(Text(each["byName"] or each["by"] or "unknown", "cyan")))
        if not each["changes"]:
            line.append("  created")
        yield line
        shown = [change for change in each["changes"] if not change["hidden"]]
        yield from field_lines({change["field"]: (change["before"], change["after"]) for change in shown})
        for change in each["changes"]:
            if change["hidden"]:
                yield Text(f"    {change['field']}: credentials changed", "dim")
