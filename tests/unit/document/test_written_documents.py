"""Definitions as documents and as stored texts, read back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import cases
from tests.support.job_documents import (
    NOW,
    RICH,
    WEBHOOK,
    WORKFLOW,
    patched,
    read,
)
from wakeful.document import (
    Defaults,
    payload_from_text,
    payload_to_text,
    policy_from_text,
    policy_to_text,
    timing_from_text,
    timing_to_text,
    work_from_text,
    work_to_text,
    write_definition,
)
from wakeful.errors import InvalidArgument
from wakeful.job.job import Chain, Definition, Timing, Work
from wakeful.job.policy import Backoff, Policy
from wakeful.schedule.calendars import NOTHING, parse_exclude
from wakeful.schedule.schedules import At, CronSchedule, Every
from wakeful.values.duration import DAY, MINUTE
from wakeful.values.instants import LATEST_MS


def test_a_written_document_has_every_field():
    document = write_definition(read(RICH))
    fields = """
        name schedule tz target payload message stateless continuity deliver channel to deleteAfterRun
        wakeHeartbeat lane overlapPolicy maxQueued catchupPolicy catchupWindowMs misfireGraceMs jitterMs
        maxAttempts backoff timeoutMs startAt endAt maxRuns onLost lostLimit disableAfter claimTimeoutMs
        dstGap dstOverlap exclude activeHours precheck verify evidence budget after description
        labels triggerUrl on
    """
    assert set(document) == set(fields.split())
    assert document["schedule"] == {"kind": "cron", "expr": "0 7 * * *", "tz": "Europe/Berlin"}
    assert document["backoff"] == {"baseMs": 2000, "maxMs": 30000}
    workflow = write_definition(read(target=WORKFLOW))
    assert [workflow[name] for name in ("workflowId", "version", "userId")] == ["invoices", 3, None]


def test_a_written_document_does_not_depend_on_the_defaults():
    other = Defaults(tz="Asia/Tokyo", overlap="replace", catchup="spread", jitter_ms=1)
    for job in (read(RICH), read(schedule="every 5m"), read(schedule="in 5m")):
        assert read(write_definition(job), defaults=other) == job


PAST_AND_FUTURE = st.integers(0, NOW + 10_000 * DAY)
LINE = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | LINE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LINE, inner, max_size=3),
    max_leaves=8,
)
SLUGS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
ZONES = st.sampled_from([None, "Europe/Berlin", "Asia/Tokyo", "America/New_York"])
OBJECTS = st.dictionaries(LINE, JSON, min_size=1, max_size=3)
SCHEDULES = st.one_of(
    st.builds(At, PAST_AND_FUTURE, ZONES),
    st.builds(Every, st.integers(1000, 1000 * DAY), ZONES),
    st.builds(CronSchedule, st.sampled_from(["0 9 * * 1-5", "*/5 * * * *", "0 0 L * *"]), ZONES.filter(bool)),
)
TIMINGS = st.builds(
    Timing,
    SCHEDULES,
    st.none() | PAST_AND_FUTURE,
    st.none() | PAST_AND_FUTURE,
    st.sampled_from(
        [NOTHING, parse_exclude(["2026-12-24"]), parse_exclude(["holidays:DE-BY", "2027-01-01/2027-01-05"])]
    ),
    st.sampled_from(["run_after", "skip"]),
    st.sampled_from(["first", "second", "both"]),
)
LENGTHS = st.integers(1000, DAY)
POLICIES = st.builds(
    Policy,
    overlap=st.sampled_from(["allow", "skip", "queue", "queue_one", "replace"]),
    max_queued=st.integers(1, 10_000),
    catchup=st.sampled_from(["none", "latest", "fire_immediately", "spread"]),
    catchup_window_ms=LENGTHS,
    misfire_grace_ms=LENGTHS,
    jitter_ms=LENGTHS | st.just(0),
    max_attempts=st.integers(1, 100),
    backoff=st.builds(lambda base, more: Backoff(base, base + more), LENGTHS, LENGTHS),
    timeout_ms=st.none() | LENGTHS,
    max_runs=st.none() | st.integers(1, 1000),
    on_lost=st.sampled_from(["retry", "fail"]),
    lost_limit=st.integers(1, 100),
    disable_after=st.none() | st.integers(1, 1000),
    delete_after_run=st.booleans(),
    claim_timeout_ms=LENGTHS,
)
TARGETS = st.one_of(
    st.none(),
    st.just(WEBHOOK),
    st.builds(
        lambda more, kind: {**more, "kind": kind}, OBJECTS, st.sampled_from(["pull", "function", "command"])
    ),
    st.just({**WORKFLOW, "userId": "u", "to": WEBHOOK}),
)
WORKS = st.builds(
    Work,
    target=TARGETS,
    payload=JSON,
    message=st.none() | LINE,
    lane=SLUGS,
    stateless=st.booleans(),
    continuity=st.sampled_from([None, "output", "session", "none"]),
    deliver=st.booleans(),
    channel=st.none() | LINE,
    to=st.none() | LINE,
    wake_heartbeat=st.booleans(),
    precheck=st.none() | st.builds(lambda name: {"kind": "function", "name": name}, LINE),
    budget=st.none() | st.builds(lambda tokens: {"tokensPerDay": tokens}, st.integers(1, 2**53)),
)
PLAIN_DEFINITIONS = st.builds(
    Definition,
    st.just("job"),
    TIMINGS,
    POLICIES,
    WORKS,
    st.none()
    | st.builds(
        Chain, SLUGS.filter(lambda name: name != "job"), st.sampled_from(["succeeded", "failed", "finished"])
    ),
    LINE | st.just(""),
    st.dictionaries(LINE.filter(lambda name: len(name) < 64), LINE, max_size=3),
)


def with_hours(job: Definition, hours: str | None) -> Definition:
    tz = (job.timing.schedule.tz or "UTC") if job.timing and hours else None
    return replace(job, work=replace(job.work, active_hours=hours, hours_tz=tz))


DEFINITIONS = st.builds(
    with_hours, PLAIN_DEFINITIONS, st.sampled_from([None, None, "08:00-22:00", "22:00-06:00"])
)


@settings(max_examples=cases(60, 60), deadline=None)
@given(DEFINITIONS)
def test_a_written_document_is_read_back_unchanged(job):
    document = write_definition(job)
    assert json.loads(json.dumps(document)) == document
    assert read(document, stored=True) == job
    assert patched(job) == job


@settings(max_examples=cases(60, 60), deadline=None)
@given(DEFINITIONS)
def test_a_stored_definition_comes_back_from_its_texts(job):
    work = work_from_text(work_to_text(job.work))
    assert timing_from_text(timing_to_text(job.timing)) == job.timing
    assert policy_from_text(policy_to_text(job.policy)) == job.policy
    assert replace(work, payload=payload_from_text(payload_to_text(job.work.payload))) == job.work


ANYTHING = st.one_of(
    JSON,
    st.datetimes() | st.timedeltas() | st.binary(max_size=3),
    st.sampled_from(
        [0, 1, -1, 1e300, LATEST_MS, LATEST_MS + 1, 10**400, True, "", "0s", "1d", "a", "\ud800", "\x00"]
    ),
    st.sampled_from(
        ["every 1s", "0 0 29 2 *", "9998-12-31T23:59", "1970-01-01T00:00", "Asia/Tokyo", "holidays:DE"]
    ),
    st.builds(
        lambda key, item: {key: item}, st.sampled_from(["kind", "atMs", "at", "job", "on", "base"]), JSON
    ),
)


@settings(max_examples=cases(60, 60), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*write_definition(read(target=WORKFLOW)), "cron", "timeout"]) | LINE, ANYTHING
    )
)
def test_any_document_is_read_or_refused(fields):
    try:
        job = read({"name": "job", "schedule": "@daily", **fields})
    except InvalidArgument as error:
        error.message.encode()
    else:
        assert read(write_definition(job)) == job


def test_equal_parts_have_equal_texts_and_one_object():
    a, b = read(timeout="30s", labels={"a": "1"}), read(labels={"b": "2"}, timeoutMs=30_000)
    assert policy_to_text(a.policy) == policy_to_text(b.policy) == '{"timeoutMs":30000}'
    assert policy_from_text(policy_to_text(a.policy)) is policy_from_text(policy_to_text(b.policy))
    assert work_to_text(Work({"kind": "pull", "a": 1})) == work_to_text(Work({"a": 1, "kind": "pull"}))
    assert timing_to_text(Timing(Every(MINUTE))) == '{"schedule":{"everyMs":60000,"kind":"every"}}'
    assert (policy_to_text(Policy()), work_to_text(Work())) == ("{}", "{}")


def test_a_stored_policy_is_not_validated_again():
    odd = Policy(max_queued=0, max_attempts=1000, misfire_grace_ms=0, backoff=Backoff(0, 0))
    assert policy_from_text(policy_to_text(odd)) == odd


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (timing_from_text, ""),
        (timing_from_text, "{}"),
        (timing_from_text, "[]"),
        (timing_from_text, '{"schedule":null}'),
        (timing_from_text, '{"schedule":{"kind":"every"}}'),
        (timing_from_text, '{"schedule":{"kind":"every","everyMs":1000},"startAt":"now"}'),
        (timing_from_text, '{"schedule":{"kind":"every","everyMs":1000},"exclude":["soon"]}'),
        (policy_from_text, "null"),
        (policy_from_text, '{"maxAttempts":"3"}'),
        (policy_from_text, '{"maxAttempts":true}'),
        (policy_from_text, '{"overlapPolicy":"never"}'),
        (policy_from_text, '{"backoff":{"baseMs":1}}'),
        (policy_from_text, '{"backoff":{"baseMs":1,"maxMs":null}}'),
        (policy_from_text, '{"unknown":1}'),
        (work_from_text, '{"target":"https://a.example"}'),
        (work_from_text, '{"payload":1}'),
        (payload_from_text, "{"),
    ],
)
def test_a_stored_text_that_cannot_be_read_is_refused_as_a_whole(reader, text):
    with pytest.raises(InvalidArgument):
        reader(text)
