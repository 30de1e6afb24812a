"""The client for programs with an event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from types import TracebackType
from typing import Literal, Self, cast

from wakeful.client.admin import Agents, Audit, Inbox, Incidents, Keys, Quotas, Suggestions, Workflows
from wakeful.client.jobs import Jobs
from wakeful.client.rest import RestClient
from wakeful.client.runs import Runs
from wakeful.client.scheduler import Scheduler
from wakeful.client.types import CostShape
from wakeful.errors import Unavailable
from wakeful.model import Event
from wakeful.model.codec import from_json
from wakeful.values.json_value import Json

#: The types of events.
EventType = (
    Literal["run.started", "run.finished", "job.changed", "signal.emitted", "suggestion.changed"]
    | Literal["inbox.item_added"]
    | Literal["incident.opened", "incident.acknowledged", "incident.recovered", "incident.closed"]
)


class AsyncClient:
    """A Wakeful server, with the interface of the embedded API. Use it as an async context manager.

    - `url`: the address of the server; else `WAKEFUL_URL`; else this machine, port 9253
    - `key`: an API key or a token; else `WAKEFUL_KEY`; else the key that `wakeful serve` stored here
    - `workspace`, `agent`: the owner of the jobs and runs, unless `.of(…)` names another
    - `timeout`: seconds until a request fails
    - `cert`, `cert_key`: PEM files of a client certificate and its private key, if the server requires one;
      else `WAKEFUL_CLIENT_CERT` and `WAKEFUL_CLIENT_KEY`. One file may hold both
    - `ca`: a PEM file of the authorities to trust instead of the system's; else `WAKEFUL_CA_BUNDLE`
    - `run_id`: the run in which the program runs; else `WAKEFUL_RUN_ID`, which commands have. Jobs that are
      made in a run belong to its conversation and count towards its bounds. `""`: none
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
        run_id: str | None = None,
    ) -> None:
        self._rest = RestClient(
            url,
            key,
            workspace=workspace,
            timeout=timeout,
            cert=cert,
            cert_key=cert_key,
            ca=ca,
            run_id=run_id,
        )
        self.workspace = workspace
        #: create, change and run jobs
        self.jobs = Jobs(self._rest, agent)
        #: read, stop, replay and complete runs
        self.runs = Runs(self._rest, agent)
        self.agents = Agents(self._rest)
        #: read and acknowledge incidents
        self.incidents = Incidents(self._rest)
        #: what waits for a person
        self.inbox = Inbox(self._rest)
        #: read and decide suggestions
        self.suggestions = Suggestions(self._rest)
        self.keys = Keys(self._rest)
        self.audit = Audit(self._rest)
        self.quotas = Quotas(self._rest)
        self.workflows = Workflows(self._rest)

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._rest.url

    @property
    def has_key(self) -> bool:
        """Whether requests carry a key."""
        return self._rest.has_key

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
        await self._rest.close()

    async def status(self) -> dict[str, Json]:
        """Return the status of the server and the counts of the workspace."""
        return await self._rest.get_status()

    async def doctor(self) -> dict[str, Json]:
        """Return the checks of `wakeful doctor`, each with its state, a message and what to do."""
        return cast(dict[str, Json], await self._rest.get_doctor())

    async def cost(
        self,
        *,
        first: str | None = None,
        last: str | None = None,
        agent: str | None = None,
        limit: int = 20,
    ) -> CostShape:
        """Return tokens and cost by day, agent and job, and budgets with what is left of them today.

        `first` and `last` are days (UTC), such as `2027-03-01`; by default the last 30.
        """
        return await self._rest.get_cost(from_=first, to=last, agent=agent, limit=limit)

    async def sign_in_link(self) -> str:
        """Return a link to the dashboard that signs in with the key of this client, once, in five minutes."""
        url = (await self._rest.sign_in_link()).get("url")
        if not isinstance(url, str):
            raise Unavailable("the server responded, but not as Wakeful does: there is no link")
        return url

    async def slo(self) -> dict[str, Json]:
        """Return the service level: the dead-letter ratio and the dispatch latency."""
        return await self._rest.get_slo()

    async def ready(self) -> bool:
        """Return True if the server and its database respond; Unavailable otherwise."""
        return await self._rest.ready()

    async def events(
        self,
        *,
        agent: str | None = None,
        job: str | None = None,
        types: Iterable[EventType] = (),
        after: int | None = None,
        patience: float = 60.0,
    ) -> AsyncGenerator[Event, None]:
        """Yield events as they happen: from now on, or all after the event of that number.

        ```python
        async for event in client.events(types=["run.finished"]):
            print(event.job, event.run.state)
        ```

        - `agent`, `job` (its name or id), `types`: only those
        - `after`: the `seq` of the last event that you received
        - `patience`: seconds to wait for a server that was reached before

        After a broken connection the stream resumes where it stopped: no event is lost or repeated. An event
        of the type `reset` means that the events after `after` are no longer stored.
        """
        found = self._rest.events(agent=agent, job=job, types=types, after=after, patience=patience)
        try:
            async for event in found:
                yield from_json(Event, event)
        finally:
            await found.aclose()


def _implements_scheduler(client: AsyncClient) -> Scheduler:
    """Have mypy check that the class implements the protocol."""
    return client
