"""The runs of an agent: their methods, implemented by requests to a server."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast

from wakeful.errors import ResourceExhausted, Unavailable
from wakeful.model import Attempt, HeartbeatResult, Page, ReleaseResult, Run, Trigger
from wakeful.model.codec import from_json, page_from_json
from wakeful.run.run import TriggerName

if TYPE_CHECKING:
    from wakeful.client.rest import RestClient
    from wakeful.model.job_fields import JsonLike

T = TypeVar("T")

#: How much longer each wait between two polls is than the one before.
_POLL_GROWTH: Final = 1.2
#: Seconds for which a wait for a run tolerates that the server does not respond.
POLL_PATIENCE: Final = 60.0
#: The longest wait between two polls, in seconds.
LONGEST_POLL: Final = 2.0


class Runs:
    """The runs of one agent: `client.runs`."""

    def __init__(self, rest: RestClient, agent: str) -> None:
        self._rest = rest
        self._agent = agent

    def of(self, agent: str, workspace: str | None = None) -> Runs:
        """Return the runs of another agent."""
        return Runs(self._rest.in_workspace(workspace), agent)

    async def get(self, run_id: str) -> Run:
        """Return a run with its newest 200 attempts, or raise NotFound."""
        return from_json(Run, await self._rest.get_run(run_id))

    async def attempts(self, run_id: str) -> builtins.list[Attempt]:
        """Return the newest 200 attempts of a run, in order."""
        return [*(await self.get(run_id)).attempts]

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
        page = await self._rest.list_all_runs(
            agent=None if all_agents else self._agent,
            job_id=job_id,
            state=",".join(states) or None,
            trigger=trigger,
            instance=instance,
            dead=dead or None,
            to_confirm=to_confirm or None,
            limit=limit,
            before=before,
            cursor=cursor,
        )
        return page_from_json(Run, page)

    async def dead_letters(
        self, *, limit: int = 50, cursor: str | None = None, all_agents: bool = False
    ) -> Page[Run]:
        """Return failed runs that were neither replayed nor discarded, newest first."""
        agent = None if all_agents else self._agent
        page = await self._rest.list_dead_letters(agent=agent, limit=limit, cursor=cursor)
        return page_from_json(Run, page)

    async def wait(
        self, run_id: str, *, poll: float = 0.1, on_poll: Callable[[Run], None] | None = None
    ) -> Run:
        """Return a run once it has ended. Limit the wait with `async with asyncio.timeout(60):`.

        `on_poll` is called with the run after each read. A server that restarts meanwhile may be away for a
        minute.
        """
        async for run in poll_run(self, run_id, poll):
            if on_poll is not None:
                on_poll(run)
        return run

    async def cancel(self, run_id: str) -> Run:
        """Cancel a run that has not started, or that waits for its next attempt."""
        return from_json(Run, await self._rest.cancel_run(run_id))

    async def stop(self, run_id: str) -> Run:
        """Stop a run that is running, on any worker."""
        return from_json(Run, await self._rest.stop_run(run_id))

    async def replay(self, run_id: str) -> Run:
        """Run a dead letter again: a new run with the same idempotency key and the next attempt number."""
        return from_json(Run, await self._rest.replay_run(run_id))

    async def discard(self, run_id: str) -> None:
        """Discard a dead letter."""
        await self._rest.discard_run(run_id)

    async def replay_many(
        self, run_ids: Iterable[str] | None, *, all_agents: bool = False
    ) -> builtins.list[str]:
        """Replay these dead letters, or with None the oldest thousand of the agent, or of all agents.

        Return the ids of the dead letters that were replayed.
        """
        return [*await self._rest.replay_dead_letters(self._select(run_ids, all_agents))]

    async def discard_many(
        self, run_ids: Iterable[str] | None, *, all_agents: bool = False
    ) -> builtins.list[str]:
        """Discard these dead letters, or with None the oldest thousand of the agent, or of all agents.

        Return the ids of the dead letters that were discarded.
        """
        return [*await self._rest.discard_dead_letters(self._select(run_ids, all_agents))]

    def _select(self, run_ids: Iterable[str] | None, all_agents: bool) -> dict[str, object]:
        if run_ids is not None:
            return {"ids": [*run_ids]}
        return {"all": True} if all_agents else {"agent": self._agent}

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
        run_id, attempt = id_and_attempt(run, attempt)
        report = {
            "status": status, "attempt": attempt, "output": output, "error": error, "usage": usage,
            "evidence": evidence, "permanent": permanent or None,
        }  # fmt: skip
        return from_json(Run, await self._rest.complete_run(run_id, report))

    async def verify(
        self, run: str | Run, verified: bool = True, *, reason: str | None = None, attempt: int | None = None
    ) -> Run:
        """Confirm the work of a run that is `verifying`, or reject it with a reason.

        Pass a run as it was read, or its id. A rejected attempt has failed (`unverified`).
        FailedPrecondition: the run does not wait to be verified, or is at another attempt.
        """
        run_id, attempt = id_and_attempt(run, attempt)
        return from_json(
            Run, await self._rest.verify_run(run_id, verified=verified, reason=reason, attempt=attempt)
        )

    async def heartbeat(self, run: str | Run, *, attempt: int | None = None) -> Run:
        """Renew the lease of a claimed run, passed as `claim` returned it, or by its id and `attempt`.

        FailedPrecondition: the run has ended, or another executor holds it. Stop working on it.
        """
        run_id, attempt = id_and_attempt(run, attempt)
        return from_json(Run, await self._rest.heartbeat_run(run_id, attempt=cast(int, attempt)))

    async def heartbeat_many(self, runs: Iterable[Run], *, worker: str | None = None) -> HeartbeatResult:
        """Renew the leases of claimed runs. Stop working on those that are `lost`."""
        beat = await self._rest.heartbeat_runs(runs=held_runs(runs), worker=worker)
        return from_json(HeartbeatResult, beat)

    async def release(
        self, worker: str, runs: Iterable[Run] = (), *, claim_id: str | None = None
    ) -> ReleaseResult:
        """Return claimed runs without executing them; the attempts do not count.

        With `claim_id` also all runs of that claim, for one whose response was lost.
        """
        released = await self._rest.release_runs(worker=worker, runs=held_runs(runs), claim_id=claim_id)
        return from_json(ReleaseResult, released)

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
        claimed = await self._rest.claim_runs(
            worker=worker,
            agents=[*agents],
            lanes=[*lanes],
            limit=limit,
            wait_ms=wait_ms,
            claim_id=claim_id,
        )
        return [from_json(Run, run) for run in claimed]

    async def wake(self, payload: JsonLike = None) -> Run:
        """Wake the agent now, without a job. It requires the role admin."""
        return from_json(Run, await self._rest.wake_agent(self._agent, payload=payload))


def held_runs(runs: Iterable[Run]) -> builtins.list[dict[str, object]]:
    """Return claimed runs as a request names them."""
    return [{"id": run.id, "attempt": run.attempt} for run in runs]


def poll_run(runs: Runs, run_id: str, poll: float) -> AsyncGenerator[Run, None]:
    """Yield the run after each read, until it has ended."""
    return poll_each(
        lambda: runs.get(run_id), lambda run: run.state.terminal, poll=poll, longest=LONGEST_POLL
    )


async def poll_each(
    read: Callable[[], Awaitable[T]],
    ended: Callable[[T], bool],
    *,
    poll: float,
    longest: float,
    reached: bool = False,
) -> AsyncGenerator[T, None]:
    """Yield what each read returns, until the value has ended; each wait is longer than the one before.

    A server that was `reached` before may be away, or refuse too many requests, for `POLL_PATIENCE` seconds.
    """
    loop = asyncio.get_running_loop()
    lost_at: float | None = None
    while True:
        asked = 0
        try:
            value = await read()
        except (Unavailable, ResourceExhausted) as error:
            asked = error.retry_after_s or 0
            lost_at = loop.time() if lost_at is None else lost_at
            if not reached or loop.time() + asked - lost_at > POLL_PATIENCE:
                raise
        else:
            reached, lost_at = True, None
            yield value
            if ended(value):
                return
        await asyncio.sleep(max(poll, asked))
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
