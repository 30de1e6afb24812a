"""Wakeful in a Python program: embedded in its event loop, with its functions as targets.

```python
from wakeful import Wakeful, Webhook

app = Wakeful("sqlite:///wakeful.db")  # or postgresql://…


@app.cron("0 9 * * 1-5", tz="Europe/Berlin")  # also app.every("5m"), app.at(...)
async def standup(run): ...


async with app:
    await app.jobs.upsert("digest", schedule="0 7 * * *", target=Webhook("https://…"))
    await app.serve_forever()
```
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from wakeful.document import Defaults
from wakeful.engine.engine import Engine, Pace
from wakeful.engine.targets import Targets
from wakeful.job import Job, Json
from wakeful.launch.function import FunctionLauncher
from wakeful.launch.guard import Guard
from wakeful.launch.secrets import Keyring, StoredSecrets
from wakeful.launch.webhook import WebhookLauncher
from wakeful.run import RunState
from wakeful.service.jobs import JobService
from wakeful.service.making import Saved
from wakeful.service.runs import RunService
from wakeful.store.connect import store_at
from wakeful.store.port import Store
from wakeful.store.rows import AttemptView, JobFilter, RunFilter, RunView
from wakeful.target import Function, Target

F = TypeVar("F", bound=Callable[..., object])


class Wakeful:
    """A scheduler in your process. Use it as an async context manager; any number may share a database.

    `url` is `sqlite:///path` or `postgresql://…`. Functions that are decorated with `cron`, `every` or
    `at` become jobs of `agent` in `workspace` when it starts, and are brought up to date by `upsert`.
    """

    def __init__(
        self,
        url: str = "sqlite:///wakeful.db",
        *,
        workspace: str = "default",
        agent: str = "default",
        secret_key: str | None = None,
        allow_private_targets: bool = False,
        defaults: Defaults | None = None,
        pace: Pace | None = None,
        store: Store | None = None,
    ) -> None:
        self.store = store or store_at(url)
        self._functions = FunctionLauncher()
        keyring = Keyring([secret_key] if secret_key else [])
        secrets = StoredSecrets(self.store, keyring, self.store.clock)
        webhooks = WebhookLauncher(
            secrets, Guard(allow_private=allow_private_targets), clock=self.store.clock
        )
        self._targets = Targets([self._functions, webhooks])
        self._pace = pace
        self._engine: Engine | None = None
        self._declared: dict[str, dict[str, object]] = {}
        service = JobService(self.store, self._targets, keyring, defaults or Defaults())
        #: create, change and trigger jobs
        self.jobs = Jobs(service, workspace, agent)
        #: look at runs, cancel, stop, replay and complete them
        self.runs = Runs(RunService(self.store), workspace, agent)

    # --- declaring -------------------------------------------------------------------------------

    def cron(
        self, expr: str, *, tz: str | None = None, name: str | None = None, **fields: Any
    ) -> Callable[[F], F]:
        """Run the decorated function by a cron expression."""
        schedule = {"kind": "cron", "expr": expr, **({"tz": tz} if tz else {})}
        return self._declare(schedule, name, fields)

    def every(self, interval: str, *, name: str | None = None, **fields: Any) -> Callable[[F], F]:
        """Run the decorated function at an interval: `@app.every("5m")`."""
        return self._declare({"kind": "every", "every": interval}, name, fields)

    def at(
        self, when: str | datetime, *, tz: str | None = None, name: str | None = None, **fields: Any
    ) -> Callable[[F], F]:
        """Run the decorated function once."""
        text = when.isoformat() if isinstance(when, datetime) else when
        return self._declare({"kind": "at", "at": text, **({"tz": tz} if tz else {})}, name, fields)

    def function(self, name: str | None = None) -> Callable[[F], F]:
        """Register the decorated function as a target without a job of its own: `Function("name")`."""

        def register(function: F) -> F:
            self._functions.register(name or _slug(function), function)
            return function

        return register

    def _declare(self, schedule: object, name: str | None, fields: Mapping[str, object]) -> Callable[[F], F]:
        def declare(function: F) -> F:
            slug = name or _slug(function)
            self._functions.register(slug, function)
            target = Function(slug).to_json()
            self._declared[slug] = {"name": slug, "schedule": schedule, "target": target, **fields}
            return function

        return declare

    # --- living ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.store.open()
        for document in self._declared.values():
            await self.jobs.upsert(**document)  # type: ignore[arg-type]
        self._engine = Engine(self.store, self._targets, self._pace)
        await self._engine.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self, grace: float = 10.0) -> None:
        """Stop: no new launches, a grace period in seconds for what runs, then everything is let go."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.stop(round(grace * 1000))
            await self.store.close()

    async def serve_forever(self) -> None:
        """Wait until the process is asked to end (SIGINT, SIGTERM), or this is cancelled."""
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            for number in (signal.SIGINT, signal.SIGTERM):
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                    loop.add_signal_handler(number, ended.set)
                    stack.callback(loop.remove_signal_handler, number)
            await ended.wait()


class Jobs:
    """The jobs of one agent. Fields are those of a job document, in Python's spelling."""

    def __init__(self, service: JobService, workspace: str, agent: str) -> None:
        self._service = service
        self._where = (workspace, agent)

    def of(self, agent: str, workspace: str | None = None) -> Jobs:
        """The jobs of another agent."""
        return Jobs(self._service, workspace or self._where[0], agent)

    async def create(self, name: str, **fields: Any) -> Saved:
        """Add a job; AlreadyExists if the name is taken.

        `schedule` is any of its forms (`"0 9 * * 1-5"`, `"every 15m"`, `"in 20m"`, a mapping); `target` a
        `Webhook`, a `Function` or a mapping. The webhook secret in what is returned is not shown again.
        """
        return await self._service.create(*self._where, _document(name, fields))

    async def create_many(self, documents: Iterable[Mapping[str, object]]) -> list[Saved]:
        """Add many jobs at once: all of them, or none."""
        return await self._service.create_many(*self._where, list(documents))

    async def upsert(self, name: str, **fields: Any) -> Saved:
        """Make the job what these fields say. The same again changes nothing: not even a pause."""
        return await self._service.upsert(*self._where, _document(name, fields))

    async def update(self, name: str, *, version: int | None = None, **fields: Any) -> Saved:
        """Change these fields and no others; None puts one back to its default."""
        patch = {key: _plain(value) for key, value in fields.items()}
        return await self._service.update(*self._where, name, patch, version=version)

    async def get(self, name: str) -> Job:
        """The job of that name, or NotFound."""
        return await self._service.get(*self._where, name)

    async def list(self, *, include_disabled: bool = True) -> Sequence[Job]:
        """All its jobs, by name."""
        return await self._service.list(JobFilter(*self._where, include_disabled))

    async def pause(self, name: str) -> Job:
        """Stop its ticks; time that passes now is never missed."""
        return await self._service.pause(*self._where, name)

    async def resume(self, name: str) -> Job:
        """Start its ticks again, from now."""
        return await self._service.resume(*self._where, name)

    async def delete(self, name: str) -> None:
        """Delete it; its runs can still be seen."""
        await self._service.delete(*self._where, name)

    async def rotate_secret(self, name: str) -> Saved:
        """Give it a new webhook secret; for a day, deliveries are signed with both."""
        return await self._service.rotate_secret(*self._where, name)

    async def run(
        self, name: str, *, mode: Literal["force", "due"] = "force", payload: Json = None
    ) -> RunView | None:
        """Run it now; with `mode="due"`, only if a tick is due (None: it is not)."""
        return await self._service.trigger(*self._where, name, mode=mode, payload=payload)

    async def backfill(self, name: str, start: datetime, end: datetime) -> int:
        """Run its ticks from `start` to `end`, both in the past. Returns how many there are."""
        span = round(start.timestamp() * 1000), round(end.timestamp() * 1000)
        return await self._service.backfill(*self._where, name, *span)


class Runs:
    """The runs of one agent."""

    def __init__(self, service: RunService, workspace: str, agent: str) -> None:
        self._service = service
        self._workspace, self._agent = workspace, agent

    async def get(self, run_id: str) -> RunView:
        """The run of that id, or NotFound."""
        return await self._service.get(self._workspace, run_id)

    async def attempts(self, run_id: str) -> Sequence[AttemptView]:
        """Its attempts so far."""
        return await self._service.attempts(self._workspace, run_id)

    async def list(self, *, limit: int = 50, before: str | None = None, **narrow: Any) -> Sequence[RunView]:
        """Runs, newest first; `narrow` by `job_id`, `states`, `trigger` or `dead`."""
        only = RunFilter(self._workspace, self._agent, limit=limit, before=before, **narrow)
        return await self._service.list(only)

    async def dead_letters(self, *, limit: int = 50) -> Sequence[RunView]:
        """Failed runs that nobody has replayed or discarded."""
        return await self.list(limit=limit, dead=True)

    async def wait(self, run_id: str, *, poll: float = 0.05) -> RunView:
        """The run, once it is over."""
        while True:
            run = await self.get(run_id)
            if RunState(run.state).terminal:
                return run
            await asyncio.sleep(poll)

    async def cancel(self, run_id: str) -> RunView:
        """Cancel a run that has not started, or waits for its next attempt."""
        return await self._service.cancel(self._workspace, run_id)

    async def stop(self, run_id: str) -> RunView:
        """Stop a run that is running."""
        return await self._service.stop(self._workspace, run_id)

    async def replay(self, run_id: str) -> RunView:
        """Run a dead letter again."""
        return await self._service.replay(self._workspace, run_id)

    async def discard(self, run_id: str) -> None:
        """Put a dead letter away."""
        await self._service.discard(self._workspace, run_id)

    async def complete(
        self,
        run_id: str,
        status: Literal["succeeded", "failed"],
        *,
        output: str | None = None,
        error: str | None = None,
    ) -> RunView:
        """Say how a run ended that was waiting for it (`completion="callback"`)."""
        return await self._service.complete(self._workspace, run_id, status, output=output, error=error)


def _document(name: str, fields: Mapping[str, object]) -> dict[str, object]:
    return {"name": name, **{key: _plain(value) for key, value in fields.items()}}


def _plain(value: object) -> object:
    if isinstance(value, Target):
        return value.to_json()
    return value.isoformat() if isinstance(value, datetime) else value


def _slug(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", "function").strip("_").replace("_", "-").lower()
