"""The schemas of runs in requests and responses."""

from __future__ import annotations

from typing import Final

from wakeful import model
from wakeful.api.http.schemas.parts import (
    BOOLEAN,
    ID,
    OBJECT,
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
from wakeful.service.runs.completions import MAX_COMPLETIONS
from wakeful.service.runs.pull import MAX_CLAIM, MAX_WAIT_MS, MAX_WAITING
from wakeful.service.runs.runs import MAX_REASON

_STATUS: Final[Schema] = {**WHOLE, "description": "The HTTP status of the response of a webhook."}
_NAMES: Final = or_null(list_of(TEXT, 1_000))
_ATTEMPT_OF_CLAIM: Final[Schema] = {**whole(0, 2**31 - 1), "description": "The `attempt` of the claimed run."}
_CLAIMED_BY: Final[Schema] = {
    **or_null(text(200, 1)),
    "description": "The name in the claim. If given, only runs that this worker claimed count.",
}

_SELECTED: Final[dict[str, Schema]] = {
    "selected": {**WHOLE, "description": "With a filter: how many the request selected."},
    "cursor": {
        **or_null(ID),
        "description": "With a filter: send it with the same filter to continue; null: there are no others.",
    },
}

_COMPLETION: Final[dict[str, Schema]] = {
    "status": ref("RunResult"),
    "output": {"description": "Text, or JSON, which is stored as text; long output is cut."},
    "error": {"description": "Why it failed."},
    "usage": {**or_null(OBJECT), "description": "What it used, such as tokens and cost."},
    "evidence": {
        **or_null(OBJECT),
        "description": "What shows that the work was done, such as `external_id`; up to 16 KB.",
    },
    "attempt": {
        **or_null(whole(0, 2**31 - 1)),
        "description": "The attempt that is reported. Required for a claimed run; optional for a "
        "callback, and must match if given.",
    },
    "permanent": {
        **or_null(BOOLEAN),
        "description": "With `failed`: a retry cannot succeed, so the run fails at once.",
    },
    "counted": {
        **or_null(BOOLEAN),
        "description": "With `failed`: false if the work could not be started, as in a full cluster. It is "
        "tried again, after up to a minute, and does not count as an attempt.",
    },
}
SCHEMAS: Final[dict[str, Schema]] = {
    "RunWithAttempts": schema_of_class(model.Run, "attempts", "waiting_for"),
    "Runs": page_of("runs", "Run"),
    "DeadLetters": page_of("deadLetters", "Run"),
    "ClaimedRun": schema_of_class(
        model.Run, "target", "timeout", "traceparent", others={"target": OBJECT, "traceparent": TEXT}
    ),
    "Claimed": response({"runs": list_of(ref("ClaimedRun"))}),
    "Wake": request({"payload": {"description": "Any JSON, up to 64 KB."}}),
    "Claim": request(
        {
            "worker": {**text(200, 1), "description": "A name that the worker chooses."},
            "agents": {**_NAMES, "description": "Only runs of these agents."},
            "lanes": {**_NAMES, "description": "Only runs of these lanes."},
            "limit": or_null(whole(1, MAX_CLAIM)),
            "waitMs": {
                **or_null(whole(0, MAX_WAIT_MS)),
                "description": "How long to wait for a run.",
            },
            "claimId": {**or_null(text(200, 1)), "description": "A new name for this claim, to return it."},
        },
        "worker",
    ),
    "Release": request(
        {
            "worker": {**text(200, 1), "description": "The worker that claimed the runs."},
            "claimId": {**or_null(text(200, 1)), "description": "Return all runs of this claim."},
            "runs": or_null(
                list_of(request({"id": TEXT, "attempt": _ATTEMPT_OF_CLAIM}, "id", "attempt"), 1_000)
            ),
        },
        "worker",
    ),
    "Heartbeat": request({"attempt": _ATTEMPT_OF_CLAIM, "worker": _CLAIMED_BY}, "attempt"),
    "HeartbeatMany": request(
        {
            "worker": _CLAIMED_BY,
            "runs": list_of(request({"id": TEXT, "attempt": _ATTEMPT_OF_CLAIM}, "id", "attempt"), 1_000),
            "waitingFor": {
                **or_null({"type": "object", "additionalProperties": text(MAX_WAITING, 1)}),
                "description": "By the id of a run: what its work waits for before it starts.",
            },
        },
        "runs",
    ),
    "Completion": request(_COMPLETION, "status"),
    "CompletionMany": request(
        {
            "runs": list_of(
                request({"id": TEXT, **_COMPLETION}, "id", "status"),
                MAX_COMPLETIONS,
            )
        },
        "runs",
    ),
    "RunVerification": request(
        {
            "verified": {**BOOLEAN, "description": "Whether the work was done."},
            "reason": {**or_null(text(MAX_REASON)), "description": "Why not."},
            "attempt": {
                **or_null(whole(0, 2**31 - 1)),
                "description": "The attempt that was checked; must match if given.",
            },
        },
        "verified",
    ),
    "WhichDeadLetters": request(
        {
            "ids": or_null(list_of(TEXT, 1_000)),
            "all": or_null(BOOLEAN),
            "agent": {**or_null(text(200)), "description": "Only of this agent."},
            "job": {
                **or_null(text(200)),
                "description": "Only of this job: its id or name; empty: runs without a job.",
            },
            "cause": {**or_null(text(200)), "description": "Only with this cause, as its group has it."},
            "through": {
                **or_null(ID),
                "description": "The newest run that is meant; those that fail later are left out.",
            },
            "cursor": {**or_null(ID), "description": "The `cursor` of the previous response."},
            "dryRun": {**or_null(BOOLEAN), "description": "Only count: nothing is changed."},
        },
        about="Either `ids`, or some of `agent`, `job` and `cause`, or `all` as true.",
    ),
    "Replayed": response(
        {"replayed": list_of(ID), **_SELECTED}, *_SELECTED, about="The ids of the replayed dead letters."
    ),
    "Discarded": response(
        {"discarded": list_of(ID), **_SELECTED}, *_SELECTED, about="The ids of the discarded dead letters."
    ),
}
