"""The interface that `Wakeful` and `AsyncClient` share: code can switch between them by changing one line.

```python
async def report(scheduler: Scheduler) -> None:
    job = await scheduler.jobs.upsert("digest", schedule="0 7 * * *", webhook_url="https://…")
    print(job.next_at)


async with Wakeful("sqlite:///wakeful.db") as scheduler:  # or AsyncClient("https://wakeful.example")
    await report(scheduler)
```

Both implement each method with the same parameters, return the same types (`wakeful.model`) and raise the
same errors (`wakeful.errors`). mypy checks it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from wakeful.client.admin import Agents, Inbox, Incidents, Suggestions
from wakeful.client.jobs import Jobs
from wakeful.client.runs import Runs

# The classes for requests to a server; those of `Wakeful` are their subclasses.
JobsApi = Jobs
RunsApi = Runs
AgentsApi = Agents
IncidentsApi = Incidents
InboxApi = Inbox
SuggestionsApi = Suggestions


class Scheduler(Protocol):
    """A scheduler in this process (`Wakeful`) or on a server (`AsyncClient`)."""

    @property
    def jobs(self) -> Jobs:
        """Create, change and run jobs."""
        ...

    @property
    def runs(self) -> Runs:
        """Read, stop, replay and complete runs."""
        ...

    @property
    def agents(self) -> Agents:
        """Create and change agents, send messages and signals to them, and manage their instances."""
        ...

    @property
    def incidents(self) -> Incidents:
        """Read and acknowledge incidents."""
        ...

    @property
    def suggestions(self) -> Suggestions:
        """Read, apply, dismiss and roll back suggestions."""
        ...

    @property
    def inbox(self) -> Inbox:
        """List what waits for a person, and decide."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
