from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.launch.launches import launch
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.launch.port import SealedSecrets
from wakeful.launch.secrets import (
    Keyring,
    RunSecrets,
    format_secret,
    hex_signature,
    new_secret,
    read_secret,
    standard_signature,
)

TARGET = {"kind": "webhook", "url": "https://example.com"}


class FalseClock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def now_ms(self) -> int:
        return self.now


# --- secrets as people see them ---------------------------------------------------------------------


def test_a_secret_is_32_bytes_and_never_the_same():
    assert len(new_secret()) == 32
    assert new_secret() != new_secret()


def test_a_secret_is_shown_in_the_form_of_standard_webhooks():
    secret = new_secret()
    assert format_secret(secret) == "whsec_" + base64.b64encode(secret).decode()
    assert read_secret(format_secret(secret)) == secret


@pytest.mark.parametrize(
    "text", ["", "whsec_", "whsec_c2hvcnQ=", "whsec_!!!!", "a" * 44, format_secret(b"x" * 65)]
)
def test_an_invalid_secret_is_refused(text: str):
    with pytest.raises(InvalidArgument, match="whsec_"):
        read_secret(text)


# --- sealed -----------------------------------------------------------------------------------------


@given(st.binary(max_size=100), st.text(min_size=1))
def test_what_is_sealed_is_opened_by_the_same_key_and_by_no_other(secret: bytes, key: str):
    sealed = Keyring([key]).seal(secret)
    assert Keyring([key]).open(sealed) == secret
    with pytest.raises(FailedPrecondition, match="WAKEFUL_SECRET_KEY"):
        Keyring([key + "x"]).open(sealed)


def test_a_secret_is_not_to_be_seen_in_what_is_stored_and_never_sealed_twice_the_same():
    keyring = Keyring(["key"])
    assert b"s3cret" not in keyring.seal(b"s3cret")
    assert keyring.seal(b"s3cret") != keyring.seal(b"s3cret")


@given(st.data())
def test_a_changed_ciphertext_is_not_opened(data: st.DataObject):
    sealed = bytearray(Keyring(["key"]).seal(b"secret"))
    at = data.draw(st.integers(min_value=0, max_value=len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(min_value=1, max_value=255))
    with pytest.raises(FailedPrecondition):
        Keyring(["key"]).open(bytes(sealed))


@given(st.binary(max_size=60))
def test_text_that_was_not_sealed_is_not_opened(junk: bytes):
    with pytest.raises(FailedPrecondition):
        Keyring(["key"]).open(junk)


def test_without_a_key_the_error_names_its_setting():
    for keyring in (Keyring([]), Keyring([""]), Keyring.parse(None), Keyring.parse(" ,")):
        assert keyring.empty
        with pytest.raises(FailedPrecondition, match="WAKEFUL_SECRET_KEY is not set"):
            keyring.seal(b"secret")
        with pytest.raises(FailedPrecondition, match="WAKEFUL_SECRET_KEY is not set"):
            keyring.open(b"sealed")


def test_a_new_key_seals_and_the_old_one_opens_until_all_is_sealed_again():
    sealed = Keyring(["old"]).seal(b"secret")
    both = Keyring.parse("new, old")
    assert both.open(sealed) == b"secret"
    again = both.seal(b"secret")
    assert Keyring(["new"]).open(again) == b"secret"
    with pytest.raises(FailedPrecondition):
        Keyring(["old"]).open(again)


def test_a_secret_that_was_opened_is_remembered(monkeypatch: pytest.MonkeyPatch):
    keyring = Keyring(["key"])
    sealed = keyring.seal(b"secret")
    assert keyring.open(sealed) == b"secret"
    monkeypatch.setattr("wakeful.launch.secrets._decrypt_with", lambda cipher, sealed: None)
    assert keyring.open(sealed) == b"secret"


# --- carried by a run ---------------------------------------------------------------------------------


def test_while_a_secret_rotates_both_sign_the_newest_first():
    keyring, clock = Keyring(["key"]), FalseClock()
    run = launch(TARGET)
    run.secrets = SealedSecrets(keyring.seal(b"new"), keyring.seal(b"old"), clock.now + 1_000)
    secrets = RunSecrets(keyring, clock)
    assert secrets.find_secrets(run) == (b"new", b"old")
    assert secrets.find_secrets(run.with_target({"kind": "webhook"}, None)) == (b"new", b"old")
    clock.now += 1_000
    assert secrets.find_secrets(run) == (b"new",)


def test_a_run_whose_job_has_no_secret_has_none():
    assert RunSecrets(Keyring([]), FalseClock()).find_secrets(launch(TARGET)) == ()


def test_a_secret_that_cannot_be_read_is_an_error_each_time_not_a_secret_less():
    run = launch(TARGET)
    run.secrets = SealedSecrets(Keyring(["other"]).seal(b"secret"))
    for _ in range(2):
        with pytest.raises(FailedPrecondition, match="cannot be decrypted"):
            RunSecrets(Keyring(["key"]), FalseClock()).find_secrets(run)


# --- signatures -------------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=80), st.binary(max_size=200))
def test_the_plain_signature_is_the_hmac_of_the_body(secret: bytes, body: bytes):
    assert hex_signature(secret, body) == hmac.new(secret, body, hashlib.sha256).hexdigest()


@given(st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=2), st.binary(max_size=200))
def test_the_standard_signature_covers_id_time_and_body_once_for_each_secret(
    secrets: list[bytes], body: bytes
):
    signed = b"the-id.1741392000." + body
    expected = [
        base64.b64encode(hmac.new(each, signed, hashlib.sha256).digest()).decode() for each in secrets
    ]
    found = standard_signature(secrets, "the-id", 1_741_392_000, body)
    assert found.split(" ") == [f"v1,{each}" for each in expected]
