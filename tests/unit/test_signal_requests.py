"""HTTP requests with signals: the structured, binary and batch modes of CloudEvents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wakeful.errors import InvalidArgument
from wakeful.signal_requests import BATCH, MAX_BATCH, STRUCTURED, read_request

EVENT: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t", "data": {"n": 1}}
BINARY = {"Ce-Specversion": "1.0", "CE-ID": "1", "ce-source": "/a", "ce-type": "t"}


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
