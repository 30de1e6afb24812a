"""Signals: CloudEvents 1.0 as values, their text, and the patterns that match their types."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.agents.agent import check_pattern, matches, specificity
from wakeful.errors import InvalidArgument
from wakeful.signal.signals import MAX_DATA, Signal

EVENT: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t"}

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=20)
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abü", max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
words = st.text("abcxyz09-_", min_size=1, max_size=8)
types = st.lists(words, min_size=1, max_size=4).map(".".join)
texts = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=30)
extension_names = st.text("abcxyz019", min_size=1, max_size=20).filter(
    lambda name: name not in ("id", "type", "time", "data")
)
signals = st.builds(
    lambda type, data, more, extensions: Signal(type, data, **more, **extensions),
    types,
    json_values | st.binary(max_size=50),
    st.fixed_dictionaries(
        {},
        optional={
            "id": texts,
            "source": texts,
            "subject": texts,
            "time": st.datetimes(
                timezones=st.just(UTC) | st.just(timezone(timedelta(hours=5, minutes=30)))
            ).filter(lambda time: 2 < time.year < 9998),
            "dataschema": texts,
            "datacontenttype": st.sampled_from(["application/json", "text/plain; charset=utf-8"]),
        },
    ),
    st.dictionaries(extension_names, texts | st.booleans() | st.integers(-(2**31), 2**31 - 1), max_size=3),
)


@given(signals)
def test_a_signal_is_the_same_after_its_text(signal: Signal):
    sent = signal.sent("/sender", datetime(2027, 3, 1, tzinfo=UTC))

    assert Signal.from_text(sent.to_text()) == sent == Signal.from_stored(sent.to_text())
    assert Signal.from_json(json.loads(sent.to_text())).to_text() == sent.to_text()
    assert pickle.loads(pickle.dumps(signal)) == signal
    assert signal.sent("/other", datetime(2028, 1, 1, tzinfo=UTC)).id == signal.id


@given(signals)
def test_what_is_stored_is_read_with_the_same_attributes(signal: Signal):
    stored = Signal.from_stored(signal.to_text())

    for name in Signal.__slots__:
        if name != "generated_id":
            assert getattr(stored, name) == getattr(signal, name)


def test_a_signal_without_an_id_gets_its_own():
    one, two = Signal("a"), Signal("a")

    assert one.id != two.id
    assert one.generated_id
    assert not Signal("a", id="7").generated_id
    assert Signal("a", id="7") == Signal("a", id="7") != Signal("a", id="8")
    assert len({Signal("a", id="7"), Signal("a", id="7")}) == 1


def test_a_signal_cannot_be_changed():
    data = {"count": [1]}
    signal = Signal("a", data)

    with pytest.raises(AttributeError, match="cannot be changed"):
        signal.type = "b"
    with pytest.raises(AttributeError, match="cannot be changed"):
        del signal.type
    data["count"].append(2)
    assert signal.data == {"count": [1]}
    assert copy.deepcopy(signal) is signal is copy.copy(signal)


def test_a_sent_signal_keeps_what_it_has():
    time = datetime(2027, 3, 1, 9, tzinfo=UTC)
    signal = Signal("a", id="7", source="/mine")

    sent = signal.sent("/other", time)

    assert (sent.source, sent.time, sent.id, sent.generated_id) == ("/mine", time, "7", False)
    assert signal.time is None
    assert Signal("a").sent("/other", time).generated_id


def test_the_time_is_utc():
    signal = Signal("a", time="2027-03-01T09:00:00.250+05:30")

    assert signal.time == datetime(2027, 3, 1, 3, 30, 0, 250_000, UTC)
    assert signal.to_json()["time"] == "2027-03-01T03:30:00.250000Z"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"specversion": None}, "specversion: it is missing; send '1.0'"),
        ({"specversion": "0.3"}, "specversion: '0.3' is not supported; send '1.0'"),
        ({"id": None}, "id: it is missing"),
        ({"source": None}, "source: it is missing; a CloudEvent needs a source such as '/billing'"),
        ({"type": None}, "type: it is missing"),
        ({"type": " "}, "type: it is empty"),
        ({"type": "report.*"}, "type: 'report.*' is a pattern"),
        ({"type": 5}, "type: 5 is not text"),
        ({"type": "a" * 256}, "type: it is longer than 255 bytes"),
        ({"id": "ü" * 300}, "id: it is longer than 512 bytes"),
        ({"id": 7}, "id: 7 is not text"),
        ({"id": "a\x00"}, "id: it has a character that cannot be stored"),
        ({"id": "a\nb"}, "id: .* has a control character"),
        ({"source": "a b"}, "source: 'a b' has a space"),
        ({"subject": ""}, "subject: it is empty"),
        ({"time": "yesterday"}, "time: 'yesterday' is not an RFC 3339 time"),
        ({"time": "2027-03-01T09:00:00"}, "time: .* has no zone"),
        ({"time": "0001-01-01T00:00:00+10:00"}, "time: .* is out of range"),
        ({"time": 5}, "time: 5 is not a time"),
        ({"datacontenttype": "json"}, "datacontenttype: 'json' is no content type"),
        ({"traceId": "a"}, "'traceId' is no name of an extension"),
        ({"trace_id": "a"}, "'trace_id' is no name of an extension"),
        ({"cost": 1.5}, "cost: 1.5 cannot be an extension"),
        ({"size": 2**31}, "size: 2147483648 cannot be an extension"),
        ({"tags": ["a"]}, r"tags: \['a'\] cannot be an extension"),
        ({"data": 1, "data_base64": "AA=="}, "data: the event has data and data_base64"),
        ({"data_base64": "%"}, "data_base64: '%' is not base64"),
        ({"data_base64": 5}, "data_base64: 5 is not text"),
        ({"data": "x" * MAX_DATA}, "data: it has 65538 bytes as JSON; at most 65536"),
    ],
)
def test_an_invalid_event_is_refused_with_the_attribute(change: dict[str, Any], message: str):
    with pytest.raises(InvalidArgument, match=message):
        Signal.from_json({**EVENT, **change})


def test_an_attribute_that_is_null_is_not_set():
    assert Signal.from_json({**EVENT, "subject": None, "traceid": None, "data": None}) == Signal.from_json(
        EVENT
    )


def test_a_source_can_be_supplied_for_events_without_one():
    event = {key: value for key, value in EVENT.items() if key != "source"}

    assert Signal.from_json(event, source="/key").source == "/key"
    assert Signal.from_json(EVENT, source="/key").source == "/a"


@pytest.mark.parametrize("event", ["text", ["list"], None, 5])
def test_what_is_no_object_is_no_event(event: object):
    with pytest.raises(InvalidArgument, match="is not a CloudEvent"):
        Signal.from_json(event)


def test_data_that_is_no_json_is_refused_with_its_place():
    with pytest.raises(InvalidArgument, match=r"data: when: datetime is not JSON"):
        Signal("a", {"when": datetime(2027, 1, 1, tzinfo=UTC)})
    with pytest.raises(InvalidArgument, match="data: nan is not a number"):
        Signal("a", float("nan"))
    with pytest.raises(InvalidArgument, match="the signal is not JSON"):
        Signal.from_text("{")
    with pytest.raises(InvalidArgument, match="the signal is not JSON: NaN"):
        Signal.from_text('{"data": NaN}')
    with pytest.raises(InvalidArgument, match="nested too deeply"):
        Signal.from_text("[" * 200_000)


def test_data_of_64_kb_is_accepted():
    assert len(str(Signal("a", "x" * (MAX_DATA - 2)).data)) == MAX_DATA - 2


def test_a_client_can_use_signals_without_modules_of_the_server():
    program = (
        "import sys; from wakeful import Signal; Signal('a').to_text()\n"
        "assert not {'wakeful.job.job', 'wakeful.document', 'wakeful.agents', 'asyncio'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# --- patterns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "type", "expected"),
    [
        ("report.generate", "report.generate", True),
        ("report.generate", "report.generate.now", False),
        ("report.*", "report.generate", True),
        ("report.*", "report.a.b", True),
        ("report.*", "report", False),
        ("report.*", "reports.a", False),
        ("*.done", "report.done", True),
        ("*.done", "a.b.done", False),
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a.b.b.c", False),
        ("*", "a", True),
        ("*", "a.b.c", True),
        ("**", "a.b.c", True),
    ],
)
def test_a_pattern_matches(pattern: str, type: str, expected: bool):
    assert matches(pattern, type) is expected


@given(types)
def test_a_type_matches_itself_and_each_of_its_prefixes(type: str):
    segments = type.split(".")

    assert matches(type, type)
    for length in range(len(segments)):
        assert matches(".".join([*segments[:length], "*"]), type)
    assert not matches(f"{type}.*", type)


@given(types, st.lists(st.booleans(), min_size=4, max_size=4))
def test_a_star_matches_any_one_segment(type: str, stars: list[bool]):
    segments = type.split(".")
    pattern = ".".join("*" if star else part for star, part in zip(stars, segments, strict=False))

    assert matches(pattern, type)
    if pattern.split(".")[-1] != "*":
        assert not matches(pattern, f"{type}.more")


def test_two_patterns_of_a_type_are_never_equally_specific():
    def words(alphabet: str, longest: int) -> list[str]:
        return [
            ".".join(each) for length in range(1, longest + 1) for each in product(alphabet, repeat=length)
        ]

    for type in words("ab", 4):
        keys = [specificity(pattern) for pattern in words("ab*", 4) if matches(pattern, type)]
        assert len(keys) == len(set(keys)) >= 2


def test_the_exact_type_is_the_most_specific_pattern():
    for other in ("a.b.*", "a.*.c", "a.*", "*.b.c", "*"):
        assert specificity("a.b.c") < specificity(other)


@pytest.mark.parametrize("pattern", ["", "a..b", ".a", "a.", "rep*", "a.**.b", "a b\n", 5])
def test_an_invalid_pattern_is_refused(pattern: Any):
    with pytest.raises(InvalidArgument, match="pattern: "):
        check_pattern(pattern)
