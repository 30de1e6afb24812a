"""Rows, their JSON and the public model say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.errors import Unavailable
from wakeful.model.codec import field_plans, from_json, item_type, resolve
from wakeful.service import report_serializers, serializers
from wakeful.service.row_codec import RowCodec
from wakeful.store.rows import RunView

CODECS = {
    name: each
    for module in (serializers, report_serializers)
    for name, each in vars(module).items()
    if isinstance(each, RowCodec)
}
#: Fields of rows that are JSON text, enumerations or lists: a few of their values.
TEXTS = {
    "state": ["running", "failed"],
    "trigger": ["schedule", "hook"],
    "delivery": ["pending"],
    "status": ["active"],
    "kind": ["approval"],
    "action": ["approve"],
    "arguments": ['{"agent":"a"}'],
}
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=5),
    int: st.integers(0, 4_000_000_000_000),
    bool: st.booleans(),
    float: st.floats(0, 1),
}
#: Values of the other types of fields.
EMPTY: dict[Any, Any] = {tuple: (), list: [], Sequence: (), Mapping: {}, bytes: b""}


@cache
def rows(codec: RowCodec[Any, Any]) -> st.SearchStrategy[Any]:
    """Return rows with random values in all their fields."""
    hints = get_type_hints(codec._row, include_extras=True)
    texts = {
        value.removeprefix("row."): '[{"type":"a"}]' if item_type(field.type) else '{"tokens":3}'
        for field, value, is_json in codec._values()
        if is_json
    }

    def values(name: str) -> st.SearchStrategy[Any]:
        type_, _, nullable = resolve(hints[name])
        if name in texts:
            found: st.SearchStrategy[Any] = st.just(texts[name])
        elif name in TEXTS and codec is not serializers.RECEIPTS:
            found = st.sampled_from(["open"] if codec is serializers.SUGGESTIONS else TEXTS[name])
        elif type_ in VALUES:
            found = VALUES[type_]
        else:
            found = st.just(EMPTY.get(get_origin(type_) or type_, None if nullable else "default"))
        return st.none() | found if nullable else found

    return st.builds(codec._row, **{name: values(name) for name in hints})


@pytest.mark.parametrize(
    "name", sorted(CODECS.keys() - {"INBOX_ITEMS", "SUGGESTIONS", "JOB_STATE", "_JOB_FAILURES"})
)
@given(data=st.data())
def test_json_and_model_of_a_row_say_the_same(name: str, data: st.DataObject) -> None:
    codec = CODECS[name]
    given_by_caller = {
        field: 1 if field == "waiting" else None for field, source in codec._sources.items() if source is None
    }
    row = data.draw(rows(codec))
    written = codec.to_json(row, **given_by_caller)
    converted = codec.to_model(row, **given_by_caller)
    assert from_json(codec._kind, written) == converted
    assert {each.key for each in field_plans(codec._kind) if not each.extra} <= written.keys()


@given(row=rows(serializers.RUNS))
def test_a_run_of_a_newer_version_is_shown_as_json_and_refused_as_an_object(row: RunView) -> None:
    newer = row._replace(state="dreaming", usage='{"tokens":', payload="\ud800")
    shown = serializers.RUNS.to_json(newer)
    assert (shown["state"], shown["usage"]) == ("dreaming", {"unreadable": '{"tokens":'})
    with pytest.raises(Unavailable, match="a Run that this version"):
        serializers.RUNS.to_model(newer)
