"""Credentials are masked by name, by form and by value."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from wakeful import logs
from wakeful.logs import LogEvent, redaction
from wakeful.logs.redaction import add_secrets, redact, redact_fields, setting_secrets
from wakeful.settings import Settings

_JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"


@pytest.fixture
def forget() -> Iterator[None]:
    before = set(redaction._secrets)
    yield
    redaction._secrets.clear()
    redaction._secrets.update(before)
    add_secrets(())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"key wk_{'a' * 43} refused", "key wk_*** refused"),
        ("secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw=", "secret whsec_***"),
        (f"token {_JWT}", "token eyJ***"),
        (f"x_wk_0123456789abcdefg_{_JWT}", "x_wk_******"),
        ("--db=sqlite+aio://me:pw@db, -a.b-://me:pw@db", "--db=sqlite+aio://***@db, -a.b-://***@db"),
        (f"Authorization: Bearer {_JWT}", "Authorization: ***"),
        ("{'authorization': 'Basic dXNlcjpwYXNz', 'a': 1}", "{'authorization': '***', 'a': 1}"),
        ("Bearer s3cret-token-1", "Bearer ***"),
        ("postgresql://me:p@ss@db:5432/x", "postgresql://***@db:5432/x"),
        ("GET https://token@example.com/a?b=1", "GET https://***@example.com/a?b=1"),
        ("https://example.com/a?api_key=abc&x=1", "https://example.com/a?api_key=***&x=1"),
        ("dsn host=db password=hunter2 user=me", "dsn host=db password=*** user=me"),
        ("POST /hooks/c2VjcmV0LXRva2Vu", "POST /hooks/***"),
    ],
)
def test_what_has_the_form_of_a_credential_is_masked(text: str, shown: str):
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "WAKEFUL_SECRET_KEY: it is missing; set a long random text",
        "token: it is missing; send it as a bearer token",
        "the basic rules, and see https://example.com/a@b",
        "run 01980a2c-1111-7000-8000-000000000000 of job 'key-rotation'",
        "could not connect to db.example.com:5432",
        "HTTP 500 Internal Server Error: secret santa",
    ],
)
def test_ordinary_text_is_not_changed(text: str):
    assert redact(text) == text


@pytest.mark.parametrize(
    "part",
    ["a.", "a-", "eyJ", "eyJ_", "eyJaaaa. ", "a://", "://@", "bearer ", "basic a", "authorization", "wk_a ",
     "whsec_", "hook_", "/hooks/", "?key", "authorization ", "a", " ", ".", "@"],
)  # fmt: skip
def test_no_text_of_users_takes_long_to_search(part: str):
    text = part * (65_536 // len(part))
    began = time.thread_time()
    redact(text)
    redact(f"{text}.")
    redact(f"{text}. ")
    assert time.thread_time() - began < 5.0


def test_fields_with_the_name_of_a_credential_are_masked_at_any_depth():
    assert redact_fields({"target": {"headers": {"a": "b"}, "url": "https://u:p@h/"}, "Password": "x"}) == {
        "target": {"headers": "***", "url": "https://***@h/"},
        "Password": "***",
    }


@pytest.mark.usefixtures("forget")
def test_the_credentials_of_the_settings_are_masked_wherever_they_are():
    settings = Settings(
        db="postgresql://me:s3cret-pass@db/wakeful",
        secret_key="first-secret,second-secret",
        jwt_secret="jwt-secret-value",
        metrics_key="metrics-secret",
        oidc_client_secret="client-secret",
        channels={"ops": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general"},
    )
    add_secrets(setting_secrets(settings))

    assert redact("x second-secret y") == "x *** y"
    secrets = "jwt-secret-value, metrics-secret, s3cret-pass, client-secret"
    assert redact(secrets) == "***, ***, ***, ***"
    assert redact("POST https://hooks.slack.com/T1/A1/TIiajkdnlazkcOXrIdevi7FQ") == (
        "POST https://hooks.slack.com/T1/A1/***"
    )


def test_events_are_redacted_before_any_handler_sees_them(caplog: pytest.LogCaptureFixture):
    from wakeful.logs import get_logger

    get_logger("wakeful.tests").warning("run.failed", error="GET http://u:hunter2@h/ failed", token="t0ken")

    (record,) = caplog.records
    assert isinstance(record.msg, LogEvent)
    assert record.msg.fields == {"error": "GET http://***@h/ failed", "token": "***"}


def test_values_that_contain_themselves_or_cannot_be_shown_are_no_error(caplog: pytest.LogCaptureFixture):
    class Unshowable:
        def __str__(self) -> str:
            raise ValueError("no")

    cyclic: dict[str, object] = {"token": "abc"}
    cyclic["again"] = [cyclic]
    deep: object = "end"
    for _ in range(5_000):
        deep = [deep]
    caplog.set_level("INFO")
    fields = {"cyclic": cyclic, "deep": deep, "what": Unshowable(), "keys": {Unshowable(): 1}}
    logs.get_logger("wakeful.agents").info("x", **fields)
    (record,) = caplog.records
    text = record.getMessage()
    assert "cyclic={'token': '***', 'again': ['…']}" in text
    assert "Unshowable object" in text
