"""The client: which server, with which key, for whom."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable
from types import TracebackType
from typing import Final, Literal, Self, cast

from wakeful.client.admin import Agents, Audit, Keys, Quotas, Workflows
from wakeful.client.api_key_file import read_key
from wakeful.client.connection import Connection, path
from wakeful.client.events import events
from wakeful.client.jobs import Jobs
from wakeful.client.runs import Runs
from wakeful.client.tls import ClientTls
from wakeful.client.types import EventShape
from wakeful.job import Json

#: What can be listened for.
EventType = Literal["run.started", "run.finished", "job.changed"]

DEFAULT_URL: Final = "http://127.0.0.1:9253"


class AsyncClient:
    """A Wakeful server, with the names of the embedded API. Use it as an async context manager.

    - `url`: where the server is; else `WAKEFUL_URL`; else this machine, port 9253
    - `key`: an API key or a token; else `WAKEFUL_KEY`; else the one that `wakeful serve` left on this machine
    - `workspace`, `agent`: whose jobs and runs, unless one is named with `.of(…)`
    - `timeout`: how many seconds an answer may take
    - `cert`, `cert_key`: PEM files of a client certificate and its private key, if the server asks for one;
      else `WAKEFUL_CLIENT_CERT` and `WAKEFUL_CLIENT_KEY`. One file may hold both
    - `ca`: a PEM file of the authorities to trust instead of the system's; else `WAKEFUL_CA_BUNDLE`
    """

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
        url = url or os.environ.get("WAKEFUL_URL") or DEFAULT_URL
        key = key or os.environ.get("WAKEFUL_KEY") or read_key(url)
        self._connection = Connection(url, key, timeout, ClientTls(cert, cert_key, ca).or_else())
        self.workspace = workspace
        #: create, change and trigger jobs
        self.jobs = Jobs(self._connection, workspace, agent)
        #: look at runs, cancel, stop, replay and complete them
        self.runs = Runs(self._connection, workspace, agent)
        self.agents = Agents(self._connection, workspace)
        self.keys = Keys(self._connection, workspace)
        self.audit = Audit(self._connection, workspace)
        self.quotas = Quotas(self._connection, workspace)
        self.workflows = Workflows(self._connection, workspace)

    @property
    def url(self) -> str:
        """The server's address."""
        return self._connection.url

    @property
    def has_key(self) -> bool:
        """Whether there is a key to show."""
        return self._connection.key is not None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the server."""
        await self._connection.close()

    async def status(self) -> dict[str, Json]:
        """How the server is, and what there is in the workspace."""
        return cast(dict[str, Json], await self._connection.ask("GET", path(self.workspace, "status")))

    async def slo(self) -> dict[str, Json]:
        """How well it keeps its promises: dead letters, and how late things fire."""
        return cast(dict[str, Json], await self._connection.ask("GET", path(self.workspace, "slo")))

    def events(
        self,
        *,
        agent: str | None = None,
        job: str | None = None,
        types: Iterable[EventType] = (),
        after: int | None = None,
        patience: float = 60.0,
    ) -> AsyncGenerator[EventShape, None]:
        """What happens, as it happens: from now on, or all that happened after the event of that number.

        ```python
        async for event in client.events(types=["run.finished"]):
            print(event["job"], event["run"]["state"])
        ```

        - `agent`, `job` (its name or id), `types`: only those
        - `after`: the `seq` of the last event that you have seen
        - `patience`: how many seconds a server that was there may be gone

        A connection that breaks is made anew, and goes on where it stopped: nothing is missed and nothing
        comes twice. An event of the type `reset` says that what you asked for is not kept any more.
        """
        query = {"agent": agent, "job": job, "types": ",".join(types) or None}
        return events(self._connection, path(self.workspace, "events"), query, after, patience)

    async def ready(self) -> bool:
        """Whether the server is up and its database answers; Unavailable where there is no server."""
        await self._connection.ask("GET", "/readyz")
        return True
