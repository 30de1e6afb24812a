"""Directives: values that are checked when they are created."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import wakeful
from wakeful import SELF, CancelCron, Delay, Emit, InvalidSchedule, SetCron, SetState, Signal, Stop
from wakeful.errors import InvalidArgument

#: The same classes for arguments of wrong types.
untyped: Any = wakeful


def test_set_state_merges_keys_or_replaces_everything():
    assert (SetState(count=1).changes, SetState(count=1).replace) == ({"count": 1}, False)
    assert SetState({"a-b": 1}).changes == {"a-b": 1}
    assert SetState([1], replace=True) == SetState([1], replace=True)
    assert SetState().changes == {}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: untyped.SetState({"a": 1}, b=2), "give a new state or single keys, not both"),
        (lambda: untyped.SetState(replace=True), "replace needs the new state"),
        (lambda: untyped.SetState(replace="all"), "replace is 'all', but it is true or false"),
        (lambda: untyped.SetState([1]), "list is not a mapping of changes"),
        (lambda: untyped.Emit(5), "Emit: 5 is not a signal"),
        (lambda: untyped.Emit("a.*"), "type: 'a.\\*' is a pattern"),
        (lambda: untyped.Emit("a", to="archive"), "Emit: to is 'archive'; write to=SELF or to="),
        (lambda: untyped.Emit("a", to=("Archive", "eu")), "to: agent: 'Archive' is not a slug"),
        (lambda: untyped.Emit("a", to=("archive", "E\nU")), r"to: instance: .*character U\+000A"),
        (lambda: untyped.Delay(-1, "a"), "Delay: -1 is out of range"),
        (lambda: untyped.Delay(True, "a"), "Delay: true is not a delay"),
        (lambda: untyped.Delay(1.5, "a"), "Delay: 1.5 is not a delay"),
        (lambda: untyped.Delay("5", "a"), "'5' is not a duration: the unit is missing"),
        (lambda: untyped.Delay(timedelta(days=40_000), "a"), "is out of range"),
        (lambda: untyped.Delay(5, None), "Delay: null is not a signal"),
        (lambda: untyped.Delay(5, "a", id=""), "Delay: id: it is empty"),
        (lambda: untyped.Delay(5, "a", id="x" * 129), "Delay: id: it is longer than 128 bytes"),
        (lambda: untyped.Delay(5, "a", durable=False, id="x"), "Delay: only a durable delay has an id"),
        (lambda: untyped.CancelDelay(7), "CancelDelay: id: 7 is not text"),
        (lambda: untyped.SetCron("61 * * * *", "a", "j"), "SetCron 'j': schedule: "),
        (lambda: untyped.SetCron("0 0 31 2 *", "a", "j"), "SetCron 'j': schedule: "),
        (lambda: untyped.SetCron("@daily", "a", "j", tz="Mars/Olympus"), "SetCron 'j': tz: "),
        (
            lambda: untyped.SetCron("@daily", "a", "j", overlap_policy="maybe"),
            "SetCron 'j': overlapPolicy: 'maybe'",
        ),
        (lambda: untyped.SetCron("@daily", "a", "j", max_atempts=3), "did you mean maxAttempts"),
        (
            lambda: untyped.SetCron("@daily", "a", "j", target={"kind": "pull"}),
            "target: the schedule defines it",
        ),
        (
            lambda: untyped.SetCron("@daily", "a", "j", webhook_url="https://a.example"),
            "webhook_url: the schedule",
        ),
        (lambda: untyped.SetCron("@daily", "a", "j", timeout=object()), "timeout: object is not JSON"),
        (lambda: untyped.SetCron(object(), "a", "j"), "schedule: object is not JSON"),
        (lambda: untyped.SetCron("@daily", "a", ""), "job_id: it is empty"),
        (lambda: untyped.SetCron("@daily", "a", 7), "job_id: 7 is not text"),
        (lambda: untyped.SetCron("@daily", "a", "j" * 129), "job_id: it is longer than 128 bytes"),
        (lambda: untyped.SetCron("@daily", Signal("a", subject="s"), "j"), "keeps the type and the data"),
        (lambda: untyped.SetCron("@daily", Signal("a", b"x"), "j"), "cannot send bytes"),
        (lambda: untyped.CancelCron(None), "job_id: null is not text"),
    ],
)
def test_an_invalid_directive_is_refused_when_it_is_created(build: Any, message: str):
    with pytest.raises(InvalidArgument, match=message):
        build()


def test_a_bad_expression_is_an_invalid_schedule():
    with pytest.raises(InvalidSchedule):
        SetCron("61 * * * *", "a", "j")


def test_emit_has_a_recipient_or_goes_out():
    signal = Signal("report.ready")

    assert Emit(signal).to is None
    assert Emit(signal, to=SELF).to is SELF
    assert Emit(signal, ("archive", "eu")).to == ("archive", "eu")
    assert Emit("report.ready").signal.type == "report.ready"


@pytest.mark.parametrize("delay", [300_000, "5m", timedelta(minutes=5)])
def test_a_delay_is_in_milliseconds_text_or_a_timedelta(delay: Any):
    assert Delay(delay, "a").ms == 300_000


def test_a_delay_is_durable_unless_it_says_otherwise():
    assert Delay(0, "a").durable
    assert not Delay(0, "a", durable=False).durable


def test_set_cron_becomes_a_job_document_with_its_own_defaults_and_those_of_the_class():
    cron = SetCron(
        "*/5 * * * *", Signal("tick", {"n": 1}, source="/ignored"), "heartbeat", "Europe/Berlin",
        catchup_policy="latest", timeout=timedelta(seconds=5), jitter_ms=10,
    )  # fmt: skip

    assert cron.document({"timeoutMs": 60_000, "maxAttempts": 5}) == {
        "maxAttempts": 5,
        "overlapPolicy": "skip",
        "catchupPolicy": "latest",
        "timeout": "5s",
        "jitterMs": 10,
        "schedule": "*/5 * * * *",
        "tz": "Europe/Berlin",
        "payload": {"n": 1},
        "target": {"kind": "agent", "signal": "tick"},
    }


def test_directives_are_values():
    assert Stop() == Stop()
    assert CancelCron("a") == CancelCron("a") != CancelCron("a", declared=True)
    with pytest.raises(AttributeError):
        CancelCron("a").job_id = "b"  # type: ignore[misc]


def test_the_id_of_a_schedule_is_the_type_of_its_signal_by_default():
    assert SetCron("@daily", Signal("report.generate", {"full": True})).job_id == "report.generate"
    assert SetCron("@daily", "report.generate", tz="UTC") == SetCron(
        "@daily", "report.generate", "report.generate", "UTC"
    )


@pytest.mark.parametrize(
    ("given", "meant"),
    [("overlap", "overlapPolicy"), ("catchup", "catchupPolicy"), ("retries", "maxAttempts")],
)
def test_a_policy_under_another_name_is_refused_with_its_name(given: str, meant: str):
    with pytest.raises(InvalidArgument, match=f"{given}: a job has no such field; did you mean {meant}"):
        SetCron("@daily", "report.generate", "daily", **{given: "latest"})
