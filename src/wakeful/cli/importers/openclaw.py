"""Read the store of OpenClaw's cron: `~/.openclaw/cron/jobs.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.cli.importers.agent_jobs import JobReader, read_store
from wakeful.cli.importers.entries import Reading
from wakeful.duration import spell_duration
from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json

#: Fields of a job that are converted, or that have no counterpart because they are state.
_KNOWN: Final = frozenset(
    "id agentId name description enabled deleteAfterRun createdAtMs updatedAtMs schedule sessionTarget "
    "wakeMode payload delivery state".split()
)
_PAYLOAD: Final = frozenset(
    "kind message text timeoutSeconds deliver channel to provider bestEffortDeliver".split()
)
#: Fields of a payload that an executor can use: the job's payload carries them.
_CARRIED: Final = ("model", "fallbacks", "thinking", "lightContext", "toolsAllow")


def read_openclaw(text: str, *, file: str = "-") -> Reading:
    """Return the entries of a `jobs.json`; every field that is lost has a note."""
    return read_store(text, file, "jobs.json of OpenClaw", _read)


def _read(job: JobReader) -> None:
    payload = job.mapping("payload")
    kind = payload.get("kind")
    message = payload.get("message" if kind == "agentTurn" else "text")
    if kind not in ("agentTurn", "systemEvent"):
        raise InvalidArgument(f"payload.kind '{kind}' cannot be converted: only agentTurn and systemEvent")
    if not isinstance(message, str) or not message.strip():
        raise InvalidArgument("payload: it has no message")
    job.set_message(message, {key: payload[key] for key in _CARRIED if payload.get(key) is not None})
    job.note_carried(payload, _CARRIED, "payload")
    _schedule(job)
    _session(job, str(kind))
    _delivery(job, payload, str(kind))
    timeout = payload.get("timeoutSeconds")
    if isinstance(timeout, int | float) and timeout > 0:
        job.fields["timeoutMs"] = int(timeout * 1000)
    if isinstance(job.value("deleteAfterRun"), bool):
        job.fields["deleteAfterRun"] = job.value("deleteAfterRun")
    if isinstance(agent := job.value("agentId"), str):
        job.agent = agent
    job.note_unknown(job.source, _KNOWN)
    job.note_unknown(payload, _PAYLOAD | set(_CARRIED), "payload")


def _schedule(job: JobReader) -> None:
    schedule = job.mapping("schedule")
    kind = schedule.get("kind")
    match kind:
        case "at":
            at = schedule.get("at", schedule.get("atMs"))
            # A time without a zone is UTC there.
            job.schedule = {"kind": "at", "atMs": at} if isinstance(at, int) else {"kind": "at", "at": at}
            job.tz = "UTC"
        case "every":
            job.schedule = {"kind": "every", "everyMs": schedule.get("everyMs")}
            if isinstance(anchor := schedule.get("anchorMs"), int):
                job.fields["startAt"] = anchor
        case "cron":
            job.schedule = schedule.get("expr")
            job.tz = tz if isinstance(tz := schedule.get("tz"), str) and tz else None
        case _:
            raise InvalidArgument(f"schedule.kind '{kind}' cannot be converted: only at, every and cron")
    stagger = schedule.get("staggerMs")
    if isinstance(stagger, int) and stagger > 0:
        job.fields["jitterMs"] = stagger // 2
        job.note(
            "schedule.staggerMs",
            f"becomes a jitter of {spell_duration(stagger // 2)}, earlier or later; there it only delays",
        )
    job.note_unknown(
        schedule, {"kind", "at", "atMs", "everyMs", "anchorMs", "expr", "tz", "staggerMs"}, "schedule"
    )


def _session(job: JobReader, kind: str) -> None:
    target = job.value("sessionTarget")
    if target == "isolated":
        job.fields["stateless"] = True
    elif target == "main" or kind == "systemEvent":
        job.note("sessionTarget", "not converted: a job has its own session, not the agent's main one")
    elif target is not None:
        job.note("sessionTarget", f"not converted: '{target}'; a job has its own session")
    mode = job.value("wakeMode")
    if mode == "next-heartbeat":
        job.note("wakeMode", "not converted: a run starts at its tick and does not wait for a heartbeat")
    elif mode == "now" and kind == "agentTurn":
        job.fields["wakeHeartbeat"] = True


def _delivery(job: JobReader, payload: Mapping[str, Json], kind: str) -> None:
    """Convert `delivery`, or the older fields of the payload. Without either, a turn announces its answer."""
    delivery = job.value("delivery")
    if not isinstance(delivery, Mapping):
        asked = payload.get("deliver")
        announces = kind == "agentTurn" and asked is not False
        channel = payload.get("channel", payload.get("provider"))
        delivery = {"mode": "announce" if announces else "none", "channel": channel, "to": payload.get("to")}
        if payload.get("bestEffortDeliver") is not None:
            job.note("payload.bestEffortDeliver", _BEST_EFFORT)
    mode = delivery.get("mode")
    if mode == "announce":
        job.set_delivery(delivery.get("channel"), delivery.get("to"), "delivery")
    elif mode == "webhook":
        job.note("delivery", "not converted: output is not posted to a URL; use --url, or an alert")
    if delivery.get("bestEffort") is not None:
        job.note("delivery.bestEffort", _BEST_EFFORT)
    job.note_unknown(delivery, {"mode", "channel", "to", "bestEffort"}, "delivery")


_BEST_EFFORT: Final = "not needed: a delivery never fails its run"
