"""The schemas of everything that is neither a job nor a run."""

from __future__ import annotations

from typing import Final

from wakeful.api.http.schemas.parts import (
    BOOLEAN,
    BUDGET,
    ID,
    INSTANT,
    OBJECT,
    SLUG,
    SPENT,
    TEXT,
    WHOLE,
    Schema,
    document,
    list_of,
    one_of,
    or_null,
    page_of,
    ref,
    shape,
    text,
    whole,
)
from wakeful.service.access import ROLES
from wakeful.store.office import BUCKETS

_TZ: Final[Schema] = {"type": ["string", "null"], "description": "An IANA zone."}
_KEY: Final[dict[str, Schema]] = {
    "id": ID,
    "workspace": or_null(SLUG),
    "name": TEXT,
    "role": one_of(*ROLES),
    "agent": or_null(SLUG),
    "createdAt": INSTANT,
    "createdBy": TEXT,
    "expiresAt": or_null(INSTANT),
    "lastUsedAt": or_null(INSTANT),
    "revokedAt": or_null(INSTANT),
}
#: What is shown of a thing comes back with a document that was read before, and says nothing.
_SHOWN: Final[dict[str, Schema]] = {
    "name": TEXT,
    "workspace": TEXT,
    "version": WHOLE,
    "createdAt": TEXT,
    "updatedAt": TEXT,
    "spent": OBJECT,
}
_ALERTS: Final[Schema] = {
    **document(
        {
            "url": {
                "type": "string",
                "maxLength": 2048,
                "description": "A webhook; they are sent there alone.",
            },
            "secret": {
                "type": "string",
                "description": "Signs them: `whsec_` and base64; never shown again.",
            },
            "channel": text(1_024, 1),
            "to": text(1_024, 1),
            "failures": whole(1, 1_000_000),
            "deadLetter": BOOLEAN,
            "missed": BOOLEAN,
            "budget": BOOLEAN,
            "cooldownMs": whole(0, 30 * 86_400_000),
            "cooldown": {"type": "string", "examples": ["1h"]},
        },
        "url",
    ),
    "description": "Who is told when something goes wrong, and of what.",
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": shape(
        {
            "type": TEXT,
            "title": TEXT,
            "status": whole(400, 599),
            "detail": {"type": "string", "description": "What is wrong, and what to do."},
            "code": one_of(
                "invalid-argument",
                "unauthenticated",
                "permission-denied",
                "not-found",
                "already-exists",
                "failed-precondition",
                "resource-exhausted",
                "unavailable",
                "internal",
            ),
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
    "Agent": shape(
        {
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
            "version": WHOLE,
            "createdAt": INSTANT,
            "updatedAt": INSTANT,
            "spent": SPENT,
        },
        "spent",
    ),
    "Agents": shape({"agents": list_of(ref("Agent"))}),
    "AgentDocument": document(
        {
            "target": {**or_null(OBJECT), "description": "Where its jobs go that name no target."},
            "tz": _TZ,
            "active": BOOLEAN,
            "channel": or_null(text(255)),
            "to": or_null(text(1_024)),
            "description": or_null(text(10_000)),
            "budget": or_null(BUDGET),
            "alerts": or_null(_ALERTS),
            **_SHOWN,
        }
    ),
    "Key": shape(_KEY),
    "Keys": shape({"keys": list_of(ref("Key"))}),
    "NewKey": shape(
        {**_KEY, "key": {"type": "string", "description": "The key itself: it is not shown again."}}
    ),
    "KeyDocument": document(
        {
            "name": text(200),
            "role": one_of(*ROLES),
            "agent": {**or_null(SLUG), "description": "The one agent of a key of the role `agent`."},
            "expiresAt": {"description": "An instant to come.", "anyOf": [INSTANT, WHOLE, {"type": "null"}]},
            "workspace": or_null(SLUG),
        },
        "role",
    ),
    "Quota": shape({"agent": or_null(SLUG), "bucket": TEXT, "limit": or_null(WHOLE), "used": WHOLE}),
    "Quotas": shape({"quotas": list_of(ref("Quota"))}),
    "QuotaDocument": document(
        {"agent": or_null(SLUG), "bucket": one_of(*BUCKETS), "limit": or_null(whole(0, 2**31 - 1))},
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
