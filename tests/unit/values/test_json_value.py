"""The compact text of JSON values."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.values.json_value import Json, compact

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_VALUES = st.recursive(
    _SCALARS.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(_VALUES)
def test_the_compact_text_is_what_the_standard_library_writes(value: Json):
    assert compact(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}])
def test_a_number_that_json_does_not_have_is_refused(value: Json):
    with pytest.raises(ValueError, match="not JSON compliant"):
        compact(value)


def test_a_value_that_contains_itself_is_refused():
    value: list[Json] = []
    value.append(value)
    with pytest.raises(ValueError, match="Circular reference"):
        compact(value)
    assert compact([1]) == "[1]"
