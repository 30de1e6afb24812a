"""HTTP requests with signals, in the structured, binary and batch modes of CloudEvents, and to trigger URLs.

The body of a request to a trigger URL is JSON, a form, text, nothing, or none of them.
"""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import (
    HTTPMessage,
    from_structured_event,
    to_binary_event,
    to_structured_event,
)
from cloudevents.core.v1.event import CloudEvent
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wakeful.errors import InvalidArgument
from wakeful.signal.requests import BATCH, MAX_BATCH, STRUCTURED, read_body, read_request
from wakeful.signal.signals import NotJson
from wakeful.values.json_value import compact, json_value

EVENT: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t", "data": {"n": 1}}
BINARY = {"Ce-Specversion": "1.0", "CE-ID": "1", "ce-source": "/a", "ce-type": "t"}


data = st.sampled_from(
    [
        ("application/json", {"n": 1, "text": "grün €"}),
        ("text/plain; charset=utf-8", "grün"),
        ("application/octet-stream", b"\x00\xff"),
    ]
)
texts = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=20)
_FORM = "application/x-www-form-urlencoded"


def body(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("content_type", [STRUCTURED, f"{STRUCTURED}; charset=UTF-8", "application/json", ""])
def test_a_structured_event_is_read(content_type: str):
    received = read_request({"Content-Type": content_type}, body(EVENT))

    assert not received.batch
    assert [(each.id, each.data) for each in received.signals] == [("1", {"n": 1})]


@pytest.mark.parametrize("content_type", [BATCH, "application/json"])
def test_a_batch_is_read_in_its_order(content_type: str):
    received = read_request({"content-type": content_type}, body([EVENT, {**EVENT, "id": "2"}]))

    assert received.batch
    assert [each.id for each in received.signals] == ["1", "2"]
    assert read_request({"content-type": BATCH}, b"[]").signals == []


@pytest.mark.parametrize(
    ("content_type", "raw", "data"),
    [
        ("application/json", b'{"n":1}', {"n": 1}),
        ("application/vnd.order+json; charset=utf-8", b"[1]", [1]),
        ("text/plain", "grün".encode(), "grün"),
        ("image/png", b"\x89PNG", b"\x89PNG"),
        ("application/json", b"", None),
    ],
)
def test_the_body_of_binary_mode_is_the_data(content_type: str, raw: bytes, data: object):
    (signal,) = read_request({**BINARY, "content-type": content_type}, raw).signals

    assert (signal.id, signal.source, signal.type, signal.data) == ("1", "/a", "t", data)
    assert signal.datacontenttype == content_type


def test_headers_of_binary_mode_are_percent_decoded_and_may_be_extensions():
    headers = {**BINARY, "ce-subject": "Euro%20%E2%82%AC", "ce-traceparent": "00-ab-cd-01"}

    (signal,) = read_request(headers, b"1").signals

    assert (signal.subject, signal.extensions, signal.data) == ("Euro €", {"traceparent": "00-ab-cd-01"}, 1)


@pytest.mark.parametrize(
    ("header", "subject"),
    [
        ('"Euro %E2%82%AC"', "Euro €"),
        (r'"say \"hi\" \\ there"', 'say "hi" \\ there'),
        ('a "quoted" word', 'a "quoted" word'),
        ('"open', '"open'),
        ("%22kept%22", '"kept"'),
    ],
)
def test_quoted_strings_in_headers_are_unquoted_before_they_are_decoded(header: str, subject: str):
    (signal,) = read_request({**BINARY, "ce-subject": header}, b"").signals

    assert signal.subject == subject


def test_the_source_of_the_sender_is_used_if_the_event_has_none():
    without = {key: value for key, value in EVENT.items() if key != "source"}
    headers = {key: value for key, value in BINARY.items() if key != "ce-source"}

    assert read_request({}, body([without]), source="/key").signals[0].source == "/key"
    assert read_request(headers, b"", source="/key").signals[0].source == "/key"


@pytest.mark.parametrize(
    ("headers", "raw", "message"),
    [
        (
            {"content-type": "text/html"},
            b"<p>",
            "the request is no CloudEvent: its content type is 'text/html'",
        ),
        ({"content-type": STRUCTURED}, b"{", "the body is not JSON"),
        ({"content-type": STRUCTURED}, b"\xff", "the body is not JSON"),
        ({"content-type": STRUCTURED}, body([EVENT]), "is not a CloudEvent"),
        ({"content-type": BATCH}, body(EVENT), "the body is no batch"),
        ({"content-type": BATCH}, body([EVENT, {}]), "event 1 of the batch: specversion: it is missing"),
        ({"content-type": BATCH}, body([EVENT] * (MAX_BATCH + 1)), "the batch has 1001 events"),
        ({"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/a"}, b"", "type: it is missing"),
        ({**BINARY, "content-type": "application/json"}, b"{", "the body is not JSON"),
        ({**BINARY, "content-type": "text/plain"}, b"\xff", "the body is not UTF-8 text"),
        ({**BINARY, "ce-datacontenttype": "text/plain"}, b"", "ce-datacontenttype: in binary mode"),
        ({**BINARY, "ce-trace-id": "a"}, b"", "'trace-id' is no name of an extension"),
    ],
)
def test_an_invalid_request_is_refused(headers: dict[str, str], raw: bytes, message: str):
    with pytest.raises(InvalidArgument, match=message):
        read_request(headers, raw)


@given(data, texts, texts, st.none() | texts, st.dictionaries(st.sampled_from(["traceid", "part"]), texts))
def test_the_sdk_of_cloudevents_reads_and_writes_the_same_events(
    content: tuple[str, Any], id: str, source: str, subject: str | None, extensions: dict[str, str]
):
    time = datetime(2027, 3, 1, 9, 30, 0, 250_000, UTC)
    attributes = {"id": id, "source": source, "type": "report.ready", "specversion": "1.0", "time": time}
    attributes |= {"datacontenttype": content[0], **extensions}
    if subject is not None:
        attributes["subject"] = subject
    event = CloudEvent(attributes, content[1])

    for message in (to_structured_event(event), to_binary_event(event)):
        (signal,) = read_request(message.headers, message.body).signals

        assert (signal.id, signal.source, signal.subject, signal.time) == (id, source, subject, time)
        assert (signal.data, signal.extensions) == (content[1], extensions)
        text = signal.to_text().encode()
        back = from_structured_event(HTTPMessage({"content-type": STRUCTURED}, text))
        assert back.get_attributes() == event.get_attributes()
        assert back.get_data() == event.get_data()


@pytest.mark.parametrize(
    ("content_type", "body", "payload"),
    [
        ("application/json", b'{"a": [1]}', {"a": [1]}),
        ("application/json; charset=utf-8", '["ü"]'.encode(), ["ü"]),
        ("application/vnd.github+json", b"true", True),
        ("application/json", b"null", None),
        ("application/json", b"", None),
        ("", b"", None),
        (_FORM, b" \r\n", None),
        ("", b'{"a": 1}', {"a": 1}),
        (_FORM, b'{"a": 1}', {"a": 1}),
        ("text/plain", b'{"a": 1}', {"a": 1}),
        (_FORM, b"a=1&b=&a=2&c=%C3%BC+%26", {"a": ["1", "2"], "b": "", "c": "ü &"}),
        (_FORM, b"the build is done", "the build is done"),
        ("text/plain", b"a=1", "a=1"),
        ("text/plain; charset=iso-8859-1", b"gr\xfcn", "grün"),
        ("text/plain; charset=windows-1252", b"5 \x80", "5 €"),
        ('text/plain; charset="UTF-8"', "grün".encode(), "grün"),
        ("application/xml", b"<a/>", "<a/>"),
        ("text/plain", b"NaN", "NaN"),
    ],
)
def test_a_body_becomes_a_payload(content_type: str, body: bytes, payload: object) -> None:
    assert read_body(content_type, body) == payload


@pytest.mark.parametrize("body", [b"{", b"NaN", b'"\xff"', b"[" * 100_000])
def test_a_body_that_is_declared_as_json_must_be_json(body: bytes) -> None:
    with pytest.raises(NotJson, match="the body is"):
        read_body("application/json", body)


@pytest.mark.parametrize(
    ("content_type", "body", "message"),
    [
        ("image/png", b"\x89PNG\xff", "send JSON, a form or text, and binary data as base64"),
        ("text/plain; charset=klingon", b"a", "'klingon' is unknown; send the body in UTF-8"),
        ("text/plain; charset=punycode", b"a", "'punycode' is unknown; send the body in UTF-8"),
        ("text/plain; charset=unicode_escape", b"a", "'unicode_escape' is unknown"),
        (_FORM, b"&".join(b"a%d=1" % number for number in range(1_001)), "more than 1000 fields"),
    ],
)
def test_a_body_that_cannot_be_read_says_what_to_send(content_type: str, body: bytes, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read_body(content_type, body)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner),
    ),
    st.sampled_from(["application/json", "text/plain", _FORM, ""]),
)
def test_json_is_read_with_any_content_type(value: object, content_type: str) -> None:
    assert read_body(content_type, compact(value).encode()) == value  # type: ignore[arg-type]


@given(
    st.binary(max_size=200), st.sampled_from(["", _FORM, "text/plain", "application/json", "a/b;charset=x"])
)
def test_any_bytes_are_read_or_refused(body: bytes, content_type: str) -> None:
    with contextlib.suppress(InvalidArgument):
        json_value(read_body(content_type, body), None)
