"""The JSON format: one object per line, whatever the record is."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.logs import get_logger
from wakeful.logs.setup import ConsoleFormatter, JsonFormatter

LOG = get_logger("wakeful.tests.json")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("wakeful.tests.json")
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


def _only(stream: io.StringIO) -> dict[str, Any]:
    (line,) = stream.getvalue().splitlines()
    value: dict[str, Any] = json.loads(line)
    return value


def test_an_event_has_the_common_fields_first(stream: io.StringIO):
    LOG.warning("run.failed", run_id="r1", job_id="j1", attempt=2, error="grün\nevent=forged")

    line = _only(stream)

    assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["timestamp"])
    assert line | {"timestamp": ""} == {
        "timestamp": "",
        "level": "warning",
        "logger": "wakeful.tests.json",
        "event": "run.failed",
        "run_id": "r1",
        "job_id": "j1",
        "attempt": 2,
        "error": "grün\nevent=forged",
    }


def test_an_exception_is_one_field_of_the_same_line(stream: io.StringIO):
    try:
        raise ValueError('no\n{"event": "forged"}')
    except ValueError:
        LOG.exception("run.set_aside", run_id="r1")

    line = _only(stream)

    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith('{"event": "forged"}')


def test_records_of_other_libraries_have_the_same_form(stream: io.StringIO):
    logger = logging.getLogger("wakeful.tests.json")
    try:
        raise OSError("gone")
    except OSError:
        logger.error("lost %s\nnew line", "all", exc_info=True, stack_info=True)

    line = _only(stream)

    assert (line["event"], line["message"]) == ("log", "lost all\nnew line")
    assert "OSError: gone" in line["exception"]
    assert "Stack (most recent call last)" in line["exception"]


@pytest.mark.parametrize("formatter", [JsonFormatter(), ConsoleFormatter("%(message)s")])
def test_a_message_that_does_not_match_its_arguments_is_a_line(formatter: logging.Formatter):
    record = logging.LogRecord("other", logging.INFO, "x.py", 1, "%d\nforged", ("x",), None)
    assert "TypeError" in formatter.format(record)
    assert len(formatter.format(record).splitlines()) == 1


class _Odd:
    def __repr__(self) -> str:
        return "odd\u2028"


def test_values_that_json_lacks_are_text(stream: io.StringIO):
    circle: list[object] = []
    circle.append(float("nan"))
    LOG.info("engine.started", a=float("inf"), b=_Odd(), c={1: {2}}, d=circle, event_="x", level="forged")
    LOG.warning("engine.started", a=float("inf"), b=_Odd(), c={1: {2}}, d=circle, level="forged")

    line = _only(stream)

    assert line["level"] == "warning"
    assert (line["a"], line["b"], line["c"], line["d"]) == ("inf", "odd\u2028", {"1": [2]}, ["nan"])


@given(st.text(), st.text(), st.text(st.characters(codec=None)))
def test_no_text_can_end_the_line(name: str, value: str, error: str):
    stream = io.StringIO()
    logger = logging.Logger("x")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)

    logger.warning("%s %s", value, error)

    text = stream.getvalue()
    assert text.isascii()
    assert len(text.splitlines()) == 1
    assert json.loads(text)["event"] == "log"


def test_a_warning_can_be_formatted(stream: io.StringIO):
    record = logging.LogRecord(
        "py.warnings",
        logging.WARNING,
        "x",
        1,
        warnings.formatwarning("old", UserWarning, "a.py", 3),
        (),
        None,
    )
    assert json.loads(JsonFormatter().format(record))["message"].startswith("a.py:3: UserWarning: old")
    assert sys.exc_info() == (None, None, None)
