"""When something would fire: `preview`. An expression needs no server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, cast
from zoneinfo import ZoneInfo

import typer
from rich.text import Text

from wakeful.cli.arguments import now_ms
from wakeful.cli.completion import job_names
from wakeful.cli.session import Session, command
from wakeful.cli.show.preview import preview as lines
from wakeful.cli.times import local_zone
from wakeful.client.types import JobShape
from wakeful.document import Defaults, read_definition
from wakeful.errors import InvalidArgument
from wakeful.job import check_slug
from wakeful.schedule import Every, explain_schedule, parse_schedule
from wakeful.ticks import Ticks


def register(app: typer.Typer) -> None:
    """Put these commands on the app."""

    @command(app, "preview", panel="Jobs")
    async def preview(
        s: Session,
        what: Annotated[
            str,
            typer.Argument(
                metavar="EXPR|NAME", autocompletion=job_names, help="a schedule, quoted; or the name of a job"
            ),
        ],
        tz: Annotated[str | None, typer.Option("--tz", help="the schedule's zone (UTC)")] = None,
        count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="how many ticks")] = 10,
        after: Annotated[
            str | None, typer.Option("--after", metavar="TIME", help="from this ISO 8601 time on (now)")
        ] = None,
    ) -> None:
        """Show when a schedule fires, on its own clock and on yours, and where the clocks change."""
        now = now_ms()
        start = now if after is None else _instant(after)
        if _is_name(what):
            jobs, name = s.job(what)
            job = await s.out.ask(jobs.get(name))
            found, zone, explain = _of_job(job, start, count)
        else:
            schedule = parse_schedule(what, now_ms=start, tz=tz)
            zone, explain = schedule.tz or "UTC", explain_schedule(schedule)
            # An interval that nobody has begun begins now.
            found = Ticks(schedule, start).upcoming(start, count)
        answer = {
            "explain": explain,
            "tz": zone,
            "nextTicks": [{"at": _iso(ms, zone), "atMs": ms} for ms in found],
        }
        s.out.show(answer, *lines(explain, found, zone, local_zone(), now))
        if _is_name(what) and not found:
            s.out.say(Text("the job is off, or fires after another one", "dim"))


def _of_job(job: JobShape, start: int, count: int) -> tuple[list[int], str, str]:
    """The ticks of a job as it stands, its zone, and what it says."""
    zone = job["tz"] or "UTC"
    if job["nextAtMs"] is None:
        return [], zone, job["explain"]
    document = {key: value for key, value in cast(dict[str, object], job).items() if key in _DOCUMENT}
    timing = read_definition(document, now_ms=start, defaults=Defaults(), stored=True).timing
    assert timing is not None
    # The anchor is the server's; any tick of an interval will do for one.
    anchor = job["nextAtMs"] if isinstance(timing.schedule, Every) else 0
    return timing.ticks(anchor).upcoming(start, count), zone, job["explain"]


#: What says when a job fires.
_DOCUMENT = frozenset({"name", "schedule", "tz", "startAt", "endAt", "exclude", "dstGap", "dstOverlap"})


def _is_name(text: str) -> bool:
    try:
        for part in text.split("/", 1):
            check_slug(part)
    except InvalidArgument:
        return False
    return True


def _iso(ms: int, tz: str) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).astimezone(ZoneInfo(tz)).isoformat()


def _instant(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"--after: '{text}' is no time; write one such as 2027-03-01T09:00") from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
