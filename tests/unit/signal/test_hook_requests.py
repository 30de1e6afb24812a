"""Bodies of requests to trigger URLs: JSON, forms, text, nothing, and what is none of them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wakeful.errors import InvalidArgument
from wakeful.signal.hook_requests import read_body
from wakeful.signal.signals import NotJson
from wakeful.values.json_value import compact, json_value

_FORM = "application/x-www-form-urlencoded"


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
