"""Agent classes: which method handles which signal."""

from __future__ import annotations

from typing import Any

import pytest

from wakeful import Agent, on
from wakeful.agents.agent import find_handlers
from wakeful.errors import InvalidArgument


class Reports(Agent):
    name = "reports"

    @on("report.generate")
    async def generate(self, signal: Any, ctx: Any) -> None: ...

    @on("report.*", "summary.*")
    def any_report(self, signal: Any) -> None: ...

    @on("report.*.failed")
    async def failed(self) -> None: ...

    @on("*")
    async def other(self, *args: Any) -> None: ...


@pytest.mark.parametrize(
    ("type", "handler"),
    [
        ("report.generate", "generate"),
        ("report.cancel", "any_report"),
        ("report.a.b", "any_report"),
        ("report.daily.failed", "failed"),
        ("summary.x", "any_report"),
        ("anything", "other"),
        ("report", "other"),
    ],
)
def test_the_most_specific_pattern_wins(type: str, handler: str):
    found = find_handlers(Reports).find(type)

    assert found is not None
    assert found.name == handler


def test_a_class_without_a_default_handler_does_not_handle_other_types():
    class One(Agent):
        @on("a")
        async def a(self, signal: Any, ctx: Any) -> None: ...

    assert find_handlers(One).find("b") is None
    assert find_handlers(One).patterns == ("a",)


def test_handlers_take_as_much_as_they_declare_and_may_be_synchronous():
    handlers = find_handlers(Reports)
    found = {type: handlers.find(type) for type in ("report.generate", "summary.x", "report.x.failed", "x")}

    assert [(each.asynchronous, each.arguments) for each in found.values() if each] == [
        (True, 2), (False, 1), (True, 0), (True, 2),
    ]  # fmt: skip


def test_an_overriding_method_handles_the_same_patterns():
    class Better(Reports):
        async def generate(self, signal: Any, ctx: Any) -> None:
            """Without a decorator."""

        @on("summary.*")
        def any_report(self, signal: Any) -> None: ...

    handlers = find_handlers(Better)
    found = handlers.find("report.generate")

    assert found is not None
    assert found.function is vars(Better)["generate"]
    assert [getattr(handlers.find(type), "name", None) for type in ("summary.x", "report.x")] == [
        "any_report", "other",
    ]  # fmt: skip


def test_other_attributes_are_no_handlers():
    class Anything:
        def __getattr__(self, name: str) -> object:
            return self

    class Odd(Reports):
        client = Anything()

    assert find_handlers(Odd).patterns == find_handlers(Reports).patterns


def test_two_handlers_of_one_pattern_are_refused_by_name():
    class Twice(Agent):
        @on("report.**")
        async def one(self, signal: Any, ctx: Any) -> None: ...

        @on("report.*")
        async def two(self, signal: Any, ctx: Any) -> None: ...

    with pytest.raises(InvalidArgument, match=r"class Twice: one and two both handle 'report\.\*'"):
        find_handlers(Twice)


def test_a_decorator_without_a_pattern_is_refused():
    with pytest.raises(InvalidArgument, match="write the type of the signal"):
        on(lambda self: None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="needs a type or a pattern"):
        on()
    with pytest.raises(InvalidArgument, match="pattern: "):
        on("rep*")
    with pytest.raises(InvalidArgument, match="it is for methods"):
        on("a")(5)  # type: ignore[type-var]


def test_a_handler_with_other_parameters_is_refused():
    class More(Agent):
        @on("a")
        async def more(self, signal: Any, ctx: Any, extra: Any) -> None: ...

    class Keyword(Agent):
        @on("a")
        async def keyword(self, signal: Any, *, ctx: Any) -> None: ...

    class Static(Agent):
        @on("a")
        @staticmethod
        def static(signal: Any) -> None: ...

    for cls, message in (
        (More, "more must take"),
        (Keyword, "keyword must take"),
        (Static, "static is not a"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            find_handlers(cls)
