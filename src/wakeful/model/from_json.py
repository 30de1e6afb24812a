"""The one parser from the JSON of the HTTP API to the public model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar, cast

from wakeful.document.fields import DECLARED
from wakeful.errors import InvalidArgument, Unavailable
from wakeful.job.job import Chain, Origin
from wakeful.job.policy import Backoff
from wakeful.model.admin import ApiKey, AuditEntry, Event, Quota, WorkflowVersion
from wakeful.model.agent import AgentInfo, HistoryEntry, MessageReceipt, SessionInfo
from wakeful.model.enums import (
    CatchupPolicy,
    DeliveryState,
    IncidentState,
    InstanceStatus,
    OverlapPolicy,
    RunState,
    SuggestionStatus,
    Trigger,
)
from wakeful.model.hook import Hook
from wakeful.model.incident import Incident
from wakeful.model.instance import InstanceInfo
from wakeful.model.job import BulkResult, Job, JobFailure, JobRef
from wakeful.model.revision import FieldChange, Revision
from wakeful.model.run import Attempt, HeartbeatResult, ReleaseResult, Run
from wakeful.model.suggestion import Suggestion
from wakeful.schedule.schedules import schedule_from_json

T = TypeVar("T")
Convert = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def from_ms(ms: int) -> datetime:
    """Return epoch milliseconds as a datetime in UTC.

    >>> from_ms(1_741_392_000_250).isoformat(timespec="milliseconds")
    '2025-03-08T00:00:00.250+00:00'
    """
    return _EPOCH + timedelta(milliseconds=ms)


def duration(ms: int) -> timedelta:
    """Return a number of milliseconds as a timedelta."""
    return timedelta(milliseconds=ms)


@lru_cache(maxsize=1_024)
def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _all(convert: Convert) -> Convert:
    return lambda values: tuple(convert(each) for each in values)


class _Parser(Generic[T]):
    """Builds objects of one class from JSON.

    The key of a field is its name in camelCase, unless `keys` names another. A value is taken as it is,
    unless `convert` holds a conversion.
    """

    def __init__(
        self,
        kind: type[T],
        keys: Mapping[str, str] | None = None,
        convert: Mapping[str, Convert] | None = None,
    ) -> None:
        self._kind = kind
        keys, convert = keys or {}, convert or {}
        names = [each.name for each in fields(cast(Any, kind))]
        self._plan = [(name, keys.get(name, _camel(name)), convert.get(name)) for name in names]

    def arguments(self, json: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the fields that the JSON holds."""
        return {
            name: json[key] if convert is None else convert(json[key])
            for name, key, convert in self._plan
            if key in json
        }

    def __call__(self, json: object, **extra: object) -> T:
        """Return the object; Unavailable if the JSON is not of this kind."""
        try:
            return self._kind(**self.arguments(cast(Mapping[str, Any], json)), **extra)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError, InvalidArgument) as error:
            raise Unavailable(
                f"the server sent a {self._kind.__name__} that this version of Wakeful cannot read: {error}"
            ) from error


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_TIMES: Final = dict.fromkeys(
    ("created_at", "updated_at", "at", "due_at", "expires_at", "last_used_at", "revoked_at"), _optional(_at)
)

#: How values of job fields are converted.
_BY_FORM: Final[dict[str, Convert]] = {"duration": duration, "instant": from_ms}

attempt_from_json: Final = _Parser(
    Attempt, convert={"started_at": _optional(_at), "finished_at": _optional(_at)}
)
run_from_json: Final = _Parser(
    Run,
    {"agent": "agentId", "timeout": "timeoutMs"},
    {
        "scheduled_at": _at,
        "fire_at": _at,
        "trigger": Trigger,
        "state": RunState,
        "until_at": _optional(_at),
        "due_at": _optional(_at),
        "started_at": _optional(_at),
        "finished_at": _optional(_at),
        "delivery": DeliveryState,
        "created_at": _at,
        "emitted": lambda signals: tuple(signals or ()),
        "attempts": _all(attempt_from_json),
        "timeout": _optional(duration),
    },
)
hook_from_json: Final = _Parser(Hook, convert={"created_at": _at, "previous_until": _optional(_at)})
field_change_from_json: Final = _Parser(FieldChange)
revision_from_json: Final = _Parser(Revision, convert={"at": _at, "changes": _all(field_change_from_json)})
job_from_json: Final = _Parser(
    Job,
    {"agent": "agentId", **{field.option: field.name for field in DECLARED}},
    {
        **{
            field.option: _optional(_BY_FORM[field.kind.form])
            for field in DECLARED
            if field.kind.form in _BY_FORM
        },
        "paused_until": _optional(_at),
        "schedule": _optional(schedule_from_json),
        "exclude": lambda entries: tuple(entries or ()),
        "evidence": lambda names: tuple(names or ()),
        "origin": _optional(lambda origin: Origin(origin["session"], origin["channel"], origin["to"])),
        "after": _optional(lambda chain: Chain(chain["job"], chain["on"], chain.get("output", False))),
        "overlap_policy": OverlapPolicy,
        "catchup_policy": CatchupPolicy,
        "backoff": lambda waits: Backoff(waits["baseMs"], waits["maxMs"]),
        "next_at": _optional(_at),
        "created_at": _at,
        "updated_at": _at,
        "next_ticks": _all(lambda tick: from_ms(tick["atMs"])),
        "last_runs": _all(run_from_json),
        "skipped": _optional(run_from_json),
        "warnings": tuple,
    },
)
_AGENT: Final = {"agent": "agentId"}
_job_ref: Final = _Parser(JobRef, _AGENT, dict.fromkeys(("next_at", "paused_until"), _optional(_at)))
bulk_result_from_json: Final = _Parser(
    BulkResult, convert={"jobs": _all(_job_ref), "errors": _all(_Parser(JobFailure, _AGENT))}
)
heartbeats_from_json: Final = _Parser(HeartbeatResult, convert={"renewed": tuple, "lost": tuple})
release_from_json: Final = _Parser(ReleaseResult, convert={"released": tuple, "lost": tuple})
agent_from_json: Final = _Parser(AgentInfo, convert={**_TIMES, "deliver_to": tuple, "warnings": tuple})
receipt_from_json: Final = _Parser(MessageReceipt, convert={**_TIMES, "stopped": tuple})
_history_entry_from_json: Final = _Parser(HistoryEntry, convert=_TIMES)
session_from_json: Final = _Parser(
    SessionInfo, convert={**_TIMES, "turns": tuple, "history": _all(_history_entry_from_json)}
)
instance_from_json: Final = _Parser(
    InstanceInfo,
    _AGENT,
    {
        **_TIMES,
        "status": InstanceStatus,
        **dict.fromkeys(("handled_at", "hibernated_at"), _optional(_at)),
        "schedules": _all(job_from_json),
    },
)
incident_from_json: Final = _Parser(
    Incident,
    {"agent": "agentId"},
    {
        "state": IncidentState,
        **dict.fromkeys(("opened_at", "last_failed_at"), _at),
        **dict.fromkeys(
            ("acknowledged_at", "alerted_at", "reminded_at", "recovered_at", "closed_at"), _optional(_at)
        ),
    },
)
suggestion_from_json: Final = _Parser(
    Suggestion,
    {"agent": "agentId"},
    {
        **_TIMES,
        "status": SuggestionStatus,
        **dict.fromkeys(("decided_at", "evaluated_at"), _optional(_at)),
    },
)
event_from_json: Final = _Parser(
    Event,
    {"agent": "agentId"},
    {
        **_TIMES,
        "run": _optional(run_from_json),
        "incident": _optional(incident_from_json),
        "suggestion": _optional(suggestion_from_json),
    },
)
key_from_json: Final = _Parser(ApiKey, convert=_TIMES)
audit_entry_from_json: Final = _Parser(AuditEntry, convert=_TIMES)
quota_from_json: Final = _Parser(Quota)
workflow_from_json: Final = _Parser(WorkflowVersion, convert=_TIMES)
