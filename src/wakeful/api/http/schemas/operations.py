"""Schemas of cost, workers, channels and settings."""

from __future__ import annotations

from typing import Final

from wakeful.api.http.schemas.parts import (
    BOOLEAN,
    ID,
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
from wakeful.api.http.schemas.resources import schema_of_class
from wakeful.model import operations

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
    "Workers": schema_of_class(operations.Workers),
    "Worker": schema_of_class(operations.Worker),
    "Executor": schema_of_class(operations.Executor),
    "Channels": schema_of_class(operations.Channels),
    "Channel": schema_of_class(operations.Channel),
    "Delivery": schema_of_class(operations.Delivery),
    "ChannelTestDocument": request(
        {"to": {**or_null(text(1_024, 1)), "description": "The recipient, if the channel takes one."}}
    ),
    "ChannelTest": schema_of_class(operations.ChannelTest),
    "Settings": response({"settings": list_of(ref("Setting"))}),
    "Setting": schema_of_class(operations.Setting),
}
