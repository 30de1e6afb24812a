"""Targets in Python. In JSON they are objects with a `kind`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal

from wakeful.job.job import Continuity
from wakeful.values.json_value import Json, camel


@dataclass(frozen=True, slots=True)
class _Target:
    """A kind of target, and its fields by their names in Python."""

    _kind: ClassVar[str]

    def to_json(self) -> dict[str, Json]:
        """Return the target as it is in a job document, without fields that are empty or at their default."""
        target: dict[str, Json] = {"kind": self._kind}
        for field in fields(self):
            value: Any = getattr(self, field.name)
            if isinstance(value, Mapping):
                value = dict(value)
            elif isinstance(value, Sequence) and not isinstance(value, str):
                value = list(value)
            if field.default is MISSING or (value != field.default and value not in ("", [], {})):
                target[camel(field.name)] = value
        return target


@dataclass(frozen=True, slots=True)
class Webhook(_Target):
    """A signed POST to a URL.

    >>> Webhook("https://example.com/wake").to_json()
    {'kind': 'webhook', 'url': 'https://example.com/wake'}
    """

    _kind = "webhook"

    url: str
    headers: Mapping[str, str] | None = None
    #: `callback`: the run stays running until a request completes it
    completion: Literal["callback"] | None = None


@dataclass(frozen=True, slots=True)
class Function(_Target):
    """A Python function that is registered under this name in the process."""

    _kind = "function"

    name: str
    #: whether the members of the payload are its arguments; else it takes the run, or nothing
    arguments: bool = False


@dataclass(frozen=True, slots=True, init=False)
class Command(_Target):
    """A program that the server runs without a shell; the operator must allow it.

    >>> Command("/usr/local/bin/report", "--daily").to_json()
    {'kind': 'command', 'argv': ['/usr/local/bin/report', '--daily']}
    """

    _kind = "command"

    argv: tuple[str, ...]
    #: variables that are added to its environment
    env: Mapping[str, str] | None = None
    #: its working directory, as an absolute path
    cwd: str | None = None

    def __init__(self, *argv: str, env: Mapping[str, str] | None = None, cwd: str | None = None) -> None:
        object.__setattr__(self, "argv", argv)
        object.__setattr__(self, "env", env)
        object.__setattr__(self, "cwd", cwd)


@dataclass(frozen=True, slots=True)
class Echo(_Target):
    """No work: each run succeeds at once, and its output is its message or payload. To try out schedules.

    >>> Echo().to_json()
    {'kind': 'echo'}
    """

    _kind = "echo"


@dataclass(frozen=True, slots=True)
class Chat(_Target):
    """A turn of a model at an OpenAI-compatible endpoint.

    >>> Chat("https://api.openai.com/v1", "gpt-5-mini", key="openai").to_json()
    {'kind': 'chat', 'url': 'https://api.openai.com/v1', 'model': 'gpt-5-mini', 'key': 'openai'}
    """

    _kind = "chat"

    #: the base URL of the endpoint
    url: str
    model: str
    #: what the model is, and how it answers
    system: str | None = None
    #: the name of an API key that the operator has set: `openai` is `WAKEFUL_CHAT_KEY_OPENAI`
    key: str | None = None
    temperature: float | None = None
    #: the limit of the answer
    max_tokens: int | None = None
    #: how many tokens the model reads; more of the history than fits is left out
    context_window: int | None = None
    #: what a run continues: the previous answer, the history of its session, or nothing
    continuity: Continuity | None = None
    #: the most rounds of tool calls
    max_steps: int | None = None
    #: False: the model may not schedule work
    tools: bool = True
    #: further fields of the request, such as `{"reasoning_effort": "low"}`
    options: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class Queue(_Target):
    """A message in NATS JetStream. A worker takes it and reports the result.

    >>> Queue(function="digest").to_json()
    {'kind': 'queue', 'function': 'digest'}
    """

    _kind = "queue"

    #: None: the subject of the workspace, which `wakeful worker --nats` reads
    subject: str | None = None
    #: the function that `wakeful worker --nats` calls; None: that of the name of the job
    function: str | None = None
    #: the stream of the subject; None: the one that has it
    stream: str | None = None
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CeleryTask(_Target):
    """A task of the Celery app that the operator has set, or that was given to `Wakeful(celery=…)`.

    >>> CeleryTask("app.tasks.add", args=(1, 2), queue="sums").to_json()
    {'kind': 'celery', 'task': 'app.tasks.add', 'args': [1, 2], 'queue': 'sums'}
    """

    _kind = "celery"

    #: the name of the task
    task: str
    args: Sequence[Json] = ()
    #: keyword arguments; the fields of the payload are added to them
    kwargs: Mapping[str, Json] | None = None
    queue: str | None = None
    #: further options of `apply_async`, such as `{"priority": 5}`
    options: Mapping[str, Json] | None = None
    #: the name of the app, if processes on the database have different ones
    app: str | None = None


Target = Webhook | Function | Command | Chat | Queue | CeleryTask | Echo
