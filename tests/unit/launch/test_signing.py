"""Signatures and trace ids are equal to those of the standard library and of the slower functions."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from wakeful.launch.port import launch_ids, launch_traceparent
from wakeful.launch.secrets import MAX_SKEW_MS, format_secret, hmac_sha256, is_signed

DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)


@given(st.binary(max_size=200), st.binary(max_size=5_000))
@example(b"k" * 64, b"")
@example(b"k" * 65, b"x")
def test_the_hmac_is_that_of_the_standard_library(secret: bytes, message: bytes):
    assert hmac_sha256(secret, message) == hmac.digest(secret, message, "sha256")


@given(DIGESTS | st.text(st.characters(codec="utf-8")), st.integers(1, 2**40))
@example("0" * 64, 1)
@example("f" * 64, 1)
def test_the_traceparent_has_the_ids_of_the_launch_span(key: str, attempt: int):
    assert launch_traceparent(key, attempt) == launch_ids(key, attempt).traceparent()


@given(st.binary(min_size=24, max_size=64), st.integers(0, 4_000_000_000), st.integers(-400_000, 400_000))
def test_a_request_that_another_library_signed_is_accepted_for_five_minutes(
    secret: bytes, second: int, late_ms: int
):
    sent = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(second),
        "webhook-signature": "v1,other "
        + Webhook(format_secret(secret)).sign("msg_1", datetime.fromtimestamp(second, UTC), "{}"),
    }
    now_ms = second * 1000 + late_ms
    assert is_signed([b"o" * 32, secret], sent, b"{}", now_ms) is (abs(late_ms) <= MAX_SKEW_MS)
    assert not is_signed([b"o" * 32], sent, b"{}", now_ms)
    assert not is_signed([secret], sent, b"{ }", now_ms)
    for name in sent:
        others = {**sent, name: sent[name] + "1"}
        missing = {other: value for other, value in sent.items() if other != name}
        assert not is_signed([secret], others, b"{}", now_ms)
        assert not is_signed([secret], missing, b"{}", now_ms)
        assert not is_signed([secret], {**sent, name: "é\udc80 "}, b"{}", now_ms)
