"""The lists of columns in statements, derived from the fields of row classes.

A row class is a named tuple. A statement that reads or writes it names its columns by these functions, so the
values are in the order of its fields: `TakenRun(*row)` is right by construction, and nothing needs a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

T = TypeVar("T")

#: Columns that have another name than `column_name` derives. A duration is no instant.
_COLUMN_NAMES: Final = MappingProxyType(
    {
        "claim_deadline_ms": "claim_deadline",
        "claim_timeout_ms": "claim_timeout_ms",
        "old_secret_until_ms": "old_secret_until",
        "pause_until_ms": "pause_until",
        "spread_from_ms": "spread_from",
        "spread_until_ms": "spread_until",
        "to": "send_to",
    }
)
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def column_name(field: str) -> str:
    """Return the column of a field of a row. An instant `x_ms` is the column `x_at`.

    >>> column_name("started_ms"), column_name("lane")
    ('started_at', 'lane')
    """
    if field in _COLUMN_NAMES:
        return _COLUMN_NAMES[field]
    return f"{field.removesuffix('_ms')}_at" if field.endswith("_ms") else field


def column_list(fields: Iterable[str], table: str = "") -> str:
    """Return the columns of these fields, of a table if several are read.

    >>> column_list(("id", "due_ms")), column_list(("id", "due_ms"), "r")
    ('id, due_at', 'r.id, r.due_at')
    """
    before = f"{table}." if table else ""
    return ", ".join(before + column_name(field) for field in fields)


def insert(table: str, fields: Sequence[str]) -> str:
    """Return the statement that adds a row with these fields.

    >>> insert("runs", ("id", "due_ms"))
    'INSERT INTO runs (id, due_at) VALUES ($1, $2)'
    """
    marks = ", ".join(f"${number}" for number in range(1, len(fields) + 1))
    return f"INSERT INTO {table} ({column_list(fields)}) VALUES ({marks})"


def select_list(fields: Iterable[str], table: str, expressions: Mapping[str, str] = _NONE) -> str:
    """Return the SELECT list for these fields: the column of the table, or another expression.

    >>> select_list(("id", "due_ms", "work"), "r", {"work": "coalesce(j.work, '{}')"})
    "r.id AS id, r.due_at AS due_ms, coalesce(j.work, '{}') AS work"
    """
    rest = dict(expressions)
    columns = [f"{rest.pop(field, f'{table}.{column_name(field)}')} AS {field}" for field in fields]
    if rest:
        raise ValueError(f"there are no fields {sorted(rest)}")
    return ", ".join(columns)


def reader(row: type[T]) -> Callable[[Iterable[Any]], T]:
    """Return a function that makes a row of values from SQLite, which stores booleans as numbers.

    >>> class Flag(NamedTuple):
    ...     name: str
    ...     is_set: bool = False
    >>> reader(Flag)(("x", 1)), reader(Flag)(("x",))
    (Flag(name='x', is_set=True), Flag(name='x', is_set=False))
    """
    types = get_type_hints(row)
    booleans = [number for number, name in enumerate(types) if types[name] is bool]

    def read(values: Iterable[Any]) -> T:
        columns = list(values)
        for number in booleans:
            if number < len(columns):
                columns[number] = bool(columns[number])
        return row(*columns)

    return read


def next_row(values: Iterator[Any], row: type[T]) -> T:
    """Return a row of the next values of a result that has several.

    >>> class Flag(NamedTuple):
    ...     name: str
    ...     is_set: bool = False
    >>> values = iter(("x", True, "y", False, 7))
    >>> next_row(values, Flag), next_row(values, Flag), next(values)
    (Flag(name='x', is_set=True), Flag(name='y', is_set=False), 7)
    """
    kind: Any = row
    return kind._make(islice(values, len(kind._fields)))  # type: ignore[no-any-return]


def fields_before(row: type[NamedTuple], end: str) -> tuple[str, ...]:
    """Return the fields of a row class before this one.

    >>> class Point(NamedTuple):
    ...     x: int
    ...     y: int
    ...     label: str = ""
    >>> fields_before(Point, "label")
    ('x', 'y')
    """
    fields: tuple[Any, ...] = row._fields
    return fields[: fields.index(end)]
