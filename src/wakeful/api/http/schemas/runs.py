"""The schemas of runs: what is shown of one, and what is said of one."""

from __future__ import annotations

from typing import Final

from wakeful.api.http.schemas.parts import (
    ANY,
    BOOLEAN,
    ID,
    INSTANT,
    OBJECT,
    SLUG,
    TEXT,
    WHOLE,
    Schema,
    document,
    list_of,
    or_null,
    page_of,
    ref,
    shape,
    text,
    whole,
)
from wakeful.service.runs.pull import LONGEST_WAIT_MS, MOST

_STATUS: Final[Schema] = {**WHOLE, "description": "The HTTP status with which a webhook answered."}
_RUN: Final[dict[str, Schema]] = {
    "id": ID,
    "jobId": or_null(ID),
    "workspace": SLUG,
    "agentId": SLUG,
    "job": or_null(SLUG),
    "scheduledAt": INSTANT,
    "scheduledAtMs": WHOLE,
    "fireAt": INSTANT,
    "trigger": ref("Trigger"),
    "triggeredBy": or_null(TEXT),
    "state": ref("RunState"),
    "reason": or_null(TEXT),
    "missed": {**WHOLE, "description": "Ticks missed since the one before it that became a run."},
    "covers": {**WHOLE, "description": "How many ticks it speaks for, up to `untilAt`."},
    "untilAt": or_null(INSTANT),
    "attempt": {**WHOLE, "description": "The number of its last launch, from 1."},
    "failedAttempts": {
        **WHOLE,
        "description": "How many attempts failed and count towards `maxAttempts`. Not counted: attempts that "
        "a shutdown ended, database errors, functions that are not registered.",
    },
    "worker": or_null(TEXT),
    "lane": TEXT,
    "dueAt": or_null(INSTANT),
    "startedAt": or_null(INSTANT),
    "finishedAt": or_null(INSTANT),
    "idempotencyKey": TEXT,
    "replayOf": or_null(ID),
    "payload": ANY,
    "responseCode": or_null(_STATUS),
    "output": or_null(TEXT),
    "error": or_null(TEXT),
    "usage": ANY,
    "dead": {**BOOLEAN, "description": "Failed, and nobody has replayed or discarded it."},
    "delivery": {
        **ref("DeliveryState"),
        "description": "What became of carrying its output to a channel; never part of its state.",
    },
    "deliveryError": or_null(TEXT),
    "createdAt": INSTANT,
}
_ATTEMPT: Final[Schema] = shape(
    {
        "attempt": WHOLE,
        "worker": or_null(TEXT),
        "startedAt": or_null(INSTANT),
        "finishedAt": or_null(INSTANT),
        "responseCode": or_null(_STATUS),
        "error": or_null(TEXT),
    }
)
_NAMES: Final = or_null(list_of(TEXT, 1_000))
_ATTEMPT_OF_CLAIM: Final[Schema] = {**whole(0, 2**31 - 1), "description": "The `attempt` of the claimed run."}
_CLAIMED_BY: Final[Schema] = {
    **or_null(text(200, 1)),
    "description": "The name in the claim. Where it is given, only runs that this worker claimed count.",
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Run": shape(_RUN, says="A run."),
    "RunWithAttempts": shape({**_RUN, "attempts": list_of(_ATTEMPT)}, says="A run with its attempts."),
    "Runs": page_of("runs", "Run"),
    "DeadLetters": page_of("deadLetters", "Run"),
    "ClaimedRun": shape(
        {**_RUN, "target": OBJECT, "timeoutMs": or_null(WHOLE)}, says="A run with all that it takes to do it."
    ),
    "Claimed": shape({"runs": list_of(ref("ClaimedRun"))}),
    "Wake": document({"payload": {"description": "Any JSON, up to 64 KB."}}),
    "Claim": document(
        {
            "worker": {**text(200, 1), "description": "Who claims them: a name of its own choice."},
            "agents": {**_NAMES, "description": "Only runs of these agents."},
            "lanes": {**_NAMES, "description": "Only runs of these lanes."},
            "limit": or_null(whole(1, MOST)),
            "waitMs": {
                **or_null(whole(0, LONGEST_WAIT_MS)),
                "description": "How long to wait for the first.",
            },
        },
        "worker",
    ),
    "Heartbeat": document({"attempt": _ATTEMPT_OF_CLAIM, "worker": _CLAIMED_BY}, "attempt"),
    "HeartbeatMany": document(
        {
            "worker": _CLAIMED_BY,
            "runs": list_of(document({"id": TEXT, "attempt": _ATTEMPT_OF_CLAIM}, "id", "attempt"), 1_000),
        },
        "runs",
    ),
    "Heartbeats": shape(
        {"renewed": list_of(ID), "lost": list_of(TEXT)},
        says="The ids of the runs whose leases were renewed, and of those that are no longer the caller's.",
    ),
    "Completion": document(
        {
            "status": ref("RunResult"),
            "output": {"description": "Text, or JSON that is kept as text; what is long is cut."},
            "error": {"description": "Why it failed."},
            "usage": {**or_null(OBJECT), "description": "What it used, such as tokens and cost."},
            "attempt": {
                **or_null(whole(0, 2**31 - 1)),
                "description": "The attempt that is reported. Required for a claimed run; for a callback it "
                "is optional, and must match where it is given.",
            },
        },
        "status",
    ),
    "WhichDeadLetters": document(
        {"ids": list_of(TEXT, 1_000), "all": BOOLEAN}, says="Either `ids`, or `all` that is true."
    ),
    "Replayed": shape({"replayed": list_of(ID)}, says="The ids of the dead letters that were replayed."),
    "Discarded": shape({"discarded": list_of(ID)}, says="The ids of the dead letters that were discarded."),
}
