"""The table of log events is complete, and the fields have the same names everywhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import wakeful
from tests.support.doc_pages import code, rows

_LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
#: Functions and classes whose first argument is the name of an event.
_NAMED = {"_RateLimitedLog", "_log_decided"}
#: The names of loggers in the source.
_LOGGERS = {"log", "_counter_log", "_worker_log"}
#: Fields that have another name.
_OLD = {"run", "id", "job_name", "agent_id", "agentId", "workspace_id", "key", "run_attempt"}


@cache
def _calls() -> list[tuple[str, ast.Call]]:
    """Return every call that logs, with the place of it."""
    return list(_find_calls())


def _find_calls() -> Iterator[tuple[str, ast.Call]]:
    for file in sorted(Path(wakeful.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            owner = function.value if isinstance(function, ast.Attribute) else None
            logs = name in _LEVELS and isinstance(owner, ast.Name) and owner.id in _LOGGERS
            if logs or name in _NAMED or (isinstance(function, ast.Name) and name == "write"):
                yield f"{file.name}:{node.lineno}", node


def _events() -> dict[str, str]:
    found: dict[str, str] = {}
    for place, call in _calls():
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            found[first.value] = place
    return found


def test_the_table_has_exactly_the_events_of_the_source():
    documented = [code(cells[0]) for cells in rows("reference/logs.md", "Events")]
    actual = _events()

    assert sorted(documented) == sorted(set(documented))
    assert {event: place for event, place in actual.items() if event not in documented} == {}
    assert [event for event in documented if event not in {**actual, "log": ""}] == []
    assert len(actual) > 60


def test_names_of_events_are_constants():
    dynamic = [
        place
        for place, call in _calls()
        if isinstance(call.func, ast.Attribute)
        and not isinstance(call.args[0] if call.args else None, ast.Constant)
    ]
    # `_RateLimitedLog` and `_log_decided` pass on the names that the table has.
    assert {place.partition(":")[0] for place in dynamic} <= {"acceptor.py", "rescuer.py"}


def test_fields_have_one_name_for_one_thing():
    for place, call in _calls():
        assert not {each.arg for each in call.keywords} & _OLD, place
