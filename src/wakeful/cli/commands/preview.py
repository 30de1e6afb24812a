"""`wakeful preview`: the next ticks of a schedule or job. A schedule needs no server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Annotated, cast
from zoneinfo import ZoneInfo

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli.arguments import job_names, now_ms
from wakeful.cli.session import CliSession, command
from wakeful.cli.times import local_zone, parse_time, relative
from wakeful.client.types import JobShape
from wakeful.document import Defaults, read_definition
from wakeful.errors import InvalidArgument
from wakeful.job.job import check_slug
from wakeful.schedule.schedules import Every, explain_schedule, parse_schedule
from wakeful.schedule.ticks import Ticks

#: The fields that determine a job's ticks.
_DOCUMENT = frozenset({"name", "schedule", "tz", "startAt", "endAt", "exclude", "dstGap", "dstOverlap"})


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "preview",
        examples=(
            "wakeful preview '0 9 * * MON-FRI' --tz Europe/Berlin",
            "wakeful preview digest --count 3",
        ),
        panel="Jobs",
    )
    async def preview(
        s: CliSession,
        what: Annotated[
            str,
            typer.Argument(
                metavar="EXPR|NAME", autocompletion=job_names, help="a quoted schedule, or a job's name"
            ),
        ],
        tz: Annotated[
            str | None, typer.Option("--tz", help="the schedule's time zone (default: UTC)")
        ] = None,
        count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="how many ticks")] = 10,
        after: Annotated[
            str | None,
            typer.Option("--after", metavar="TIME", help="ticks after this ISO 8601 time (default: now)"),
        ] = None,
    ) -> None:
        """Show the next ticks of a schedule in its time zone and yours, with DST changes."""
        now = now_ms()
        start = now if after is None else _after_ms(after)
        if _is_name(what):
            agent, name = await s.find_job(what)
            job = await s.out.wait_for(s.client.get_job(agent, name))
            found, zone, explain = _job_ticks(job, start, count)
        else:
            schedule = parse_schedule(what, now_ms=start, tz=tz)
            zone, explain = schedule.tz or "UTC", explain_schedule(schedule)
            # The interval's anchor is `start`.
            found = Ticks(schedule, start).upcoming(start, count)
        result = {
            "explain": explain,
            "tz": zone,
            "nextTicks": [{"at": _iso(ms, zone), "atMs": ms} for ms in found],
        }
        s.out.show(result, *preview_lines(explain, found, zone, local_zone(), now))
        if _is_name(what) and not found:
            s.out.say(Text("the job is disabled, or runs after another job", "dim"))


def _job_ticks(job: JobShape, start: int, count: int) -> tuple[list[int], str, str]:
    """Return a job's next ticks, its time zone and its schedule in words."""
    zone = job["tz"] or "UTC"
    if job["nextAtMs"] is None:
        return [], zone, job["explain"]
    document = {key: value for key, value in cast(dict[str, object], job).items() if key in _DOCUMENT}
    timing = read_definition(document, now_ms=start, defaults=Defaults(), stored=True).timing
    assert timing is not None
    # The anchor is not in the response; any tick of the interval serves as one.
    anchor = job["nextAtMs"] if isinstance(timing.schedule, Every) else 0
    return timing.ticks(anchor).upcoming(start, count), zone, job["explain"]


def _is_name(text: str) -> bool:
    try:
        for part in text.split("/", 1):
            check_slug(part)
    except InvalidArgument:
        return False
    return True


def _iso(ms: int, tz: str) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).astimezone(ZoneInfo(tz)).isoformat()


def _after_ms(text: str) -> int:
    at = parse_time("--after", text)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def preview_lines(
    explain: str, ticks: Sequence[int], tz: str, yours: str, now_ms: int
) -> Iterator[RenderableType]:
    """Yield the schedule in words, a line per tick, and a line per clock change between two ticks."""
    yield Text(explain, "bold")
    if not ticks:
        yield Text("never within 100 years", "yellow")
        return
    zones = [ZoneInfo(name) for name in dict.fromkeys((tz, yours))]
    wide = max(len(_wall(ms, zones[0])) for ms in ticks)
    yield _line(ticks[0], zones, wide, now_ms)
    for earlier, later in pairwise(ticks):
        for zone in zones:
            if change := _offset(later, zone) - _offset(earlier, zone):
                way = "forward" if change > timedelta(0) else "back"
                where = f" in {zone.key}" if len(zones) > 1 else ""
                yield Text(f"-- clocks go {way} {_amount(abs(change))}{where} --", "yellow")
        yield _line(later, zones, wide, now_ms)


def _line(ms: int, zones: Sequence[ZoneInfo], wide: int, now_ms: int) -> Text:
    own, *yours = zones
    line = Text(_wall(ms, own).ljust(wide))
    for zone in yours:
        line.append(f"   {_wall(ms, zone)} {zone.key}", "cyan")
    return line.append(f"   {relative(ms, now_ms)}", "dim")


def _wall(ms: int, zone: ZoneInfo) -> str:
    at = _at(ms, zone)
    return f"{at:%a} {at.isoformat(' ', 'seconds')}"


def _offset(ms: int, zone: ZoneInfo) -> timedelta:
    return _at(ms, zone).utcoffset() or timedelta(0)


def _at(ms: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).astimezone(zone)


def _amount(change: timedelta) -> str:
    hours, minutes = divmod(int(change.total_seconds()) // 60, 60)
    return " ".join(part for part in (f"{hours} h" * bool(hours), f"{minutes} min" * bool(minutes)) if part)
