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

import asyncio
import builtins
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeVar, Unpack, overload

from wakeful.client.instances_api import InstancesApi
from wakeful.client.suggestions_api import SuggestionsApi
from wakeful.errors import Unavailable
from wakeful.job.policy import Overlap
from wakeful.model import (
    AgentInfo,
    Attempt,
    BulkResult,
    HeartbeatResult,
    Hook,
    Incident,
    InstanceInfo,
    Job,
    MessageReceipt,
    OverlapPolicy,
    Page,
    ReleaseResult,
    Revision,
    Run,
    SessionInfo,
    Trigger,
)
from wakeful.run.run import TriggerName
from wakeful.values.json_value import Json

if TYPE_CHECKING:
    from types import TracebackType

    from wakeful.model.job_fields import JobFields, JobPatch, JsonLike

T = TypeVar("T")

#: How much longer each wait between two polls is than the one before.
_POLL_GROWTH: Final = 1.2
#: Seconds for which a wait for a run tolerates that the server does not respond.
POLL_PATIENCE: Final = 60.0


class JobsApi(Protocol):
    """The jobs of one agent. Fields are those of a job document, in Python spelling.

    Where a method takes the name of a job, it takes its id too.
    """

    def of(self, agent: str, workspace: str | None = None) -> Self:
        """Return the jobs of another agent."""
        ...

    async def create(self, name: str, **fields: Unpack[JobFields]) -> Job:
        """Create a job; AlreadyExists if the name is taken.

        `schedule` takes any of its forms: `"0 9 * * 1-5"`, `"every 15m"`, `"in 20m"`, a mapping. The webhook
        `secret` in the result is not shown again.
        """
        ...

    async def create_many(self, documents: Iterable[Mapping[str, object]]) -> Sequence[Job]:
        """Create many jobs in one transaction, all or none: each is a mapping of a `name` and its fields.

        A request to a server has at most 1,000 of them and 256 KB.
        """
        ...

    async def upsert(self, name: str, **fields: Unpack[JobFields]) -> Job:
        """Create the job, or change it to match these fields. The same fields again change nothing.

        A pause stays. `created` in the result says whether the job is new.
        """
        ...

    async def dry_run(self, name: str, **fields: Unpack[JobFields]) -> None:
        """Raise the error of `upsert`, and change nothing. Quotas are not checked."""
        ...

    async def update(self, name: str, /, *, if_version: int | None = None, **fields: Unpack[JobPatch]) -> Job:
        """Change only these fields; None resets a field to its default.

        With `if_version`, only if the job still has that revision; FailedPrecondition otherwise.
        """
        ...

    async def get(self, name: str) -> Job:
        """Return a job with its next ticks and last runs, or raise NotFound."""
        ...

    async def list(
        self,
        *,
        include_disabled: bool = True,
        all_agents: bool = False,
        labels: Mapping[str, str] | Sequence[str] = (),
    ) -> builtins.list[Job]:
        """Return all jobs, by name; with `all_agents`, those of the whole workspace.

        With `labels`, only jobs that have all of them: `{"team": "ops"}`, or `["team=ops", "urgent"]`.
        """
        ...

    async def pause(self, name: str, *, note: str | None = None, until: datetime | str | None = None) -> Job:
        """Stop the ticks of a job and withdraw its planned runs. Ticks during a pause are not missed.

        The job resumes by itself at `until`: an instant, or text such as `"in 2h"`.
        """
        ...

    async def resume(self, name: str) -> Job:
        """Start the ticks again, from now."""
        ...

    async def pause_many(
        self,
        names: Iterable[str] | None = None,
        *,
        labels: Mapping[str, str] | Sequence[str] = (),
        all_agents: bool = False,
        note: str | None = None,
        until: datetime | str | None = None,
        dry_run: bool = False,
    ) -> BulkResult:
        """Pause these jobs, or without `names` the enabled jobs of the agent that have all `labels`.

        With `all_agents`, those of the whole workspace. A name may be an id, or `agent/name`. An unknown
        name changes nothing; a job that cannot be paused is in `errors` of the result. With `dry_run` the
        jobs are counted, and nothing changes.
        """
        ...

    async def resume_many(
        self,
        names: Iterable[str] | None = None,
        *,
        labels: Mapping[str, str] | Sequence[str] = (),
        all_agents: bool = False,
        dry_run: bool = False,
    ) -> BulkResult:
        """Resume these jobs, or without `names` the paused jobs that are selected as in `pause_many`."""
        ...

    async def peaks(self, *, all_agents: bool = True) -> dict[str, Json]:
        """Return the load of the coming week: `peaks`, its busiest minutes, and `hours`, each with `starts`.

        It is at most a minute old (`ageMs`). Without `all_agents`, only the jobs of this agent count.
        """
        ...

    async def preview(self, *, count: int = 10, **fields: Unpack[JobFields]) -> dict[str, Json]:
        """Return a schedule in words and its next `ticks`, with the `clockChanges` between them.

        It takes the fields that determine the ticks (`schedule`, `tz`, `exclude` …) and changes nothing.
        """
        ...

    async def test_target(self, name: str | None = None, **fields: Unpack[JobFields]) -> dict[str, Json]:
        """Send a signed test request to a webhook, or check a target of another kind: `ok` and `message`.

        `name` is a job whose target and secret are used; `fields` replace those of the job. A test is no run.
        """
        ...

    async def skip_next(self, name: str) -> Job:
        """Record the next tick as skipped, with the reason `asked`. The run is `skipped` in the result."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a job and withdraw its planned runs. Its finished runs stay."""
        ...

    async def rotate_secret(self, name: str) -> Job:
        """Create a new webhook secret. For a day, deliveries are signed with both."""
        ...

    async def revisions(self, name: str) -> builtins.list[Revision]:
        """Return the changes of the definition of a job, newest first; the last one is its creation.

        At most 50. Values of credentials are not kept.
        """
        ...

    async def restore(self, name: str, revision: int) -> Job:
        """Give a job the fields of an earlier revision. That is an edit: its pause and its secret stay.

        FailedPrecondition: the fields had credentials, which are not kept.
        """
        ...

    async def create_hook(self, name: str) -> Hook:
        """Give a job a new trigger URL, which is returned only once.

        If it has one already, that one works for another day.
        """
        ...

    async def get_hook(self, name: str) -> Hook:
        """Return when the trigger URL of a job was created. NotFound: it has none."""
        ...

    async def delete_hook(self, name: str) -> None:
        """Delete the trigger URL of a job, and the one before it. NotFound: it has none."""
        ...

    @overload
    async def run(
        self,
        name: str,
        *,
        mode: Literal["force"] = "force",
        payload: JsonLike = None,
        overlap_policy: OverlapPolicy | Overlap | None = None,
    ) -> Run: ...
    @overload
    async def run(
        self,
        name: str,
        *,
        mode: Literal["due"],
        payload: JsonLike = None,
        overlap_policy: OverlapPolicy | Overlap | None = None,
    ) -> Run | None: ...
    async def run(
        self,
        name: str,
        *,
        mode: Literal["force", "due"] = "force",
        payload: JsonLike = None,
        overlap_policy: OverlapPolicy | Overlap | None = None,
    ) -> Run | None:
        """Run a job now, with this payload or its own. With `mode="due"`, only if a tick is due, else None.

        The run starts at once, beside other runs of the job, unless `overlap_policy` says otherwise.
        `runs.wait(run.id)` waits for its end.
        """
        ...

    async def runs(self, name: str, *, limit: int = 20, cursor: str | None = None) -> Page[Run]:
        """Return the runs of a job, newest first; `cursor` is that of the previous page."""
        ...

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        overlap_policy: Literal["queue", "allow"] | None = None,
    ) -> int:
        """Run the ticks from `start` to `end`, both in the past. Return their number.

        They overlap as the job's policy says, or as `overlap_policy` says: `queue` or `allow`.
        """
        ...


class RunsApi(Protocol):
    """The runs of one agent."""

    def of(self, agent: str, workspace: str | None = None) -> Self:
        """Return the runs of another agent."""
        ...

    async def get(self, run_id: str) -> Run:
        """Return a run with its attempts, or raise NotFound."""
        ...

    async def attempts(self, run_id: str) -> builtins.list[Attempt]:
        """Return the attempts of a run, in order."""
        ...

    async def list(
        self,
        *,
        job_id: str | None = None,
        states: Iterable[str] = (),
        trigger: Trigger | TriggerName | None = None,
        instance: str | None = None,
        dead: bool = False,
        to_confirm: bool = False,
        limit: int = 50,
        before: str | None = None,
        cursor: str | None = None,
        all_agents: bool = False,
    ) -> Page[Run]:
        """Return runs, newest first; with `all_agents`, those of the whole workspace.

        `cursor` is that of the previous page. `before` is the id of a run: only older ones. `instance` is
        an instance of the agent. `to_confirm`: only runs that wait for a person to confirm their work.
        """
        ...

    async def dead_letters(
        self, *, limit: int = 50, cursor: str | None = None, all_agents: bool = False
    ) -> Page[Run]:
        """Return failed runs that were neither replayed nor discarded, newest first."""
        ...

    async def wait(
        self, run_id: str, *, poll: float = 0.1, on_poll: Callable[[Run], None] | None = None
    ) -> Run:
        """Return a run once it has ended. Limit the wait with `async with asyncio.timeout(60):`.

        `on_poll` is called with the run after each read. A server that restarts meanwhile may be away for a
        minute.
        """
        ...

    async def cancel(self, run_id: str) -> Run:
        """Cancel a run that has not started, or that waits for its next attempt."""
        ...

    async def stop(self, run_id: str) -> Run:
        """Stop a run that is running, on any worker."""
        ...

    async def replay(self, run_id: str) -> Run:
        """Run a dead letter again: a new run with the same idempotency key and the next attempt number."""
        ...

    async def discard(self, run_id: str) -> None:
        """Discard a dead letter."""
        ...

    async def replay_many(
        self, run_ids: Iterable[str] | None, *, all_agents: bool = False
    ) -> builtins.list[str]:
        """Replay these dead letters, or with None the oldest thousand of the agent, or of all agents.

        Return the ids of the dead letters that were replayed.
        """
        ...

    async def discard_many(
        self, run_ids: Iterable[str] | None, *, all_agents: bool = False
    ) -> builtins.list[str]:
        """Discard these dead letters, or with None the oldest thousand of the agent, or of all agents.

        Return the ids of the dead letters that were discarded.
        """
        ...

    async def complete(
        self,
        run: str | Run,
        status: Literal["succeeded", "failed"],
        *,
        attempt: int | None = None,
        output: JsonLike = None,
        error: str | None = None,
        usage: Mapping[str, object] | None = None,
        evidence: Mapping[str, object] | None = None,
        permanent: bool = False,
    ) -> Run:
        """Report the end of a claimed run, or of a run whose webhook has `completion="callback"`.

        Pass a claimed run as `claim` returned it, or its id and `attempt`. `evidence` is what shows that the
        work was done, such as `{"external_id": "inv-17"}`. A success of a job with `verify` stays running
        (`verifying`) until it is verified. A failure that is `permanent` is not retried.
        FailedPrecondition: the run has ended, or is at another attempt.
        """
        ...

    async def verify(
        self, run: str | Run, verified: bool = True, *, reason: str | None = None, attempt: int | None = None
    ) -> Run:
        """Confirm the work of a run that is `verifying`, or reject it with a reason.

        Pass a run as it was read, or its id. A rejected attempt has failed (`unverified`).
        FailedPrecondition: the run does not wait to be verified, or is at another attempt.
        """
        ...

    async def heartbeat(self, run: str | Run, *, attempt: int | None = None) -> Run:
        """Renew the lease of a claimed run, passed as `claim` returned it, or by its id and `attempt`.

        FailedPrecondition: the run has ended, or another executor holds it. Stop working on it.
        """
        ...

    async def heartbeat_many(self, runs: Iterable[Run], *, worker: str | None = None) -> HeartbeatResult:
        """Renew the leases of claimed runs. Stop working on those that are `lost`."""
        ...

    async def release(
        self, worker: str, runs: Iterable[Run] = (), *, claim_id: str | None = None
    ) -> ReleaseResult:
        """Return claimed runs without executing them; the attempts do not count.

        With `claim_id` also all runs of that claim, for one whose response was lost.
        """
        ...

    async def claim(
        self,
        worker: str,
        *,
        agents: Iterable[str] = (),
        lanes: Iterable[str] = (),
        limit: int = 1,
        wait_ms: int = 0,
        claim_id: str | None = None,
    ) -> builtins.list[Run]:
        """Claim runs that wait for an executor; with `wait_ms`, wait so long for the first one.

        Each has its `target`, and a lease of 30 seconds that a heartbeat renews. `claim_id` is a new name for
        `release`.
        """
        ...

    async def wake(self, payload: JsonLike = None) -> Run:
        """Wake the agent now, without a job. It requires the role admin."""
        ...


class AgentsApi(InstancesApi, Protocol):
    """The agents of a workspace, and their instances."""

    @overload
    async def list(self) -> builtins.list[AgentInfo]: ...
    @overload
    async def list(self, name: str) -> builtins.list[InstanceInfo]: ...
    async def list(self, name: str | None = None) -> builtins.list[AgentInfo] | builtins.list[InstanceInfo]:
        """Return all agents, by name; with the `name` of an agent, all its instances."""
        ...

    async def get(self, name: str) -> AgentInfo:
        """Return an agent, or raise NotFound."""
        ...

    async def put(self, name: str, fields: Mapping[str, object]) -> AgentInfo:
        """Create an agent, or change it to match these fields. A `secret` in the result is shown once."""
        ...

    async def update(
        self, name: str, fields: Mapping[str, object], *, if_version: int | None = None
    ) -> AgentInfo:
        """Change these fields of an agent and no others; None resets a field to its default.

        With `if_version`, only an agent that is still at that version is changed: FailedPrecondition.
        """
        ...

    async def rotate_secret(self, name: str) -> AgentInfo:
        """Create a new webhook secret, which is shown once."""
        ...

    async def delete(self, name: str) -> None:
        """Delete an agent that has no jobs."""
        ...

    async def say(
        self,
        name: str,
        message: str,
        *,
        session: str | None = None,
        channel: str | None = None,
        to: str | None = None,
    ) -> MessageReceipt:
        """Send a message to an agent, in the session `main` or the one that is named.

        `channel` and `to` say where it comes from: jobs that are made in the conversation deliver there.
        """
        ...

    async def sessions(self, name: str, *, limit: int = 50, cursor: str | None = None) -> Page[SessionInfo]:
        """Return the sessions of an agent, by name; `cursor` is that of the previous page."""
        ...

    async def session(
        self, name: str, session: str = "main", *, limit: int = 50, cursor: str | None = None
    ) -> SessionInfo:
        """Return a session of an agent with its `history`, newest first; `cursor` continues it."""
        ...

    async def delete_session(self, name: str, session: str = "main") -> None:
        """Delete a session with its history. Its turns stop, and its waiting messages are dropped."""
        ...


class IncidentsApi(Protocol):
    """The incidents of a workspace: failures of one job with one cause."""

    async def list(
        self,
        *,
        states: Iterable[str] = (),
        agent: str | None = None,
        job: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Incident]:
        """Return incidents, newest first; `job` is a name or an id, `cursor` is that of the previous page.

        States: `open`, `acknowledged`, `recovered`, `closed`.
        """
        ...

    async def get(self, incident_id: str) -> Incident:
        """Return an incident, or raise NotFound."""
        ...

    async def ack(self, incident_id: str, *, note: str | None = None) -> Incident:
        """Acknowledge an incident: no reminder follows. Acknowledging it again changes nothing.

        FailedPrecondition: it has recovered, or was closed.
        """
        ...


class Scheduler(Protocol):
    """A scheduler in this process (`Wakeful`) or on a server (`AsyncClient`)."""

    @property
    def jobs(self) -> JobsApi:
        """Create, change and run jobs."""
        ...

    @property
    def runs(self) -> RunsApi:
        """Read, stop, replay and complete runs."""
        ...

    @property
    def agents(self) -> AgentsApi:
        """Create and change agents, send messages and signals to them, and manage their instances."""
        ...

    @property
    def incidents(self) -> IncidentsApi:
        """Read and acknowledge incidents."""
        ...

    @property
    def suggestions(self) -> SuggestionsApi:
        """Read, apply, dismiss and roll back suggestions."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


async def poll_each(
    read: Callable[[], Awaitable[T]],
    ended: Callable[[T], bool],
    *,
    poll: float,
    longest: float,
    reached: bool = False,
) -> AsyncGenerator[T, None]:
    """Yield what each read returns, until the value has ended; each wait is longer than the one before.

    A server that was `reached` before may be away for `POLL_PATIENCE` seconds: it restarts.
    """
    loop = asyncio.get_running_loop()
    lost_at: float | None = None
    while True:
        try:
            value = await read()
        except Unavailable:
            lost_at = loop.time() if lost_at is None else lost_at
            if not reached or loop.time() - lost_at > POLL_PATIENCE:
                raise
        else:
            reached, lost_at = True, None
            yield value
            if ended(value):
                return
        await asyncio.sleep(poll)
        poll = min(poll * _POLL_GROWTH, longest)


async def poll_until(
    read: Callable[[], Awaitable[T]],
    ended: Callable[[T], bool],
    *,
    poll: float,
    longest: float,
    on_poll: Callable[[T], None] | None = None,
    reached: bool = False,
) -> T:
    """Return the last value of `poll_each`."""
    async for value in poll_each(read, ended, poll=poll, longest=longest, reached=reached):
        if on_poll is not None:
            on_poll(value)
    return value


def id_and_attempt(run: str | Run, attempt: int | None) -> tuple[str, int | None]:
    """Return the id of a run and the attempt that is meant: of a `Run`, its own unless one is given."""
    if isinstance(run, str):
        return run, attempt
    return run.id, run.attempt if attempt is None else attempt
