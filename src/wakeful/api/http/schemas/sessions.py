"""The schemas of messages and sessions."""

from __future__ import annotations

from typing import Final

from wakeful.api.http.schemas.parts import (
    ID,
    INSTANT,
    TEXT,
    WHOLE,
    Schema,
    list_of,
    or_null,
    page_of,
    ref,
    request,
    response,
    schema_of,
    text,
)
from wakeful.document.agents import MAIN, SESSION_NAME
from wakeful.document.fields import MAX_MESSAGE, WORK
from wakeful.run.conversations import JOB_SESSION

_OF_WORK: Final = {field.name: schema_of(field.kind) for field in WORK if field.name in ("channel", "to")}
_SESSION: Final[dict[str, Schema]] = {
    "name": TEXT,
    "messages": {**WHOLE, "description": "How many messages wait."},
    "turns": {**list_of(ID), "description": "The runs of the active turns."},
    "context": {
        "type": ["number", "null"],
        "description": "The used share of its context window, from 0 to 1, if its runs report it.",
    },
    "dueAt": or_null(INSTANT),
    "channel": {**or_null(TEXT), "description": "Where its last message with a channel came from."},
    "to": or_null(TEXT),
    "createdAt": INSTANT,
    "updatedAt": INSTANT,
}

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
    "Receipt": response(
        {
            "id": or_null(ID),
            "session": TEXT,
            "state": ref("MessageState"),
            "runId": or_null(ID),
            "dueAt": or_null(INSTANT),
            "waiting": {**WHOLE, "description": "How many turns wait in the session."},
            "stopped": {**list_of(ID), "description": "The runs of the turns that it stopped."},
            "dropped": {**WHOLE, "description": "How many messages were dropped because of it."},
        },
        about="The state of a message to an agent.",
    ),
    "Session": response(_SESSION),
    "Sessions": page_of("sessions", "Session"),
    "HistoryEntry": response(
        {
            "sequence": {**WHOLE, "description": "Its number in the session, from 1 on."},
            "role": ref("HistoryRole"),
            "content": TEXT,
            "tokens": {**WHOLE, "description": "An estimate of its length."},
            "runId": ID,
            "job": {
                **or_null(TEXT),
                "description": "The job that added the answer to the conversation that it comes from.",
            },
            "at": INSTANT,
        },
        about="What was said to an agent, or what it answered.",
    ),
    "SessionWithHistory": response(
        {
            **_SESSION,
            "history": {**list_of(ref("HistoryEntry")), "description": "Newest first."},
            "cursor": {
                **or_null(TEXT),
                "description": "Send it as `cursor` for the entries before these; null on the last page.",
            },
        }
    ),
}
