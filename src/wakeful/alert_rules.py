"""Who is told of an incident, and in which words. Pure."""

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

#: How much of an error is told; on a telephone, less.
_SHOWN: Final = 500
_GLANCE: Final = 300
_WORDS: Final = {"tokensPerDay": "tokens", "costPerDay": "cost"}


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


class Words(NamedTuple):
    """What is said of an incident."""

    #: what is wrong
    fact: str
    #: what that means, or what to do about it
    advice: str = ""
    #: what the run itself says
    error: str = ""

    @property
    def message(self) -> str:
        """All of it in one line."""
        said = f"{self.fact}; {self.advice}" if self.advice else self.fact
        return f"{said}: {self.error[:_SHOWN]}" if self.error else said


def judge(incident: Incident, now_ms: int) -> list[Alert]:
    """The alerts that an incident calls for: none, one, or for a failure two."""
    if incident.alerts is None or (incident.webhook is None and incident.channel is None):
        return []
    read = json.loads(incident.alerts)
    wishes: Mapping[str, Json] = {**ALERT_DEFAULTS, **(read if isinstance(read, dict) else {})}
    if incident.kind == "budget":
        # A cap is reached once a day: that is cool-down enough.
        cap = f"{incident.agent}/{incident.job_id or ''}/{_details(incident).get('cap')}"
        return [_alert(incident, "budget", cap, 0, _spent(incident), now_ms)] if wishes["budget"] else []
    cooldown_ms = wishes["cooldownMs"]
    assert isinstance(cooldown_ms, int)
    subject = incident.job_id or incident.agent
    told: dict[str, Words] = {}
    if incident.kind == "missed" and wishes["missed"]:
        told["missed"] = Words(
            f"{_who(incident)} missed {_times(incident.times, 'tick')}", error="nobody was awake"
        )
    if incident.kind == "failed":
        why = incident.error or ""
        least = wishes["failures"]
        if isinstance(least, int) and incident.times >= least:
            fact = f"{_who(incident)} has failed {_times(incident.times, 'time')} in a row"
            told["failures"] = Words(fact, error=why)
        if wishes["deadLetter"]:
            fact = f"a run of {_who(incident)} is a dead letter"
            told["dead_letter"] = Words(fact, "replay or discard it", why)
    return [_alert(incident, kind, subject, cooldown_ms, words, now_ms) for kind, words in told.items()]


def _alert(incident: Incident, kind: str, subject: str, cooldown_ms: int, words: Words, now_ms: int) -> Alert:
    ways = (
        (incident.webhook, _for_machines(incident, kind, words)),
        (incident.channel, _for_people(incident, kind, words)),
    )
    runs = tuple(_run(incident, sender, payload, now_ms) for sender, payload in ways if sender is not None)
    return Alert(incident.workspace, subject, kind, cooldown_ms, runs)


def _for_machines(incident: Incident, kind: str, words: Words) -> dict[str, Json]:
    """What a webhook is sent."""
    return {
        "kind": kind,
        "workspace": incident.workspace,
        "agent": incident.agent or None,
        "job": incident.job_name,
        "run": incident.run_id,
        "count": incident.times,
        "message": words.message,
        "at": utc_datetime(incident.at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


def _for_people(incident: Incident, kind: str, words: Words) -> dict[str, Json]:
    """What a channel is sent, to be read at a glance: what is wrong as the title, the rest below it."""
    error = words.error if len(words.error) <= _GLANCE else f"{words.error[: _GLANCE - 1]}…"
    said = "\n".join(_sentence(text) for text in (error, words.advice) if text)
    at = utc_datetime(incident.at_ms).strftime("%Y-%m-%d %H:%M:%S UTC")
    where = [f"workspace {incident.workspace}", *([f"run {incident.run_id}"] if incident.run_id else []), at]
    return {
        "title": f"Wakeful: {words.fact}",
        "body": "\n".join([*([said, ""] if said else []), *where]),
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


def _spent(incident: Incident) -> Words:
    details = _details(incident)
    cap = str(details.get("cap"))
    used, most = _plain(details.get("used")), _plain(details.get("most"))
    what = _WORDS.get(cap, cap)
    return Words(
        f"{_who(incident)} has used {used} {what} today, and may use {most} ({cap})",
        "its ticks are skipped until midnight UTC",
    )


def _details(incident: Incident) -> Mapping[str, Json]:
    details = json.loads(incident.details)
    return details if isinstance(details, dict) else {}


def _sentence(text: str) -> str:
    """A text that can stand alone on its line.

    >>> _sentence("nobody was awake")
    'Nobody was awake'
    """
    return text[:1].upper() + text[1:]


def _plain(number: Json) -> str:
    """A number as people write it.

    >>> _plain(200000.0), _plain(0.5)
    ('200000', '0.5')
    """
    if isinstance(number, float):
        return str(int(number)) if number.is_integer() else f"{number:.6g}"
    return str(number)


def _who(incident: Incident) -> str:
    if incident.job_name is not None:
        return f"job '{incident.job_name}' of agent '{incident.agent}'"
    return f"agent '{incident.agent}'" if incident.agent else f"workspace '{incident.workspace}'"


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _alert_job(id: str | None, agent: str | None, name: str | None, work: str | None) -> AlertJob | None:
    if id is None or agent is None or name is None or work is None:
        return None
    return AlertJob(id, agent, name, work)
