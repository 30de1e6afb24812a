"""The schemas of everything that is neither a job nor a run."""

from __future__ import annotations

from typing import Final

from wakeful.api.http.schemas.parts import (
    ACTIVE_HOURS,
    BOOLEAN,
    BUDGET,
    ID,
    INSTANT,
    OBJECT,
    READ_ONLY,
    SECRET,
    SLUG,
    SPENT,
    TEXT,
    WHOLE,
    Schema,
    document,
    list_of,
    or_null,
    page_of,
    ref,
    shape,
    taken,
    text,
    whole,
)
from wakeful.document import heartbeats as beat
from wakeful.document import sessions as queue
from wakeful.document.deliveries import MAX_PLACES
from wakeful.document.fields import MAX_MESSAGE, WORK
from wakeful.document.guards import ALERT_FIELDS
from wakeful.document.sessions import MAIN, SESSION_NAME
from wakeful.document.values import MAX_DESCRIPTION
from wakeful.service.auth.keys import LATEST_EXPIRY_MS

_OF_WORK: Final = {field.name: taken(field.read) for field in WORK if field.name in ("channel", "to")}
_TZ: Final[Schema] = {"type": ["string", "null"], "description": "An IANA zone."}
_KEY: Final[dict[str, Schema]] = {
    "id": ID,
    "workspace": or_null(SLUG),
    "name": TEXT,
    "role": ref("Role"),
    "agent": or_null(SLUG),
    "createdAt": INSTANT,
    "createdBy": TEXT,
    "expiresAt": or_null(INSTANT),
    "lastUsedAt": or_null(INSTANT),
    "revokedAt": or_null(INSTANT),
}
#: What is shown of a thing comes back with a document that was read before, and says nothing.
_SHOWN: Final[dict[str, Schema]] = dict.fromkeys(
    ("name", "workspace", "version", "createdAt", "updatedAt", "spent"), READ_ONLY
)
_ALERTS: Final[Schema] = {
    **document(
        {
            "url": {**taken(ALERT_FIELDS["url"]), "description": "A webhook that they are sent to."},
            "secret": {
                **taken(ALERT_FIELDS["secret"]),
                "description": "Signs them: `whsec_` and base64; never shown again.",
            },
            "channel": {
                **taken(ALERT_FIELDS["channel"]),
                "description": "A channel of the operator's that they are sent to, by its name.",
            },
            "to": {**taken(ALERT_FIELDS["to"]), "description": "The recipient, where the channel takes one."},
            "failures": taken(ALERT_FIELDS["failures"]),
            "deadLetter": BOOLEAN,
            "missed": BOOLEAN,
            "budget": BOOLEAN,
            "cooldownMs": taken(ALERT_FIELDS["cooldownMs"]),
            "cooldown": {"type": "string", "examples": ["1h"]},
        },
    ),
    "anyOf": [{"required": ["url"]}, {"required": ["channel"]}],
    "dependentRequired": {"secret": ["url"], "to": ["channel"]},
    "description": "Who is told when something goes wrong, and of what: by a webhook, a channel, or both.",
}

_QUEUE: Final[Schema] = {
    **document(
        {
            "mode": ref("QueueMode"),
            "cap": {**taken(queue.FIELDS["cap"]), "description": "How many turns may wait in a session."},
            "drop": {**ref("QueueDrop"), "description": "What goes when there are more."},
            "debounceMs": {
                **taken(queue.FIELDS["debounceMs"]),
                "description": "Messages within it are one turn.",
            },
            "debounce": {"type": "string", "examples": ["800ms"]},
            "turns": {
                **taken(queue.FIELDS["turns"]),
                "description": "How many turns of one session go at once.",
            },
        }
    ),
    "description": "How messages wait in its sessions.",
}

_HEARTBEAT: Final[Schema] = {
    "anyOf": [
        {"type": ["boolean", "null"]},
        document(
            {
                "everyMs": {**taken(beat.FIELDS["everyMs"]), "description": "How often: every 30 minutes."},
                "every": {"type": "string", "examples": ["30m"]},
                "activeHours": ACTIVE_HOURS,
                "tz": {"type": "string", "description": "The zone of those hours: the agent's."},
                "message": {**taken(beat.FIELDS["message"]), "description": "What the agent is told."},
                "deliver": {**BOOLEAN, "description": "Whether what it says is carried to a channel."},
                "channel": {**taken(beat.FIELDS["channel"]), "description": "Which channel: the agent's."},
                "to": {
                    **taken(beat.FIELDS["to"]),
                    "description": "The recipient, where the channel takes one.",
                },
                "stateless": BOOLEAN,
            }
        ),
    ],
    "description": "How often it looks around by itself: true, null for never, or an object.",
    "examples": [{"every": "30m", "activeHours": "08:00-22:00"}],
}

_PLACE: Final[Schema] = document({"channel": text(255, 1), "to": or_null(text(1_024, 1))}, "channel")
_AGENT: Final[dict[str, Schema]] = {
    "name": SLUG,
    "workspace": SLUG,
    "target": or_null(OBJECT),
    "tz": _TZ,
    "active": BOOLEAN,
    "channel": or_null(TEXT),
    "to": or_null(TEXT),
    "description": TEXT,
    "budget": or_null(OBJECT),
    "alerts": or_null(OBJECT),
    "queue": or_null(OBJECT),
    "heartbeat": or_null(OBJECT),
    "deliverTo": list_of(_PLACE),
    "version": WHOLE,
    "createdAt": INSTANT,
    "updatedAt": INSTANT,
    "spent": SPENT,
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": shape(
        {
            "type": TEXT,
            "title": TEXT,
            "status": whole(400, 599),
            "detail": {"type": "string", "description": "What is wrong, and what to do."},
            "code": ref("ErrorCode"),
            "instance": TEXT,
        },
        says="What went wrong (RFC 9457).",
    ),
    "Health": shape({"status": TEXT}),
    "Workspace": shape(
        {
            "name": SLUG,
            "tz": _TZ,
            "description": TEXT,
            "budget": or_null(OBJECT),
            "alerts": or_null(OBJECT),
            "createdAt": INSTANT,
            "updatedAt": INSTANT,
            "spent": SPENT,
        },
        "spent",
    ),
    "Workspaces": shape({"workspaces": list_of(ref("Workspace"))}),
    "WorkspaceDocument": document(
        {
            "tz": _TZ,
            "description": or_null(text(1_000)),
            "budget": or_null(BUDGET),
            "alerts": or_null(_ALERTS),
            **_SHOWN,
        }
    ),
    "Agent": shape(_AGENT, "spent"),
    "SavedAgent": shape({**_AGENT, "secret": SECRET}, "spent", "secret", says="An agent as it was saved."),
    "Agents": shape({"agents": list_of(ref("Agent"))}),
    "AgentDocument": document(
        {
            "target": {**or_null(OBJECT), "description": "Where its jobs go that name no target."},
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
                **or_null({**list_of(_PLACE), "maxItems": MAX_PLACES}),
                "description": "Where its keys may have output delivered beside its own channel.",
            },
            **_SHOWN,
        }
    ),
    "Message": document(
        {
            "message": {
                **text(MAX_MESSAGE, 1),
                "pattern": r"\S",
                "description": "What is said; `/stop` and `/stopall` are orders.",
            },
            "session": {
                "type": ["string", "null"],
                "pattern": f"^{SESSION_NAME}$",
                "description": f"Which conversation: `{MAIN}`, if it is left out.",
            },
        },
        "message",
    ),
    "Receipt": shape(
        {
            "id": or_null(ID),
            "session": TEXT,
            "state": ref("MessageState"),
            "runId": or_null(ID),
            "dueAt": or_null(INSTANT),
            "waiting": {**WHOLE, "description": "How many turns wait in the session."},
            "stopped": {**list_of(ID), "description": "The turns that it ended."},
            "dropped": {**WHOLE, "description": "How many messages nobody will read because of it."},
        },
        says="What became of something that was said to an agent.",
    ),
    "Session": shape(
        {
            "name": TEXT,
            "messages": {**WHOLE, "description": "How many wait."},
            "turns": {**list_of(ID), "description": "The runs of the turns that are under way."},
            "context": {
                "type": ["number", "null"],
                "description": "How full its context window is, of 1, where its runs say so.",
            },
            "dueAt": or_null(INSTANT),
            "createdAt": INSTANT,
            "updatedAt": INSTANT,
        }
    ),
    "Sessions": page_of("sessions", "Session"),
    "Key": shape(_KEY),
    "Keys": shape({"keys": list_of(ref("Key"))}),
    "NewKey": shape(
        {**_KEY, "key": {"type": "string", "description": "The key itself: it is not shown again."}}
    ),
    "KeyDocument": document(
        {
            "name": or_null(text(200)),
            "role": ref("Role"),
            "agent": {**or_null(SLUG), "description": "The one agent of a key of the role `agent`."},
            "expiresAt": {
                "description": "An instant to come.",
                "anyOf": [INSTANT, whole(0, LATEST_EXPIRY_MS), {"type": "null"}],
            },
            "workspace": {**or_null(SLUG), "description": "The one in the path."},
        },
        "role",
    ),
    "Quota": shape({"agent": or_null(SLUG), "bucket": TEXT, "limit": or_null(WHOLE), "used": WHOLE}),
    "Quotas": shape({"quotas": list_of(ref("Quota"))}),
    "QuotaDocument": document(
        {"agent": or_null(SLUG), "bucket": ref("QuotaBucket"), "limit": or_null(whole(0, 2**31 - 1))},
        "bucket",
        "limit",
    ),
    "Entry": shape(
        {
            "seq": WHOLE,
            "at": INSTANT,
            "atMs": WHOLE,
            "actor": TEXT,
            "action": TEXT,
            "subject": TEXT,
            "details": OBJECT,
            "address": or_null(TEXT),
            "before": {"type": "string", "description": "The hash of the entry before."},
            "hash": TEXT,
        }
    ),
    "Audit": page_of("entries", "Entry"),
    "Verified": shape({"ok": BOOLEAN, "count": WHOLE, "flaw": or_null(TEXT)}),
    "Workflow": shape({"id": TEXT, "version": WHOLE, "dag": OBJECT, "createdAt": INSTANT}),
    "Dag": {**OBJECT, "minProperties": 1, "description": "A workflow, as its executor reads it."},
    "Status": OBJECT,
    "Slo": OBJECT,
}
