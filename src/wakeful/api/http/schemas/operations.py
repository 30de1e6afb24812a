"""Schemas of cost, workers, channels and settings."""

from __future__ import annotations

from typing import Final

from wakeful.api.http.schemas.parts import (
    BOOLEAN,
    ID,
    INSTANT,
    SLUG,
    TEXT,
    WHOLE,
    Schema,
    list_of,
    or_null,
    ref,
    request,
    response,
    text,
)

_DATE: Final[Schema] = {"type": "string", "format": "date"}
_NUMBER: Final[Schema] = {"type": "number", "minimum": 0}
_DAYS: Final[Schema] = list_of(response({"date": _DATE, "tokens": WHOLE, "cost": _NUMBER}))

SCHEMAS: Final[dict[str, Schema]] = {
    "Cost": response(
        {
            "workspace": SLUG,
            "agentId": or_null(SLUG),
            "from": _DATE,
            "to": _DATE,
            "tokens": WHOLE,
            "cost": _NUMBER,
            "days": _DAYS,
            "agents": list_of(response({"agentId": SLUG, "tokens": WHOLE, "cost": _NUMBER, "days": _DAYS})),
            "jobs": list_of(
                response(
                    {
                        "agentId": SLUG,
                        "jobId": ID,
                        "job": {**or_null(TEXT), "description": "Its name; null: the job is gone."},
                        "deleted": BOOLEAN,
                        "tokens": WHOLE,
                        "cost": _NUMBER,
                        "days": _DAYS,
                    }
                )
            ),
            "budgets": list_of(ref("BudgetState")),
        },
        about="What runs used: by day, by agent and by job, most expensive first. Days are in UTC.",
    ),
    "BudgetState": response(
        {
            "agentId": {**or_null(SLUG), "description": "Null: of the whole workspace."},
            "jobId": or_null(ID),
            "job": or_null(TEXT),
            "cap": ref("BudgetCap"),
            "limit": _NUMBER,
            "used": {**_NUMBER, "description": "What was used today (UTC)."},
            "remaining": _NUMBER,
            "exhausted": {**BOOLEAN, "description": "Nothing is started any more today."},
        },
        about="A cap of a budget, and what is left of it today.",
    ),
    "Workers": response({"workers": list_of(ref("Worker")), "executors": list_of(ref("Executor"))}),
    "Worker": response(
        {
            "name": {**TEXT, "description": "Host, process id and a random part."},
            "alive": {**BOOLEAN, "description": "Its last heartbeat is less than 30 s old."},
            "startedAt": INSTANT,
            "lastHeartbeatAt": INSTANT,
            "runs": {**WHOLE, "description": "How many running runs it holds."},
            "thisProcess": BOOLEAN,
            "version": {**or_null(TEXT), "description": "Of the process that answers."},
            "lanes": {
                "type": "object",
                "additionalProperties": response({"used": WHOLE, "size": WHOLE}),
                "description": "The slots of the process that answers.",
            },
            "capabilities": {
                "type": "object",
                "additionalProperties": WHOLE,
                "description": "The functions and agent classes that it can launch, with versions.",
            },
        },
        about="A process that takes runs.",
    ),
    "Executor": response(
        {"name": TEXT, "runs": WHOLE, "lastHeartbeatAt": or_null(INSTANT)},
        about="A program outside that holds claimed runs.",
    ),
    "Channels": response({"channels": list_of(ref("Channel")), "deliveries": list_of(ref("Delivery"))}),
    "Channel": response(
        {
            "name": SLUG,
            "kind": {**TEXT, "description": "The service, such as `slack`."},
            "takesRecipient": BOOLEAN,
            "deliveries": {
                "type": "object",
                "additionalProperties": WHOLE,
                "description": "The deliveries of the last 24 hours by state.",
            },
        },
        about="A channel, without its URL.",
    ),
    "Delivery": response(
        {
            "runId": ID,
            "agentId": SLUG,
            "jobId": or_null(ID),
            "job": or_null(TEXT),
            "channel": or_null(TEXT),
            "to": or_null(TEXT),
            "state": TEXT,
            "attempt": WHOLE,
            "at": INSTANT,
            "error": or_null(TEXT),
        },
        about="The output of a run on its way to a channel.",
    ),
    "ChannelTestDocument": request(
        {"to": {**or_null(text(1_024, 1)), "description": "The recipient, if the channel takes one."}}
    ),
    "ChannelTest": response(
        {"outcome": ref("SendOutcome"), "error": or_null(TEXT), "durationMs": WHOLE},
        about="How a test message ended.",
    ),
    "Settings": response({"settings": list_of(ref("Setting"))}),
    "Setting": response(
        {
            "name": TEXT,
            "value": {**or_null(TEXT), "description": "Null: not set, or secret."},
            "source": ref("SettingSource"),
            "secret": BOOLEAN,
            "set": BOOLEAN,
            "description": TEXT,
        }
    ),
}
