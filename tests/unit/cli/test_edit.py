"""The text of `wakeful edit`: what is written is read back as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wakeful.cli.commands.edit import job_patch, job_text, read_job_text
from wakeful.document.definition import editable
from wakeful.values.yaml_text import dump_yaml, load_yaml

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(_TEXT, _JSON, max_size=5))
def test_every_document_is_read_as_it_was_written(document: dict[str, object]):
    read = load_yaml(dump_yaml(document), "x")  # type: ignore[arg-type]
    assert read == document
    assert repr(read) == repr(document), "1 and true and 1.0 are different values"


@given(st.dictionaries(st.sampled_from(["message", "payload", "labels", "lane", "tz"]), _JSON))
def test_an_unchanged_text_is_no_change(document: dict[str, object]):
    text = job_text("Job 'digest'.", document)  # type: ignore[arg-type]
    read = read_job_text(text)
    assert job_patch(document, read or {}) == {}  # type: ignore[arg-type]


def test_only_what_differs_from_the_defaults_is_shown():
    job = {
        "id": "1",
        "name": "digest",
        "schedule": {"kind": "every", "everyMs": 900_000},
        "tz": "UTC",
        "maxAttempts": 5,
        "lane": "main",
        "enabled": True,
        "runCount": 7,
    }
    assert editable(job, {"maxAttempts": 5, "lane": "cron", "tz": "UTC"}) == {  # type: ignore[arg-type]
        "name": "digest",
        "schedule": "every 15m",
        "tz": "UTC",
        "lane": "main",
        "enabled": True,
    }


def test_one_and_true_are_different_values():
    assert job_patch({"payload": 1}, {"payload": True}) == {"payload": True}
    assert job_patch({"payload": [0]}, {"payload": [False]}) == {"payload": [False]}
