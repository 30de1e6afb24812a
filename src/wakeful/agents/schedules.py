"""The schedules of an agent: what a class declares and what a handler sets, as job documents.

A schedule of an instance is a job whose target sends a signal to that instance. All job fields are options of
a schedule, except those that define its name, target and payload. Overlap is `skip` and catch-up `none`
unless the options say otherwise, whatever the defaults of the server are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from wakeful.document import Defaults, read_definition
from wakeful.document.target import AGENT_KIND, TARGET_FIELDS
from wakeful.errors import InvalidArgument
from wakeful.job.job import Definition
from wakeful.run.instances import MAX_SCHEDULE_ID
from wakeful.signal.signals import MAX_DATA, Signal, check_text, check_type
from wakeful.values.duration import format_duration
from wakeful.values.json_value import Json, camel, json_value, quote

#: Job fields that are no option of a schedule, because the schedule itself defines them.
_DEFINED: Final = frozenset(
    {"name", "schedule", "cron", "tz", "payload", "message", "after", "enabled", "agentId", *TARGET_FIELDS}
)
_OWN_DEFAULTS: Final[dict[str, Json]] = {"overlapPolicy": "skip", "catchupPolicy": "none"}


@dataclass(frozen=True, slots=True, init=False)
class Schedule:
    """A schedule that a class declares: every instance of the class has it.

    `expr` is any schedule of a job: a cron expression, `"every 15m"`, a `timedelta`. At each tick the
    instance receives a signal of the type `signal` with `data`. `job_id` names the schedule in the class; it
    is the type of the signal by default. `policies` are job fields in snake_case.

    It is checked when its class is registered. An invalid one is reported and has no job; the others work.

    >>> Schedule("0 6 * * *", "report.generate", job_id="daily", tz="America/New_York").job_id
    'daily'
    """

    expr: object
    signal: str
    job_id: str
    tz: str | ZoneInfo | None
    data: object
    policies: Mapping[str, object]

    def __init__(
        self,
        expr: object,
        signal: str | Signal,
        job_id: str | None = None,
        tz: str | ZoneInfo | None = None,
        data: object = None,
        **policies: object,
    ) -> None:
        set_ = object.__setattr__
        if isinstance(signal, Signal):
            data, signal = _scheduled_data(signal) if data is None else data, signal.type
        set_(self, "expr", expr)
        set_(self, "signal", check_type(signal))
        set_(self, "job_id", check_job_id(self.signal if job_id is None else job_id))
        set_(self, "tz", tz)
        set_(self, "data", data)
        set_(self, "policies", policies)

    def document(self, class_options: Mapping[str, Json]) -> dict[str, Json]:
        """Return the job document without `name`, or raise InvalidArgument.

        `class_options` are the fields that the class sets for all its signals.
        """
        if isinstance(self.expr, str) and self.expr.strip().lower().startswith("in "):
            raise InvalidArgument(
                f"schedule: {quote(self.expr)} has no fixed time; declare a cron expression or an interval, "
                "or return a Delay from a handler"
            )
        return schedule_document(self.expr, self.signal, self.data, self.tz, self.policies, class_options)


def schedule_document(
    expr: object,
    signal: str,
    data: object,
    tz: str | ZoneInfo | None,
    policies: Mapping[str, object],
    class_options: Mapping[str, Json],
) -> dict[str, Json]:
    """Return the job document of a schedule, in JSON and without `name`, or raise InvalidArgument.

    >>> schedule_document("@daily", "report.generate", None, None, {"max_attempts": 2}, {"lane": "team"})
    {'lane': 'team', 'overlapPolicy': 'skip', 'catchupPolicy': 'none', 'maxAttempts': 2, 'schedule': '@daily',
     'target': {'kind': 'agent', 'signal': 'report.generate'}}
    """
    options: dict[str, Json] = {}
    for key, value in policies.items():
        name = camel(key)
        if name in _DEFINED:
            raise InvalidArgument(f"{key}: the schedule defines it; leave it out")
        if value is not None:
            options[name] = _to_json(key, value)
    inherited = {
        name: value
        for name, value in class_options.items()
        if name not in options and name.removesuffix("Ms") not in options
    }
    document = {**inherited, **_OWN_DEFAULTS, **options, "schedule": _to_json("schedule", _schedule(expr))}
    if tz is not None:
        document["tz"] = _to_json("tz", str(tz) if isinstance(tz, ZoneInfo) else tz)
    if data is not None:
        try:
            document["payload"] = json_value(data, MAX_DATA)
        except InvalidArgument as error:
            raise InvalidArgument(f"data: {error.message}") from None
    document["target"] = {"kind": AGENT_KIND, "signal": signal}
    return document


def read_schedule(
    document: Mapping[str, Json],
    name: str,
    instance: str | None,
    *,
    now_ms: int,
    defaults: Defaults,
    old: Definition | None = None,
) -> Definition:
    """Return the definition of the job of a schedule of an instance, or raise InvalidArgument.

    `name` is the name of the job. Without an instance the definition is only for validation.
    """
    declared = document.get("target")
    target = declared if isinstance(declared, dict) else {"kind": AGENT_KIND}
    if instance is not None:
        target = {**target, "instance": instance}
    fields = {**document, "name": name, "target": target}
    return read_definition(fields, now_ms=now_ms, defaults=defaults, old=old)


def check_document(document: Mapping[str, Json]) -> None:
    """Raise InvalidArgument for a document that is invalid at any time and with any defaults."""
    read_schedule(document, "schedule", None, now_ms=0, defaults=Defaults())


def check_job_id(value: object) -> str:
    """Return the id of a schedule if it is valid, else raise InvalidArgument."""
    return check_text("job_id", value, MAX_SCHEDULE_ID)


def scheduled_signal(signal: object) -> tuple[str, object]:
    """Return the type and data of the signal that a schedule sends: a Signal, or the text of a type."""
    if isinstance(signal, Signal):
        return signal.type, _scheduled_data(signal)
    return check_type(signal), None


def _scheduled_data(signal: Signal) -> Json:
    """Return the data. Each tick is a new signal: it has its own id, time and source."""
    if signal.subject is not None or signal.dataschema is not None or signal.extensions:
        raise InvalidArgument(
            "signal: a schedule keeps the type and the data of a signal; put its subject, dataschema and "
            "extensions into the data"
        )
    if isinstance(signal.data, bytes):
        raise InvalidArgument("signal: a schedule cannot send bytes; encode them as text")
    return signal.data


def _schedule(expr: object) -> object:
    if isinstance(expr, timedelta):
        return {"kind": "every", "everyMs": expr // timedelta(milliseconds=1)}
    return expr.to_json() if hasattr(expr, "to_json") else expr


def _to_json(name: str, value: object) -> Json:
    if isinstance(value, timedelta):
        return format_duration(value // timedelta(milliseconds=1))
    if isinstance(value, date):  # a datetime too
        return value.isoformat()
    try:
        return json_value(value, None)
    except InvalidArgument as error:
        raise InvalidArgument(f"{name}: {error.message}") from None
