"""Signatures and trace ids are equal to those of the standard library and of the slower functions."""

from __future__ import annotations

import hmac

from hypothesis import example, given
from hypothesis import strategies as st

from wakeful.launch.port import launch_ids, launch_traceparent
from wakeful.launch.secrets import hmac_sha256

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
