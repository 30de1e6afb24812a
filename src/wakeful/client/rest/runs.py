"""The endpoints of runs and dead letters."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import cast

from wakeful.client.connection import Connection, Query, check_next, path, read_list, read_page
from wakeful.client.types import (
    DeadLetterGroupsShape,
    HeartbeatsShape,
    ReleasedShape,
    ReportResultShape,
    RunShape,
)
from wakeful.errors import FailedPrecondition, Unavailable, WakefulError
from wakeful.model import Page
from wakeful.values.json_value import Json


class RestRuns:
    """The runs of one agent."""

    def __init__(self, connection: Connection, workspace: str, agent: str) -> None:
        self._connection = connection
        self._workspace, self._agent = workspace, agent

    def of(self, agent: str, workspace: str | None = None) -> RestRuns:
        """Return the runs of another agent."""
        return RestRuns(self._connection, workspace or self._workspace, agent)

    async def _run(self, method: str, run_id: str, *action: str, body: Json = None) -> RunShape:
        where = path(self._workspace, "runs", run_id, *action)
        return cast(RunShape, await self._connection.request(method, where, body=body))

    async def get(self, run_id: str) -> RunShape:
        """Return a run with its attempts."""
        return await self._run("GET", run_id)

    async def list(
        self,
        *,
        job_id: str | None = None,
        states: Iterable[str] = (),
        trigger: str | None = None,
        instance: str | None = None,
        dead: bool = False,
        to_confirm: bool = False,
        limit: int = 50,
        before: str | None = None,
        cursor: str | None = None,
        all_agents: bool = False,
    ) -> Page[RunShape]:
        """Return a page of runs, newest first; with `all_agents`, those of the workspace."""
        query: Query = {
            "agent": None if all_agents else self._agent,
            "job_id": job_id,
            "state": ",".join(states) or None,
            "trigger": trigger,
            "instance": instance,
            "dead": dead or None,
            "to_confirm": to_confirm or None,
            "before": before,
            "limit": limit,
            "cursor": cursor,
        }
        where = path(self._workspace, "runs")
        return read_page(await self._connection.request("GET", where, query=query), "runs")

    async def dead_letters(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        all_agents: bool = False,
        job: str | None = None,
        cause: str | None = None,
    ) -> Page[RunShape]:
        """Return a page of dead letters, newest first."""
        query: Query = {
            "agent": None if all_agents else self._agent,
            "job": job,
            "cause": cause,
            "limit": limit,
            "cursor": cursor,
        }
        where = path(self._workspace, "dead-letters")
        return read_page(await self._connection.request("GET", where, query=query), "deadLetters")

    async def dead_letter_groups(
        self, *, job: str | None = None, all_agents: bool = False
    ) -> DeadLetterGroupsShape:
        """Return the newest dead letters by job and cause."""
        query: Query = {"agent": None if all_agents else self._agent, "job": job}
        where = path(self._workspace, "dead-letters", "groups")
        return cast(DeadLetterGroupsShape, await self._connection.request("GET", where, query=query))

    async def cancel(self, run_id: str) -> RunShape:
        """Cancel a run that has not started."""
        return await self._run("POST", run_id, "cancel")

    async def stop(self, run_id: str) -> RunShape:
        """Stop a running run."""
        return await self._run("POST", run_id, "stop")

    async def replay(self, run_id: str) -> RunShape:
        """Replay a dead letter."""
        return await self._run("POST", run_id, "replay")

    async def discard(self, run_id: str) -> None:
        """Discard a dead letter; FailedPrecondition if the run is none."""
        if not await self.discard_many([run_id]):
            run = await self.get(run_id)
            raise FailedPrecondition(f"run '{run_id}' is not a dead letter: it is {run.get('state')}")

    async def replay_many(
        self, run_ids: Iterable[str] | None, *, all_agents: bool = False
    ) -> builtins.list[str]:
        """Replay these dead letters, or the oldest thousand; return the ids of those replayed."""
        return await self._many("replay", run_ids, all_agents, "replayed")

    async def discard_many(
        self, run_ids: Iterable[str] | None, *, all_agents: bool = False
    ) -> builtins.list[str]:
        """Discard these dead letters, or the oldest thousand; return the ids of those discarded."""
        return await self._many("discard", run_ids, all_agents, "discarded")

    async def replay_all(self, *, all_agents: bool = False) -> builtins.list[str]:
        """Replay all dead letters of now, in several requests; return the ids of those replayed."""
        return await self._all("replay", all_agents, "replayed")

    async def discard_all(self, *, all_agents: bool = False) -> builtins.list[str]:
        """Discard all dead letters of now, in several requests; return the ids of those discarded."""
        return await self._all("discard", all_agents, "discarded")

    async def _all(self, action: str, all_agents: bool, key: str) -> builtins.list[str]:
        newest = await self.dead_letters(limit=1, all_agents=all_agents)
        if not newest:
            return []
        last = newest[0].get("id")
        if not isinstance(last, str):
            raise Unavailable("the server responded, but not as Wakeful does: a run has no id")
        which: dict[str, Json] = {"all": True} if all_agents else {"agent": self._agent}
        where = path(self._workspace, "dead-letters", action)
        done: builtins.list[str] = []
        cursor: str | None = None
        while True:
            # Without `through`, replayed runs that fail again would be replayed again, without an end.
            body: Json = {**which, "through": last, "cursor": cursor}
            try:
                reply = await self._connection.request("POST", where, body=body)
            except WakefulError as error:
                if not done:
                    raise
                raise type(error)(f"{len(done)} were {key}, then: {error.message}") from error
            done += cast(builtins.list[str], read_list(reply, key, str))
            following = cast(dict[str, Json], reply).get("cursor")
            if not isinstance(following, str):
                return done
            cursor = check_next(cursor, following)

    async def _many(
        self, action: str, run_ids: Iterable[str] | None, all_agents: bool, key: str
    ) -> builtins.list[str]:
        body: Json = {"all": True} if all_agents else {"agent": self._agent}
        if run_ids is not None:
            body = {"ids": builtins.list[Json](run_ids)}
        where = path(self._workspace, "dead-letters", action)
        reply = await self._connection.request("POST", where, body=body)
        return cast(builtins.list[str], read_list(reply, key, str))

    async def complete(self, run_id: str, report: Mapping[str, Json]) -> RunShape:
        """Report the end of a run."""
        return await self._run("POST", run_id, "complete", body=dict(report))

    async def complete_many(self, reports: Iterable[Mapping[str, Json]]) -> builtins.list[ReportResultShape]:
        """Report the end of several runs, each with its `id`; return the result of each, in their order."""
        sent = [dict(report) for report in reports]
        body: Json = {"runs": builtins.list[Json](sent)}
        reply = await self._connection.request("POST", path(self._workspace, "runs", "complete"), body=body)
        results = cast(builtins.list[ReportResultShape], read_list(reply, "runs", dict))
        if [each.get("id") for each in results] != [each.get("id") for each in sent]:
            raise Unavailable("the server responded, but not as Wakeful does: the results are of other runs")
        return results

    async def verify(
        self, run_id: str, verified: bool, *, reason: str | None = None, attempt: int | None = None
    ) -> RunShape:
        """Confirm or reject the work of a run."""
        body: Json = {"verified": verified, "reason": reason, "attempt": attempt}
        return await self._run("POST", run_id, "verify", body=body)

    async def heartbeat(self, run_id: str, attempt: int | None) -> RunShape:
        """Renew the lease of a claimed run."""
        return await self._run("POST", run_id, "heartbeat", body={"attempt": attempt})

    async def heartbeat_many(
        self,
        held: Iterable[tuple[str, int]],
        *,
        worker: str | None = None,
        waiting: Mapping[str, str] | None = None,
    ) -> HeartbeatsShape:
        """Renew the leases of claimed runs, each given by its id and attempt.

        `waiting` says, by id, what the work of runs waits for before it starts.
        """
        runs: Json = [{"id": run_id, "attempt": attempt} for run_id, attempt in held]
        body: dict[str, Json] = {"runs": runs}
        if worker is not None:
            body["worker"] = worker
        if waiting:
            body["waitingFor"] = dict(waiting)
        reply = await self._connection.request("POST", path(self._workspace, "runs", "heartbeat"), body=body)
        renewed, lost = read_list(reply, "renewed", str), read_list(reply, "lost", str)
        return HeartbeatsShape(renewed=cast(builtins.list[str], renewed), lost=cast(builtins.list[str], lost))

    async def release(
        self, worker: str, held: Iterable[tuple[str, int]] = (), *, claim_id: str | None = None
    ) -> ReleasedShape:
        """Return claimed runs, each given by its id and attempt, and all runs of a claim."""
        runs: Json = [{"id": run_id, "attempt": attempt} for run_id, attempt in held]
        body: Json = {"worker": worker, "runs": runs, "claimId": claim_id}
        reply = await self._connection.request("POST", path(self._workspace, "runs", "release"), body=body)
        released, lost = read_list(reply, "released", str), read_list(reply, "lost", str)
        return ReleasedShape(released=cast(builtins.list[str], released), lost=cast(builtins.list[str], lost))

    async def claim(self, request: Mapping[str, Json], *, wait_ms: int = 0) -> builtins.list[RunShape]:
        """Claim runs; the server waits up to `wait_ms` for the first one."""
        body: Json = {**request, "waitMs": wait_ms}
        where = path(self._workspace, "runs", "claim")
        reply = await self._connection.request("POST", where, body=body, extra_timeout=wait_ms / 1000)
        return cast(builtins.list[RunShape], read_list(reply, "runs", dict))

    async def wake(self, payload: Json = None) -> RunShape:
        """Wake the agent without a job."""
        where = path(self._workspace, "agents", self._agent, "runs")
        body: Json = {} if payload is None else {"payload": payload}
        return cast(RunShape, await self._connection.request("POST", where, body=body))
