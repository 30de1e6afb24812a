"""The schemas of workspaces, agents, keys, quotas, audit and workflows."""

from __future__ import annotations

from typing import Final

from wakeful import model
from wakeful.api.http.schemas.parts import (
    ACTIVE_HOURS,
    BOOLEAN,
    BUDGET,
    INSTANT,
    OBJECT,
    READ_ONLY,
    SECRET,
    SLUG,
    SPENT,
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
    whole,
)
from wakeful.api.http.schemas.resources import schema_of_class
from wakeful.document.agents import HEARTBEAT_FIELDS, MAX_ADDRESSES, OTHER_NAMES, QUEUE_FIELDS
from wakeful.document.agents import SELF_SCHEDULING_FIELDS as BOUNDS
from wakeful.document.fields import WORK
from wakeful.document.guards import ALERT_FIELDS
from wakeful.document.kinds import MAX_DESCRIPTION
from wakeful.model import operations
from wakeful.service.admin.incidents import MAX_NOTE
from wakeful.service.agents.agents import LANE_WEIGHTS
from wakeful.service.auth.keys import LATEST_EXPIRY_MS

_OF_WORK: Final = {field.name: schema_of(field.kind) for field in WORK if field.name in ("channel", "to")}
_TZ: Final[Schema] = {"type": ["string", "null"], "description": "An IANA zone."}
_LANE_WEIGHT: Final[Schema] = {
    "type": "number",
    "minimum": LANE_WEIGHTS[0],
    "maximum": LANE_WEIGHTS[1],
    "description": "Its share of a full lane, compared with other workspaces. 1 unless set.",
}
#: Fields of a response that a document may contain; they are ignored.
_RESPONSE_ONLY: Final[dict[str, Schema]] = dict.fromkeys(
    ("name", "workspace", "version", "createdAt", "updatedAt", "spent", "warnings"), READ_ONLY
)
_ALERTS: Final[Schema] = {
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
            "cooldownMs": schema_of(ALERT_FIELDS["cooldownMs"]),
            "cooldown": {"type": "string", "examples": ["1h"]},
        },
    ),
    "anyOf": [{"required": ["url"]}, {"required": ["channel"]}],
    "dependentRequired": {"secret": ["url"], "to": ["channel"]},
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

_ADDRESS: Final[Schema] = request({"channel": text(255, 1), "to": or_null(text(1_024, 1))}, "channel")
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

_AGENT: Final[dict[str, Schema]] = {
    "alerts": or_null(OBJECT),
    "deliverTo": list_of(_ADDRESS),
    "spent": SPENT,
    "secret": SECRET,
}
_AGENT_DOCUMENT: Final[dict[str, Schema]] = {
    "target": {**or_null(OBJECT), "description": "The target of its jobs that have none."},
    "tz": _TZ,
    "active": BOOLEAN,
    "channel": or_null(_OF_WORK["channel"]),
    "to": or_null(_OF_WORK["to"]),
    "description": or_null(text(MAX_DESCRIPTION)),
    "budget": or_null(BUDGET),
    "alerts": or_null(_ALERTS),
    "queue": or_null(_QUEUE),
    "heartbeat": _HEARTBEAT,
    "deliverTo": {
        **or_null({**list_of(_ADDRESS), "maxItems": MAX_ADDRESSES}),
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
    **_RESPONSE_ONLY,
}
SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": response(
        {
            "type": TEXT,
            "title": TEXT,
            "status": whole(400, 599),
            "detail": {"type": "string", "description": "What is wrong, and what to do."},
            "code": ref("ErrorCode"),
            "instance": TEXT,
        },
        about="An error (RFC 9457).",
    ),
    "Health": response({"status": TEXT}),
    "Workspace": response(
        {
            "name": SLUG,
            "tz": _TZ,
            "description": TEXT,
            "budget": or_null(OBJECT),
            "alerts": or_null(OBJECT),
            "laneWeight": _LANE_WEIGHT,
            "createdAt": INSTANT,
            "updatedAt": INSTANT,
            "spent": SPENT,
        },
        "spent",
    ),
    "Workspaces": response({"workspaces": list_of(ref("Workspace"))}),
    "WorkspaceDocument": request(
        {
            "tz": _TZ,
            "description": or_null(text(1_000)),
            "budget": or_null(BUDGET),
            "alerts": or_null(_ALERTS),
            "laneWeight": or_null(_LANE_WEIGHT),
            **_RESPONSE_ONLY,
        }
    ),
    "Agent": schema_of_class(model.AgentInfo, "spent", optional=("spent",), others=_AGENT),
    "SavedAgent": schema_of_class(
        model.AgentInfo,
        "spent",
        "secret",
        "warnings",
        optional=("spent", "secret", "warnings"),
        about="A saved agent.",
        others=_AGENT,
    ),
    "Agents": response({"agents": list_of(ref("Agent"))}),
    "AgentDocument": request(_AGENT_DOCUMENT),
    "AgentPatch": request(
        {**_AGENT_DOCUMENT, "active": or_null(BOOLEAN)},
        about="The fields to change; null resets a field to its default.",
    ),
    "Key": schema_of_class(model.ApiKey),
    "Keys": response({"keys": list_of(ref("Key"))}),
    "NewKey": schema_of_class(model.ApiKey, "key", others={"key": TEXT}),
    "SignInLink": response({"url": TEXT, "expiresAt": INSTANT}),
    "WebSession": schema_of_class(operations.WebSession),
    "WebSessions": response({"sessions": list_of(ref("WebSession"))}),
    "KeyDocument": request(
        {
            "name": or_null(text(200)),
            "role": ref("Role"),
            "agent": {**or_null(SLUG), "description": "The agent of a key with the role `agent`."},
            "expiresAt": {
                "description": "A time in the future.",
                "anyOf": [INSTANT, whole(0, LATEST_EXPIRY_MS), {"type": "null"}],
            },
            "workspace": {**or_null(SLUG), "description": "The workspace in the path."},
        },
        "role",
    ),
    "Quota": schema_of_class(model.Quota),
    "Quotas": response({"quotas": list_of(ref("Quota"))}),
    "QuotaDocument": request(
        {"agent": or_null(SLUG), "bucket": ref("QuotaBucket"), "limit": or_null(whole(0, 2**31 - 1))},
        "bucket",
        "limit",
    ),
    "Entry": schema_of_class(model.AuditEntry, others={"details": OBJECT}),
    "Audit": page_of("entries", "Entry"),
    "Verified": response(
        {
            "ok": BOOLEAN,
            "count": {**WHOLE, "description": "The number of the last entry that was checked."},
            "flaw": or_null(TEXT),
            "complete": BOOLEAN,
            "hash": TEXT,
        },
        "hash",
    ),
    "Incident": schema_of_class(model.Incident),
    "Incidents": page_of("incidents", "Incident"),
    "Suggestion": schema_of_class(model.Suggestion),
    "Suggestions": page_of("suggestions", "Suggestion"),
    "Acknowledgement": request({"note": or_null(text(MAX_NOTE))}),
    "Workflow": schema_of_class(model.WorkflowVersion),
    "Dag": {**OBJECT, "minProperties": 1, "description": "A workflow, as its executor reads it."},
    "Status": OBJECT,
    "Slo": OBJECT,
    "Peaks": response(
        {
            "workspace": SLUG,
            "agentId": or_null(SLUG),
            "computedAt": INSTANT,
            "ageMs": WHOLE,
            "from": INSTANT,
            "until": INSTANT,
            "jobs": {**WHOLE, "description": "How many enabled jobs have a schedule."},
            "timings": {**WHOLE, "description": "How many different timings they have."},
            "starts": {**WHOLE, "description": "How many runs the schedules start in the week."},
            "peaks": list_of(ref("Peak")),
            "hours": list_of(
                response({"at": INSTANT, "starts": WHOLE, "peakAt": INSTANT, "peakStarts": WHOLE})
            ),
        },
        about="The load of the coming week: its busiest minutes, busiest first, and its 168 hours.",
    ),
    "Peak": response(
        {
            "at": INSTANT,
            "atMs": WHOLE,
            "starts": WHOLE,
            "schedules": list_of(response({"explain": TEXT, "jobs": WHOLE})),
            "quietAt": {**or_null(INSTANT), "description": "The quietest minute nearby, if that helps."},
            "quietStarts": or_null(WHOLE),
        },
        about="A minute with many starts, and the schedules with the most jobs in it.",
    ),
    "Doctor": response(
        {
            "workspace": SLUG,
            "scope": ref("DoctorScope"),
            "now": INSTANT,
            "nowMs": WHOLE,
            "state": ref("CheckState"),
            "checks": {"type": "array", "items": ref("Check")},
        }
    ),
    "Check": response(
        {
            "name": TEXT,
            "state": ref("CheckState"),
            "message": TEXT,
            "action": {**or_null(TEXT), "description": "What to do."},
            "runbook": {**or_null(TEXT), "description": "The section of the runbooks that says more."},
        }
    ),
}
