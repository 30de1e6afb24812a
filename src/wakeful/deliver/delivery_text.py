"""The text of a delivery: the output of the run, and the signals that it emitted. Pure."""

from __future__ import annotations

import json

from wakeful.run.suppression import suppression_reason
from wakeful.store.deliveries import Delivery


def delivery_text(delivery: Delivery) -> str:
    """Return what is sent: the output, then a paragraph for each emitted signal.

    An output that is not delivered by itself does not precede the signals.
    """
    output = (delivery.output or "").strip()
    if delivery.emitted is None:
        return output
    signals = [_signal_text(each) for each in json.loads(delivery.emitted)]
    own = [] if suppression_reason(output, delivery.job_name) else [output]
    return "\n\n".join([*own, *signals])


def _signal_text(signal: dict[str, object]) -> str:
    """Return the message of a signal if its data has one, else the data; without data, its type."""
    data = signal.get("data")
    message = data.get("message") if isinstance(data, dict) else data
    if isinstance(message, str) and message.strip():
        return message.strip()
    if data is None:
        return str(signal.get("type", ""))
    return json.dumps(data, ensure_ascii=False)
