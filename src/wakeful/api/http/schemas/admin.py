"""The schemas of workspaces, keys, quotas, audit, workflows, channels and settings."""

from __future__ import annotations

from typing import Final

from wakeful import model
from wakeful.api.http.schemas.agents import ALERTS, RESPONSE_ONLY, TZ
from wakeful.api.http.schemas.parts import (
    BUDGET,
    INSTANT,
    LANE_WEIGHT,
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
    whole,
)
from wakeful.api.http.schemas.resources import schema_of_class
from wakeful.service.admin.incidents import MAX_NOTE
from wakeful.service.auth.keys import LATEST_EXPIRY_MS
from wakeful.service.runs.runs import MAX_REASON

SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": response(
        {
            "type": TEXT,
            "title": TEXT,
            "status": whole(400, 599),
            "detail": {"type": "string", "description": "What is wrong, and what to do."},
            "code": ref("ErrorCode"),
            "instance": TEXT,
            "errors": {
                **list_of(
                    response(
                        {
                            "index": {**WHOLE, "description": "The place of the item in the list, from 0."},
                            "field": {
                                **or_null(TEXT),
                                "description": "The field that is wrong, such as `target.url`.",
                            },
                            "code": ref("ErrorCode"),
                            "message": {"type": "string", "description": "What is wrong, and what to do."},
                        }
                    )
                ),
                "description": "All errors of a request with many items.",
            },
        },
        "errors",
        about="An error (RFC 9457).",
    ),
    "Health": response({"status": TEXT}),
    "Workspace": schema_of_class(model.Workspace, "spent", optional=("spent",)),
    "Workspaces": response({"workspaces": list_of(ref("Workspace"))}),
    "WorkspaceDocument": request(
        {
            "tz": TZ,
            "description": or_null(text(1_000)),
            "budget": or_null(BUDGET),
            "alerts": or_null(ALERTS),
            "laneWeight": or_null(LANE_WEIGHT),
            **RESPONSE_ONLY,
        }
    ),
    "Keys": response({"keys": list_of(ref("Key"))}),
    "NewKey": schema_of_class(model.ApiKey, "key", others={"key": TEXT}),
    "People": response({"people": list_of(ref("Person"))}),
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
    "Quotas": response({"quotas": list_of(ref("Quota"))}),
    "QuotaDocument": request(
        {"agent": or_null(SLUG), "bucket": ref("QuotaBucket"), "limit": or_null(whole(0, 2**31 - 1))},
        "bucket",
        "limit",
    ),
    "Audit": page_of("entries", "Entry"),
    "Subscriptions": page_of("subscriptions", "Subscription"),
    "Incidents": page_of("incidents", "Incident"),
    "Suggestions": page_of("suggestions", "Suggestion"),
    "Inbox": response({**page_of("items", "InboxItem")["properties"], "counts": ref("InboxCounts")}),
    "InboxDecisionDocument": request({"reason": or_null(text(MAX_REASON)), "version": or_null(WHOLE)}),
    "Acknowledgement": request({"note": or_null(text(MAX_NOTE))}),
    "Dag": {**OBJECT, "minProperties": 1, "description": "A workflow, as its executor reads it."},
    "Status": OBJECT,
    "Slo": OBJECT,
    "ChannelTestDocument": request(
        {"to": {**or_null(text(1_024, 1)), "description": "The recipient, if the channel takes one."}}
    ),
    "Settings": response({"settings": list_of(ref("Setting"))}),
}
