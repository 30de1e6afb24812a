"""Tables of resources: the columns of a list, each with a field of the resource by its name in JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

from rich.table import Table
from rich.text import Text

from wakeful.cli.output import Cell, compact, table
from wakeful.cli.times import relative_text

T = TypeVar("T", bound=Mapping[str, Any])


class Column(NamedTuple, Generic[T]):
    """One column of a table."""

    title: str
    #: a field, whose instants are shown relative to now, or a function of the item and the time
    content: str | Callable[[T, int], Cell]
    style: str = ""
    #: shown only if there is room for all columns
    wide: bool = False
    #: hidden if all items show this
    hidden_if: str | None = None

    def show(self, item: T, now_ms: int) -> Cell:
        """Return the cell of an item."""
        if not isinstance(self.content, str):
            return self.content(item, now_ms)
        value = cast(Mapping[str, Any], item)[self.content]
        if value is None:
            text = ""
        elif self.content == "at" or self.content.endswith("At"):
            text = relative_text(value, now_ms)
        elif isinstance(value, bool):
            text = "yes" if value else "no"
        else:
            text = compact(value)
        return Text(text, self.style) if self.style else text


#: The agent of an item, unless all are of the agent `default`.
AGENT: Column[Any] = Column("AGENT", "agentId", hidden_if="default")


class ResourceTable(Generic[T]):
    """The columns of a list. If there is no room, the first column of `elastic` that is shown is cut."""

    def __init__(self, *columns: Column[T], elastic: Sequence[str] = ()) -> None:
        self.columns = columns
        self._elastic = elastic

    def render(self, items: Sequence[T], now_ms: int, *, wide: bool = True) -> Table:
        """Return the table with a line per item, in the given order."""
        columns = [column for column in self.columns if wide or not column.wide]
        rows = [[column.show(item, now_ms) for column in columns] for item in items]
        hidden = [
            column.title
            for index, column in enumerate(columns)
            if column.hidden_if is not None and all(str(row[index]) == column.hidden_if for row in rows)
        ]
        titles = [column.title for column in columns]
        elastic = next((title for title in self._elastic if title in titles), "")
        return table(titles, rows, elastic=elastic, hidden=hidden)
