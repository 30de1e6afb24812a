"""The schemas of messages and sessions."""

from __future__ import annotations

from typing import Final

from wakeful import model
from wakeful.api.http.schemas.parts import (
    Schema,
    or_null,
    page_of,
    request,
    schema_of,
    text,
)
from wakeful.api.http.schemas.resources import schema_of_class
from wakeful.document.agents import MAIN, SESSION_NAME
from wakeful.document.fields import MAX_MESSAGE, WORK
from wakeful.run.conversations import JOB_SESSION

_OF_WORK: Final = {field.name: schema_of(field.kind) for field in WORK if field.name in ("channel", "to")}

SCHEMAS: Final[dict[str, Schema]] = {
    "Message": request(
        {
            "message": {
                **text(MAX_MESSAGE, 1),
                "pattern": r"\S",
                "description": "The text; `/stop` and `/stopall` are commands.",
            },
            "session": {
                "type": ["string", "null"],
                "pattern": f"^(?!{JOB_SESSION}){SESSION_NAME}$",
                "description": f"The session; `{MAIN}` by default. Names that begin with `{JOB_SESSION}` are "
                "those of jobs.",
            },
            "channel": {
                **or_null(_OF_WORK["channel"]),
                "description": "The channel that it comes from. Jobs that are made in the conversation "
                "deliver there.",
            },
            "to": {**or_null(_OF_WORK["to"]), "description": "The recipient on that channel."},
        },
        "message",
    ),
    "Receipt": schema_of_class(model.MessageReceipt),
    "Session": schema_of_class(model.SessionInfo),
    "Sessions": page_of("sessions", "Session"),
    "HistoryEntry": schema_of_class(model.HistoryEntry),
    "SessionWithHistory": schema_of_class(model.SessionInfo, "history", "cursor"),
}
