"""When the digest of what waits is due, and its text."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.run.alerts import AlertJob, Recipients
from wakeful.run.digests import DigestOwner, digest_times, write_digest
from wakeful.run.inbox import InboxRow
from wakeful.store.internal_jobs import AGENT_ALERTS, AGENT_CHANNEL

DAY = 86_400_000
WEBHOOK = AlertJob("s1", "ops", AGENT_ALERTS, "{}")
CHANNEL = AlertJob("s2", "ops", AGENT_CHANNEL, "{}")
#: Zones with changes of an hour, of half an hour, at midnight, of a whole day, and none.
ZONES = ("Europe/Berlin", "Australia/Lord_Howe", "America/Asuncion", "Pacific/Apia", "Asia/Kolkata")


def owner(tz: str | None = None, **alerts: str) -> DigestOwner:
    return DigestOwner("acme", "ops", tz, 0, Recipients(json.dumps(alerts), WEBHOOK, CHANNEL))


def item(job: str) -> InboxRow:
    return InboxRow("approval", "j1", "acme", "ops", "j1", job, None, 0, None, 1, None)


@given(st.integers(1_262_304_000, 1_893_456_000), st.sampled_from(ZONES), st.integers(0, 24 * 60 - 1))
def test_a_digest_is_due_each_local_day_at_its_time(now_s: int, tz: str, minute: int):
    clock = f"{minute // 60:02d}:{minute % 60:02d}"
    times = digest_times(owner("UTC", digest=clock, digestTz=tz), now_s * 1000)
    assert times is not None
    last, following = times
    assert last <= now_s * 1000 < following
    assert following - last <= 2 * DAY, "Apia had no 30 December 2011"
    assert digest_times(owner(tz, digest=clock), last) == (last, following), "the zone of the owner"
    local = datetime.fromtimestamp(last / 1000, UTC).astimezone(ZoneInfo(tz))
    shifted = (local.hour * 60 + local.minute - minute) % (24 * 60)
    assert shifted in (0, 30, 60), "later by the gap, where the time does not exist"


@pytest.mark.parametrize("nothing", [owner(), owner()._replace(recipients=Recipients('{"digest":"09:00"}'))])
def test_without_a_time_or_recipients_no_digest_is_due(nothing: DigestOwner):
    assert digest_times(nothing, 0) is None


def test_a_digest_lists_the_newest_and_counts_the_others():
    counts = {"approval": 12}
    runs = write_digest(owner(digest="09:00"), 0, counts, [item("weekly"), item("<b>daily</b>")])
    machines, people = (json.loads(run.payload or "") for run in runs)
    assert (machines["kind"], machines["count"], machines["agent"]) == ("digest", 12, "ops")
    assert people["title"] == "Wakeful: 12 things wait for a decision"
    lines: Any = people["body"].split("\n")
    assert lines[:4] == [
        "- Approve job 'weekly' of agent 'ops'",
        "- Approve job '<b>daily</b>' of agent 'ops'",
        "and 10 more",
        "Decide with: wakeful inbox",
    ]
    assert write_digest(owner(digest="09:00"), 0, {"approval": 0}, []) == ()
