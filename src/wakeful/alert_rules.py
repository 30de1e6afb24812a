"""Which alerts an incident causes, and their texts. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from wakeful.document import payload_to_text, work_from_text
from wakeful.document.guards import ALERT_DEFAULTS
from wakeful.instants import utc_datetime
from wakeful.job import Json
from wakeful.run import NewRun
from wakeful.run_factory import manual_run

#: How much of an error an alert shows: to a webhook, and to a channel.
_MAX_ERROR: Final = 500
_CHANNEL_ERROR: Final = 300
_UNITS: Final = {"tokensPerDay": "tokens", "costPerDay": "cost"}


class AlertJob(NamedTuple):
    """A job that sends alerts."""

    id: str
    agent: str
    name: str
    work: str


class Incident(NamedTuple):
    """An event that may cause an alert, with everything that the alert needs."""

    id: int
    at_ms: int
    kind: str
    workspace: str
    #: '' for the whole workspace
    agent: str
    job_id: str | None
    run_id: str | None
    #: consecutive failures; missed ticks; 1
    times: int
    #: compact JSON with further facts
    details: str
    job_name: str | None
    error: str | None
    #: compact JSON of the alert settings: the agent's, else the workspace's; None: removed since
    alerts: str | None
    #: the job that sends to the webhook; None: there is none
    webhook_id: str | None
    webhook_agent: str | None
    webhook_name: str | None
    webhook_work: str | None
    #: the job that sends to the channel; None: there is none
    channel_id: str | None
    channel_agent: str | None
    channel_name: str | None
    channel_work: str | None

    @property
    def webhook(self) -> AlertJob | None:
        """The job that sends to the webhook."""
        return _alert_job(self.webhook_id, self.webhook_agent, self.webhook_name, self.webhook_work)

    @property
    def channel(self) -> AlertJob | None:
        """The job that sends to the channel."""
        return _alert_job(self.channel_id, self.channel_agent, self.channel_name, self.channel_work)


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

    @property
    def message(self) -> str:
        """The text in one line."""
        text = f"{self.fact}; {self.advice}" if self.advice else self.fact
        return f"{text}: {self.error[:_MAX_ERROR]}" if self.error else text


def judge(incident: Incident, now_ms: int) -> list[Alert]:
    """Return the alerts that an incident causes: none, one, or two for a failure."""
    if incident.alerts is None or (incident.webhook is None and incident.channel is None):
        return []
    stored = json.loads(incident.alerts)
    settings: Mapping[str, Json] = {**ALERT_DEFAULTS, **(stored if isinstance(stored, dict) else {})}
    if incident.kind == "budget":
        # A cap is reached at most once a day, so it needs no cool-down.
        cap = f"{incident.agent}/{incident.job_id or ''}/{_details(incident).get('cap')}"
        return [_alert(incident, "budget", cap, 0, _spent(incident), now_ms)] if settings["budget"] else []
    cooldown_ms = settings["cooldownMs"]
    assert isinstance(cooldown_ms, int)
    subject = incident.job_id or incident.agent
    texts: dict[str, AlertText] = {}
    if incident.kind == "missed" and settings["missed"]:
        texts["missed"] = AlertText(
            f"{_subject(incident)} missed {_times(incident.times, 'tick')}", error="no replica was running"
        )
    if incident.kind == "failed":
        error = incident.error or ""
        threshold = settings["failures"]
        if isinstance(threshold, int) and incident.times >= threshold:
            fact = f"{_subject(incident)} has failed {_times(incident.times, 'time')} in a row"
            texts["failures"] = AlertText(fact, error=error)
        if settings["deadLetter"]:
            fact = f"a run of {_subject(incident)} is a dead letter"
            texts["dead_letter"] = AlertText(fact, "replay or discard it", error)
    return [_alert(incident, kind, subject, cooldown_ms, text, now_ms) for kind, text in texts.items()]


def _alert(
    incident: Incident, kind: str, subject: str, cooldown_ms: int, text: AlertText, now_ms: int
) -> Alert:
    ways = (
        (incident.webhook, _webhook_payload(incident, kind, text)),
        (incident.channel, _channel_payload(incident, kind, text)),
    )
    runs = tuple(_run(incident, sender, payload, now_ms) for sender, payload in ways if sender is not None)
    return Alert(incident.workspace, subject, kind, cooldown_ms, runs)


def _webhook_payload(incident: Incident, kind: str, text: AlertText) -> dict[str, Json]:
    """Return the payload for the webhook."""
    return {
        "kind": kind,
        "workspace": incident.workspace,
        "agent": incident.agent or None,
        "job": incident.job_name,
        "run": incident.run_id,
        "count": incident.times,
        "message": text.message,
        "at": utc_datetime(incident.at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


def _channel_payload(incident: Incident, kind: str, text: AlertText) -> dict[str, Json]:
    """Return the payload for the channel: a title, and the details as the body."""
    error = text.error if len(text.error) <= _CHANNEL_ERROR else f"{text.error[: _CHANNEL_ERROR - 1]}…"
    details = "\n".join(_sentence(line) for line in (error, text.advice) if line)
    at = utc_datetime(incident.at_ms).strftime("%Y-%m-%d %H:%M:%S UTC")
    where = [f"workspace {incident.workspace}", *([f"run {incident.run_id}"] if incident.run_id else []), at]
    return {
        "title": f"Wakeful: {text.fact}",
        "body": "\n".join([*([details, ""] if details else []), *where]),
        "kind": "warning" if kind == "budget" else "failure",
    }


def _run(incident: Incident, sender: AlertJob, payload: Json, now_ms: int) -> NewRun:
    return manual_run(
        job_id=sender.id,
        workspace=incident.workspace,
        agent=sender.agent,
        job_name=sender.name,
        lane=work_from_text(sender.work).lane,
        trigger="alert",
        now_ms=now_ms,
        triggered_by=incident.run_id,
        payload=payload_to_text(payload),
    )


def _spent(incident: Incident) -> AlertText:
    details = _details(incident)
    cap = str(details.get("cap"))
    used, most = _plain(details.get("used")), _plain(details.get("most"))
    unit = _UNITS.get(cap, cap)
    return AlertText(
        f"{_subject(incident)} has used {used} {unit} today; its budget is {most} ({cap})",
        "its ticks are skipped until midnight UTC",
    )


def _details(incident: Incident) -> Mapping[str, Json]:
    details = json.loads(incident.details)
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


def _subject(incident: Incident) -> str:
    if incident.job_name is not None:
        return f"job '{incident.job_name}' of agent '{incident.agent}'"
    return f"agent '{incident.agent}'" if incident.agent else f"workspace '{incident.workspace}'"


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _alert_job(id: str | None, agent: str | None, name: str | None, work: str | None) -> AlertJob | None:
    if id is None or agent is None or name is None or work is None:
        return None
    return AlertJob(id, agent, name, work)
