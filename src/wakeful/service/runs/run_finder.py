"""Find runs: by state, trigger, owner and time; and those that follow from a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from wakeful.errors import InvalidArgument
from wakeful.schedule.schedules import LATEST_MS
from wakeful.service.auth.access import Principal
from wakeful.service.runs.runs import RunService
from wakeful.store.port import Store
from wakeful.store.rows import AttemptView, RunView
from wakeful.values.ids import first_id, is_id

#: The interfaces import the types of runs from here: they do not use the store.
__all__ = ["CONSIDERED", "AttemptView", "RunFinder", "RunSearch", "RunView", "RunsFound"]

#: How many runs a search considers at a time if no index finds what it looks for.
CONSIDERED: Final = 20_000


class RunSearch(NamedTuple):
    """Which runs to find; None does not filter."""

    agent: str | None = None
    job_id: str | None = None
    states: tuple[str, ...] = ()
    trigger: str | None = None
    #: when they were recorded
    since_ms: int | None = None
    until_ms: int | None = None
    #: only those that wait for a person to confirm their work
    to_confirm: bool = False


class RunsFound(NamedTuple):
    """Runs that a search found, and where it continues."""

    runs: Sequence[RunView]
    #: `before` of the next page; None: there is none
    cursor: str | None
    #: False: the search ended at its limit, and older runs may match
    complete: bool


class RunFinder:
    """Finds runs."""

    def __init__(self, store: Store, runs: RunService) -> None:
        self._store = store
        self._runs = runs

    async def search(
        self,
        principal: Principal,
        workspace: str,
        only: RunSearch,
        *,
        before: str | None = None,
        limit: int = 50,
    ) -> RunsFound:
        """Find runs, newest first. A search that no index serves considers `CONSIDERED` runs at a time."""
        if before is not None and not is_id(before):
            raise InvalidArgument("cursor: it is not from a list of runs; open the list again")
        end, since = before or _id_of(only.until_ms), _id_of(only.since_ms)
        horizon: str | None = None
        if only.trigger is not None and only.job_id is None and not only.to_confirm:
            horizon = await self._store.run_horizon(workspace, end or first_id(LATEST_MS), CONSIDERED)
            if horizon is not None and (since is None or horizon > since):
                since = horizon
            else:
                horizon = None
        found = await self._runs.list(
            principal,
            workspace,
            only.agent,
            job_id=only.job_id,
            states=only.states,
            trigger=only.trigger,
            before=end,
            since=since,
            limit=limit + 1,
            to_confirm=only.to_confirm,
        )
        if len(found) > limit:
            return RunsFound(found[:limit], found[limit - 1].id, complete=True)
        return RunsFound(found, horizon, complete=horizon is None)

    async def follow_ups(self, principal: Principal, workspace: str, run_id: str) -> list[RunView]:
        """Return the runs that the end of a run caused, and its replays; only those that are visible.

        Of a signal these are also the signals that it sent to instances.
        """
        run = await self._runs.get(principal, workspace, run_id)
        found = await self._store.follow_up_runs(run.id)
        if run.instance is not None and run.finished_ms is not None:
            found += await self._store.sent_signals(workspace, run.id, run.finished_ms)
        return [run for run in found if run.workspace == workspace and principal.agent in (None, run.agent)]


def _id_of(ms: int | None) -> str | None:
    return None if ms is None else first_id(min(max(ms, 0), LATEST_MS))
