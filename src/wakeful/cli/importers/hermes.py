"""Read the store of Hermes' cron: `~/.hermes/cron/jobs.json`."""

from __future__ import annotations

from typing import Final

from wakeful.cli.importers.agent_jobs import JobReader, read_store
from wakeful.cli.importers.entries import Reading
from wakeful.duration import MINUTE
from wakeful.errors import InvalidArgument

#: Fields that are converted, or that are state.
_KNOWN: Final = frozenset(
    "id name prompt schedule schedule_display repeat enabled state paused_at paused_reason created_at "
    "next_run_at last_run_at last_status last_error last_delivery_error last_delivery_unverified "
    "failure_streak deliver origin no_agent provider_snapshot model_snapshot monitor_state skill "
    "run_claim fire_claim latest_execution".split()
)
#: Fields that an executor can use: the job's payload carries them.
_CARRIED: Final = (
    "skills",
    "model",
    "provider",
    "base_url",
    "script",
    "workdir",
    "enabled_toolsets",
    "reasoning_effort",
)


def read_hermes(text: str, *, file: str = "-") -> Reading:
    """Return the entries of a `jobs.json`; every field that is lost has a note."""
    return read_store(text, file, "jobs.json of Hermes", _read)


def _read(job: JobReader) -> None:
    if job.value("no_agent"):
        raise InvalidArgument("no_agent: it runs a script without an agent; add it as a command target")
    prompt = job.value("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise InvalidArgument("prompt: it is empty")
    carried = {name: job.value(name) for name in _CARRIED if job.value(name) not in (None, "", [], False)}
    job.set_message(prompt, carried)
    job.note_carried(job.source, _CARRIED)
    _schedule(job)
    _repeat(job)
    _delivery(job)
    job.fields["stateless"] = True  # each run is a new session there
    job.note_unknown(job.source, _KNOWN | set(_CARRIED))


def _schedule(job: JobReader) -> None:
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
            job.schedule = schedule.get("expr")
        case kind:
            raise InvalidArgument(f"schedule.kind '{kind}' cannot be converted: only once, interval and cron")


def _repeat(job: JobReader) -> None:
    repeat = job.value("repeat")
    times = repeat.get("times") if isinstance(repeat, dict) else None
    done = repeat.get("completed") if isinstance(repeat, dict) else None
    if isinstance(times, int) and job.mapping("schedule").get("kind") != "once":
        left = times - (done if isinstance(done, int) else 0)
        if left <= 0:
            raise InvalidArgument("repeat: it has run as often as it should")
        job.fields["maxRuns"] = left


def _delivery(job: JobReader) -> None:
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
