"""The tables of lists show fields that the resources have."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypedDict

import pytest

from wakeful.cli import commands, pages
from wakeful.cli.tables import AGENT, Column, ResourceTable

NOW = 1_800_000_000_000
MODULES = [
    pages,
    *(import_module(f"{commands.__name__}.{each.name}") for each in iter_modules(commands.__path__)),
]
TABLES = {
    name: value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, ResourceTable)
}


class Item(TypedDict):
    agentId: str
    name: str | None
    at: str | None
    active: bool
    data: object


ITEMS: ResourceTable[Item] = ResourceTable(
    Column("NAME", "name", "bold"),
    AGENT,
    Column("WHEN", "at"),
    Column("ACTIVE", "active", wide=True),
    Column("DATA", "data"),
    Column("AWAY", lambda item, now_ms: f"{now_ms:d}" if item["active"] else ""),
)


def item(agent: str) -> Item:
    return {"agentId": agent, "name": None, "at": "2027-01-15T07:00:00Z", "active": True, "data": {"a": 1}}


def render_cells(agent: str, *, wide: bool) -> dict[str, str]:
    table = ITEMS.render([item(agent)], NOW, wide=wide)
    return {str(column.header): str(next(iter(column.cells))) for column in table.columns}


@pytest.mark.parametrize("name", TABLES)
def test_a_column_shows_a_field_of_its_resource(name: str):
    resource: Any = TABLES[name].__orig_class__.__args__[0]  # type: ignore[attr-defined]
    fields = {column.content for column in TABLES[name].columns if isinstance(column.content, str)}
    assert fields <= resource.__annotations__.keys()


def test_there_are_tables():
    assert len(TABLES) >= 14


def test_a_cell_shows_an_instant_relative_to_now_and_other_values_as_text():
    assert render_cells("ops", wide=True) == {
        "NAME": "",
        "AGENT": "ops",
        "WHEN": "1 h ago",
        "ACTIVE": "yes",
        "DATA": '{"a": 1}',
        "AWAY": str(NOW),
    }


def test_columns_are_hidden_without_room_and_if_all_agents_are_the_default_one():
    assert [*render_cells("default", wide=False)] == ["NAME", "WHEN", "DATA", "AWAY"]
