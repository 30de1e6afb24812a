"""The state of an instance: dict, dataclass and pydantic model, checked when it changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator

from wakeful.agents.state import MAX_STATE, state_from_text, state_to_text, state_type
from wakeful.agents.typed_json import converter
from wakeful.errors import InvalidArgument


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


@dataclass
class Item:
    sku: str
    count: int = 1


@dataclass
class Everything:
    text: str = ""
    number: int = 0
    ratio: float = 0.0
    flag: bool = False
    nothing: None = None
    maybe: int | None = None
    when: datetime | None = None
    day: date = date(2027, 3, 1)
    at: time = time(9, 30)
    every: timedelta = timedelta(minutes=5)
    id: UUID = field(default_factory=uuid4)
    price: Decimal = Decimal("1.10")
    color: Color = Color.RED
    level: Level = Level.LOW
    mode: Literal["on", "off"] = "on"
    items: list[Item] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    frozen: frozenset[int] = frozenset()
    pair: tuple[int, str] = (1, "a")
    row: tuple[float, ...] = ()
    by_name: dict[str, Item] = field(default_factory=dict)
    mapping: Mapping[str, list[datetime]] = field(default_factory=dict)
    anything: Any = None
    mixed: int | float | str | list[int] | None = None
    derived: str = field(default="x", init=False)


texts = st.text(st.characters(codec="utf-8"), max_size=5)
everything = st.builds(
    Everything,
    text=texts,
    number=st.integers(-(2**60), 2**60),
    ratio=st.floats(allow_nan=False, allow_infinity=False),
    flag=st.booleans(),
    maybe=st.none() | st.integers(-5, 5),
    when=st.none() | st.datetimes(timezones=st.just(UTC)) | st.datetimes(),
    day=st.dates(),
    at=st.times(),
    every=st.timedeltas(timedelta(days=-1000), timedelta(days=1000)),
    id=st.uuids(),
    price=st.decimals(allow_nan=False, allow_infinity=False),
    color=st.sampled_from(Color),
    mode=st.sampled_from(["on", "off"]),
    items=st.lists(st.builds(Item, texts, st.integers(0, 9)), max_size=3),
    names=st.sets(texts, max_size=3),
    frozen=st.frozensets(st.integers(0, 99), max_size=3),
    pair=st.tuples(st.integers(0, 9), texts),
    row=st.lists(st.floats(-5, 5), max_size=3).map(tuple),
    by_name=st.dictionaries(texts, st.builds(Item, texts), max_size=2),
    mapping=st.dictionaries(texts, st.lists(st.datetimes(), max_size=2), max_size=2),
    anything=st.none() | st.lists(texts, max_size=2),
    mixed=st.none() | st.integers(-9, 9) | st.floats(-9, 9) | texts | st.lists(st.integers(0, 3), max_size=2),
)


@given(everything)
def test_a_dataclass_comes_back_as_it_was(value: Everything):
    kind = state_type(Everything)
    text = state_to_text(kind.replace(value))

    assert kind.load(state_from_text(text)) == value
    assert type(value.mixed) is type(getattr(kind.load(state_from_text(text)), "mixed", None))


@given(everything, everything)
def test_changes_of_a_dataclass_equal_a_replaced_one(old: Everything, new: Everything):
    kind = state_type(Everything)
    changes = {name: value for name, value in vars(new).items() if name != "derived"}

    assert kind.merge(kind.replace(old), changes) == kind.replace(new)


keys = st.text("abc", min_size=1, max_size=2)
values = st.none() | st.integers(-9, 9) | texts | st.lists(st.integers(0, 3), max_size=2)
objects = st.dictionaries(keys, values, max_size=4)


@given(objects, objects, objects)
def test_set_state_merges_top_level_keys(old: dict[str, Any], one: dict[str, Any], two: dict[str, Any]):
    kind = state_type({})

    assert kind.merge(kind.merge(old, one), two) == {**old, **one, **two}
    assert kind.merge(old, {}) == old
    assert kind.replace(one) == one


def test_a_dict_state_is_not_shared():
    declared: dict[str, Any] = {"items": [1]}
    kind = state_type(declared)
    declared["items"].append(2)
    kind.initial()["items"] = None

    assert kind.initial() == {"items": [1]}


@dataclass
class Counter:
    count: int = 0
    last: datetime | None = None

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("count must not be negative")


class Model(BaseModel):
    count: int = 0
    last: datetime | None = None
    tags: set[str] = set()

    @field_validator("count")
    @classmethod
    def not_negative(cls, value: int) -> int:
        if value < 0:
            raise ValueError("must not be negative")
        return value


NOW = datetime(2027, 3, 1, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize("declared", [Counter, Counter(), Model, Model()])
def test_a_typed_state_is_changed_and_validated(declared: Any):
    kind = state_type(declared)
    stored = kind.merge(kind.initial(), {"count": 2, "last": NOW})
    loaded: Any = kind.load(state_from_text(state_to_text(stored)))

    assert (loaded.count, loaded.last) == (2, NOW)
    assert kind.replace({"count": 5})["count"] == 5
    loaded.count = 7
    assert kind.replace(loaded)["count"] == 7


@pytest.mark.parametrize("declared", [Counter, Model])
def test_an_object_that_its_class_would_refuse_is_not_stored(declared: Any):
    kind = state_type(declared)
    changed: Any = kind.load(kind.initial())
    changed.count = -1
    with pytest.raises(InvalidArgument, match="must not be negative"):
        kind.replace(changed)


@pytest.mark.parametrize("declared", [Counter, Model])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cuont": 1}, r"cuont: \w+ has no such field; it has count, last"),
        ({"count": "many"}, "count: "),
        ({"count": None}, "count: "),
        ({"count": [True]}, "count: "),
        ({"count": -1}, "must not be negative"),
        ({"last": 5.5j}, "last: "),
    ],
)
def test_a_wrong_change_of_a_typed_state_is_refused(declared: Any, changes: dict[str, Any], message: str):
    kind = state_type(declared)

    with pytest.raises(InvalidArgument, match=message):
        kind.merge(kind.initial(), changes)
    with pytest.raises(InvalidArgument):
        kind.replace(changes)


@pytest.mark.parametrize("declared", [Counter, Model])
@pytest.mark.parametrize("stored", [{"count": "x"}, {"last": "yesterday"}, {"count": [1]}])
def test_a_stored_typed_state_that_does_not_fit_is_refused(declared: Any, stored: dict[str, Any]):
    with pytest.raises(InvalidArgument):
        state_type(declared).load(stored)


def test_a_flag_is_not_a_number_and_a_whole_number_is_a_float():
    @dataclass
    class Numbers:
        whole: int = 0
        ratio: float = 0.0

    kind = state_type(Numbers)

    with pytest.raises(InvalidArgument, match="whole: true is not int"):
        kind.merge(kind.initial(), {"whole": True})
    assert kind.load(kind.merge(kind.initial(), {"ratio": 1})) == Numbers(ratio=1.0)
    with pytest.raises(InvalidArgument, match=r"ratio: 1000.* is too large for a float"):
        kind.merge(kind.initial(), {"ratio": 10**400})


def test_a_field_that_was_added_gets_its_default_and_one_that_was_removed_is_refused():
    kind = state_type(Counter)

    assert kind.load({}) == Counter()
    with pytest.raises(InvalidArgument, match="old: Counter has no such field"):
        kind.load({"old": 1})


def test_a_model_with_other_settings_keeps_them():
    class Loose(BaseModel):
        model_config = ConfigDict(extra="allow", strict=True)
        when: datetime | None = Field(default=None, alias="at")

    kind = state_type(Loose)
    stored = kind.merge(kind.initial(), {"when": NOW, "more": 1})

    assert stored == {"at": "2027-03-01T09:30:00Z", "more": 1}
    loaded: Any = kind.load(stored)
    assert (loaded.when, loaded.more) == (NOW, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tags": {"a"}}, "tags: set is not JSON"),
        ({"deep": {"list": [object()]}}, r"deep\.list\.0: object is not JSON"),
        ({"ratio": float("nan")}, "ratio: nan is not a number"),
        ({"last": NOW}, "last: datetime is not JSON; .*; in a dict store `isoformat\\(\\)`, or declare"),
        ({"day": NOW.date()}, "day: date is not JSON; .* declare the state as a dataclass"),
        ({5: 1}, "the name 5 is not text"),
        ({"half": "\ud800"}, "half: a text has half of a surrogate pair"),
    ],
)
def test_a_value_that_json_cannot_represent_is_refused_with_its_key(changes: Any, message: str):
    with pytest.raises(InvalidArgument, match=message):
        state_type({}).merge({}, changes)


def test_a_state_over_256_kb_is_refused():
    assert len(state_to_text({"a": "x" * (MAX_STATE - 8)})) == MAX_STATE
    with pytest.raises(InvalidArgument, match="the state has 262145 bytes as JSON; at most 262144"):
        state_to_text({"a": "x" * (MAX_STATE - 7)})
    with pytest.raises(InvalidArgument, match="the state has"):
        state_to_text({"a": "ü" * (MAX_STATE // 2)})


@pytest.mark.parametrize("declared", [5, "text", None, [1], int, object()])
def test_other_things_cannot_be_a_state(declared: object):
    with pytest.raises(InvalidArgument, match="use a dict, a dataclass or a pydantic model"):
        state_type(declared)


def test_a_state_without_initial_values_is_refused():
    class Required(BaseModel):
        count: int

    for declared in (Item, Required):
        with pytest.raises(InvalidArgument, match="has fields without a default"):
            state_type(declared)
    assert state_type(Required(count=3)).initial() == {"count": 3}
    assert state_type(Item("a")).initial() == {"sku": "a", "count": 1}


@pytest.mark.parametrize("text", ["", "{", "[1]", "null"])
def test_stored_text_that_is_no_object_is_refused(text: str):
    with pytest.raises(InvalidArgument):
        state_from_text(text)


@pytest.mark.parametrize(
    "hint", [complex, dict[int, str], str | datetime, list[object] | set[int], Literal[1, "a"], Any | int]
)
def test_a_type_that_json_cannot_represent_is_refused_when_the_class_is_registered(hint: Any):
    with pytest.raises(InvalidArgument):
        converter(hint)


@dataclass
class Tree:
    children: list[Tree]


def test_a_type_that_contains_itself_and_keys_that_cannot_be_stored_are_refused_by_name():
    with pytest.raises(InvalidArgument, match=r"^Tree\.children: Tree contains itself"):
        converter(Tree)
    with pytest.raises(InvalidArgument, match="counts: a text has half of a surrogate pair"):
        converter(dict[str, int]).to_json({"\ud800": 1}, "counts")


def test_the_field_of_an_unsupported_type_is_named():
    @dataclass
    class Bad:
        wave: complex = 1j

    with pytest.raises(InvalidArgument, match=r"Bad\.wave: the type complex cannot be stored"):
        state_type(Bad)


def test_a_model_that_is_no_object_and_unknown_annotations_are_refused():
    class Numbers(RootModel[list[int]]):
        root: list[int] = [1]

    @dataclass
    class Unknown:
        missing: NotDefined = None  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InvalidArgument, match=r"the state is \[1\]; it must be an object"):
        state_type(Numbers)
    with pytest.raises(InvalidArgument, match="Unknown: the type of a field cannot be read"):
        state_type(Unknown)


def test_pydantic_is_imported_only_by_a_class_that_uses_it():
    program = (
        "import sys; from dataclasses import make_dataclass\n"
        "from wakeful.agents.state import state_type\n"
        "state_type({'a': 1}); state_type(make_dataclass('S', [('a', int, 0)]))\n"
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
