"""Excluded days: dates, ranges, public holidays; what is refused; and the searches over days."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import holidays
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import cases
from wakeful.cron import Cron
from wakeful.errors import InvalidArgument
from wakeful.schedule.calendars import (
    MAX_ENTRIES,
    MAX_REGIONS,
    NOTHING,
    Calendar,
    parse_exclude,
    stored_exclude,
)


def excludes(calendar: Calendar, day: date) -> bool:
    return calendar.excludes_ordinal(day.toordinal())


def test_the_empty_calendar_is_false_and_excludes_nothing():
    assert not Calendar()
    assert parse_exclude([]) is NOTHING
    assert not excludes(Calendar(), date(2026, 12, 25))
    assert Calendar().to_json() == []


def test_a_date_excludes_that_day_alone():
    calendar = parse_exclude(["2026-12-24"])
    assert calendar
    assert [excludes(calendar, date(2026, 12, day)) for day in (23, 24, 25)] == [False, True, False]


def test_a_range_includes_both_its_ends():
    calendar = parse_exclude(["2026-12-24/2027-01-02"])
    assert excludes(calendar, date(2026, 12, 24))
    assert excludes(calendar, date(2026, 12, 31))
    assert excludes(calendar, date(2027, 1, 2))
    assert not excludes(calendar, date(2026, 12, 23))
    assert not excludes(calendar, date(2027, 1, 3))


def test_public_holidays_are_those_of_the_country():
    calendar = parse_exclude(["holidays:US"])
    assert excludes(calendar, date(2027, 7, 4))
    assert excludes(calendar, date(2027, 7, 5)), "the Monday on which it is observed"
    assert not excludes(calendar, date(2027, 7, 6))


def test_a_subdivision_has_holidays_of_its_own():
    assumption = date(2027, 8, 15)
    assert excludes(parse_exclude(["holidays:DE-SL"]), assumption)
    assert not excludes(parse_exclude(["holidays:DE"]), assumption)


def test_a_holiday_that_is_observed_in_the_year_before_belongs_there():
    calendar = parse_exclude(["holidays:US"])
    assert excludes(calendar, date(2021, 12, 31)), "1 January 2022 is a Saturday"
    assert excludes(calendar, date(2022, 1, 1))


def test_years_that_the_library_does_not_know_have_fewer_holidays_and_no_warning():
    assert excludes(parse_exclude(["holidays:IN"]), date(2100, 1, 26))


def test_entries_are_kept_in_one_spelling_and_their_order_without_repetition():
    calendar = parse_exclude([" Holidays: de-by ", "2026-12-24", "2026-12-24", "holidays:br-sãopaulocapital"])
    assert calendar.to_json() == ["holidays:DE-BY", "2026-12-24", "holidays:BR-São Paulo Capital"]
    assert parse_exclude(calendar.to_json()) == calendar
    assert hash(parse_exclude(calendar.to_json())) == hash(calendar)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("2026-02-30", "'2026-02-30' is not a date"),
        ("2026-2-3", "a date is YYYY-MM-DD"),
        ("2026-W52-4", "a date is YYYY-MM-DD"),
        ("24.12.2026", "write '2026-12-24'"),
        ("", "'' is not a date"),
        ("christmas", "write '2026-12-24', '2026-12-24/2027-01-02', '12-25'"),
        ("02-30", "'02-30' is not a date"),
        ("13-01/13-02", "'13-01' is not a date"),
        ("12-24/2026-12-26", "is not a date"),
        ("satur", "'satur' is not a date"),
        ("cron:* 2-4 * *", "has 4 fields"),
        ("cron:0 * 2-4 * * *", "has five fields"),
        ("cron:", "has 0 fields"),
        ("2027-01-02/2026-12-24", "the range ends before it begins; write '2026-12-24/2027-01-02'"),
        ("2026-12-24/", "'' is not a date"),
        ("2026-12-24/2026-12-25/2026-12-26", "is not a date"),
        ("holidays:XX", "no holidays are known for 'XX'"),
        ("holidays:", "no holidays are known for ''"),
        ("holidays:DE-ZZ", "'ZZ' is not a subdivision of DE"),
        ("holidays:DE-", "'' is not a subdivision of DE"),
        ("holidays:HolidayBase", "no holidays are known for 'HOLIDAYBASE'"),
        (20261224, "20261224 is not text"),
        (None, "None is not text"),
    ],
)
def test_a_bad_entry_is_refused_by_name(entry, why):
    with pytest.raises(InvalidArgument) as refusal:
        parse_exclude(["2026-01-01", entry])
    assert refusal.value.message.startswith("exclude")
    assert why in refusal.value.message


def test_an_unknown_subdivision_error_lists_the_known_ones():
    with pytest.raises(InvalidArgument, match="use one of BB, BE, BW, BY"):
        parse_exclude(["holidays:DE-Bavaria"])
    with pytest.raises(InvalidArgument, match="it has none"):
        parse_exclude(["holidays:JP-13"])


@pytest.mark.parametrize("entries", ["2026-12-24", None, {"2026-12-24"}, 7])
def test_a_value_that_is_not_a_list_is_refused(entries):
    with pytest.raises(InvalidArgument, match="exclude is a list of texts"):
        parse_exclude(entries)


def test_there_are_at_most_a_hundred_entries():
    days = [(date(2026, 1, 1) + timedelta(days=n)).isoformat() for n in range(MAX_ENTRIES + 1)]
    assert parse_exclude(days[:-1])
    with pytest.raises(InvalidArgument, match="101 entries; at most 100"):
        parse_exclude(days)


def test_holidays_are_taken_from_at_most_ten_regions():
    regions = [f"holidays:DE-{name}" for name in "BB BE BW BY HB HE HH MV NI NW RP".split()]
    assert len(regions) == MAX_REGIONS + 1
    assert len(parse_exclude(regions[:-1]).regions) == MAX_REGIONS
    with pytest.raises(InvalidArgument, match="holidays from 11 regions; at most 10"):
        parse_exclude(regions)


def test_cron_expressions_leave_out_at_most_24_windows_a_day():
    assert parse_exclude(["cron:0 * * * *"])
    assert parse_exclude(["cron:* * * * 6", "cron:*/5 2 * * *"])
    with pytest.raises(InvalidArgument, match="720 separate windows per day; at most 24"):
        parse_exclude(["cron:*/2 * * * *"])
    with pytest.raises(InvalidArgument, match="25 separate windows"):
        parse_exclude(["cron:0 * * * *", "cron:30 2 * * *"])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("Saturdays", "sat"),
        ("SUNDAY", "sun"),
        ("weekend", "weekends"),
        (" 12-24 / 12-26 ", "12-24/12-26"),
        ("Cron:  * 2-4  * * sun", "cron:* 2-4 * * SUN"),
    ],
)
def test_yearly_entries_have_one_spelling(given, kept):
    assert parse_exclude([given]).to_json() == [kept]
    assert parse_exclude([kept]) == parse_exclude([given])


def test_what_is_stored_is_read_without_the_library():
    script = (
        "import sys; from wakeful.schedule.calendars import stored_exclude; "
        "stored_exclude(['holidays:DE-BY', '2026-12-24']); print('holidays' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"
    assert stored_exclude(["holidays:DE-BY"]) == parse_exclude(["holidays:de-by"])


@pytest.mark.parametrize("entries", [["weekdays", "weekends"], ["01-01/12-31"], ["cron:* * * * *"]])
def test_a_calendar_that_excludes_every_day_ends_each_search(entries):
    calendar, day = parse_exclude(entries), FIRST.toordinal()
    assert calendar.first_kept(day, 1) > day
    assert calendar.first_kept(day, -1) < day


FIRST = date(2026, 1, 1)
LENGTH = 120
DAYS = st.integers(0, LENGTH - 1).map(lambda n: FIRST + timedelta(days=n))
ENTRIES = st.one_of(
    DAYS.map(str),
    st.tuples(DAYS, st.integers(0, 20)).map(
        lambda range_: f"{range_[0]}/{range_[0] + timedelta(days=range_[1])}"
    ),
    st.sampled_from(["holidays:DE-BY", "holidays:US", "sat", "sun", "weekends", "wed"]),
    st.sampled_from(
        ["01-06", "12-31/01-02", "02-28/03-01", "01-20/02-10", "cron:* * 1-7 * *", "cron:* * * 2 *"]
    ),
)


def noon(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def is_excluded(entries: list[str], day: date) -> bool:
    """The same, told naively."""
    for entry in entries:
        if entry.startswith("cron:"):
            if Cron(f"0 0 {entry.split(' ', 2)[2]}").next(noon(day) - timedelta(days=1)) == noon(day):
                return True
        elif entry.isalpha():
            if day.strftime("%a").lower() in {"weekends": "sat sun", "weekdays": "mon tue wed thu fri"}.get(
                entry, entry
            ):
                return True
        elif len(entry) in (5, 11) and entry[2] == "-":
            first, last = entry[:5], entry[-5:]
            own = f"{day:%m-%d}"
            if (first <= own <= last) if first <= last else (own >= first or own <= last):
                return True
        elif entry.startswith("holidays:"):
            country, _, subdivision = entry.removeprefix("holidays:").partition("-")
            if day in holidays.country_holidays(country, subdiv=subdivision or None, years=day.year):
                return True
        else:
            first, _, last = entry.partition("/")
            if first <= day.isoformat() <= (last or first):
                return True
    return False


@settings(deadline=None, max_examples=cases(200, 200))
@given(st.lists(ENTRIES, max_size=6), DAYS)
def test_a_day_is_excluded_when_any_entry_says_so(entries, day):
    assert excludes(parse_exclude(entries), day) == is_excluded(entries, day)


@settings(deadline=None, max_examples=cases(200, 200))
@given(st.lists(ENTRIES, max_size=6), DAYS, DAYS)
def test_the_searches_agree_with_a_check_of_every_day(entries, one, other):
    calendar = parse_exclude(entries)
    first, last = sorted((one.toordinal(), other.toordinal()))
    excluded = {day for day in range(first, last + 1) if calendar.excludes_ordinal(day)}

    stretches = calendar.stretches(first, last)
    assert [day for low, high in stretches for day in range(low, high + 1)] == sorted(excluded)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(stretches))

    assert calendar.first_kept(first, 1) == next(
        day for day in range(first, first + 500) if not calendar.excludes_ordinal(day)
    )
    assert calendar.first_kept(last, -1) == next(
        day for day in range(last, last - 500, -1) if not calendar.excludes_ordinal(day)
    )
