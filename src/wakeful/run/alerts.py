"""Which alerts are sent, and their texts. Pure.

There are two sources: incidents of jobs, with a message when one opens, one reminder and one when it recovers
(`decide`), and single events, which are missed ticks and budget caps (`judge`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from wakeful.document import payload_to_text, work_from_text
from wakeful.document.guards import ALERT_DEFAULTS
from wakeful.run.factory import manual_run
from wakeful.run.incidents import REMIND_AFTER_MS, SUCCEEDED, Incident
from wakeful.run.run import NewRun
from wakeful.values.instants import utc_datetime
from wakeful.values.json_value import Json

#: How far the clocks of replicas may differ. An alert further ahead was sent while the clock was wrong.
SKEW_MS: Final = 60_000
#: How much of an error an alert shows: to a webhook, and to a channel.
_MAX_ERROR: Final = 500
_CHANNEL_ERROR: Final = 300
#: The severity of a message to a channel; otherwise `failure`.
_CHANNEL_KINDS: Final = {"budget": "warning", "inbox": "warning", "digest": "info", "recovered": "success"}
_UNITS: Final = {"tokensPerDay": "tokens", "costPerDay": "cost"}


class AlertJob(NamedTuple):
    """A job that sends alerts."""

    id: str
    agent: str
    name: str
    work: str


class Recipients(NamedTuple):
    """Who receives the alerts of an agent or of its workspace."""

    #: compact JSON of the alert settings: the agent's, else the workspace's; None: there are none
    alerts: str | None = None
    #: the jobs that send to the webhook and to the channel; None: there is none
    webhook: AlertJob | None = None
    channel: AlertJob | None = None

    @property
    def settings(self) -> Mapping[str, Json] | None:
        """The alert settings; None if nothing is sent."""
        if self.alerts is None or (self.webhook is None and self.channel is None):
            return None
        stored = json.loads(self.alerts)
        return {**ALERT_DEFAULTS, **(stored if isinstance(stored, dict) else {})}


class AlertEvent(NamedTuple):
    """An event that may cause an alert: missed ticks, a cap that was reached, or what waits for a person."""

    id: int
    at_ms: int
    kind: str
    workspace: str
    #: '' for the whole workspace
    agent: str
    job_id: str | None
    run_id: str | None
    #: missed ticks; 1
    times: int
    #: compact JSON with further facts
    details: str
    job_name: str | None
    recipients: Recipients


class DueIncident(NamedTuple):
    """An incident for which a message may be due."""

    incident: Incident
    #: when the last alert about this job and cause was sent, in this incident or an earlier one
    alerted_ms: int | None
    recipients: Recipients


class Notification(NamedTuple):
    """The incident after the decision, and the runs that send its messages."""

    incident: Incident
    runs: tuple[NewRun, ...] = ()


class Alert(NamedTuple):
    """An alert to send, unless its cool-down is running."""

    workspace: str
    #: a job's id, or the owner of a cap; the cool-down is per subject and kind
    subject: str
    kind: str
    cooldown_ms: int
    #: the runs that send it, one for each destination
    runs: tuple[NewRun, ...]


class AlertText(NamedTuple):
    """The text of an alert."""

    #: what happened
    fact: str
    #: what follows, or what to do
    advice: str = ""
    #: the error of the run
    error: str = ""
    #: a list
    lines: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The text in one line."""
        text = f"{self.fact}; {self.advice}" if self.advice else self.fact
        details = self.error[:_MAX_ERROR] or "; ".join(self.lines)
        return f"{text}: {details}" if details else text


class Message(NamedTuple):
    """A message about a job, an agent or a workspace."""

    kind: str
    at_ms: int
    workspace: str
    #: '' for the whole workspace
    agent: str
    job: str | None
    run_id: str | None
    times: int
    text: AlertText
    incident: Incident | None = None


def judge(event: AlertEvent, now_ms: int) -> list[Alert]:
    """Return the alerts that an event causes: none or one."""
    settings = event.recipients.settings
    if settings is None or not settings.get("waiting" if event.kind == "inbox" else event.kind):
        return []
    cooldown_ms = settings["cooldownMs"]
    assert isinstance(cooldown_ms, int)
    if event.kind == "budget":
        # A cap is reached at most once a day, so it needs no cool-down.
        subject = f"{event.agent}/{event.job_id or ''}/{_details(event).get('cap')}"
        text, cooldown_ms = _budget_alert(event), 0
    elif event.kind == "inbox":
        subject, text = event.job_id or event.agent, _waiting_alert(event)
    else:
        subject = event.job_id or event.agent
        fact = f"{_subject(event)} missed {_times(event.times, 'tick')}"
        text = AlertText(fact, error="no replica was running")
    message = Message(
        event.kind, event.at_ms, event.workspace, event.agent, event.job_name, event.run_id, event.times, text
    )
    return [
        Alert(
            event.workspace, subject, event.kind, cooldown_ms, message_runs(message, event.recipients, now_ms)
        )
    ]


def decide(due: DueIncident, now_ms: int) -> Notification:
    """Return the messages of an incident that are sent now, and when to decide again.

    - The alert is sent once: for a dead letter, or when the job has failed often enough in a row. While the
      cool-down of an earlier alert about the same job and cause runs, it waits; if the incident is closed by
      then, it is not sent.
    - A day later a reminder is sent once, unless the incident is acknowledged.
    - The recovery is sent once, if the alert was.
    """
    incident, settings = due.incident, due.recipients.settings
    idle = incident._replace(notify_ms=None, notified=incident.notified and incident.is_open)
    if settings is None or (incident.is_open and incident.acknowledged_ms is not None):
        return Notification(idle)
    texts: dict[str, AlertText] = {}
    if not incident.notified:
        threshold, cooldown_ms = settings["failures"], settings["cooldownMs"]
        assert isinstance(threshold, int)
        assert isinstance(cooldown_ms, int)
        often = incident.in_a_row >= threshold
        if not often and not settings["deadLetter"]:
            return Notification(idle)
        if due.alerted_ms is not None and now_ms < due.alerted_ms + cooldown_ms:
            again_ms = due.alerted_ms + cooldown_ms if incident.is_open else None
            return Notification(idle._replace(notify_ms=again_ms))
        texts.update([_failing(incident, often)])
        idle = idle._replace(alerted_ms=now_ms, notified=incident.is_open)
    elif incident.is_open:
        texts["reminder"] = _reminder(incident)
        idle = idle._replace(reminded_ms=now_ms)
    if incident.closed_reason == SUCCEEDED:
        texts["recovered"] = _recovery(incident)
    if idle.notified and idle.reminded_ms is None:
        idle = idle._replace(notify_ms=now_ms + REMIND_AFTER_MS)
    runs = [
        run
        for kind, text in texts.items()
        for run in message_runs(_about(incident, kind, text), due.recipients, now_ms)
    ]
    return Notification(idle, tuple(runs))


def _failing(incident: Incident, often: bool) -> tuple[str, AlertText]:
    subject, error = _subject(incident), incident.error or ""
    if often:
        fact = f"{subject} has failed {_times(incident.in_a_row, 'time')} in a row"
        return "failures", AlertText(fact, error=error)
    return "dead_letter", AlertText(f"a run of {subject} is a dead letter", "replay or discard it", error)


def _reminder(incident: Incident) -> AlertText:
    since = utc_datetime(incident.opened_ms).strftime("%Y-%m-%d %H:%M UTC")
    fact = f"{_subject(incident)} still fails: {_times(incident.failed_runs, 'failed run')} since {since}"
    advice = f"acknowledge the incident if you know of it: wakeful incidents ack {incident.id}"
    return AlertText(fact, advice, incident.error or "")


def _recovery(incident: Incident) -> AlertText:
    after = f"after {_times(incident.failed_runs, 'failed run')}"
    return AlertText(f"{_subject(incident)} has recovered {after} ({incident.cause})")


def _about(incident: Incident, kind: str, text: AlertText) -> Message:
    recovered = kind == "recovered"
    return Message(
        kind,
        incident.closed_ms if recovered and incident.closed_ms is not None else incident.failed_ms,
        incident.workspace,
        incident.agent,
        incident.job_name,
        incident.closed_by_run if recovered else incident.last_run_id,
        incident.in_a_row if kind in ("failures", "dead_letter") else incident.failed_runs,
        text,
        incident,
    )


def message_runs(message: Message, recipients: Recipients, now_ms: int) -> tuple[NewRun, ...]:
    """Return the runs that send a message: one for each destination."""
    ways = (
        (recipients.webhook, _webhook_payload(message)),
        (recipients.channel, _channel_payload(message)),
    )
    return tuple(_run(message, sender, payload, now_ms) for sender, payload in ways if sender is not None)


def _webhook_payload(message: Message) -> dict[str, Json]:
    """Return the payload for the webhook."""
    incident = message.incident
    return {
        "kind": message.kind,
        "workspace": message.workspace,
        "agent": message.agent or None,
        "job": message.job,
        "run": message.run_id,
        "count": message.times,
        "message": message.text.message,
        "at": utc_datetime(message.at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        **({"incident": incident.id, "cause": incident.cause} if incident else {}),
    }


def _channel_payload(message: Message) -> dict[str, Json]:
    """Return the payload for the channel: a title, and the details as the body."""
    text, incident = message.text, message.incident
    error = text.error if len(text.error) <= _CHANNEL_ERROR else f"{text.error[: _CHANNEL_ERROR - 1]}…"
    details = "\n".join([*text.lines, *(_sentence(line) for line in (error, text.advice) if line)])
    where = [
        f"workspace {message.workspace}",
        *([f"incident {incident.id}"] if incident else []),
        *([f"run {message.run_id}"] if message.run_id else []),
        utc_datetime(message.at_ms).strftime("%Y-%m-%d %H:%M:%S UTC"),
    ]
    return {
        "title": f"Wakeful: {text.fact}",
        "body": "\n".join([*([details, ""] if details else []), *where]),
        "kind": _CHANNEL_KINDS.get(message.kind, "failure"),
    }


def _run(message: Message, sender: AlertJob, payload: Json, now_ms: int) -> NewRun:
    return manual_run(
        job_id=sender.id,
        workspace=message.workspace,
        agent=sender.agent,
        job_name=sender.name,
        lane=work_from_text(sender.work).lane,
        trigger="alert",
        now_ms=now_ms,
        triggered_by=message.run_id,
        payload=payload_to_text(payload),
    )


def _budget_alert(event: AlertEvent) -> AlertText:
    details = _details(event)
    cap = str(details.get("cap"))
    used, most = _plain(details.get("used")), _plain(details.get("most"))
    unit = _UNITS.get(cap, cap)
    return AlertText(
        f"{_subject(event)} has used {used} {unit} today; its budget is {most} ({cap})",
        "its ticks are skipped until midnight UTC",
    )


def _waiting_alert(event: AlertEvent) -> AlertText:
    if event.run_id is None:
        item, fact = f"approval:{event.job_id}", f"{_subject(event)} waits for approval"
    else:
        item = f"verification:{event.run_id}"
        fact = f"a run of {_subject(event)} waits for a person to confirm its work"
    return AlertText(fact, f"decide with: wakeful inbox approve {item}, or reject {item}")


def _details(event: AlertEvent) -> Mapping[str, Json]:
    details = json.loads(event.details)
    return details if isinstance(details, dict) else {}


def _sentence(text: str) -> str:
    """Return the text with its first letter in upper case.

    >>> _sentence("no replica was running")
    'No replica was running'
    """
    return text[:1].upper() + text[1:]


def _plain(number: Json) -> str:
    """Return a number without trailing zeros.

    >>> _plain(200000.0), _plain(0.5)
    ('200000', '0.5')
    """
    if isinstance(number, float):
        return str(int(number)) if number.is_integer() else f"{number:.6g}"
    return str(number)


def _subject(of: AlertEvent | Incident) -> str:
    if of.job_name is not None:
        return f"job '{of.job_name}' of agent '{of.agent}'"
    return f"agent '{of.agent}'" if of.agent else f"workspace '{of.workspace}'"


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
