"""Who is told of an incident, and in which words. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from wakeful.document import payload_to_text, work_from_text
from wakeful.document.guards import ALERT_DEFAULTS
from wakeful.engine.births import lane_of, of_trigger
from wakeful.job import Json
from wakeful.launch.port import instant
from wakeful.store.guarding import Alert, Incident
from wakeful.store.rows import RunRow

_SHOWN: Final = 500
_WORDS: Final = {"tokensPerDay": "tokens", "costPerDay": "cost"}


def judge(incident: Incident, now_ms: int) -> list[Alert]:
    """The alerts that an incident calls for: none, one, or for a failure two."""
    if incident.alerts is None or incident.sender_id is None:
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
    told = {}
    if incident.kind == "missed" and wishes["missed"]:
        told["missed"] = f"{_who(incident)} missed {_times(incident.times, 'tick')}: nobody was awake"
    if incident.kind == "failed":
        why = f": {incident.error[:_SHOWN]}" if incident.error else ""
        least = wishes["failures"]
        if isinstance(least, int) and incident.times >= least:
            told["failures"] = f"{_who(incident)} has failed {_times(incident.times, 'time')} in a row{why}"
        if wishes["deadLetter"]:
            told["dead_letter"] = f"a run of {_who(incident)} is a dead letter; replay or discard it{why}"
    return [_alert(incident, kind, subject, cooldown_ms, message, now_ms) for kind, message in told.items()]


def _alert(incident: Incident, kind: str, subject: str, cooldown_ms: int, message: str, now_ms: int) -> Alert:
    payload: dict[str, Json] = {
        "kind": kind,
        "workspace": incident.workspace,
        "agent": incident.agent or None,
        "job": incident.job_name,
        "run": incident.run_id,
        "count": incident.times,
        "message": message,
        "at": instant(incident.at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    return Alert(incident.workspace, subject, kind, cooldown_ms, _run(incident, payload, now_ms))


def _run(incident: Incident, payload: Json, now_ms: int) -> RunRow:
    assert incident.sender_agent is not None
    return of_trigger(
        job_id=incident.sender_id,
        workspace=incident.workspace,
        agent=incident.sender_agent,
        job_name=incident.sender_name,
        lane=lane_of(work_from_text(incident.sender_work or "{}")),
        trigger="alert",
        now_ms=now_ms,
        triggered_by=incident.run_id,
        payload=payload_to_text(payload),
    )


def _spent(incident: Incident) -> str:
    details = _details(incident)
    cap = str(details.get("cap"))
    used, most = _plain(details.get("used")), _plain(details.get("most"))
    what = _WORDS.get(cap, cap)
    return (
        f"{_who(incident)} has used {used} {what} today, and may use {most} ({cap}); "
        "its ticks are skipped until midnight UTC"
    )


def _details(incident: Incident) -> Mapping[str, Json]:
    details = json.loads(incident.details)
    return details if isinstance(details, dict) else {}


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
