"""The client for programs without an event loop: every name of `AsyncClient`, and no `await`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Literal, Self, TypeVar, overload

from wakeful.client import admin, jobs, runs
from wakeful.client.client import AsyncClient, EventType
from wakeful.client.portal import Portal, blocking
from wakeful.client.types import EventShape, RunShape

if TYPE_CHECKING:
    from wakeful.app.fields import JsonLike

A = TypeVar("A")


class _Part(Generic[A]):
    def __init__(self, portal: Portal, inner: A) -> None:
        self.portal = portal
        self.inner = inner


class Jobs(_Part[jobs.Jobs]):
    """The jobs of one agent: `client.jobs`. Fields are those of a job document, in Python's spelling."""

    create = blocking(jobs.Jobs.create)
    upsert = blocking(jobs.Jobs.upsert)
    send_new = blocking(jobs.Jobs.send_new)
    send = blocking(jobs.Jobs.send)
    check = blocking(jobs.Jobs.check)
    send_patch = blocking(jobs.Jobs.send_patch)
    update = blocking(jobs.Jobs.update)
    get = blocking(jobs.Jobs.get)
    list = blocking(jobs.Jobs.list)
    pause = blocking(jobs.Jobs.pause)
    skip_next = blocking(jobs.Jobs.skip_next)
    resume = blocking(jobs.Jobs.resume)
    delete = blocking(jobs.Jobs.delete)
    rotate_secret = blocking(jobs.Jobs.rotate_secret)
    runs = blocking(jobs.Jobs.runs)
    backfill = blocking(jobs.Jobs.backfill)

    def of(self, agent: str, workspace: str | None = None) -> Jobs:
        """The jobs of another agent."""
        return Jobs(self.portal, self.inner.of(agent, workspace))

    @overload
    def run(self, name: str, *, mode: Literal["force"] = "force", payload: JsonLike = None) -> RunShape: ...
    @overload
    def run(self, name: str, *, mode: Literal["due"], payload: JsonLike = None) -> RunShape | None: ...
    def run(
        self, name: str, *, mode: Literal["force", "due"] = "force", payload: JsonLike = None
    ) -> RunShape | None:
        """Run it now, with this payload or its own; with `mode="due"`, only if a tick is due, else None."""
        if mode == "due":
            return self.portal.call(self.inner.run(name, mode=mode, payload=payload))
        return self.portal.call(self.inner.run(name, mode=mode, payload=payload))


class Runs(_Part[runs.Runs]):
    """The runs of one agent: `client.runs`."""

    get = blocking(runs.Runs.get)
    list = blocking(runs.Runs.list)
    dead_letters = blocking(runs.Runs.dead_letters)
    cancel = blocking(runs.Runs.cancel)
    stop = blocking(runs.Runs.stop)
    replay = blocking(runs.Runs.replay)
    discard = blocking(runs.Runs.discard)
    replay_many = blocking(runs.Runs.replay_many)
    discard_many = blocking(runs.Runs.discard_many)
    complete = blocking(runs.Runs.complete)
    heartbeat = blocking(runs.Runs.heartbeat)
    heartbeat_many = blocking(runs.Runs.heartbeat_many)
    claim = blocking(runs.Runs.claim)
    wake = blocking(runs.Runs.wake)

    def of(self, agent: str, workspace: str | None = None) -> Runs:
        """The runs of another agent."""
        return Runs(self.portal, self.inner.of(agent, workspace))

    def wait(
        self,
        run_id: str,
        *,
        timeout: float | None = None,
        poll: float = 0.1,
        seen: Callable[[RunShape], None] = lambda run: None,
    ) -> RunShape:
        """The run, once it is over; TimeoutError where that takes more than `timeout` seconds.

        `seen` is told what it looks like every time that somebody looked, on another thread.
        """
        return self.portal.call(self.inner.wait(run_id, poll=poll, seen=seen), timeout)


class Agents(_Part[admin.Agents]):
    """The agents of a workspace: `client.agents`."""

    list = blocking(admin.Agents.list)
    get = blocking(admin.Agents.get)
    put = blocking(admin.Agents.put)
    rotate_secret = blocking(admin.Agents.rotate_secret)
    delete = blocking(admin.Agents.delete)
    say = blocking(admin.Agents.say)
    sessions = blocking(admin.Agents.sessions)


class Keys(_Part[admin.Keys]):
    """The keys of a workspace: `client.keys`."""

    list = blocking(admin.Keys.list)
    create = blocking(admin.Keys.create)
    revoke = blocking(admin.Keys.revoke)


class Audit(_Part[admin.Audit]):
    """Who did what: `client.audit`."""

    list = blocking(admin.Audit.list)
    verify = blocking(admin.Audit.verify)


class Quotas(_Part[admin.Quotas]):
    """Limits, and what is used of them: `client.quotas`."""

    list = blocking(admin.Quotas.list)


class Workflows(_Part[admin.Workflows]):
    """Documents by id and version, which never change: `client.workflows`."""

    put = blocking(admin.Workflows.put)
    get = blocking(admin.Workflows.get)


class Client(_Part[AsyncClient]):
    """A Wakeful server, for programs without an event loop. Use it as a context manager, from any thread.

    ```python
    from wakeful import Client

    with Client() as client:  # WAKEFUL_URL and WAKEFUL_KEY, or the server on this machine
        client.jobs.upsert("digest", schedule="0 7 * * *", webhook_url="https://example.com/hook")
        run = client.jobs.run("digest")
        print(client.runs.wait(run["id"], timeout=60)["state"])
    ```

    It takes what `AsyncClient` takes, and has its names. Where there is an event loop, use that one: this
    one would keep the loop waiting.
    """

    status = blocking(AsyncClient.status)
    slo = blocking(AsyncClient.slo)
    ready = blocking(AsyncClient.ready)

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        workspace: str = "default",
        agent: str = "default",
        timeout: float = 30.0,
        cert: str | None = None,
        cert_key: str | None = None,
        ca: str | None = None,
    ) -> None:
        inner = AsyncClient(
            url,
            key,
            workspace=workspace,
            agent=agent,
            timeout=timeout,
            cert=cert,
            cert_key=cert_key,
            ca=ca,
        )
        portal = Portal(inner.close)
        super().__init__(portal, inner)
        #: create, change and trigger jobs
        self.jobs = Jobs(portal, inner.jobs)
        #: look at runs, cancel, stop, replay and complete them
        self.runs = Runs(portal, inner.runs)
        self.agents = Agents(portal, inner.agents)
        self.keys = Keys(portal, inner.keys)
        self.audit = Audit(portal, inner.audit)
        self.quotas = Quotas(portal, inner.quotas)
        self.workflows = Workflows(portal, inner.workflows)

    @property
    def url(self) -> str:
        """The server's address."""
        return self.inner.url

    @property
    def workspace(self) -> str:
        """The workspace that is asked about."""
        return self.inner.workspace

    @property
    def has_key(self) -> bool:
        """Whether there is a key to show."""
        return self.inner.has_key

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the server; said again, nothing happens."""
        self.portal.close()

    def events(
        self,
        *,
        agent: str | None = None,
        job: str | None = None,
        types: Iterable[EventType] = (),
        after: int | None = None,
        patience: float = 60.0,
    ) -> Iterator[EventShape]:
        """What happens, as it happens: from now on, or all that happened after the event of that number.

        ```python
        for event in client.events(types=["run.finished"]):
            print(event["job"], event["run"]["state"])
        ```

        As with `AsyncClient.events`, a connection that breaks is made anew and goes on where it stopped.
        """
        return self.portal.each(
            self.inner.events(agent=agent, job=job, types=types, after=after, patience=patience)
        )
