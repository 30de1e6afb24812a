"""The jobs that `pause`, `resume`, `delete` and `run` are about: named ones, or those that a filter finds.

Named jobs need no confirmation. A filter is confirmed on the terminal, or with --yes.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, NamedTuple, TypeVar

import typer
from rich.text import Text

from wakeful.cli.arguments import job_names
from wakeful.cli.concurrency import for_each
from wakeful.cli.exit_codes import OK, exit_code, find_exit_code
from wakeful.cli.output import full_name, print_error
from wakeful.cli.session import CliSession
from wakeful.cli.unknown_names import UnknownName
from wakeful.client.types import BulkResultShape, BulkRunsShape, JobFailureShape, JobIdShape, JobShape
from wakeful.errors import InvalidArgument, NotFound, WakefulError
from wakeful.values.json_value import Json
from wakeful.values.plural import plural

T = TypeVar("T")

_PANEL: Final = "Filter"
#: How many names a question lists.
_SHOWN: Final = 10
#: How many jobs one request runs or deletes.
_PART: Final = 200

JobNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME", autocompletion=job_names, help="the jobs: name, agent/name or id; else give a filter"
    ),
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME=VALUE",
        rich_help_panel=_PANEL,
        help="jobs with this label (NAME: any value); repeat it to require several",
    ),
]
AllOption = Annotated[
    bool, typer.Option("--all", rich_help_panel=_PANEL, help="all jobs, or all jobs of --agent")
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", rich_help_panel=_PANEL, help="do not ask for confirmation")
]


class Filter(NamedTuple):
    """Which jobs, if not by name."""

    agent: str | None
    labels: tuple[str, ...]

    def describe(self) -> str:
        """Return the filter in words.

        >>> Filter("ops", ("team=ops",)).describe(), Filter(None, ()).describe()
        (' of agent ops (label team=ops)', ' of all agents')
        """
        agent = " of all agents" if self.agent is None else f" of agent {self.agent}"
        return agent + (f" (label {', '.join(self.labels)})" if self.labels else "")


def read_filter(
    s: CliSession, verb: str, names: Sequence[str] | None, label: Sequence[str] | None, all_: bool
) -> Filter | None:
    """Return the filter of a command; None if it names jobs. InvalidArgument if it does neither or both."""
    if names:
        if label or all_:
            raise InvalidArgument(f"name the jobs to {verb}, or give --label or --all; not both")
        return None
    # An agent from the environment alone is no filter: `wakeful delete` would mean all its jobs.
    if not label and not all_ and not s.agent_option:
        raise InvalidArgument(
            f"name the jobs to {verb}, or select them with --agent, --label or --all: `wakeful {verb} --help`"
        )
    return Filter(s.agent, tuple(label or ()))


async def named_jobs(s: CliSession, names: Sequence[str]) -> list[JobShape]:
    """Return the jobs of these names. One error lists all names that are unknown."""

    async def get(name: str) -> JobShape:
        agent, slug = await s.find_job(name)
        return await s.client.get_job(agent, slug)

    found, failed = await s.out.wait_for(for_each(list(dict.fromkeys(names)), get))
    if failed:
        errors = [
            await s.add_suggestion(error, name) if isinstance(error, NotFound) else error
            for name, error in failed
        ]
        # UnknownName: the similar names are in the message already.
        kind = UnknownName if isinstance(errors[0], NotFound) else type(errors[0])
        raise kind("\n".join(error.message for error in errors))
    return list({job["id"]: job for _, job in found}.values())


def build_selection(only: Filter) -> dict[str, Json]:
    """Return the selection of a request for the jobs that a filter finds."""
    labels: Json = [*only.labels]
    return {"agent": only.agent, "label": labels, "all": True}


async def find_jobs(
    s: CliSession,
    verb: str,
    only: Filter | None,
    names: Sequence[str],
    request: Callable[[dict[str, Json]], Awaitable[BulkResultShape | BulkRunsShape]],
    *,
    yes: bool,
) -> tuple[Sequence[JobIdShape], bool]:
    """Return the jobs of these names, or those that a filter finds, and whether the operation goes on.

    As a dry run, the request finds the jobs of a filter. The user confirms them.
    """
    if only is None:
        return await named_jobs(s, names), True
    found = (await s.out.wait_for(request({**build_selection(only), "dryRun": True})))["jobs"]
    return found, confirm(s, verb, only, found, yes=yes)


async def request_in_parts(
    s: CliSession,
    jobs: Sequence[JobIdShape],
    request: Callable[[dict[str, Json]], Awaitable[T]],
) -> tuple[list[T], WakefulError | None]:
    """Run or delete these jobs in several requests, each with a selection of some of them.

    Returns the results, and the error after which the other jobs were not tried. If that is the first
    request, raise it: nothing was done.
    """
    results: list[T] = []
    for start in range(0, len(jobs), _PART):
        try:
            results.append(await request_for(s, jobs[start : start + _PART], request))
        except WakefulError as error:
            if not results:
                raise
            return results, error
    return results, None


async def request_for(
    s: CliSession, jobs: Sequence[JobIdShape], request: Callable[[dict[str, Json]], Awaitable[T]]
) -> T:
    """Send a request for these jobs. Those that were deleted since they were found are left out."""
    while True:
        ids: Json = [job["id"] for job in jobs]
        try:
            return await s.out.wait_for(request({"jobs": ids}))
        except NotFound:  # nothing was changed
            known = {job["id"] for job in await s.out.wait_for(s.client.list_every_job())}
            left = [job for job in jobs if job["id"] in known]
            if len(left) in (0, len(jobs)):
                raise
            jobs = left


def confirm(s: CliSession, verb: str, only: Filter, jobs: Sequence[JobIdShape], *, yes: bool) -> bool:
    """Say how many jobs a filter finds, and return whether the operation goes on.

    Without a terminal and without --yes it is refused. Without jobs there is nothing to do.
    """
    if not jobs:
        s.out.say(Text(f"no job to {verb}{only.describe()}", "yellow"))
        return False
    names = ", ".join(full_name(job["agentId"], job["name"]) for job in jobs[:_SHOWN])
    more = f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
    return confirm_sentence(s, f"{verb}s {plural(len(jobs), 'job')}{only.describe()}: {names}{more}", yes=yes)


def confirm_sentence(s: CliSession, sentence: str, *, yes: bool) -> bool:
    """Say what an operation does, and return whether it goes on.

    Without a terminal and without --yes it is refused.
    """
    if yes:
        s.out.say(Text(sentence, "dim"))
        return True
    if not can_ask():
        raise InvalidArgument(f"{sentence}; there is no terminal to confirm it: add --yes")
    return ask(s, sentence)


def can_ask() -> bool:
    """Return whether someone at a terminal can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(s: CliSession, sentence: str) -> bool:
    """Ask whether to do what the sentence says, and return the answer."""
    if _ask(f"{sentence}; continue? [y/N] "):
        return True
    s.out.say(Text("nothing was changed", "yellow"))
    return False


def print_failures(done: str, errors: Sequence[JobFailureShape], stopped: WakefulError | None = None) -> int:
    """Print the errors of single jobs on stderr, and why others were not tried. Returns the exit code."""
    for error in errors:
        name = full_name(error["agentId"], error["name"])
        print_error(f"job '{name}' was not {done}: {error['message']}")
    if stopped is not None:
        print_error(f"the other jobs may not have been {done}: {stopped.message}")
        return exit_code(stopped)
    return find_exit_code(errors[0]["code"]) if errors else OK


def _ask(question: str) -> bool:
    sys.stderr.write(question)
    sys.stderr.flush()
    # The event loop would handle Ctrl-C only after the answer.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    finally:
        signal.signal(signal.SIGINT, handler)
