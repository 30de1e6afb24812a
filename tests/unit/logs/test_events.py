"""Log records: one per event, whatever the values are."""

from __future__ import annotations

import io
import logging

import pytest

from wakeful.logs import escape, get_logger
from wakeful.logs.setup import ConsoleFormatter


@pytest.fixture
def lines() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(autouse=True)
def handler(lines: io.StringIO) -> object:
    handler = logging.StreamHandler(lines)
    handler.setFormatter(ConsoleFormatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("wakeful.tests")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("digest", "job=digest"),
        ("exit 3: no luck", 'job="exit 3: no luck"'),
        ("", 'job=""'),
        ("a\nWARNING event=forged", r'job="a\nWARNING event=forged"'),
        ("a\r\x1b[2J\x07", r"job=a\r\x1b[2J\x07"),
        ("\x9b31m\u2028\u202e\x00", r"job=\x9b31m\u2028\u202e\x00"),
        ("a state=succeeded", 'job="a state=succeeded"'),
        ('a" state=succeeded', r'job="a\" state=succeeded"'),
        ("grün \U0001f600", 'job="grün \U0001f600"'),
        ("\ud800", r"job=\ud800"),
        (["a\nb"], r"job=['a\nb']"),
        (7, "job=7"),
        (["a", {"b": "c\n"}], r"job=['a', {'b': 'c\n'}]"),
    ],
)
def test_a_value_is_one_field_of_one_line(lines: io.StringIO, value: object, shown: str):
    get_logger("wakeful.tests").warning("run.failed", job=value)
    assert lines.getvalue() == f"WARNING event=run.failed {shown}\n"


def test_a_traceback_cannot_start_a_record(lines: io.StringIO):
    try:
        raise ValueError("no\nWARNING event=forged\x1b[31m")
    except ValueError:
        get_logger("wakeful.tests").exception("run.failed")
        logging.getLogger("wakeful.tests").exception("of another library\nWARNING event=forged")
    first, *others = lines.getvalue().splitlines()
    assert first == "ERROR event=run.failed"
    assert [line for line in others if not line.startswith("    ")] == ["ERROR of another library"]
    assert "    WARNING event=forged\\x1b[31m" in others
    assert len([line for line in others if "Traceback" in line]) == 2  # one for each record


def test_printable_text_is_not_changed():
    assert escape("a\\n grün") == "a\\n grün"


def test_a_field_without_a_value_is_left_out(lines: io.StringIO):
    get_logger("wakeful.tests").warning("run.failed", job_id=None, attempt=0)
    assert lines.getvalue() == "WARNING event=run.failed attempt=0\n"


def test_a_bound_logger_adds_its_fields_and_the_original_does_not(lines: io.StringIO):
    log = get_logger("wakeful.tests")
    bound = log.bind(agent="writer", instance="eu")
    bound.warning("seen", instance="us")
    bound.unbind("agent").warning("seen")
    log.warning("seen")
    assert lines.getvalue().splitlines() == [
        "WARNING event=seen agent=writer instance=us",
        "WARNING event=seen instance=eu",
        "WARNING event=seen",
    ]


def test_a_record_names_the_function_that_wrote_it(caplog: pytest.LogCaptureFixture):
    get_logger("wakeful.tests").warning("seen")
    assert caplog.records[0].funcName == "test_a_record_names_the_function_that_wrote_it"


def test_a_field_may_have_any_name_and_is_not_the_event(lines: io.StringIO):
    log = get_logger("wakeful.tests")
    log.log(logging.WARNING, "seen", "a %s", level=1, name="x", self="y", msg="z", event="run.failed")
    assert lines.getvalue() == "WARNING event=seen level=1 name=x self=y msg=z positional_args=['a %s']\n"


def test_an_event_below_the_level_costs_no_redaction(lines: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("wakeful.logs.redact_fields", None)
    get_logger("wakeful.tests").debug("seen", payload="text")
    assert lines.getvalue() == ""


def test_loggers_have_the_other_names_of_their_methods(lines: io.StringIO):
    log = get_logger("wakeful.tests").bind(job="a")
    log.warn("one")
    log.fatal("two")
    log.new(run_id="r").warn("three")
    log.try_unbind("job", "agent").warn("four")
    assert lines.getvalue().splitlines() == [
        "WARNING event=one job=a",
        "CRITICAL event=two job=a",
        "WARNING event=three run_id=r",
        "WARNING event=four",
    ]


def test_the_name_of_an_event_is_a_text(lines: io.StringIO):
    get_logger("wakeful.tests").warning(ValueError("no luck"))  # type: ignore[arg-type]
    assert lines.getvalue() == 'WARNING event="no luck"\n'
