"""Targets in Python. In JSON they are objects with a `kind`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wakeful.job.job import Continuity
from wakeful.values.json_value import Json


@dataclass(frozen=True, slots=True)
class Webhook:
    """A signed POST to a URL.

    >>> Webhook("https://example.com/wake").to_json()
    {'kind': 'webhook', 'url': 'https://example.com/wake'}
    """

    url: str
    headers: Mapping[str, str] | None = None
    #: `callback`: the run stays running until a request completes it
    completion: Literal["callback"] | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the target as it is in a job document."""
        target: dict[str, Json] = {"kind": "webhook", "url": self.url}
        if self.headers:
            target["headers"] = dict(self.headers)
        if self.completion:
            target["completion"] = self.completion
        return target


@dataclass(frozen=True, slots=True)
class Function:
    """A Python function that is registered under this name in the process."""

    name: str
    #: whether the members of the payload are its arguments; else it takes the run, or nothing
    arguments: bool = False

    def to_json(self) -> dict[str, Json]:
        """Return the target as it is in a job document."""
        target: dict[str, Json] = {"kind": "function", "name": self.name}
        return {**target, "arguments": True} if self.arguments else target


@dataclass(frozen=True, slots=True, init=False)
class Command:
    """A program that the server runs without a shell; the operator must allow it.

    >>> Command("/usr/local/bin/report", "--daily").to_json()
    {'kind': 'command', 'argv': ['/usr/local/bin/report', '--daily']}
    """

    argv: tuple[str, ...]
    #: variables that are added to its environment
    env: Mapping[str, str] | None
    #: its working directory, as an absolute path
    cwd: str | None

    def __init__(self, *argv: str, env: Mapping[str, str] | None = None, cwd: str | None = None) -> None:
        object.__setattr__(self, "argv", argv)
        object.__setattr__(self, "env", env)
        object.__setattr__(self, "cwd", cwd)

    def to_json(self) -> dict[str, Json]:
        """Return the target as it is in a job document."""
        target: dict[str, Json] = {"kind": "command", "argv": list(self.argv)}
        if self.env:
            target["env"] = dict(self.env)
        if self.cwd:
            target["cwd"] = self.cwd
        return target


@dataclass(frozen=True, slots=True)
class Echo:
    """No work: each run succeeds at once, and its output is its message or payload. To try out schedules.

    >>> Echo().to_json()
    {'kind': 'echo'}
    """

    def to_json(self) -> dict[str, Json]:
        """Return the target as it is in a job document."""
        return {"kind": "echo"}


@dataclass(frozen=True, slots=True)
class Chat:
    """A turn of a model at an OpenAI-compatible endpoint.

    >>> Chat("https://api.openai.com/v1", "gpt-5-mini", key="openai").to_json()
    {'kind': 'chat', 'url': 'https://api.openai.com/v1', 'model': 'gpt-5-mini', 'key': 'openai'}
    """

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

    def to_json(self) -> dict[str, Json]:
        """Return the target as it is in a job document."""
        fields: dict[str, Json] = {
            "system": self.system,
            "key": self.key,
            "temperature": self.temperature,
            "maxTokens": self.max_tokens,
            "contextWindow": self.context_window,
            "continuity": self.continuity,
            "maxSteps": self.max_steps,
            "tools": None if self.tools else False,
            "options": dict(self.options) if self.options else None,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        return {"kind": "chat", "url": self.url, "model": self.model, **given}


@dataclass(frozen=True, slots=True)
class Queue:
    """A message in NATS JetStream. A worker takes it and reports the result.

    >>> Queue(function="digest").to_json()
    {'kind': 'queue', 'function': 'digest'}
    """

    #: None: the subject of the workspace, which `wakeful worker --nats` reads
    subject: str | None = None
    #: the function that `wakeful worker --nats` calls; None: that of the name of the job
    function: str | None = None
    #: the stream of the subject; None: the one that has it
    stream: str | None = None
    headers: Mapping[str, str] | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the target as it is in a job document."""
        fields: dict[str, Json] = {
            "subject": self.subject,
            "function": self.function,
            "stream": self.stream,
            "headers": dict(self.headers) if self.headers else None,
        }
        return {"kind": "queue", **{name: value for name, value in fields.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class CeleryTask:
    """A task of the Celery app that the operator has set, or that was given to `Wakeful(celery=…)`.

    >>> CeleryTask("app.tasks.add", args=(1, 2), queue="sums").to_json()
    {'kind': 'celery', 'task': 'app.tasks.add', 'args': [1, 2], 'queue': 'sums'}
    """

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

    def to_json(self) -> dict[str, Json]:
        """Return the target as it is in a job document."""
        fields: dict[str, Json] = {
            "args": list(self.args),
            "kwargs": dict(self.kwargs or {}),
            "queue": self.queue,
            "app": self.app,
            "options": dict(self.options or {}),
        }
        given = {name: value for name, value in fields.items() if value}
        return {"kind": "celery", "task": self.task, **given}


Target = Webhook | Function | Command | Chat | Queue | CeleryTask | Echo
