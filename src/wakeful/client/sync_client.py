"""The client for programs without an event loop: the methods of `AsyncClient` without `await`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

from wakeful.client.client import AsyncClient, EventType
from wakeful.client.portal import Portal, blocking
from wakeful.client.sync import (
    Agents,
    Audit,
    Inbox,
    Incidents,
    Jobs,
    Keys,
    Quotas,
    Runs,
    Suggestions,
    SyncPart,
    Workflows,
)
from wakeful.model import Event


class Client(SyncPart[AsyncClient]):
    """A Wakeful server, for programs without an event loop. Use it as a context manager, from any thread.

    ```python
    from wakeful import Client

    with Client() as client:  # WAKEFUL_URL and WAKEFUL_KEY, or the server on this machine
        client.jobs.upsert("digest", schedule="0 7 * * *", webhook_url="https://example.com/hook")
        run = client.jobs.run("digest")
        print(client.runs.wait(run.id, timeout=60).state)
    ```

    The arguments and methods are those of `AsyncClient`. A client that was made before a fork works in both
    processes (prefork servers, `multiprocessing`). In a program with an event loop use `AsyncClient`:
    this client blocks the loop.
    """

    status = blocking(AsyncClient.status)
    doctor = blocking(AsyncClient.doctor)
    cost = blocking(AsyncClient.cost)
    sign_in_link = blocking(AsyncClient.sign_in_link)
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
        run_id: str | None = None,
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
            run_id=run_id,
        )
        portal = Portal(inner.close)
        super().__init__(portal, inner)
        #: create, change and run jobs
        self.jobs = Jobs(portal, inner.jobs)
        #: read, stop, replay and complete runs
        self.runs = Runs(portal, inner.runs)
        self.agents = Agents(portal, inner.agents)
        #: read and acknowledge incidents
        self.incidents = Incidents(portal, inner.incidents)
        #: what waits for a person
        self.inbox = Inbox(portal, inner.inbox)
        #: read and decide suggestions
        self.suggestions = Suggestions(portal, inner.suggestions)
        self.keys = Keys(portal, inner.keys)
        self.audit = Audit(portal, inner.audit)
        self.quotas = Quotas(portal, inner.quotas)
        self.workflows = Workflows(portal, inner.workflows)

    @property
    def url(self) -> str:
        """The address of the server."""
        return self.inner.url

    @property
    def workspace(self) -> str:
        """The workspace of the requests."""
        return self.inner.workspace

    @property
    def has_key(self) -> bool:
        """Whether requests carry a key."""
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
        """Close the connections. Further calls do nothing."""
        self.portal.close()

    def events(
        self,
        *,
        agent: str | None = None,
        job: str | None = None,
        types: Iterable[EventType] = (),
        after: int | None = None,
        patience: float = 60.0,
    ) -> Iterator[Event]:
        """Yield events as they happen: from now on, or all after the event of that number.

        ```python
        for event in client.events(types=["run.finished"]):
            print(event.job, event.run.state)
        ```

        `AsyncClient.events` describes the arguments and what happens when a connection breaks.
        """
        return self.portal.each(
            self.inner.events(agent=agent, job=job, types=types, after=after, patience=patience)
        )
