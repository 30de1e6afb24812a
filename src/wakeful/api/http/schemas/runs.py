"""The schemas of runs in requests and responses."""

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
    list_of,
    or_null,
    page_of,
    ref,
    request,
    response,
    text,
    whole,
)
from wakeful.service.runs.completions import MAX_COMPLETIONS
from wakeful.service.runs.pull import MAX_CLAIM, MAX_WAIT_MS, MAX_WAITING
from wakeful.service.runs.runs import MAX_REASON

_STATUS: Final[Schema] = {**WHOLE, "description": "The HTTP status of the response of a webhook."}
RUN: Final[dict[str, Schema]] = {
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
    "verifying": {
        **BOOLEAN,
        "description": "Whether it was reported as done and its work is not verified yet.",
    },
    "missed": {**WHOLE, "description": "Ticks missed since the previous tick that became a run."},
    "covers": {**WHOLE, "description": "How many ticks it stands for, up to `untilAt`."},
    "untilAt": or_null(INSTANT),
    "attempt": {**WHOLE, "description": "The number of its last launch, from 1."},
    "failedAttempts": {
        **WHOLE,
        "description": "Failed attempts that count towards `maxAttempts`. Not counted: attempts that a "
        "shutdown ended, database errors, functions that are not registered.",
    },
    "worker": or_null(TEXT),
    "lane": TEXT,
    "dueAt": or_null(INSTANT),
    "startedAt": or_null(INSTANT),
    "finishedAt": or_null(INSTANT),
    "idempotencyKey": TEXT,
    "replayOf": or_null(ID),
    "payload": ANY,
    "session": {**or_null(TEXT), "description": "Of a turn: its session."},
    "depth": {**WHOLE, "description": "How many jobs in a row an agent made, up to the job of this run."},
    "context": {
        **ANY,
        "description": "What its precheck found, and with `after.output` the run before it. Its target gets "
        "it as `context` in the payload.",
    },
    "instance": {**or_null(SLUG), "description": "Of a signal: the instance of the agent that handles it."},
    "signal": {**or_null(TEXT), "description": "The type of the signal."},
    "emitted": {
        **or_null(list_of(OBJECT)),
        "description": "The signals that its handler sent out, as CloudEvents.",
    },
    "requires": {
        **or_null(TEXT),
        "description": "What a process must have to take it, such as `function:digest`; null: nothing.",
    },
    "requiresVersion": {**WHOLE, "description": "The lowest version of what it requires."},
    "responseCode": or_null(_STATUS),
    "output": or_null(TEXT),
    "error": or_null(TEXT),
    "usage": ANY,
    "evidence": {**or_null(OBJECT), "description": "What shows that its work was done."},
    "dead": {**BOOLEAN, "description": "Whether it failed and was neither replayed nor discarded."},
    "delivery": {
        **ref("DeliveryState"),
        "description": "The delivery of its output to a channel; not part of its state.",
    },
    "deliveryError": or_null(TEXT),
    "createdAt": INSTANT,
}
_ATTEMPT: Final[Schema] = response(
    {
        "attempt": WHOLE,
        "worker": or_null(TEXT),
        "startedAt": or_null(INSTANT),
        "finishedAt": or_null(INSTANT),
        "responseCode": or_null(_STATUS),
        "error": or_null(TEXT),
        "output": {**or_null(TEXT), "description": "The first 2 KB of it, if the attempt failed."},
    }
)
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
    "Run": response(RUN, about="A run."),
    "RunWithAttempts": response(
        {
            **RUN,
            "waitingFor": {
                **or_null(TEXT),
                "description": "What it waits for, in words; null if it is over.",
            },
            "attempts": list_of(_ATTEMPT),
        },
        about="A run with its attempts.",
    ),
    "Runs": page_of("runs", "Run"),
    "DeadLetters": page_of("deadLetters", "Run"),
    "ClaimedRun": response(
        {**RUN, "target": OBJECT, "timeoutMs": or_null(WHOLE), "traceparent": TEXT},
        about="A run with its target, timeout and W3C trace context.",
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
    "Released": response(
        {"released": list_of(ID), "lost": list_of(TEXT)},
        about="The ids of the runs that can be claimed again, and of those that the worker did not hold.",
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
    "Heartbeats": response(
        {"renewed": list_of(ID), "lost": list_of(TEXT)},
        about="The ids of the runs whose leases were renewed, and of those the caller has lost.",
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
    "Completions": response(
        {
            "runs": list_of(
                response(
                    {
                        "id": TEXT,
                        "state": {
                            **or_null(ref("RunState")),
                            "description": "Its new state; `running` while it is verified; null: refused.",
                        },
                        "code": {**or_null(ref("ErrorCode")), "description": "Why it was refused."},
                        "message": or_null(TEXT),
                    }
                )
            )
        },
        about="The result of each report, in the order of the request.",
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
    "DeadLetterGroups": response(
        {
            "groups": list_of(
                response(
                    {
                        "agentId": TEXT,
                        "jobId": {**or_null(ID), "description": "Null: runs without a job."},
                        "job": or_null(TEXT),
                        "cause": {**TEXT, "description": "What failed, without ids, numbers and addresses."},
                        "count": WHOLE,
                        "firstFailedAt": INSTANT,
                        "lastFailedAt": INSTANT,
                        "newestRunId": ID,
                        "error": {**or_null(TEXT), "description": "The beginning of the newest error."},
                    }
                )
            ),
            "counted": {**WHOLE, "description": "How many dead letters the groups are made of."},
            "more": {**BOOLEAN, "description": "Whether there are older dead letters."},
        },
        about="The newest dead letters by job and cause.",
    ),
    "Replayed": response(
        {"replayed": list_of(ID), **_SELECTED}, *_SELECTED, about="The ids of the replayed dead letters."
    ),
    "Discarded": response(
        {"discarded": list_of(ID), **_SELECTED}, *_SELECTED, about="The ids of the discarded dead letters."
    ),
}
