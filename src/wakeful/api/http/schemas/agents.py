"""The schemas of agents, their sessions and instances, and of messages and signals."""

from __future__ import annotations

from typing import Final

from wakeful import model
from wakeful.api.http.schemas.parts import (
    ACTIVE_HOURS,
    ADDRESS,
    BOOLEAN,
    BUDGET,
    INSTANT,
    OBJECT,
    READ_ONLY,
    TEXT,
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
from wakeful.api.http.schemas.resources import schema_of_class
from wakeful.document.agents import (
    HEARTBEAT_FIELDS,
    MAIN,
    MAX_ADDRESSES,
    OTHER_NAMES,
    QUEUE_FIELDS,
    SESSION_NAME,
)
from wakeful.document.agents import SELF_SCHEDULING_FIELDS as BOUNDS
from wakeful.document.fields import MAX_MESSAGE, WORK
from wakeful.document.guards import ALERT_FIELDS
from wakeful.document.kinds import MAX_DESCRIPTION
from wakeful.run.conversations import JOB_SESSION
from wakeful.service.agents.instances import MAX_STARTED
from wakeful.service.jobs.pauses import MAX_NOTE
from wakeful.signal.requests import MAX_BATCH
from wakeful.signal.signals import MAX_ID, MAX_SOURCE, MAX_TYPE, SPECVERSION

_OF_WORK: Final = {field.name: schema_of(field.kind) for field in WORK if field.name in ("channel", "to")}
TZ: Final[Schema] = {"type": ["string", "null"], "description": "An IANA zone."}
#: Fields of a response that a document may contain; they are ignored.
RESPONSE_ONLY: Final[dict[str, Schema]] = dict.fromkeys(
    ("name", "workspace", "version", "createdAt", "updatedAt", "spent", "warnings", "may"), READ_ONLY
)
ALERTS: Final[Schema] = {
    **request(
        {
            "url": {**schema_of(ALERT_FIELDS["url"]), "description": "The webhook that receives them."},
            "secret": {
                **schema_of(ALERT_FIELDS["secret"]),
                "description": "Signs them: `whsec_` and base64; never shown.",
            },
            "channel": {
                **schema_of(ALERT_FIELDS["channel"]),
                "description": "The name of the channel that receives them.",
            },
            "to": {
                **schema_of(ALERT_FIELDS["to"]),
                "description": "The recipient, if the channel takes one.",
            },
            "failures": schema_of(ALERT_FIELDS["failures"]),
            "deadLetter": BOOLEAN,
            "missed": BOOLEAN,
            "budget": BOOLEAN,
            "waiting": BOOLEAN,
            "digest": {
                **schema_of(ALERT_FIELDS["digest"]),
                "description": "When each day a list of what waits for a person is sent, if anything waits.",
            },
            "digestTz": {
                "type": "string",
                "description": "The zone of `digest`; that of the agent or the workspace by default.",
            },
            "cooldownMs": schema_of(ALERT_FIELDS["cooldownMs"]),
            "cooldown": {"type": "string", "examples": ["1h"]},
        },
    ),
    "anyOf": [{"required": ["url"]}, {"required": ["channel"]}],
    "dependentRequired": {"secret": ["url"], "to": ["channel"], "digestTz": ["digest"]},
    "description": "Where alerts go, and which events cause them: a webhook, a channel, or both.",
}

_QUEUE: Final[Schema] = {
    **request(
        {
            "mode": ref("QueueMode"),
            "cap": {**schema_of(QUEUE_FIELDS["cap"]), "description": "How many turns may wait in a session."},
            "drop": {**ref("QueueDrop"), "description": "Which messages are dropped when there are more."},
            "debounceMs": {
                **schema_of(QUEUE_FIELDS["debounceMs"]),
                "description": "Messages within this time become one turn.",
            },
            "debounce": {"type": "string", "examples": ["800ms"]},
            "turns": {
                **schema_of(QUEUE_FIELDS["turns"]),
                "description": "How many turns of one session run at once.",
            },
        }
    ),
    "description": "How messages wait in its sessions.",
}

_HEARTBEAT: Final[Schema] = {
    "anyOf": [
        {"type": ["boolean", "null"]},
        request(
            {
                "everyMs": {
                    **schema_of(HEARTBEAT_FIELDS["everyMs"]),
                    "description": "The interval; 30 minutes by default.",
                },
                "every": {"type": "string", "examples": ["30m"]},
                "activeHours": ACTIVE_HOURS,
                "tz": {"type": "string", "description": "The zone of the hours; the agent's by default."},
                "message": {
                    **schema_of(HEARTBEAT_FIELDS["message"]),
                    "description": "The text for the agent.",
                },
                "deliver": {**BOOLEAN, "description": "Whether the output is delivered to a channel."},
                "channel": {
                    **schema_of(HEARTBEAT_FIELDS["channel"]),
                    "description": "The channel; the agent's by default.",
                },
                "to": {
                    **schema_of(HEARTBEAT_FIELDS["to"]),
                    "description": "The recipient, if the channel takes one.",
                },
                "stateless": BOOLEAN,
            }
        ),
    ],
    "description": "The heartbeat: true for the defaults, null for none, or an object.",
    "examples": [{"every": "30m", "activeHours": "08:00-22:00"}],
}

_SELF_SCHEDULING: Final[Schema] = {
    **request(
        {
            name: {**schema_of(BOUNDS[name]), "description": about}
            for name, about in (
                ("recurring", "Recurring jobs may be made too."),
                ("perRun", "How many jobs may be made in one run."),
                ("depth", "How long a chain of self-made jobs may be."),
                ("outsideRuns", "Its keys may make jobs outside a run."),
            )
        }
    ),
    "minProperties": 1,
    "description": "The bounds of the jobs that it makes in runs that no person started.",
}

_AGENT_DOCUMENT: Final[dict[str, Schema]] = {
    "target": {**or_null(OBJECT), "description": "The target of its jobs that have none."},
    "tz": TZ,
    "active": BOOLEAN,
    "channel": or_null(_OF_WORK["channel"]),
    "to": or_null(_OF_WORK["to"]),
    "description": or_null(text(MAX_DESCRIPTION)),
    "budget": or_null(BUDGET),
    "alerts": or_null(ALERTS),
    "queue": or_null(_QUEUE),
    "heartbeat": _HEARTBEAT,
    "deliverTo": {
        **or_null({**list_of(ADDRESS), "maxItems": MAX_ADDRESSES}),
        "description": "Where its keys may have output delivered, besides its own channel.",
    },
    "approval": {
        **or_null(ref("Approval")),
        "description": "`required`: the jobs that it makes wait until a person enables them.",
    },
    "selfScheduling": or_null(_SELF_SCHEDULING),
    "evolution": {
        "anyOf": [ref("EvolutionMode"), {"type": ["boolean", "null"]}],
        "description": "`suggest` or true: analyze its jobs for better settings.",
    },
    **{name: {**or_null(BOOLEAN), "description": "As `evolution`."} for name in OTHER_NAMES},
    **RESPONSE_ONLY,
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
    "Agent": schema_of_class(model.AgentInfo, "spent", optional=("spent",)),
    "SavedAgent": schema_of_class(
        model.AgentInfo,
        "spent",
        "secret",
        "warnings",
        optional=("spent", "secret", "warnings"),
        about="A saved agent.",
    ),
    "Agents": response({"agents": list_of(ref("Agent"))}),
    "AgentDocument": request(_AGENT_DOCUMENT),
    "AgentPatch": request(
        {**_AGENT_DOCUMENT, "active": or_null(BOOLEAN)},
        about="The fields to change; null resets a field to its default.",
    ),
    "Signal": _SIGNAL,
    "SignalBatch": {**list_of(ref("Signal"), MAX_BATCH), "minItems": 1},
    "SentSignal": schema_of_class(model.Run, "duplicate", about="The run of a signal."),
    "SentSignals": response({"runs": list_of(ref("SentSignal"))}, about="The runs of a batch, in its order."),
    "Sent": {
        "description": "The run of a signal, or those of a batch.",
        "anyOf": [ref("SentSignal"), ref("SentSignals")],
    },
    "InstanceWithState": schema_of_class(
        model.InstanceInfo,
        "state",
        "state_error",
        "schedules",
        "delays",
        optional=("state", "stateError"),
        about="An instance of an agent with its schedules and delays, and for an admin its state.",
    ),
    "Instances": page_of("instances", "Instance"),
    "StartInstance": request(
        {
            "state": {
                **or_null(OBJECT),
                "description": "Keys of the initial state and their values. The server must have the class.",
            },
            "replace": {
                **or_null(BOOLEAN),
                "description": "Give the state also to an instance that is not stopped.",
            },
        }
    ),
    "StartInstances": request(
        {
            "instances": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_STARTED,
                "items": request(
                    {
                        "id": {**TEXT, "description": "Its name."},
                        "state": {**or_null(OBJECT), "description": "As where one instance is started."},
                    },
                    "id",
                ),
            },
            "replace": {**or_null(BOOLEAN), "description": "As where one instance is started."},
        },
        "instances",
    ),
    "PauseInstance": request({"note": {**or_null(text(MAX_NOTE)), "description": "Why it is paused."}}),
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
    "Sessions": page_of("sessions", "Session"),
    "SessionWithHistory": schema_of_class(model.SessionInfo, "history", "cursor"),
}
