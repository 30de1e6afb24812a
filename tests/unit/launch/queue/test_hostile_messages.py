"""Messages and reports that anyone on the same NATS server can write: each is read, or refused as invalid."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import cases
from wakeful.errors import InvalidArgument
from wakeful.launch.broker import Report, read_report
from wakeful.launch.queue.messages import read_message, report_body

RUN = "0199c1de-7a4f-7000-8000-000000000001"
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5
)
FIELDS = ("status", "attempt", "output", "error", "usage", "evidence", "permanent", "retryAfterMs", "reason")


def _body(value: Any) -> bytes:
    return json.dumps(value).encode()


@settings(deadline=None, max_examples=cases(200, 5_000))
@given(st.binary() | VALUES.map(_body) | st.dictionaries(st.sampled_from(FIELDS), VALUES).map(
    lambda fields: _body({"run": RUN, "attempt": 1, "status": "failed", **fields})
))  # fmt: skip
def test_a_report_is_read_or_refused(body: bytes) -> None:
    try:
        report = read_report(body)
    except InvalidArgument:
        return
    assert isinstance(report, Report)
    assert read_report(report_body(report)).status == report.status


HEADERS = {
    "run-id": RUN,
    "attempt": "1",
    "timeout-ms": "1000",
    "scheduled-at": "2026-03-01T00:00:00Z",
    "workspace": "default",
    "agent": "default",
    "trigger": "user",
    "key": "k",
    "missed": "0",
    "function": "work",
}
NUMBERS = st.text() | st.sampled_from(
    ["", "-1", "0", "9" * 5_000, "1e3", "nan", "٣", "0001-01-01T00:00:00+23:59"]
)


@settings(deadline=None, max_examples=cases(200, 5_000))
@given(
    st.dictionaries(st.sampled_from(sorted(HEADERS)), NUMBERS),
    st.binary() | VALUES.map(_body) | VALUES.map(lambda value: _body({"job": value, "payload": value})),
)
def test_a_message_is_read_or_refused(changed: dict[str, str], body: bytes) -> None:
    headers = {f"x-wakeful-{name}": value for name, value in {**HEADERS, **changed}.items()}
    try:
        run = read_message(body, headers)
    except InvalidArgument:
        return
    assert run.attempt >= 1
    assert run.timeout_ms is not None
    assert run.timeout_ms / 1000 > 0
    assert run.payload_text is None or isinstance(run.payload, object)
