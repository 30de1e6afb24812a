"""What follows from the declaration of a job field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from wakeful.document.definition import NAMES
from wakeful.document.fields import DECLARED, OTHER, RESPONSE_ONLY, declared_fields
from wakeful.errors import InvalidArgument
from wakeful.job.policy import FieldSpec
from wakeful.values.duration import LONGEST


@dataclass(frozen=True)
class Part:
    grace_ms: Annotated[int, FieldSpec("Time. More.", low=5)] = 7
    most: Annotated[int | None, FieldSpec("Number.", low=1, high=3)] = None
    quiet: Annotated[bool, FieldSpec("A [flag](a.md).", name="isQuiet")] = False
    tune: Annotated[Literal["high", "low"], FieldSpec("Choice.", flags=("--tune", "-t"))] = "low"
    place: Annotated[str, FieldSpec("Text.", high=4)] = "here"
    state: int = 0


GRACE, MOST, QUIET, TUNE, PLACE = declared_fields(Part)


def test_an_attribute_without_a_declaration_is_no_field():
    assert [field.attr for field in declared_fields(Part)] == ["grace_ms", "most", "quiet", "tune", "place"]


def test_names_follow_from_the_attribute_unless_they_are_declared():
    assert [field.name for field in declared_fields(Part)] == ["graceMs", "most", "isQuiet", "tune", "place"]
    assert [field.option for field in declared_fields(Part)] == ["grace", "most", "is_quiet", "tune", "place"]
    assert [field.flags for field in declared_fields(Part)] == [
        ("--grace",), ("--most",), ("--is-quiet",), ("--tune", "-t"), ("--place",)
    ]  # fmt: skip
    assert [field.duration_name for field in declared_fields(Part)] == ["grace", None, None, None, None]


def test_a_field_without_a_default_value_is_nullable():
    assert [field.default for field in declared_fields(Part)] == [7, None, False, "low", "here"]
    assert [field.nullable for field in declared_fields(Part)] == [False, True, False, False, False]


def test_the_schema_has_the_bounds_that_the_reader_enforces():
    assert GRACE.kind.schema == {"type": "integer", "minimum": 5, "maximum": LONGEST}
    assert MOST.kind.schema == {"type": "integer", "minimum": 1, "maximum": 3}
    for field, valid, invalid in (
        (GRACE, 5, 4),
        (GRACE, LONGEST, LONGEST + 1),
        (MOST, 3, 4),
        (MOST, 1, 0),
        (QUIET, True, 1),
        (TUNE, "high", "flat"),
        (PLACE, "nigh", "there"),
    ):
        assert field.kind(valid) == valid
        with pytest.raises(InvalidArgument):
            field.kind(invalid)


def test_documentation_for_interfaces_without_links():
    assert QUIET.doc == "A flag."
    assert GRACE.summary == "Time."


def test_a_type_that_is_not_plain_needs_a_kind():
    @dataclass(frozen=True)
    class Odd:
        shape: Annotated[bytes, FieldSpec("Bytes.")] = b""

    Odd.__annotations__["shape"] = Annotated[bytes, FieldSpec("Bytes.")]
    with pytest.raises(TypeError, match=r"shape: .* is not a plain type"):
        declared_fields(Odd)


def test_no_two_fields_share_a_name_or_a_flag():
    fields = (*OTHER, *DECLARED)
    names = [field.name for field in fields] + [f.duration_name for f in fields if f.duration_name]
    assert len(names) == len(set(names))
    flags = [flag for field in DECLARED for flag in field.flags]
    assert len(flags) == len(set(flags))
    assert not set(RESPONSE_ONLY) & set(NAMES)


@pytest.mark.parametrize("field", [*OTHER, *DECLARED], ids=lambda field: field.name)
def test_every_field_is_documented_in_sentences(field):
    assert field.spec.doc[0].isupper() or field.spec.doc[0] in "`["
    assert field.spec.doc.endswith(".")
