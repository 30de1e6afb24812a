"""The controls of the job form: every field has one, and shows its value."""

from __future__ import annotations

import json
import re

import pytest

from wakeful.dashboard.job_controls import field_control, groups, placed_controls, target_control
from wakeful.document.definition import default_fields
from wakeful.document.fields import DECLARED, OTHER, Field
from wakeful.document.kinds import flag
from wakeful.job.policy import FieldSpec
from wakeful.job.target_kinds import TARGET_KINDS
from wakeful.values.json_value import Json

#: Short forms of a target, which has a control; and the controls that the template writes itself.
_ELSEWHERE = {"webhookUrl", "workflowId", "version", "userId", "target", "agentId", "enabled"}


def test_every_field_of_a_job_has_one_control():
    shown = [control.name for group in groups({}, {}) for control in group.controls]
    shown += [control.name for control in placed_controls({}, {}).values()]
    fields = {field.duration_name or field.name for field in (*DECLARED, *OTHER)}
    assert len(shown) == len(set(shown))
    assert set(shown) == fields - _ELSEWHERE


def test_a_new_field_appears_in_the_last_group(monkeypatch: pytest.MonkeyPatch):
    new = Field("brandNew", "brand_new", flag, FieldSpec("What is new."), False)
    monkeypatch.setattr("wakeful.dashboard.job_controls.OTHER", (*OTHER, new))
    last = groups({"brandNew": True}, {})[-1]
    assert (last.title, last.number) == ("Other fields", 1)
    assert [(control.name, control.form, control.value) for control in last.controls] == [
        ("brandNew", "flag", "true")
    ]


def test_values_equal_to_the_defaults_are_empty_and_others_are_counted():
    defaults = default_fields()
    job: dict[str, Json] = {
        **defaults,
        "maxAttempts": 2,
        "timeoutMs": 90_000,
        "backoff": {"baseMs": 1000, "maxMs": 30_000},
    }
    retries = next(group for group in groups(job, defaults) if group.id == "retries")
    assert retries.number == 3
    values = {control.name: control.value for control in retries.controls}
    assert (values["maxAttempts"], values["timeout"], values["onLost"]) == ("2", "1m30s", "")
    backoff = next(control for control in retries.controls if control.name == "backoff")
    assert [(part.name, part.value) for part in backoff.parts] == [("base", "1s"), ("max", "30s")]
    assert all(group.number == 0 for group in groups(defaults, defaults))


def test_labels_that_are_no_lines_are_edited_as_json():
    labels = next(field for field in DECLARED if field.name == "labels")
    assert field_control(labels, {"labels": {"team": "ops"}}, {}).value == "team=ops"
    odd = field_control(labels, {"labels": {"a=b": "c"}}, {})
    assert (odd.form, odd.value) == ("json", '{"a=b": "c"}')


def test_every_kind_of_target_can_be_chosen():
    control = target_control(None, {"kind": "webhook", "url": "https://a.example"})
    assert [kind.kind for kind in control.kinds] == list(TARGET_KINDS)
    assert (control.chosen, control.inherited) == ("", "webhook https://a.example")


def test_a_target_is_shown_in_its_controls_or_as_json():
    webhook: dict[str, Json] = {"kind": "webhook", "url": "https://a.example", "headers": {"x-a": "b: c"}}
    chosen = target_control(webhook, None)
    parts = next(kind.parts for kind in chosen.kinds if kind.kind == "webhook")
    assert {part.name: part.value for part in parts} == {
        "url": "https://a.example",
        "headers": "x-a: b: c",
        "completion": "",
    }
    unusual: list[dict[str, Json]] = [{"headers": {"x": "a\nb"}}, {"future": True}]
    for odd in unusual:
        other = target_control({**webhook, **odd}, None)
        assert other.chosen == "json"
    for argument in ("", " a", "a\n", "a\nb"):
        assert target_control({"kind": "command", "argv": ["a", argument]}, None).chosen == "json"


@pytest.mark.parametrize("number", [0, 2, 0.7, 1.0, 0.00005, 1e-7, 1e22])
def test_a_number_is_shown_as_the_form_reads_it(number: float):
    chat: dict[str, Json] = {"kind": "chat", "url": "https://a.example", "model": "m", "temperature": number}
    control = target_control(chat, None)
    parts = next(kind.parts for kind in control.kinds if kind.kind == "chat")
    text = next(part.value for part in parts if part.name == "temperature")
    assert re.fullmatch(r"-?\d+(\.\d+)?", text)  # as form_fields.js has it; other text is sent as text
    assert json.loads(text) == number
