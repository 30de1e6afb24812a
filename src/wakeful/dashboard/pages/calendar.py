"""The calendar: a week of runs by hour, and one of its hours."""

from __future__ import annotations

from datetime import date
from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from wakeful.dashboard import charts
from wakeful.dashboard.charts import HeatCell, HeatColumn
from wakeful.dashboard.context import ZONE, PageDep, PageRequest, page_router
from wakeful.dashboard.formats import local
from wakeful.errors import InvalidArgument
from wakeful.service.admin.calendar import CalendarHourDetails, CalendarWeek, DayFigures, HourFigures

router = page_router()

#: States that a person should look at.
_WRONG: Final = ("failed", "missed")
_HOURS: Final = tuple(f"{hour:02d}:00" for hour in range(24))


@router.get("/calendar")
async def calendar(page: PageDep, week: str = "", hour: str = "", tz: str = "", agent: str = "") -> Response:
    """Show a week."""
    service = page.services.admin.calendar
    own_zone = await page.services.admin.status.zone(
        page.principal, page.workspace, page.principal.agent or "default"
    )
    viewer = page.tz if ZONE in page.request.cookies else own_zone
    shown = await service.week(
        page.principal, page.workspace, day=_day(week), tz=tz or viewer, agent=agent or None
    )
    details = None
    if hour.isascii() and hour.isdecimal() and len(hour) < 16:
        details = await service.hour(page.principal, page.workspace, shown, int(hour))
    selected = None if details is None else details.hour.start_ms
    return page.render(
        "calendar.html",
        title="Calendar",
        active="calendar",
        week=shown,
        months=_months(shown),
        chart=_chart(page, shown, selected),
        rows=_table(shown),
        notes=[(each.day.day, note) for each in shown.days for note in _notes(each)],
        total=sum(each.upcoming or 0 for day in shown.days for each in day.hours),
        own_zone=own_zone,
        viewer=viewer,
        zones=sorted({own_zone, viewer, "UTC", shown.tz}),
        agents=await service.agents(page.principal, page.workspace),
        details=details,
        minutes=None if details is None else _minutes(details, shown.tz),
        is_pending=shown.is_pending or (details is not None and details.is_pending),
    )


def _day(text: str) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidArgument("week: write a date, such as 2027-03-01") from None


def _months(week: CalendarWeek) -> str:
    """Return the dates of a week in words."""
    first, last = week.days[0].day.day, week.days[-1].day.day
    if first.month == last.month:
        return f"{first.day} to {last.day} {last:%B %Y}"
    year = f" {first.year}" if first.year != last.year else ""
    return f"{first.day} {first:%B}{year} to {last.day} {last:%B %Y}"


def _chart(page: PageRequest, week: CalendarWeek, selected: int | None) -> Markup:
    today = local(week.now_ms, week.tz).date()
    columns = [
        HeatColumn(
            f"{each.day.day:%a} {each.day.day.day}",
            ("◆" if each.excluded else "") + ("⇄" if each.day.clock_change else ""),
            "\n".join([f"{each.day.day:%A, %d %B %Y}", *_notes(each)]),
            each.day.day == today,
        )
        for each in week.days
    ]
    cells = [
        cell for column, each in enumerate(week.days) for cell in _cells(page, week, column, each, selected)
    ]
    return charts.heat_map(
        columns, _HOURS, cells, label="Runs by day and hour. Each cell is a link to its hour."
    )


def _cells(
    page: PageRequest, week: CalendarWeek, column: int, day: DayFigures, selected: int | None
) -> list[HeatCell]:
    cells: list[HeatCell] = []
    repeated = {each.hour.hour for each in day.hours if each.hour.repeated}
    for each in day.hours:
        hour = each.hour
        is_past = hour.end_ms <= week.now_ms
        finished = sum((each.finished or {}).values())
        kind = "past" if is_past else "pending" if each.upcoming is None else "upcoming"
        cells.append(
            HeatCell(
                column,
                hour.hour,
                finished if is_past else (each.upcoming or 0),
                kind,
                _title(day, each, week.tz),
                page.here(hour=hour.start_ms) + "#hour",
                any((each.finished or {}).get(state) for state in _WRONG),
                hour.start_ms == selected,
                0 if hour.hour not in repeated else 2 if hour.repeated else 1,
            )
        )
    known = {each.hour.hour for each in day.hours}
    cells += [
        HeatCell(column, hour, 0, "gap", f"{_HOURS[hour]} does not exist on this day")
        for hour in range(24)
        if hour not in known
    ]
    return cells


def _title(day: DayFigures, each: HourFigures, tz: str) -> str:
    """Return what an hour has, in words."""
    at = local(each.hour.start_ms, tz)
    parts = [f"{day.day.day:%A %d %B}, {at:%H:%M}"]
    if each.hour.repeated:
        parts[0] += " (again)"
    counted = [f"{runs:,} {state}" for state, runs in sorted((each.finished or {}).items()) if runs]
    if each.upcoming is not None:
        counted.insert(0, f"{each.upcoming:,} upcoming")
    return f"{parts[0]}: {', '.join(counted) or 'no runs'}"


def _table(week: CalendarWeek) -> list[tuple[str, list[str]]]:
    """Return the week as a table: for each hour of the clock a text per day."""
    return [
        (_HOURS[hour], [_texts([each for each in day.hours if each.hour.hour == hour]) for day in week.days])
        for hour in range(24)
    ]


def _texts(hours: list[HourFigures]) -> str:
    if not hours:
        return "–"
    return " / ".join(
        f"{sum((each.finished or {}).values()):,} done" if each.upcoming is None else f"{each.upcoming:,}"
        for each in hours
    )


def _notes(day: DayFigures) -> list[str]:
    """Return what is special on a day."""
    notes: list[str] = []
    if day.excluded is not None:
        what = "Public holiday" if day.excluded.is_holiday else "Excluded"
        jobs = f"{day.excluded.jobs:,} {'job has' if day.excluded.jobs == 1 else 'jobs have'} no ticks"
        notes.append(f"{what}: {jobs} ({', '.join(day.excluded.reasons)}).")
    if day.day.clock_change is not None:
        notes.append(f"{day.day.clock_change} The day has {_length(day)} hours.")
    return notes


def _length(day: DayFigures) -> str:
    hours = (day.day.hours[-1].end_ms - day.day.hours[0].start_ms) / 3_600_000
    return f"{hours:g}"


def _minutes(details: CalendarHourDetails, tz: str) -> Markup | None:
    """Return the expected runs of an hour by minute."""
    if details.minutes is None:
        return None
    titles = [
        f"{local(details.hour.start_ms + number * 60_000, tz):%H:%M}: about {round(starts):,}"
        for number, starts in enumerate(details.minutes)
    ]
    return charts.columns(list(details.minutes), titles, label="Expected runs by minute")
