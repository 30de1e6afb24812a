"""The heartbeat of an agent's document: what is read, what is left to its default, and the job it becomes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.document import Defaults, read_definition
from wakeful.document.agents import DEFAULT_EVERY_MS, DEFAULT_MESSAGE, heartbeat, heartbeat_job
from wakeful.errors import InvalidArgument
from wakeful.job.job import Definition
from wakeful.schedule.schedules import Every


def job(
    beat: object, tz: str | None = None, channel: str | None = None, defaults: Defaults | None = None
) -> Definition:
    """The job that a heartbeat becomes, of an agent with this zone and this channel."""
    read = heartbeat(beat)
    assert read is not None
    document = {"name": "heartbeat", **heartbeat_job(read, tz, channel)}
    return read_definition(document, now_ms=0, defaults=defaults or Defaults())


@pytest.mark.parametrize("value", [None, False])
def test_an_agent_may_have_no_heartbeat(value: object):
    assert heartbeat(value) is None


@pytest.mark.parametrize("value", [True, {}, {"every": None, "message": None}])
def test_all_heartbeat_fields_are_optional(value: object):
    assert heartbeat(value) == {"everyMs": DEFAULT_EVERY_MS}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"every": "15m"}, {"everyMs": 900_000}),
        ({"every_ms": 1_000}, {"everyMs": 1_000}),
        ({"active_hours": "22-6"}, {"everyMs": DEFAULT_EVERY_MS, "activeHours": "22:00-06:00"}),
        ({"to": "@ada", "tz": "UTC"}, {"everyMs": DEFAULT_EVERY_MS, "tz": "UTC", "to": "@ada"}),
    ],
)
def test_a_heartbeat_is_normalized(value: object, kept: dict[str, Any]):
    assert heartbeat(value) == kept


@pytest.mark.parametrize(
    "value", [1, "true", [], {"every": "1s", "every_ms": 1}, {"everyMs": 999}, {"to": ""}, {"enabled": True}]
)
def test_an_invalid_heartbeat_is_refused(value: object):
    with pytest.raises(InvalidArgument):
        heartbeat(value)


def test_the_default_message_asks_for_heartbeat_ok():
    work = job(True).work
    assert work.message == DEFAULT_MESSAGE
    assert "answer HEARTBEAT_OK" in DEFAULT_MESSAGE
    assert job({"message": "Look."}).work.message == "Look."


def test_the_zone_of_the_hours_is_its_own_or_inherited():
    by_day = {"activeHours": "08:00-22:00"}
    for beat, tz, zone_of_hours in [
        ({**by_day, "tz": "Asia/Tokyo"}, "Europe/Berlin", "Asia/Tokyo"),
        (by_day, "Europe/Berlin", "Europe/Berlin"),
        (by_day, None, "America/New_York"),
    ]:
        work = job(beat, tz, defaults=Defaults(tz="America/New_York")).work
        assert (work.active_hours, work.hours_tz) == ("08:00-22:00", zone_of_hours)


def test_the_operators_default_policies_do_not_apply_to_heartbeats():
    policy = job(True, defaults=Defaults(overlap="allow", catchup="fire_immediately")).policy
    assert (policy.overlap, policy.catchup) == ("skip", "none")


@pytest.mark.parametrize(
    ("beat", "channel", "deliver"),
    [
        (True, None, False),
        (True, "team", True),
        ({"channel": "team"}, None, True),
        ({"to": "@ada"}, None, False),
        ({"deliver": False, "channel": "team"}, "team", False),
        ({"deliver": True}, None, True),
    ],
)
def test_a_heartbeat_is_delivered_if_there_is_a_channel(beat: object, channel: str | None, deliver: bool):
    work = job(beat, None, channel).work
    assert work.deliver is deliver
    assert work.channel == ("team" if isinstance(beat, dict) and "channel" in beat else None)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "everyMs": st.integers(1_000, 10**9),
            "activeHours": st.sampled_from(["08:00-22:00", "8-22", "22:00-06:00"]),
            "tz": st.sampled_from(["UTC", "Europe/Berlin"]),
            "message": st.text(st.characters(codec="ascii", categories=["L"]), min_size=1),
            "deliver": st.booleans(),
            "stateless": st.booleans(),
        },
    )
)
def test_a_stored_heartbeat_is_read_back_unchanged(value: dict[str, Any]):
    kept = heartbeat(value)
    assert kept is not None
    assert heartbeat(kept) == kept
    assert job(kept) == job(value)
    timing = job(value).timing
    assert timing is not None
    assert isinstance(timing.schedule, Every)
    assert timing.schedule.every_ms == value.get("everyMs", DEFAULT_EVERY_MS)
