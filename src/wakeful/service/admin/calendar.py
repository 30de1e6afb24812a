"""The calendar: a week of upcoming and finished runs by hour, and the schedules of an hour.

Upcoming runs are computed in a thread from the counts per distinct timing, never job by job, and kept. A page
that finds nothing kept waits a moment only: it shows that the value is being computed, and is loaded again. A
value that is older than a minute is used once more while it is computed again. The longer that takes, the
less often it happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from wakeful.cron.zone import zone
from wakeful.errors import InvalidArgument
from wakeful.forecast.peaks import TimingCount, Week, compute_week
from wakeful.job.policy import DAY_MS
from wakeful.service.admin.calendar_weeks import (
    HOUR_MS,
    CalendarDay,
    CalendarHour,
    ExcludedDay,
    HourSchedules,
    excluded_days,
    find_monday,
    hour_schedules,
    midnight_ms,
    week_days,
)
from wakeful.service.admin.figures import Figures
from wakeful.service.admin.peaks import PAGES_SHARE, Computations, peak_thread
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.store.port import Store
from wakeful.values.bounded_cache import MB, BoundedCache
from wakeful.values.duration import MINUTE
from wakeful.values.instants import utc_datetime

#: How long a value is used, and how long while it is computed again, in seconds.
KEPT_S: Final = 60.0
USABLE_S: Final = 3_600.0
#: How long a page waits for a computation, in seconds.
WAIT_S: Final = 0.04
_BUDGET: Final = 8 * MB

T = TypeVar("T")
#: workspace, agent, first instant, last instant
Key = tuple[str, str | None, int, int]
#: Computes a value from counts; it calls the second argument often.
Compute = Callable[[list[TimingCount], Callable[[], object]], T]

#: How many weeks ahead and back the calendar goes.
WEEKS_AHEAD: Final = 4
WEEKS_BACK: Final = 52
#: How many agents the filter offers.
_AGENTS: Final = 100


class _Kept(NamedTuple, Generic[T]):
    value: T
    at: float
    took_s: float


class TimingCache(Computations[Key, T]):
    """Computes values in the thread of load peaks, and keeps them."""

    def __init__(self, store: Store, weight: int) -> None:
        super().__init__()
        self._store = store
        self._weight = weight
        self._kept: BoundedCache[Key, _Kept[T]] = BoundedCache(_BUDGET)

    async def get(self, key: Key, compute: Compute[T]) -> T | None:
        """Return a value that is kept, or computed within a moment; None: it is being computed."""
        kept = self._kept.get(key)
        age = USABLE_S if kept is None else time.monotonic() - kept.at
        if kept is not None and age < max(KEPT_S, kept.took_s / PAGES_SHARE):
            return kept.value
        task = self.start(key, partial(self._compute, key, compute))
        if kept is not None and age < USABLE_S:
            return kept.value
        done, _ = await asyncio.wait([task], timeout=WAIT_S)
        return task.result() if done else None

    async def _compute(self, key: Key, compute: Compute[T]) -> T:
        began = time.monotonic()
        counts = await self._store.timings(key[0], key[1])
        value = await asyncio.get_running_loop().run_in_executor(peak_thread, compute, counts, self.pause)
        ended = time.monotonic()
        self._kept.put(key, _Kept(value, ended, ended - began), self._weight)
        return value


class HourFigures(NamedTuple):
    """An hour of the calendar, with its runs."""

    hour: CalendarHour
    #: the expected runs from now on; None: the hour is over, or they are being computed
    upcoming: int | None
    #: finished runs by state; None: the hour has not begun
    finished: dict[str, int] | None


class DayFigures(NamedTuple):
    """A day of the calendar."""

    day: CalendarDay
    hours: tuple[HourFigures, ...]
    excluded: ExcludedDay | None


class CalendarWeek(NamedTuple):
    """A week of the calendar."""

    first: date
    tz: str
    agent: str | None
    now_ms: int
    days: tuple[DayFigures, ...]
    #: whether upcoming runs are being computed
    is_pending: bool
    #: the Mondays of the weeks before and after; None: the calendar ends there
    previous: date | None
    next: date | None


class CalendarHourDetails(NamedTuple):
    """An hour and what fires in it."""

    hour: CalendarHour
    now_ms: int
    #: the expected runs in each minute from now on; None: they are being computed, or the hour is over
    minutes: tuple[float, ...] | None
    schedules: HourSchedules | None
    finished: dict[str, int]
    is_pending: bool


class _Computed(NamedTuple):
    """What is computed for a week."""

    week: Week
    excluded: dict[date, ExcludedDay]


class CalendarService:
    """Reads the calendar of a workspace or an agent."""

    def __init__(self, store: Store, accounts: Accounts, figures: Figures) -> None:
        self._store = store
        self._accounts = accounts
        self._figures = figures
        self._weeks: TimingCache[_Computed] = TimingCache(store, 8 * 8 * 24 * 60 + 32 * 1024)
        self._hours: TimingCache[HourSchedules] = TimingCache(store, 32 * 1024)

    async def close(self) -> None:
        """Stop computing."""
        await self._weeks.close()
        await self._hours.close()

    async def week(
        self,
        principal: Principal,
        workspace: str,
        *,
        day: date | None = None,
        tz: str = "UTC",
        agent: str | None = None,
    ) -> CalendarWeek:
        """Return the week of a day (None: today) in a zone."""
        agent = await self._visible(principal, workspace, agent)
        zone(tz)
        now_ms = self._store.clock.now_ms()
        present = find_monday(utc_datetime(now_ms).astimezone(ZoneInfo(tz)).date())
        first = present if day is None else find_monday(day)
        earliest, latest = present - timedelta(weeks=WEEKS_BACK), present + timedelta(weeks=WEEKS_AHEAD)
        if not earliest <= first <= latest:
            raise InvalidArgument(f"week: choose a day from {earliest} to {latest + timedelta(days=6)}")
        start_ms, end_ms = midnight_ms(first, tz), midnight_ms(first + timedelta(weeks=1), tz)
        finished = await self._finished(principal, workspace, agent, start_ms, min(end_ms, now_ms + 1))
        computed = await self._computed(workspace, agent, first, tz)
        excluded = {} if computed is None else computed.excluded
        days = tuple(
            DayFigures(
                each,
                tuple(
                    HourFigures(
                        hour,
                        _upcoming(None if computed is None else computed.week, hour, now_ms),
                        None if hour.start_ms > now_ms else _sum(finished, hour),
                    )
                    for hour in each.hours
                ),
                excluded.get(each.day),
            )
            for each in week_days(first, tz)
        )
        return CalendarWeek(
            first,
            tz,
            agent,
            now_ms,
            days,
            computed is None,
            first - timedelta(weeks=1) if first > earliest else None,
            first + timedelta(weeks=1) if first < latest else None,
        )

    async def hour(
        self, principal: Principal, workspace: str, week: CalendarWeek, at_ms: int
    ) -> CalendarHourDetails | None:
        """Return what happens in the hour of an instant; None: it is not in the week."""
        found = next((each for day in week.days for each in day.hours if each.hour.start_ms == at_ms), None)
        if found is None:
            return None
        hour = found.hour
        agent = await self._visible(principal, workspace, week.agent)
        minutes: tuple[float, ...] | None = None
        schedules: HourSchedules | None = None
        is_over = hour.end_ms <= week.now_ms
        if not is_over:
            start_ms = max(hour.start_ms, week.now_ms // MINUTE * MINUTE)
            computed = await self._computed(workspace, agent, week.first, week.tz)
            if computed is not None:
                first = (hour.start_ms - computed.week.start_ms) // MINUTE
                length = (hour.end_ms - hour.start_ms) // MINUTE
                minutes = tuple(
                    computed.week.starts[number] if 0 <= number < len(computed.week.starts) else 0.0
                    for number in range(first, first + length)
                )
            schedules = await self._hours.get(
                (workspace, agent, hour.start_ms, hour.end_ms),
                lambda counts, pause: hour_schedules(counts, start_ms, hour.end_ms, pause),
            )
        return CalendarHourDetails(
            hour,
            week.now_ms,
            minutes,
            schedules,
            found.finished or {},
            not is_over and (minutes is None or schedules is None),
        )

    async def agents(self, principal: Principal, workspace: str) -> list[str]:
        """Return the first agents by name, for a filter."""
        await self._accounts.authorize(principal, "read", workspace)
        if principal.agent is not None:
            return [principal.agent]
        return [each.name for each in await self._store.agents_page(workspace, None, _AGENTS)]

    async def _computed(self, workspace: str, agent: str | None, first: date, tz: str) -> _Computed | None:
        start_ms, end_ms = midnight_ms(first, tz), midnight_ms(first + timedelta(weeks=1), tz)

        def compute(counts: list[TimingCount], pause: Callable[[], object]) -> _Computed:
            """Compute the week from now on. Runs in a thread."""
            from_ms = max(start_ms, self._store.clock.now_ms())
            days = max(1, -((from_ms - end_ms) // DAY_MS))
            week = compute_week(() if end_ms <= from_ms else counts, from_ms, pause, days)
            return _Computed(week, excluded_days(counts, first, 7, pause))

        return await self._weeks.get((workspace, agent, start_ms, end_ms), compute)

    async def _visible(self, principal: Principal, workspace: str, agent: str | None) -> str | None:
        await self._accounts.authorize(principal, "read", workspace, agent)
        visible = visible_agent(principal, agent)
        if visible is not None:
            await self._accounts.agent(workspace, visible)
        return visible

    async def _finished(
        self, principal: Principal, workspace: str, agent: str | None, start_ms: int, end_ms: int
    ) -> dict[int, dict[str, int]]:
        """Return finished runs by the beginning of their hour (UTC) and their state."""
        found: dict[int, dict[str, int]] = {}
        if start_ms >= end_ms:
            return found
        first_ms = start_ms // HOUR_MS * HOUR_MS
        for each in await self._figures.hours(principal, workspace, first_ms, end_ms, agent):
            found.setdefault(each.at_ms, {})[each.state] = each.runs
        return found


def _upcoming(week: Week | None, hour: CalendarHour, now_ms: int) -> int | None:
    """Return the expected runs of an hour from now on; None: it is over, or nothing is known."""
    if week is None or hour.end_ms <= now_ms:
        return None
    starts = week.starts_between(max(hour.start_ms, now_ms // MINUTE * MINUTE), hour.end_ms)
    return None if starts is None else round(starts)


def _sum(finished: dict[int, dict[str, int]], hour: CalendarHour) -> dict[str, int]:
    """Return the finished runs of an hour. Counts are per hour of UTC: the one that begins in it."""
    total: dict[str, int] = {}
    for at_ms, states in finished.items():
        if hour.start_ms <= at_ms < hour.end_ms:
            for state, runs in states.items():
                total[state] = total.get(state, 0) + runs
    return total
