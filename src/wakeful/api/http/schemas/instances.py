"""The schemas of signals and instances."""

from __future__ import annotations

from typing import Final

from wakeful import model
from wakeful.api.http.schemas.parts import (
    INSTANT,
    OBJECT,
    TEXT,
    Schema,
    list_of,
    or_null,
    page_of,
    ref,
    request,
    response,
    text,
)
from wakeful.api.http.schemas.resources import schema_of_class
from wakeful.service.jobs.pauses import MAX_NOTE
from wakeful.signal.requests import MAX_BATCH
from wakeful.signal.signals import MAX_ID, MAX_SOURCE, MAX_TYPE, SPECVERSION

_SIGNAL: Final[Schema] = {
    "type": "object",
    "description": "A CloudEvent 1.0. Further properties are extensions: text, booleans and 32-bit integers.",
    "properties": {
        "specversion": {"type": "string", "const": SPECVERSION},
        "id": {**text(MAX_ID, 1), "description": "Unique for the source: a repeated one is a duplicate."},
        "source": {**text(MAX_SOURCE, 1), "description": "Where it comes from, such as `/billing`."},
        "type": {**text(MAX_TYPE, 1), "description": "Such as `invoice.paid`; handlers are found by it."},
        "subject": or_null(TEXT),
        "time": or_null(INSTANT),
        "dataschema": or_null(TEXT),
        "datacontenttype": or_null(TEXT),
        "data": {"description": "Any JSON, up to 64 KB."},
        "data_base64": {**or_null(TEXT), "description": "Bytes, instead of `data`."},
    },
    "required": ["specversion", "id", "source", "type"],
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Signal": _SIGNAL,
    "SignalBatch": {**list_of(ref("Signal"), MAX_BATCH), "minItems": 1},
    "SentSignal": schema_of_class(model.Run, "duplicate", about="The run of a signal."),
    "SentSignals": response({"runs": list_of(ref("SentSignal"))}, about="The runs of a batch, in its order."),
    "Sent": {
        "description": "The run of a signal, or those of a batch.",
        "anyOf": [ref("SentSignal"), ref("SentSignals")],
    },
    "Instance": schema_of_class(model.InstanceInfo),
    "InstanceWithState": schema_of_class(
        model.InstanceInfo,
        "state",
        "state_error",
        "schedules",
        optional=("state", "stateError"),
        about="An instance of an agent with its schedules, and for an admin its state.",
    ),
    "Instances": page_of("instances", "Instance"),
    "StartInstance": request(
        {
            "state": {
                **or_null(OBJECT),
                "description": "Keys of the initial state and their values. The server must have the class.",
            }
        }
    ),
    "PauseInstance": request({"note": {**or_null(text(MAX_NOTE)), "description": "Why it is paused."}}),
}
