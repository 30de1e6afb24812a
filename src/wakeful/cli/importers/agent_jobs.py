"""Read the cron stores of OpenClaw and Hermes: `~/.openclaw/cron/jobs.json`, `~/.hermes/cron/jobs.json`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, cast

from wakeful.cli.arguments import read_text
from wakeful.cli.importers.entries import STDIN, EntryLocation, ImportEntry, ReadResult, Remark, slug
from wakeful.errors import InvalidArgument
from wakeful.values.duration import MINUTE, spell_duration
from wakeful.values.json_value import Json

#: Fields of a job that are converted, or that have no counterpart because they are state.
_OPENCLAW_FIELDS: Final = frozenset(
    "id agentId name description enabled deleteAfterRun createdAtMs updatedAtMs schedule sessionTarget "
    "wakeMode payload delivery state".split()
)
_OPENCLAW_PAYLOAD: Final = frozenset(
    "kind message text timeoutSeconds deliver channel to provider bestEffortDeliver".split()
)
#: Fields of a payload that an executor can use: the job's payload carries them.
_OPENCLAW_CARRIED: Final = ("model", "fallbacks", "thinking", "lightContext", "toolsAllow")
#: Fields that are converted, or that are state.
_HERMES_FIELDS: Final = frozenset(
    "id name prompt schedule schedule_display repeat enabled state paused_at paused_reason created_at "
    "next_run_at last_run_at last_status last_error last_delivery_error last_delivery_unverified "
    "failure_streak deliver origin no_agent provider_snapshot model_snapshot monitor_state skill "
    "run_claim fire_claim latest_execution".split()
)
#: Fields that an executor can use: the job's payload carries them.
_HERMES_CARRIED: Final = (
    "skills",
    "model",
    "provider",
    "base_url",
    "script",
    "workdir",
    "enabled_toolsets",
    "reasoning_effort",
)
_BEST_EFFORT: Final = "not needed: a delivery never fails its run"


@dataclass(slots=True)
class JobReader:
    """One job of the file, and what it becomes."""

    source: Mapping[str, Json]
    place: EntryLocation
    schedule: Json = None
    tz: str | None = None
    agent: str | None = None
    fields: dict[str, Json] = field(default_factory=dict)
    notes: list[Remark] = field(default_factory=list)

    def value(self, name: str) -> Json:
        """Return a field of the job."""
        return self.source.get(name)

    def mapping(self, name: str) -> Mapping[str, Json]:
        """Return a field that is an object, or raise InvalidArgument."""
        value = self.source.get(name)
        if not isinstance(value, Mapping):
            raise InvalidArgument(f"{name}: it is missing, or not an object")
        return cast(Mapping[str, Json], value)

    def note(self, name: str, why: str) -> None:
        """Add a note about a field."""
        self.notes.append(Remark(self.place, self.place.item, why, name))

    def note_unknown(self, values: Mapping[str, Json], known: Collection[str], where: str = "") -> None:
        """Add a note for each field with a value that is not known."""
        prefix = f"{where}." if where else ""
        for name, value in values.items():
            if name not in known and value not in (None, False, "", [], {}):
                self.note(f"{prefix}{name}", "not converted")

    def note_carried(self, values: Mapping[str, Json], names: Sequence[str], where: str = "") -> None:
        """Add a note for each field that the payload carries."""
        prefix = f"{where}." if where else ""
        for name in names:
            if values.get(name) not in (None, False, "", [], {}):
                self.note(f"{prefix}{name}", "passed in the payload: the target decides what it means")

    def set_message(self, message: str, carried: Mapping[str, Json]) -> None:
        """Set the message; what the target may also need goes into the payload."""
        self.fields["message"] = message
        if carried:
            self.fields["payload"] = {"message": message, **carried}

    def set_delivery(self, channel: Json, to: Json, where: str) -> None:
        """Deliver the output; without a channel, to that of the agent."""
        self.fields["deliver"] = True
        if isinstance(channel, str) and channel not in ("", "last"):
            self.fields["channel"] = channel
        else:
            self.note(where, "goes to the channel of the agent: there it goes to the last conversation")
        if isinstance(to, str) and to:
            self.fields["to"] = to

    def entry(self) -> ImportEntry:
        """Return the entry."""
        title = self.place.item
        self.fields.setdefault("description", str(self.value("description") or title)[:10_000])
        if self.value("enabled") is False:
            self.fields["enabled"] = False
        return ImportEntry(
            self.place, title, slug(title), self.schedule, self.tz, None, self.fields, _agent(self.agent)
        )


class StoreReader(Protocol):
    """A reader of a `jobs.json`."""

    def __call__(self, text: str, *, file: str) -> ReadResult:
        """Return the entries of the text."""
        ...


async def read_store_file(path: str, read: StoreReader) -> ReadResult:
    """Read a file of jobs; `~` is the home directory, `-` is stdin."""
    name = path if path == STDIN else str(await asyncio.to_thread(Path(path).expanduser))
    return read(await read_text(name), file=name)


def read_store(text: str, file: str, what: str, read: Callable[[JobReader], None]) -> ReadResult:
    """Return the entries of a store: a list of jobs, or an object with `jobs`."""
    try:
        content = json.loads(text.removeprefix("\ufeff"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{'stdin' if file == '-' else file}: it is not JSON: {error}") from error
    jobs = content.get("jobs") if isinstance(content, dict) else content
    if isinstance(jobs, dict):
        jobs = list(jobs.values())
    if not isinstance(jobs, list):
        raise InvalidArgument(
            f"{'stdin' if file == '-' else file}: it is not a {what}: it has no list of jobs"
        )
    entries: list[ImportEntry] = []
    refused: list[Remark] = []
    notes: list[Remark] = []
    for number, job in enumerate(jobs, 1):
        if not isinstance(job, dict):
            refused.append(
                Remark(EntryLocation(file, f"job {number}"), str(job)[:100], "it is not an object")
            )
            continue
        reader = JobReader(job, EntryLocation(file, str(job.get("name") or job.get("id") or f"job {number}")))
        try:
            read(reader)
            entries.append(reader.entry())
            notes += reader.notes
        except InvalidArgument as error:
            refused.append(Remark(reader.place, reader.place.item, error.message))
        except OverflowError:
            refused.append(Remark(reader.place, reader.place.item, "a number in it is too large"))
    return ReadResult(tuple(entries), tuple(refused), tuple(notes))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _agent(name: str | None) -> str | None:
    return slug(name) if name else None


def read_openclaw(text: str, *, file: str = "-") -> ReadResult:
    """Return the entries of a `jobs.json`; every field that is lost has a note."""
    return read_store(text, file, "jobs.json of OpenClaw", _read_openclaw_job)


def _read_openclaw_job(job: JobReader) -> None:
    payload = job.mapping("payload")
    kind = payload.get("kind")
    message = payload.get("message" if kind == "agentTurn" else "text")
    if kind not in ("agentTurn", "systemEvent"):
        raise InvalidArgument(f"payload.kind '{kind}' cannot be converted: only agentTurn and systemEvent")
    if not isinstance(message, str) or not message.strip():
        raise InvalidArgument("payload: it has no message")
    job.set_message(message, {key: payload[key] for key in _OPENCLAW_CARRIED if payload.get(key) is not None})
    job.note_carried(payload, _OPENCLAW_CARRIED, "payload")
    _read_openclaw_schedule(job)
    _read_openclaw_session(job, str(kind))
    _read_openclaw_delivery(job, payload, str(kind))
    timeout = payload.get("timeoutSeconds")
    if isinstance(timeout, int | float) and timeout > 0:
        job.fields["timeoutMs"] = int(timeout * 1000)
    if isinstance(job.value("deleteAfterRun"), bool):
        job.fields["deleteAfterRun"] = job.value("deleteAfterRun")
    if isinstance(agent := job.value("agentId"), str):
        job.agent = agent
    job.note_unknown(job.source, _OPENCLAW_FIELDS)
    job.note_unknown(payload, _OPENCLAW_PAYLOAD | set(_OPENCLAW_CARRIED), "payload")


def _read_openclaw_schedule(job: JobReader) -> None:
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


def _read_openclaw_session(job: JobReader, kind: str) -> None:
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


def _read_openclaw_delivery(job: JobReader, payload: Mapping[str, Json], kind: str) -> None:
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


def read_hermes(text: str, *, file: str = "-") -> ReadResult:
    """Return the entries of a `jobs.json`; every field that is lost has a note."""
    return read_store(text, file, "jobs.json of Hermes", _read_hermes_job)


def _read_hermes_job(job: JobReader) -> None:
    if job.value("no_agent"):
        raise InvalidArgument("no_agent: it runs a script without an agent; add it as a command target")
    prompt = job.value("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise InvalidArgument("prompt: it is empty")
    carried = {
        name: job.value(name) for name in _HERMES_CARRIED if job.value(name) not in (None, "", [], False)
    }
    job.set_message(prompt, carried)
    job.note_carried(job.source, _HERMES_CARRIED)
    _read_hermes_schedule(job)
    _read_hermes_repeat(job)
    _read_hermes_delivery(job)
    job.fields["stateless"] = True  # each run is a new session there
    job.note_unknown(job.source, _HERMES_FIELDS | set(_HERMES_CARRIED))


def _read_hermes_schedule(job: JobReader) -> None:
    schedule = job.mapping("schedule")
    match schedule.get("kind"):
        case "once":
            job.schedule = {"kind": "at", "at": schedule.get("run_at")}
        case "interval":
            minutes = schedule.get("minutes")
            if not isinstance(minutes, int | float):
                raise InvalidArgument("schedule.minutes: it is not a number")
            job.schedule = {"kind": "every", "everyMs": int(minutes * MINUTE)}
        case "cron":
            expression = schedule.get("expr")
            if not isinstance(expression, str) or len(expression.split()) != 5:
                # There, seconds are the last field, and here the first: it would mean something else.
                raise InvalidArgument(f"schedule.expr: '{expression}' does not have five fields")
            job.schedule = expression
        case kind:
            raise InvalidArgument(f"schedule.kind '{kind}' cannot be converted: only once, interval and cron")


def _read_hermes_repeat(job: JobReader) -> None:
    repeat = job.value("repeat")
    times = repeat.get("times") if isinstance(repeat, dict) else None
    done = repeat.get("completed") if isinstance(repeat, dict) else None
    if isinstance(times, int) and job.mapping("schedule").get("kind") != "once":
        left = times - (done if isinstance(done, int) else 0)
        if left <= 0:
            raise InvalidArgument("repeat: it has run as often as it should")
        job.fields["maxRuns"] = left


def _read_hermes_delivery(job: JobReader) -> None:
    """Convert `deliver`: `local`, `origin`, a platform, or `platform:chat`."""
    deliver = job.value("deliver")
    if not isinstance(deliver, str) or deliver in ("", "local"):
        return
    if deliver == "origin":
        origin = job.value("origin")
        known = origin if isinstance(origin, dict) else {}
        chat = known.get("chat_id")
        job.set_delivery(known.get("platform"), None if chat is None else str(chat), "deliver")
    elif "," in deliver or deliver == "all":
        job.note("deliver", f"not converted: '{deliver}' names several destinations, and a job has one")
    else:
        platform, _, chat = deliver.partition(":")
        job.set_delivery(platform, chat or None, "deliver")
