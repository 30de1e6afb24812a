"""The job: its name, the anchor of its interval, what it sends, and the ticks that jobs share."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakeful.errors import InvalidArgument
from wakeful.job.job import MAX_NAME, Chain, Definition, JobRecord, Timing, Work, check_slug, choose_anchor
from wakeful.job.policy import Policy
from wakeful.schedule.calendars import parse_exclude
from wakeful.schedule.schedules import At, CronSchedule, Every
from wakeful.values.duration import HOUR, MINUTE, SECOND


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


CREATED = ms("2027-01-01T10:00:05.250Z")
NOW = ms("2027-02-01T00:00Z")


def job(timing: Timing | None, anchor_ms: int = CREATED) -> JobRecord:
    return JobRecord(
        id="j1",
        workspace="default",
        agent="default",
        definition=Definition("digest", timing),
        enabled=True,
        anchor_ms=anchor_ms,
        next_ms=None,
        wake_ms=None,
        created_ms=CREATED,
        updated_ms=CREATED,
    )


# --- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "7", "daily-report", "a--b", "0-0", "2027-01-01", "x" * MAX_NAME])
def test_a_slug_is_a_name(name):
    assert check_slug(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "-", "-a", "a-", "Daily", "daily report", "daily_report", "daily.report", "a/b", "täglich",
        "a\n", "\na", "a\x00", "١", "ａ", "x" * (MAX_NAME + 1),
        pytest.param("x" * 100_000, id="a very long name"),
        pytest.param("a" + "-" * 100_000, id="very many hyphens"),
    ],
)  # fmt: skip
def test_an_invalid_slug_is_refused(name):
    with pytest.raises(InvalidArgument) as refused:
        check_slug(name)
    assert refused.value.code == "invalid-argument"
    assert "is not a slug; use lowercase letters, digits and inner hyphens" in refused.value.message
    assert "at most 64" in refused.value.message
    assert len(refused.value.message) < 300


def test_the_error_names_the_field():
    with pytest.raises(InvalidArgument, match=r"^agent: 'No Name' is not a slug"):
        check_slug("No Name", "agent")
    with pytest.raises(InvalidArgument, match=r"^name: 'No Name' is not a slug"):
        check_slug("No Name")


@settings(deadline=None)
@given(st.text(alphabet="abz019-", max_size=70) | st.text(max_size=10))
def test_a_slug_is_letters_and_digits_with_hyphens_between_them(name):
    letters = set("abcdefghijklmnopqrstuvwxyz0123456789")
    fits = 1 <= len(name) <= 64 and set(name) <= letters | {"-"} and {name[0], name[-1]} <= letters
    try:
        assert check_slug(name) == name
    except InvalidArgument:
        assert not fits
    else:
        assert fits


# --- the anchor -------------------------------------------------------------------------------------------


def anchor(timing: Timing | None, old: JobRecord | None = None) -> int:
    return choose_anchor(Definition("digest", timing), NOW, old)


def test_an_interval_counts_from_the_creation_of_its_job():
    assert anchor(Timing(Every(HOUR))) == NOW


def test_an_interval_counts_from_its_start_where_it_has_one():
    start = NOW + 7 * MINUTE
    assert anchor(Timing(Every(HOUR), start_ms=start)) == start
    assert anchor(Timing(Every(HOUR), start_ms=0)) == 0, "the epoch is a start like any other"
    old = job(Timing(Every(HOUR)))
    assert anchor(Timing(Every(HOUR), start_ms=start), old) == start


def test_an_edit_that_leaves_the_interval_alone_keeps_the_anchor():
    old = job(Timing(Every(HOUR)))
    assert anchor(Timing(Every(HOUR)), old) == CREATED
    assert anchor(Timing(Every(HOUR), end_ms=NOW + HOUR), old) == CREATED
    assert anchor(Timing(Every(HOUR), exclude=parse_exclude(["2027-12-25"])), old) == CREATED


@pytest.mark.parametrize(("before", "after"), [(None, "Asia/Tokyo"), ("Asia/Tokyo", None), ("UTC", None)])
def test_another_zone_leaves_the_interval_alone(before, after):
    assert anchor(Timing(Every(HOUR, after)), job(Timing(Every(HOUR, before)))) == CREATED


def test_another_interval_counts_from_the_edit():
    old = job(Timing(Every(HOUR)))
    assert anchor(Timing(Every(HOUR + SECOND)), old) == NOW
    assert anchor(Timing(Every(HOUR)), job(Timing(CronSchedule("0 * * * *", "UTC")))) == NOW
    assert anchor(Timing(Every(HOUR)), job(None)) == NOW


def test_an_interval_whose_start_is_taken_away_counts_from_the_edit():
    start = NOW + 365 * 24 * HOUR
    assert anchor(Timing(Every(HOUR)), job(Timing(Every(HOUR), start_ms=start), start)) == NOW


def test_the_anchor_survives_any_number_of_edits():
    old = job(Timing(Every(7 * MINUTE)))
    before = old.definition.timing.ticks(old.anchor_ms) if old.definition.timing else None
    for end in (None, NOW + HOUR, None, NOW + 2 * HOUR, None):
        definition = replace(old.definition, timing=Timing(Every(7 * MINUTE), end_ms=end))
        old = replace(old, definition=definition, anchor_ms=choose_anchor(definition, NOW, old))
    assert old.ticks == before


def test_a_job_without_a_schedule_has_an_unused_anchor():
    assert anchor(None) == NOW


# --- what is sent -----------------------------------------------------------------------------------------


def test_a_message_alone_is_sent_as_a_payload():
    assert Work(message="good morning").body == {"message": "good morning"}
    assert Work(message="").body == {"message": ""}


@pytest.mark.parametrize("payload", [{}, [], 0, False, "", {"to": "me"}, [1, None]])
def test_a_payload_is_sent_as_it_is(payload):
    assert Work(payload=payload).body is payload
    assert Work(payload=payload, message="not this").body is payload


def test_without_payload_and_message_there_is_no_payload():
    assert Work().body is None


# --- the ticks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [CronSchedule("0 9 * * 1-5", "Europe/Berlin"), At(NOW)])
def test_jobs_with_the_same_timing_share_their_ticks_whatever_their_anchors(schedule):
    timing, same = Timing(schedule), Timing(replace(schedule))
    assert timing is not same
    assert timing.ticks(CREATED) is same.ticks(NOW)


def test_intervals_with_different_anchors_do_not_share_their_ticks():
    timing = Timing(Every(HOUR))
    assert timing.ticks(CREATED) is Timing(Every(HOUR)).ticks(CREATED)
    assert timing.ticks(CREATED).next(NOW) == NOW + 5_250
    assert timing.ticks(NOW).next(NOW) == NOW + HOUR


@pytest.mark.parametrize(
    "other",
    [
        {"start_ms": NOW},
        {"end_ms": NOW},
        {"exclude": parse_exclude(["2027-12-25"])},
        {"dst_gap": "skip"},
        {"dst_overlap": "second"},
        {"schedule": CronSchedule("30 2 * * *", "Europe/London")},
    ],
)
def test_another_timing_has_other_ticks(other):
    timing = Timing(CronSchedule("30 2 * * *", "Europe/Berlin"))
    ticks = replace(timing, **other).ticks(0)
    assert ticks is not timing.ticks(0)
    assert ticks != timing.ticks(0)


def test_every_part_of_a_timing_reaches_its_ticks():
    timing = Timing(Every(HOUR, "Asia/Tokyo"), NOW, NOW + 1, parse_exclude(["2027-12-25"]), "skip", "both")
    ticks = timing.ticks(NOW)
    assert (ticks.schedule, ticks.anchor_ms, ticks.start_ms, ticks.end_ms) == (
        Every(HOUR, "Asia/Tokyo"), NOW, NOW, NOW + 1,
    )  # fmt: skip
    assert (ticks.exclude, ticks.dst_gap, ticks.dst_overlap) == (
        parse_exclude(["2027-12-25"]), "skip", "both",
    )  # fmt: skip


def test_a_job_knows_its_ticks_by_its_own_anchor():
    ticks = job(Timing(Every(HOUR))).ticks
    assert ticks is not None
    assert ticks.next(CREATED) == CREATED + HOUR


def test_a_job_that_only_follows_another_has_no_ticks():
    assert job(None).ticks is None


# --- the definition ---------------------------------------------------------------------------------------


def test_two_deployments_of_one_definition_are_equal():
    def deploy(**changes: str) -> Definition:
        return Definition(
            name="digest",
            timing=Timing(CronSchedule("0 7 * * *", "Europe/Berlin"), exclude=parse_exclude(["2027-12-25"])),
            policy=Policy(overlap="queue"),
            work=Work(target={"kind": "webhook", "url": "https://example.com"}, payload={"to": ["me"]}),
            after=Chain("harvest"),
            labels={"team": "blue", **changes},
        )

    assert deploy() == deploy()
    assert deploy() != deploy(team="red")


def test_a_definition_does_not_change():
    definition = Definition("digest", None)
    with pytest.raises(FrozenInstanceError):
        definition.name = "other"  # type: ignore[misc]
    assert definition.labels is not Definition("digest", None).labels
