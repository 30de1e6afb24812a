"""The schemas of signals and instances."""

from __future__ import annotations

from typing import Final

from wakeful.api.http.schemas.parts import (
    BOOLEAN,
    ID,
    INSTANT,
    OBJECT,
    SLUG,
    TEXT,
    WHOLE,
    Schema,
    list_of,
    or_null,
    page_of,
    ref,
    request,
    response,
    text,
)
from wakeful.api.http.schemas.runs import RUN
from wakeful.service.jobs.pauses import MAX_NOTE
from wakeful.signal.requests import MAX_BATCH
from wakeful.signal.signals import MAX_ID, MAX_SOURCE, MAX_TYPE, SPECVERSION

_INSTANCE: Final[dict[str, Schema]] = {
    "id": {**SLUG, "description": "Its name, unique for the agent."},
    "agentId": SLUG,
    "workspace": SLUG,
    "status": ref("InstanceStatus"),
    "note": {**or_null(TEXT), "description": "Why it is paused or blocked."},
    "version": {
        **WHOLE,
        "description": "The version of the class that wrote its state; 0: it has its initial state.",
    },
    "revision": {**WHOLE, "description": "One higher with each change of its state."},
    "waiting": {**WHOLE, "description": "How many of its signals wait."},
    "runId": {**or_null(ID), "description": "Its run that is running or retrying."},
    "handledAt": {**or_null(INSTANT), "description": "When it handled a signal last."},
    "hibernatedAt": {**or_null(INSTANT), "description": "When it was removed from memory last."},
    "createdAt": INSTANT,
    "updatedAt": INSTANT,
}
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
    "SentSignal": response(
        {
            **RUN,
            "duplicate": {
                **BOOLEAN,
                "description": "Whether the instance had received the signal before; this is the first run.",
            },
        },
        about="The run of a signal.",
    ),
    "SentSignals": response({"runs": list_of(ref("SentSignal"))}, about="The runs of a batch, in its order."),
    "Sent": {
        "description": "The run of a signal, or those of a batch.",
        "anyOf": [ref("SentSignal"), ref("SentSignals")],
    },
    "Instance": response(_INSTANCE, about="An instance of an agent."),
    "InstanceWithState": response(
        {
            **_INSTANCE,
            "schedules": list_of(ref("Job")),
            "state": {
                **or_null(OBJECT),
                "description": "For an admin. Null: it cannot be shown (`stateError`), or it is the initial "
                "state of a class that the server does not have.",
            },
            "stateError": {**or_null(TEXT), "description": "Why the state cannot be shown."},
        },
        "state",
        "stateError",
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
