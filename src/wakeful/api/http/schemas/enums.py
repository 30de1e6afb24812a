"""Enums: one named schema for each policy, state and kind, so that a generated client has one type each."""

from __future__ import annotations

from typing import Any, Final, get_args

from wakeful.api.http.schemas.parts import Schema, one_of, ref, schema_of
from wakeful.document.agents import OFF, REQUIRED, SUGGEST, Drop, Mode
from wakeful.document.fields import DECLARED
from wakeful.evolution.suggestion import RULES, SUGGESTION_STATUSES
from wakeful.forecast.preview import DstEffect
from wakeful.job.job import ChainOn, ScheduleOrigin
from wakeful.job.target_kinds import TARGET_KINDS
from wakeful.model import DeliveryState
from wakeful.model.reports import CheckState
from wakeful.run.conversations import HistoryRole
from wakeful.run.inbox import INBOX_KINDS
from wakeful.run.incidents import INCIDENT_STATES
from wakeful.run.instances import InstanceStatus
from wakeful.run.run import RunState, TriggerName
from wakeful.service.admin.limits import BUCKETS
from wakeful.service.admin.settings import Source
from wakeful.service.auth.access import ROLES

SCHEMAS: Final[dict[str, Schema]] = {
    **{
        f"{field.name[0].upper()}{field.name[1:]}": schema_of(field.kind)
        for field in DECLARED
        if field.kind.form == "choice"
    },
    "ChainOn": one_of(*get_args(ChainOn)),
    "ScheduleKind": one_of("at", "every", "cron"),
    "DstEffect": one_of(*get_args(DstEffect)),
    "TargetKind": one_of(*TARGET_KINDS),
    "RunMode": one_of("force", "due"),
    "BackfillOverlap": one_of("queue", "allow"),
    "RunState": one_of(*(state.value for state in RunState)),
    "RunResult": one_of("succeeded", "failed"),
    "Trigger": one_of(*get_args(TriggerName)),
    "DeliveryState": one_of(*(state.value for state in DeliveryState)),
    "IncidentState": one_of(*INCIDENT_STATES),
    "InboxKind": one_of(*INBOX_KINDS),
    "InboxAction": one_of("approve", "reject"),
    "SuggestionStatus": one_of(*SUGGESTION_STATUSES),
    "SuggestionRule": one_of(*RULES),
    "EvolutionMode": one_of(OFF, SUGGEST),
    "Approval": one_of(REQUIRED, "none"),
    "InstanceStatus": one_of(*get_args(InstanceStatus)),
    "ScheduleOrigin": one_of(*get_args(ScheduleOrigin)),
    "QueueMode": one_of(*get_args(Mode)),
    "QueueDrop": one_of(*get_args(Drop)),
    "MessageState": one_of("waiting", "started", "dropped", "stopped"),
    "HistoryRole": one_of(*get_args(HistoryRole)),
    "CheckState": one_of(*get_args(CheckState)),
    "DoctorScope": one_of("installation", "workspace"),
    "Role": one_of(*ROLES),
    "QuotaBucket": one_of(*BUCKETS),
    "BudgetCap": one_of("tokensPerDay", "costPerDay"),
    "SendOutcome": one_of("accepted", "not_sent", "unknown"),
    "SettingSource": one_of(*get_args(Source)),
    "ErrorCode": one_of(
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
}
_BY_WORDS: Final = {tuple(schema["enum"]): name for name, schema in SCHEMAS.items()}


def named(schema: Any) -> Any:
    """Return the schema with each enum that has a name replaced by a reference.

    FastAPI writes out the enum of a query parameter.

    >>> named({"anyOf": [{"type": "string", "enum": ["retry", "fail"]}, {"type": "null"}]})
    {'anyOf': [{'$ref': '#/components/schemas/OnLost'}, {'type': 'null'}]}
    """
    if isinstance(schema, list):
        return [named(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    name = _BY_WORDS.get(tuple(schema.get("enum", ())))
    return ref(name) if name else {key: named(value) for key, value in schema.items()}
