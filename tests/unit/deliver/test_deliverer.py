"""The text of a delivery: the output of the run, and the signals that it emitted."""

from __future__ import annotations

import json
from typing import Any

from wakeful.deliver.deliverer import delivery_text
from wakeful.store.deliveries import TakenDelivery


def _text(output: str | None, *signals: dict[str, Any], job: str | None = None) -> str:
    emitted = json.dumps(signals) if signals else None
    return delivery_text(TakenDelivery("r", "w", "a", job, "ops", None, output, 1, None, "k", 1, emitted))


def test_without_signals_the_text_is_the_output() -> None:
    assert _text(" done \n") == "done"
    assert _text(None) == ""


def test_a_signal_is_its_message_else_its_data_else_its_type() -> None:
    assert _text(None, {"type": "x", "data": {"message": "Report is ready"}}) == "Report is ready"
    assert _text(None, {"type": "x", "data": {"rows": 3, "zone": "ü"}}) == '{"rows": 3, "zone": "ü"}'
    assert _text(None, {"type": "x", "data": "ready"}) == "ready"
    assert _text(None, {"type": "report.ready"}) == "report.ready"


def test_the_output_precedes_the_signals_unless_it_is_suppressed() -> None:
    first, second = {"type": "a"}, {"type": "b"}
    assert _text("done", first, second) == "done\n\na\n\nb"
    assert _text("NO_REPLY", first) == "a"
