"""`wakeful dead-letters`, `replay` and `discard`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import Limit, OfJob, now_ms
from wakeful.cli.commands.run import follow, run_exit_code
from wakeful.cli.concurrency import full_page
from wakeful.cli.output import escape, first_line, full_name, print_error
from wakeful.cli.pages import RUNS
from wakeful.cli.selection import ask, can_ask
from wakeful.cli.session import CliSession, command
from wakeful.cli.tables import Column, ResourceTable
from wakeful.client.types import (
    DeadLetterGroupShape,
    DeadLetterGroupsShape,
    RunShape,
)
from wakeful.errors import InvalidArgument
from wakeful.model import Page
from wakeful.values.plural import plural

_PANEL = "Dead letters"
RunIds = Annotated[
    list[str] | None, typer.Argument(metavar="RUN", help="run ids from `wakeful dead-letters`")
]
All = Annotated[bool, typer.Option("--all", help="all dead letters, or all of --agent")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="with --all: do not ask on a terminal")]
#: How many jobs a question lists.
_SHOWN: Final = 5


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "dead-letters",
        examples=(
            "wakeful dead-letters",
            "wakeful dead-letters --agent ops --json",
            "wakeful dead-letters --groups",
            "wakeful dead-letters --job digest --cause 'http 503'",
        ),
        panel=_PANEL,
    )
    async def dead_letters(
        s: CliSession,
        groups: Annotated[
            bool, typer.Option("--groups", help="show the newest 2,000 by job and cause, with numbers")
        ] = False,
        job: OfJob = None,
        cause: Annotated[
            str | None, typer.Option("--cause", help="only with this cause, as --groups shows it")
        ] = None,
        limit: Limit = 50,
    ) -> None:
        """Show failed runs that were neither replayed nor discarded, newest first."""
        agent, job = s.split_filter(job)
        if groups:
            if cause is not None:
                raise InvalidArgument("give --groups or --cause, not both")
            grouped = await s.out.wait_for(s.client.group_dead_letters(job=job, agent=agent))
            if not grouped["groups"]:
                await s.check_filter(agent, job)
            s.out.show(grouped, *group_lines(grouped, now_ms(), limit))
            return

        def fetch(size: int, cursor: str | None) -> Awaitable[Page[RunShape]]:
            return s.client.list_dead_letters(limit=size, cursor=cursor, agent=agent, job=job, cause=cause)

        found = await s.out.wait_for(full_page(fetch, limit))
        if not found:
            await s.check_filter(agent, job)
        runs, none = RUNS.render(found, now_ms(), wide=s.out.wide), Text("no dead letters", "green")
        s.out.show_page("deadLetters", found, runs, what="dead letters", none=none)
        if found:
            s.out.say(
                Text("replay one with: wakeful replay RUN; discard one with: wakeful discard RUN", "dim")
            )

    @command(
        app,
        "replay",
        examples=(
            "wakeful replay 01980000-0000-7000-8000-000000000000 --wait",
            "wakeful replay --all",
            "wakeful replay --all --agent ops",
        ),
        panel=_PANEL,
    )
    async def replay(
        s: CliSession,
        ids: RunIds = None,
        all_: All = False,
        wait: Annotated[
            bool, typer.Option("--wait", "-w", help="wait for the run to finish; for one run only")
        ] = False,
        yes: Yes = False,
    ) -> int:
        """Run dead letters again, each as a new run with the same idempotency key."""
        chosen = _choose_runs(ids, all_, "replay")
        if chosen is None or len(chosen) > 1:
            if wait:
                raise InvalidArgument("--wait works for one run only")
            if chosen is None:
                if not await _confirm_all(s, "replay", yes=yes):
                    return exit_codes.NOT_DONE
                done = await s.out.wait_for(s.client.replay_all(s.agent))
            else:
                done = await s.out.wait_for(s.client.replay_dead_letters({"ids": chosen}))
            s.out.show({"replayed": done}, Text(f"{len(done)} replayed", "green"))
            return _report_others(chosen, {*done}, "replayed")
        run = await s.out.wait_for(s.client.replay_run(chosen[0]))
        if wait:
            run = await follow(s, run["id"])
        s.out.show(run, Text(f"{run['job']} runs again: {run['id']}" if not wait else run["id"], "green"))
        return run_exit_code(run) if wait else exit_codes.OK

    @command(
        app,
        "discard",
        examples=(
            "wakeful discard 01980000-0000-7000-8000-000000000000",
            "wakeful discard --all",
        ),
        panel=_PANEL,
    )
    async def discard(s: CliSession, ids: RunIds = None, all_: All = False, yes: Yes = False) -> int:
        """Remove runs from the dead letters. They stay failed."""
        chosen = _choose_runs(ids, all_, "discard")
        if chosen is None:
            if not await _confirm_all(s, "discard", yes=yes):
                return exit_codes.NOT_DONE
            done = await s.out.wait_for(s.client.discard_all(s.agent))
        elif len(chosen) == 1:  # this endpoint reports why a run cannot be discarded
            await s.out.wait_for(s.client.discard_run(chosen[0]))
            done = chosen
        else:
            done = await s.out.wait_for(s.client.discard_dead_letters({"ids": chosen}))
        s.out.show({"discarded": done}, Text(f"{len(done)} discarded", "green"))
        return _report_others(chosen, {*done}, "discarded")


def _choose_runs(ids: list[str] | None, all_: bool, verb: str) -> list[str] | None:
    if bool(ids) == all_:
        raise InvalidArgument(f"give run ids or --all: `wakeful {verb} RUN`, or `wakeful {verb} --all`")
    return None if all_ else ids


def _report_others(chosen: list[str] | None, done: set[str], verb: str) -> int:
    """Print which of the chosen runs were left out, and return the exit code."""
    others = [run_id for run_id in dict.fromkeys(chosen or ()) if run_id not in done]
    if others:
        why = "unknown, or handled before" + (", or without budget" if verb == "replayed" else "")
        print_error(f"not {verb} ({why}): {', '.join(others)}")
    return exit_codes.NOT_DONE if others else exit_codes.OK


async def _confirm_all(s: CliSession, verb: str, *, yes: bool) -> bool:
    """Return whether to go on with all dead letters. On a terminal, say how many of which jobs, and ask.

    Without a terminal nothing is asked: scripts rely on that.
    """
    if yes or not can_ask():
        return True
    found = await s.out.wait_for(s.client.group_dead_letters(agent=s.agent))
    if not found["groups"]:
        return True
    counts: Counter[str] = Counter()
    for group in found["groups"]:
        counts[full_name(group["agentId"], group["job"] or "—")] += group["count"]
    names = ", ".join(f"{escape(name).plain} ({number})" for name, number in counts.most_common(_SHOWN))
    more = f" and {plural(len(counts) - _SHOWN, 'other job')}" if len(counts) > _SHOWN else ""
    number = f"more than {found['counted']:,}" if found["more"] else f"{found['counted']:,}"
    agent = " of all agents" if s.agent is None else f" of agent {s.agent}"
    return ask(s, f"{verb}s {number} dead letters{agent}: {names}{more}")


GROUPS: Final = ResourceTable[DeadLetterGroupShape](
    Column("NUMBER", "count", "bold"),
    Column("JOB", lambda group, _: f"{group['agentId']}/{group['job'] or '—'}"),
    Column("CAUSE", "cause"),
    Column("FIRST", "firstFailedAt"),
    Column("LAST", "lastFailedAt"),
    Column("NEWEST RUN", "newestRunId", "dim"),
    Column("ERROR", lambda group, _: Text(first_line(group["error"]), "red")),
)


def group_lines(found: DeadLetterGroupsShape, now_ms: int, limit: int) -> list[RenderableType]:
    """Return a table of up to `limit` groups of dead letters, and what it leaves out."""
    groups = found["groups"][:limit]
    if not groups:
        return [Text("no dead letters", "green")]
    lines: list[RenderableType] = [GROUPS.render(groups, now_ms)]
    if hidden := len(found["groups"]) - len(groups):
        lines.append(Text(f"{plural(hidden, 'more group')}; raise --limit to show them", "dim"))
    if found["more"]:
        lines.append(Text(f"only the newest {found['counted']:,} dead letters are counted", "dim"))
    return lines
