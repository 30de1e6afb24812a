"""Revisions of jobs: which fields changed, what is kept of them, and the patch that restores one."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wakeful.document import Defaults, patch_definition, read_definition
from wakeful.job.job import Definition, JobRecord
from wakeful.service.jobs.revision_rules import (
    build_revisions,
    changed_fields,
    document_of,
    lost_credentials,
    new_revision,
    restoring_patch,
)
from wakeful.store.rows import MAX_REVISIONS, RevisionRow

HOOK = {"kind": "webhook", "url": "https://a.example/hook?key=1", "headers": {"x-key": "secret-1"}}


def definition(**fields: Any) -> Definition:
    document = {"name": "digest", "schedule": "0 7 * * *", "target": HOOK, **fields}
    return read_definition(document, now_ms=0, defaults=Defaults())


def record(now: Definition, version: int = 1) -> JobRecord:
    return JobRecord(
        id="j1", workspace="default", agent="default", definition=now, enabled=True, anchor_ms=0,
        next_ms=None, wake_ms=None, created_ms=1_000, updated_ms=9_000, created_by="admin:key:1",
        version=version,
    )  # fmt: skip


def row(before: Definition, after: Definition, version: int, at_ms: int, by: str) -> RevisionRow:
    kept = new_revision(before, after, by)
    assert kept is not None
    return RevisionRow(version, kept.document, kept.fields, at_ms, kept.by)


def test_true_and_one_are_different_values() -> None:
    assert changed_fields({"payload": {"a": 1}}, {"payload": {"a": True}}) == ["payload"]
    assert changed_fields({"payload": {"a": 1, "b": 2}}, {"payload": {"b": 2, "a": 1}}) == []


def test_a_missing_field_equals_null() -> None:
    assert changed_fields({"tz": None}, {}) == []
    assert changed_fields({}, {"tz": "UTC"}) == ["tz"]


def test_no_credential_is_kept() -> None:
    old, new = definition(), definition(timeout="30s")
    kept = new_revision(old, new, "admin:key:1")
    assert kept is not None
    assert "secret-1" not in kept.document
    assert "key=1" not in kept.document
    assert json.loads(kept.fields) == ["timeoutMs"]


def test_a_change_of_credentials_alone_is_named_and_hidden() -> None:
    old = definition()
    new = definition(target={**HOOK, "headers": {"x-key": "secret-2"}})
    (current, created) = build_revisions(record(new, 2), [row(old, new, 1, 2_000, "agent:key:2")])
    (change,) = current.changes
    assert (change.field, change.hidden) == ("target", True)
    assert created.changes == ()


def test_the_same_definition_has_no_revision() -> None:
    assert new_revision(definition(), definition(), "admin:key:1") is None


def test_each_change_has_its_author_and_both_values() -> None:
    first, second, third = definition(), definition(schedule="0 8 * * *"), definition(schedule="0 9 * * *")
    rows = [row(second, third, 4, 5_000, "agent:key:2"), row(first, second, 1, 2_000, "admin:key:1")]
    found = build_revisions(record(third, 6), rows)
    assert [(each.version, each.at_ms, each.by) for each in found] == [
        (5, 5_000, "agent:key:2"),
        (2, 2_000, "admin:key:1"),
        (1, 1_000, "admin:key:1"),
    ]
    (change,) = found[0].changes
    assert (change.field, change.hidden) == ("schedule", False)
    assert (change.before, change.after) == (
        {"kind": "cron", "expr": "0 8 * * *", "tz": "UTC"},
        {"kind": "cron", "expr": "0 9 * * *", "tz": "UTC"},
    )
    assert found[2].document == document_of(first)


def test_a_full_history_does_not_take_its_oldest_row_for_the_creation() -> None:
    states = [definition(payload=number) for number in range(MAX_REVISIONS + 1)]
    rows = [
        row(states[number], states[number + 1], number + 7, number, "admin:key:1")
        for number in reversed(range(MAX_REVISIONS))
    ]
    found = build_revisions(record(states[-1], 90), rows)
    assert len(found) == MAX_REVISIONS
    assert all(each.changes for each in found)
    assert len(build_revisions(record(states[-1], 90), rows[:-1])) == MAX_REVISIONS


def test_credentials_that_are_not_kept_are_found() -> None:
    old, new = definition(), definition(target={"kind": "echo"})
    patch = restoring_patch(document_of(new), document_of(old))
    assert lost_credentials(patch) == ["target"]
    assert lost_credentials({"payload": {"text": "***"}}) == []


@given(
    st.sampled_from(["0 7 * * *", "every 5m", "@daily"]),
    st.sampled_from([None, "Europe/Berlin"]),
    st.sampled_from([None, 1, {"a": [True, None]}]),
    st.sampled_from([None, "30s"]),
    st.sampled_from([{"kind": "echo"}, {"kind": "webhook", "url": "https://a.example/"}, None]),
    st.sampled_from([{}, {"team": "ops"}]),
)
def test_restoring_gives_the_same_document(
    schedule: str, tz: str | None, payload: Any, timeout: str | None, target: Any, labels: dict[str, str]
) -> None:
    fields = {"payload": payload, "timeout": timeout, "target": target, "labels": labels, "tz": tz}
    wanted = definition(schedule=schedule, **fields)
    now = definition(schedule="*/5 * * * *", tz="Asia/Tokyo", payload=[1], maxAttempts=2, message="go")
    patch = restoring_patch(document_of(now), document_of(wanted))
    restored = patch_definition(now, patch, now_ms=0, defaults=Defaults())
    assert document_of(restored) == document_of(wanted)
