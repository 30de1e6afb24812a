"""Incidents: failures of one job with one cause are one incident. Pure, the same for every store.

A failed run opens an incident, or adds to the open one of its job and cause. A succeeded run recovers all
incidents of its job. A failure of the same cause within `REOPEN_WITHIN_MS` after that opens the same incident
again. People acknowledge an incident. The end of its job closes it. Beyond `MAX_CAUSES` at a time, failures
of other causes are one incident.

An incident carries the state of its messages, so that one transaction decides each of them:

- `notify_ms` is when the alerter decides about the next message; None: there is none.
- `notified` says that the last message was an alert, so that a recovery is worth a message too.

`wakeful.run.alerts` decides which messages are sent, because that depends on the alert settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, get_args

from wakeful.job.policy import DAY_MS
from wakeful.run.outcome import Finished
from wakeful.values.stored_text import clean_text

IncidentState = Literal["open", "acknowledged", "recovered", "closed"]
INCIDENT_STATES: Final[tuple[IncidentState, ...]] = get_args(IncidentState)
IncidentEvent = Literal["incident.opened", "incident.acknowledged", "incident.recovered", "incident.closed"]

#: How long after a recovery a failure of the same cause opens the same incident again.
REOPEN_WITHIN_MS: Final = 3_600_000
#: How long after its alert an incident that is open and not acknowledged is reminded of.
REMIND_AFTER_MS: Final = DAY_MS

#: How much of an error an incident keeps; the run has all of it.
MAX_ERROR: Final = 2_000

#: How many causes of a job are incidents of their own at a time. An error may be a new text each time, such
#: as one that a model wrote, and all these incidents are read and written with the outcomes of the job.
MAX_CAUSES: Final = 20
#: The cause of all further failures.
OTHER_CAUSES: Final = "other causes"

#: Why an incident is closed if it recovered; otherwise the reason is why its job ended.
SUCCEEDED: Final = "succeeded"
#: The length of a cause.
MAX_CAUSE: Final = 120
#: Reasons that do not say what failed: the error text does.
_GENERAL: Final = frozenset({"failed", "permanent", "precheck_failed", "network", "unavailable"})
#: `exit 3: …` and `killed by SIGKILL: …`, of a command.
_COMMAND_END: Final = re.compile(r"(exit \d{1,3}|killed by \w+)\b")
# Errors are text of users, and a cause is computed in a transaction. So each expression takes a time that is
# proportional to the length of the text: it does not go back (`*+`), or only a few characters.

#: The name of an exception, as in `ValueError: …` or `asyncpg.exceptions.UniqueViolationError: …`.
_EXCEPTION: Final = re.compile(r"(?:[A-Za-z_]\w*+\.)*+((?=[A-Z][A-Z_]*+[a-z])\w++)(?=:\s|$)")

# Parts of an error text that vary between failures of one kind. The order matters: a URL contains an address,
# and an address contains numbers.
_VARIABLE: Final = re.compile(
    r"""
      (?P<kept>\b(?:http|status|code|exit)[ :=]{1,2}\d{1,3}\b)  # a status is part of the cause
    | [a-z][a-z0-9+.-]{0,30}://\S+                         # URLs
    | \S[^\s@]{0,63}@\S+                                   # mail addresses
    | '[^'\n]*' | "[^"\n]*" | `[^`\n]*`                    # quoted values
    | (?<![\w.])/(?:[\w.-]++/){0,30}[\w.-]*\d[\w.-]*(?:/[\w.-]*)*    # paths with a number
    | \b0x[0-9a-f]+\b                                      # memory addresses
    | \b[\w-]{0,64}\d(?:[\w.:+-]*\w)?                      # words with a digit: ids, times, numbers, hosts
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MARKS: Final = re.compile(r"#(?:[\s,;:/.\[\]()-]*#)+")


class Incident(NamedTuple):
    """Failures of one job with one cause. The fields are the columns of `job_incidents`."""

    id: str
    workspace: str
    agent: str
    job_id: str
    job_name: str
    cause: str
    #: of the last failed run
    error: str | None
    opened_ms: int
    failed_ms: int
    failed_runs: int
    #: consecutive failures of the job, whatever their cause, at the last failure
    in_a_row: int
    first_run_id: str
    last_run_id: str
    reopened: int = 0
    acknowledged_ms: int | None = None
    acknowledged_by: str | None = None
    note: str | None = None
    alerted_ms: int | None = None
    notified: bool = False
    reminded_ms: int | None = None
    notify_ms: int | None = None
    closed_ms: int | None = None
    closed_reason: str | None = None
    closed_by_run: str | None = None

    @property
    def state(self) -> IncidentState:
        """The state, which follows from the other fields."""
        if self.closed_ms is not None:
            return "recovered" if self.closed_reason == SUCCEEDED else "closed"
        return "open" if self.acknowledged_ms is None else "acknowledged"

    @property
    def is_open(self) -> bool:
        """Whether the job has not recovered and not ended."""
        return self.closed_ms is None


class IncidentJob(NamedTuple):
    """What an incident copies from its job, and whether anyone receives alerts about it."""

    id: str
    workspace: str
    agent: str
    name: str
    has_alerts: bool


class IncidentChange(NamedTuple):
    """A new or changed incident, and the events of the change in their order."""

    incident: Incident
    events: tuple[IncidentEvent, ...] = ()


def open_incident(job: IncidentJob, run: Finished, cause: str, in_a_row: int, incident_id: str) -> Incident:
    """Return the incident that this failed run opens."""
    return Incident(
        incident_id, job.workspace, job.agent, job.id, job.name, cause, _shorten_error(run.error),
        run.finished_ms, run.finished_ms, 1, in_a_row, run.run_id, run.run_id,
        notify_ms=run.finished_ms if job.has_alerts else None,
    )  # fmt: skip


def add_failure(incident: Incident, run: Finished, in_a_row: int, has_alerts: bool) -> Incident:
    """Return the incident with one more failed run; a closed one is opened again.

    An alert that is not sent yet, because of its threshold, is decided again. If the message about the
    recovery is not sent yet, neither it nor another alert is sent.
    """
    at_ms = run.finished_ms
    added = incident._replace(
        error=_shorten_error(run.error),
        failed_ms=at_ms,
        failed_runs=incident.failed_runs + 1,
        in_a_row=in_a_row,
        last_run_id=run.run_id,
    )
    if not incident.is_open:
        added = added._replace(
            reopened=incident.reopened + 1,
            acknowledged_ms=None,
            acknowledged_by=None,
            note=None,
            closed_ms=None,
            closed_reason=None,
            closed_by_run=None,
        )
        if incident.notified:  # the message about the recovery is not sent: it never was closed for people
            remind_ms = (incident.alerted_ms or at_ms) + REMIND_AFTER_MS
            added = added._replace(notify_ms=None if incident.reminded_ms else remind_ms)
        else:
            added = added._replace(notify_ms=None, reminded_ms=None)
    waits = added.notified or added.acknowledged_ms is not None or added.notify_ms is not None
    return added if waits or not has_alerts else added._replace(notify_ms=at_ms)


def recover(incident: Incident, run_id: str, at_ms: int) -> Incident:
    """Return the incident after a run of its job succeeded.

    A message is due if there was an alert. An alert that is due and not sent yet is sent too.
    """
    return incident._replace(
        closed_ms=at_ms,
        closed_reason=SUCCEEDED,
        closed_by_run=run_id,
        notify_ms=at_ms if incident.notified else _due_alert(incident, at_ms),
    )


def close(incident: Incident, at_ms: int, reason: str) -> Incident:
    """Return the incident after its job ended. No message says so."""
    return incident._replace(
        closed_ms=at_ms,
        closed_reason=reason,
        notified=False,
        notify_ms=None if incident.notified else _due_alert(incident, at_ms),
    )


def acknowledge(incident: Incident, at_ms: int, by: str, note: str | None) -> Incident:
    """Return the incident after a person acknowledged it: no alert or reminder follows."""
    return incident._replace(acknowledged_ms=at_ms, acknowledged_by=by, note=note, notify_ms=None)


def incident_cause(run: Finished) -> str:
    """Return the cause of a failed run, as it is stored."""
    return clean_text(failure_cause(run.reason, run.response_code, run.error))


def _shorten_error(error: str | None) -> str | None:
    """Return what an incident keeps of an error."""
    return None if error is None else clean_text(error[:MAX_ERROR])


def _due_alert(incident: Incident, at_ms: int) -> int | None:
    """Return when the alert of an incident was due, if it is due and not sent."""
    due_ms = incident.notify_ms
    return due_ms if due_ms is not None and due_ms <= at_ms else None


class IncidentLog:
    """Applies outcomes to the incidents of their jobs, in order, and collects the changes.

    `incidents` are those of these jobs that are open, or were closed recently enough to be opened again.
    """

    def __init__(
        self,
        jobs: Mapping[str, IncidentJob],
        incidents: Iterable[Incident],
        new_id: Callable[[int], str],
    ) -> None:
        self._jobs = dict(jobs)
        self._new_id = new_id
        self._incidents: dict[str, dict[str, Incident]] = {}
        #: the changes, by incident id
        self._changes: dict[str, IncidentChange] = {}
        for each in sorted(incidents, key=lambda incident: (incident.is_open, incident.closed_ms or 0)):
            self._incidents.setdefault(each.job_id, {})[each.cause] = each

    def add_failure(self, run: Finished, in_a_row: int) -> None:
        """Add a failed run."""
        job = self._jobs.get(run.job_id or "")
        if job is None:  # it was deleted, or sends alerts itself
            return
        cause, known = incident_cause(run), self._incidents.get(job.id, {})
        if cause not in known and len(known) >= MAX_CAUSES:
            cause = OTHER_CAUSES
        old = known.get(cause)
        if old is None or (old.closed_ms is not None and old.closed_ms < run.finished_ms - REOPEN_WITHIN_MS):
            new = open_incident(job, run, cause, in_a_row, self._new_id(run.finished_ms))
            self._set(new, "incident.opened")
        else:
            added = add_failure(old, run, in_a_row, job.has_alerts)
            self._set(added, None if old.is_open else "incident.opened")

    def recover_job(self, run: Finished) -> None:
        """Recover all incidents of the job of this run."""
        for incident in self._open(run.job_id or ""):
            self._set(recover(incident, run.run_id, run.finished_ms), "incident.recovered")

    def close_job(self, job_id: str, at_ms: int, reason: str) -> None:
        """Close all incidents of this job. Later failures of it are none."""
        self._jobs.pop(job_id, None)
        for incident in self._open(job_id):
            self._set(close(incident, at_ms, reason), "incident.closed")

    def changes(self) -> list[IncidentChange]:
        """Return the incidents that are new or changed."""
        return list(self._changes.values())

    def _open(self, job_id: str) -> Sequence[Incident]:
        return [each for each in self._incidents.get(job_id, {}).values() if each.is_open]

    def _set(self, incident: Incident, event: IncidentEvent | None) -> None:
        self._incidents.setdefault(incident.job_id, {})[incident.cause] = incident
        events = self._changes[incident.id].events if incident.id in self._changes else ()
        self._changes[incident.id] = IncidentChange(incident, (*events, event) if event else events)


def failure_cause(reason: str | None, response_code: int | None, error: str | None) -> str:
    """Return the cause of a failed run: by its status code, its reason, its exception, or its error text.

    It is a short text that is the same for each failure of one kind, so it has no variable parts: no ids,
    numbers, addresses or times.

    >>> failure_cause("http", 503, "HTTP 503 Service Unavailable"), failure_cause("timeout", None, "…")
    ('http 503', 'timeout')
    >>> failure_cause("exit", None, "exit 3: no space left on /var/tmp/job-81")
    'exit 3'
    >>> failure_cause(None, None, "ValueError: run 17 has no rows")
    'ValueError'
    >>> failure_cause("network", None, "could not connect to example.com:443: connection refused")
    'network: could not connect to example.com:#: connection refused'
    >>> failure_cause(None, None, "order 81-a of '2027-03-01' was refused")
    'order # of # was refused'
    >>> failure_cause(None, None, "upstream 10.0.0.7 answered HTTP 502 after 31 ms")
    'upstream # answered HTTP 502 after # ms'
    """
    text = error or ""
    if response_code is not None and reason in ("http", "gone"):
        return f"http {response_code}"
    if reason in ("exit", "killed"):
        end = _COMMAND_END.match(text)
        return end[1] if end else reason
    if reason is not None and reason not in _GENERAL:
        return reason[:MAX_CAUSE]
    if reason in ("network", "precheck_failed"):
        detail = _without_variables(text.removeprefix("precheck: "))
        return f"{reason}: {detail}"[:MAX_CAUSE] if detail else reason
    exception = _EXCEPTION.match(text)
    if exception:
        return exception[1][:MAX_CAUSE]
    return _without_variables(text) or reason or "failed"


def _without_variables(text: str) -> str:
    """Return the first line of an error with `#` for each part that varies."""
    line = text.strip().partition("\n")[0][:2_000]
    return " ".join(_MARKS.sub("#", _VARIABLE.sub(_mark, line)).split())[:MAX_CAUSE].rstrip()


def _mark(match: re.Match[str]) -> str:
    return match["kept"] or "#"
