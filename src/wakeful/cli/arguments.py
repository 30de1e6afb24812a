"""Arguments that several commands share, and the shell completion of job names."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, ParamSpec, TypeVar

import typer

from wakeful.client.rest import RestClient
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.values.clock import SystemClock
from wakeful.values.json_value import Json

P = ParamSpec("P")
T = TypeVar("T")

#: Completion gives up after this many seconds.
_TIMEOUT_S = 0.8


def job_names(incomplete: str) -> list[str]:
    """Return the job names with this prefix; none if the server does not respond in time."""
    try:
        return asyncio.run(_names(incomplete))
    except (WakefulError, OSError):
        return []


async def _names(incomplete: str) -> list[str]:
    workspace = os.environ.get("WAKEFUL_WORKSPACE") or "default"
    agent = os.environ.get("WAKEFUL_AGENT") or "default"
    async with RestClient(workspace=workspace, timeout=_TIMEOUT_S) as client:
        jobs = await client.list_every_job()
    names = [job["name"] if job["agentId"] == agent else f"{job['agentId']}/{job['name']}" for job in jobs]
    return [name for name in names if name.startswith(incomplete)]


JobName = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=job_names, help="the job: name, agent/name or id")
]
AgentName = Annotated[str, typer.Argument(metavar="AGENT", help="the agent's name")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="the run's id, as `wakeful runs` shows it")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="how many at most")]
CreateAgent = Annotated[
    bool,
    typer.Option("--create-agent", help="accept a new agent whose name resembles that of another"),
]
Cursor = Annotated[
    str | None, typer.Option("--cursor", help="the `cursor` of the previous page's --json output")
]
OfJob = Annotated[str | None, typer.Option("--job", help="only of this job: its name or id")]
Unset = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="FIELD", help="reset a field to its default; may be repeated"),
]
Target = Annotated[str | None, typer.Option("--target", metavar="JSON", help='as in \'{"kind": "pull"}\'')]
LogLevel = Annotated[
    str | None, typer.Option("--log-level", help="debug, info, warning or error (default: info)")
]
LogFormat = Annotated[str | None, typer.Option("--log-format", help="console or json (default: console)")]
Payload = Annotated[
    str | None, typer.Option("--payload", metavar="JSON", help="any JSON; @file reads it from a file")
]

_CLOCK: Final = SystemClock()


def check_given(option: str, text: object) -> None:
    """Raise InvalidArgument for an empty text, as of a variable that is not set: it is not the default."""
    if isinstance(text, str) and not text.strip():
        raise InvalidArgument(f"{option}: it is empty; write one, or leave it out")


def read_verb(words: Sequence[str] | None, verbs: Sequence[str], usage: str) -> tuple[str | None, str | None]:
    """Return what to do, if anything, and the id; InvalidArgument with the usage for other words.

    >>> read_verb(["ack", "17"], ["ack"], ""), read_verb(["17"], ["ack"], ""), read_verb(None, ["ack"], "")
    (('ack', '17'), (None, '17'), (None, None))
    """
    ids = list(words or ())
    verb = ids.pop(0) if ids and ids[0] in verbs else None
    if len(ids) > 1 or (verb is not None and not ids):
        raise InvalidArgument(usage)
    return verb, ids[0] if ids else None


def split_pair(option: str, text: str) -> tuple[str, str]:
    """Return the key and the value of `KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidArgument(f"{option}: {json.dumps(text)} is not a pair; write KEY=VALUE")
    return key, value


def now_ms() -> int:
    """Return the current time of this machine."""
    return _CLOCK.now_ms()


async def json_argument(option: str, text: str | None) -> Json:
    """Return the JSON of an option, or of the file after `@`; None if it is not given."""
    if text is None:
        return None
    if text.startswith("@"):
        text = await read_text(text[1:])
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"{option}: it is not JSON ({error}); text needs quotes, as in '\"hello\"'"
        ) from error
    return value


async def read_text(name: str) -> str:
    """Return the text of a file; `-` is stdin. Raise InvalidArgument if it cannot be read."""
    return await (read_stdin(read_file, name) if name == "-" else asyncio.to_thread(read_file, name))


async def read_stdin(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Read stdin in a thread. Ctrl-C ends the process at once: else it would wait for that thread."""
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if is_main:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return await asyncio.to_thread(read, *args, **kwargs)
    finally:
        if is_main:
            signal.signal(signal.SIGINT, handler)


def read_file(name: str) -> str:
    """Do `read_text` without an event loop."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidArgument(f"{name}: it cannot be read: {why}") from error
