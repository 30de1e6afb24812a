"""A server and its endpoints."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable
from types import TracebackType
from typing import Final, Self, cast

from wakeful.client.api_key_file import key_file, read_key
from wakeful.client.connection import Connection, Query, path
from wakeful.client.rest.admin import (
    RestAgents,
    RestAudit,
    RestIncidents,
    RestKeys,
    RestQuotas,
    RestSuggestions,
    RestWorkflows,
)
from wakeful.client.rest.events import events
from wakeful.client.rest.instances import RestInstances
from wakeful.client.rest.jobs import RestJobs
from wakeful.client.rest.operations import RestOperations
from wakeful.client.rest.runs import RestRuns
from wakeful.client.tls import ClientTls
from wakeful.client.types import CostShape, EventShape
from wakeful.values.json_value import Json

DEFAULT_URL: Final = "http://127.0.0.1:9253"


class RestClient:
    """A server. Use it as an async context manager. `AsyncClient` documents the arguments."""

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
        url = url or os.environ.get("WAKEFUL_URL") or DEFAULT_URL
        key, source = _key(url, key)
        run_id = os.environ.get("WAKEFUL_RUN_ID") if run_id is None else run_id
        tls = ClientTls(cert, cert_key, ca).or_else()
        self._connection = Connection(url, key, timeout, tls, source, run_id or None)
        self.workspace = workspace
        self.jobs = RestJobs(self._connection, workspace, agent)
        self.runs = RestRuns(self._connection, workspace, agent)
        self.agents = RestAgents(self._connection, workspace)
        self.instances = RestInstances(self._connection, workspace)
        self.incidents = RestIncidents(self._connection, workspace)
        self.suggestions = RestSuggestions(self._connection, workspace)
        self.keys = RestKeys(self._connection, workspace)
        self.audit = RestAudit(self._connection, workspace)
        self.quotas = RestQuotas(self._connection, workspace)
        self.workflows = RestWorkflows(self._connection, workspace)
        self.operations = RestOperations(self._connection, workspace)

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._connection.url

    @property
    def key(self) -> str | None:
        """The key that requests carry."""
        return self._connection.key

    @property
    def has_key(self) -> bool:
        """Whether requests carry a key."""
        return self.key is not None

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
        """Close the connections."""
        await self._connection.close()

    async def status(self) -> dict[str, Json]:
        """Return the status of the server and the counts of the workspace."""
        return cast(dict[str, Json], await self._connection.request("GET", path(self.workspace, "status")))

    async def doctor(self) -> dict[str, Json]:
        """Return the checks of the installation, or of the workspace."""
        return cast(dict[str, Json], await self._connection.request("GET", path(self.workspace, "doctor")))

    async def cost(
        self,
        *,
        first: str | None = None,
        last: str | None = None,
        agent: str | None = None,
        limit: int = 20,
    ) -> CostShape:
        """Return tokens and cost by day, agent and job."""
        query: Query = {"from": first, "to": last, "agent": agent, "limit": limit}
        found = await self._connection.request("GET", path(self.workspace, "cost"), query=query)
        return cast(CostShape, found)

    async def slo(self) -> dict[str, Json]:
        """Return the service level: the dead-letter ratio and the dispatch latency."""
        return cast(dict[str, Json], await self._connection.request("GET", path(self.workspace, "slo")))

    async def sign_in_link(self) -> dict[str, Json]:
        """Create a one-time link that signs in to the dashboard with the key of this client."""
        return cast(dict[str, Json], await self._connection.request("POST", "/api/sign-in-links"))

    async def ready(self) -> bool:
        """Return True if the server and its database respond; Unavailable otherwise."""
        await self._connection.request("GET", "/readyz")
        return True

    def events(
        self,
        *,
        agent: str | None = None,
        job: str | None = None,
        types: Iterable[str] = (),
        after: int | None = None,
        patience: float = 60.0,
        on_connection: Callable[[bool], None] = lambda connected: None,
    ) -> AsyncGenerator[EventShape, None]:
        """Yield events as they happen, over as many connections as necessary.

        `on_connection` is called with True when a connection is established, and with False when it is lost.
        """
        query: Query = {"agent": agent, "job": job, "types": ",".join(types) or None}
        return events(self._connection, path(self.workspace, "events"), query, after, patience, on_connection)


def _key(url: str, given: str | None) -> tuple[str | None, str]:
    """Return the key for a server, and where it comes from and what to do if it is refused."""
    if given:
        return given, ""
    if key := os.environ.get("WAKEFUL_KEY"):
        stored = read_key(url)
        other = f", or unset it to use the key in {key_file(url)}" if stored else ""
        return key, f"it comes from WAKEFUL_KEY: set it to a key of {url}{other}"
    if key := read_key(url):
        return key, (
            f"it comes from {key_file(url)}: set WAKEFUL_KEY to a key of {url}, or create one on the machine "
            "of the server with `wakeful serve --new-key`"
        )
    return None, ""
