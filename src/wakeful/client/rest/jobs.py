"""The endpoints of jobs."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from wakeful.client.connection import Connection, Query, check_next, path, read_list, read_page
from wakeful.client.fields import label_texts
from wakeful.client.types import (
    BulkResultShape,
    BulkRunsShape,
    HookShape,
    JobShape,
    PeaksShape,
    RevisionShape,
    RunShape,
    SkippedShape,
)
from wakeful.errors import Unavailable
from wakeful.model import Page
from wakeful.values.json_value import Json

_PAGE = 500
#: Seconds that a change of many jobs may take longer than other requests.
_MANY_TIMEOUT = 300.0
#: Seconds that the server waits for a target that it tests.
_TEST_TIMEOUT = 30.0


class RestJobs:
    """The jobs of one agent."""

    def __init__(self, connection: Connection, workspace: str, agent: str) -> None:
        self._connection = connection
        self._where = (workspace, agent)

    def of(self, agent: str, workspace: str | None = None) -> RestJobs:
        """Return the jobs of another agent."""
        return RestJobs(self._connection, workspace or self._where[0], agent)

    def _path(self, *parts: str) -> str:
        workspace, agent = self._where
        return path(workspace, "agents", agent, "jobs", *parts)

    async def _job(self, method: str, *parts: str, body: Json = None, **headers: str) -> JobShape:
        reply = await self._connection.request(method, self._path(*parts), body=body, headers=headers)
        return cast(JobShape, reply)

    async def create(self, document: Mapping[str, Json]) -> JobShape:
        """Create the job of a document."""
        return await self._job("POST", body=dict(document))

    async def create_many(self, documents: Sequence[Mapping[str, Json]]) -> builtins.list[JobShape]:
        """Create the jobs of these documents, all or none."""
        body: Json = {"jobs": [dict(each) for each in documents]}
        reply = await self._connection.request(
            "POST", self._path("bulk"), body=body, extra_timeout=_MANY_TIMEOUT
        )
        return cast(builtins.list[JobShape], read_list(reply, "jobs", dict))

    async def upsert(self, document: Mapping[str, Json]) -> JobShape:
        """Create the job of a document, or change it to match."""
        return await self._job("PUT", str(document.get("name")), body=dict(document))

    async def create_or_change(self, document: Mapping[str, Json]) -> tuple[JobShape, bool]:
        """Do `upsert`; also return whether it created the job."""
        where = self._path(str(document.get("name")))
        status, reply = await self._connection.request_with_status("PUT", where, body=dict(document))
        return cast(JobShape, reply), status == 201

    async def dry_run(self, document: Mapping[str, Json]) -> None:
        """Raise the error of `upsert`, and change nothing. Quotas are not checked."""
        where = self._path(str(document.get("name")))
        await self._connection.request(
            "PUT", where, body=dict(document), query={"dry_run": True}, optional=True
        )

    async def update(
        self, name: str, patch: Mapping[str, Json], *, if_version: int | None = None
    ) -> JobShape:
        """Change the fields of a patch; with `if_version`, only at that revision."""
        headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
        return await self._job("PATCH", name, body=dict(patch), **headers)

    async def get(self, name: str) -> JobShape:
        """Return a job with its next ticks and last runs."""
        return await self._job("GET", name)

    async def list(
        self,
        *,
        include_disabled: bool = True,
        all_agents: bool = False,
        labels: Mapping[str, str] | Sequence[str] = (),
        at_most: int | None = None,
        filters: Mapping[str, str | None] | None = None,
    ) -> builtins.list[JobShape]:
        """Return all jobs by name, page by page; with `all_agents`, those of the workspace.

        With `at_most`, stop after the page that reaches this number. `filters` are further query parameters.
        """
        where = path(self._where[0], "jobs") if all_agents else self._path()
        found: builtins.list[JobShape] = []
        cursor: str | None = None
        while True:
            query: Query = {
                **(filters or {}),
                "include_disabled": include_disabled,
                "label": label_texts(labels),
                "limit": _PAGE,
                "cursor": cursor,
            }
            page: Page[JobShape] = read_page(
                await self._connection.request("GET", where, query=query), "jobs"
            )
            found += page
            if not page.cursor or (at_most is not None and len(found) >= at_most):
                return found
            cursor = check_next(cursor, page.cursor)

    async def pause(self, name: str, *, note: str | None = None, until: str | None = None) -> JobShape:
        """Pause a job."""
        given: dict[str, Json] = {"note": note, "until": until}
        body: dict[str, Json] = {key: value for key, value in given.items() if value is not None}
        return await self._job("POST", name, "pause", body=body or None)

    async def resume(self, name: str) -> JobShape:
        """Resume a job."""
        return await self._job("POST", name, "resume")

    def selection(
        self, names: Iterable[str] | None, labels: Mapping[str, str] | Sequence[str], all_agents: bool
    ) -> dict[str, Json]:
        """Return the selection of an operation on several jobs: these, or those with the labels."""
        given: dict[str, Json] = {"label": [*label_texts(labels)]}
        if not all_agents:
            given["agent"] = self._where[1]
        if names is not None:
            return {**given, "jobs": [*names]}
        return {**given, "all": True}

    async def pause_many(
        self,
        select: Mapping[str, Json],
        *,
        note: str | None = None,
        until: str | None = None,
        dry_run: bool = False,
    ) -> BulkResultShape:
        """Pause several jobs."""
        given: dict[str, Json] = {**select, "note": note, "until": until, "dryRun": dry_run}
        return cast(BulkResultShape, await self._many("pause", given))

    async def resume_many(self, select: Mapping[str, Json], *, dry_run: bool = False) -> BulkResultShape:
        """Resume several jobs."""
        return cast(BulkResultShape, await self._many("resume", {**select, "dryRun": dry_run}))

    async def run_many(
        self,
        select: Mapping[str, Json],
        *,
        mode: str = "force",
        payload: Json = None,
        overlap_policy: str | None = None,
        dry_run: bool = False,
    ) -> BulkRunsShape:
        """Run several jobs, at most 1,000 of them unless it is a dry run."""
        how: dict[str, Json] = {"mode": mode, "payload": payload, "overlapPolicy": overlap_policy}
        return cast(BulkRunsShape, await self._many("run", {**select, **how, "dryRun": dry_run}))

    async def delete_many(self, select: Mapping[str, Json], *, dry_run: bool = False) -> BulkResultShape:
        """Delete several jobs, at most 1,000 of them unless it is a dry run."""
        return cast(BulkResultShape, await self._many("delete", {**select, "dryRun": dry_run}))

    async def _many(self, action: str, given: Mapping[str, Json]) -> Json:
        body: Json = {field: value for field, value in given.items() if value is not None}
        where = path(self._where[0], "jobs", action)
        reply = await self._connection.request("POST", where, body=body, extra_timeout=_MANY_TIMEOUT)
        for name in ("jobs", "errors"):
            read_list(reply, name, dict)
        return reply

    async def find(self, job: str) -> JobShape:
        """Return the job of any agent with this id, or with this name if one agent only has it."""
        return cast(JobShape, await self._connection.request("GET", path(self._where[0], "jobs", job)))

    async def peaks(self, *, all_agents: bool = True) -> PeaksShape:
        """Return the load of the coming week."""
        query: Query = {"agent": None if all_agents else self._where[1]}
        where = path(self._where[0], "peaks")
        return cast(PeaksShape, await self._connection.request("GET", where, query=query))

    async def preview(self, fields: Mapping[str, Json]) -> dict[str, Json]:
        """Return the next ticks of a schedule, with the clock changes between them."""
        body: Json = {**fields, "agentId": self._where[1]}
        reply = await self._connection.request(
            "POST", path(self._where[0], "schedules", "preview"), body=body
        )
        return cast(dict[str, Json], reply)

    async def test_target(self, fields: Mapping[str, Json]) -> dict[str, Json]:
        """Test a target."""
        reply = await self._connection.request(
            "POST", self._path("test-target"), body=dict(fields), extra_timeout=_TEST_TIMEOUT
        )
        return cast(dict[str, Json], reply)

    async def skip_next(self, name: str) -> SkippedShape:
        """Skip the next tick of a job."""
        return await self._job("POST", name, "skip-next")

    async def delete(self, name: str) -> builtins.list[str]:
        """Delete a job. Returns warnings about the jobs that come after it."""
        found = await self._connection.request("DELETE", self._path(name))
        return [] if found is None else cast(builtins.list[str], read_list(found, "warnings", str))

    async def rotate_secret(self, name: str) -> JobShape:
        """Create a new webhook secret."""
        return await self._job("POST", name, "rotate-secret")

    async def revisions(self, name: str) -> builtins.list[RevisionShape]:
        """Return the changes of the definition of a job, newest first."""
        found = await self._connection.request("GET", self._path(name, "revisions"))
        return cast(builtins.list[RevisionShape], read_list(found, "revisions", dict))

    async def restore(self, name: str, revision: int) -> JobShape:
        """Give a job the fields of an earlier revision."""
        return await self._job("POST", name, "revisions", str(revision), "restore")

    async def create_hook(self, name: str) -> HookShape:
        """Give a job a new trigger URL."""
        return cast(HookShape, await self._connection.request("POST", self._path(name, "hook")))

    async def get_hook(self, name: str) -> HookShape:
        """Return the trigger URL of a job, without its token."""
        return cast(HookShape, await self._connection.request("GET", self._path(name, "hook")))

    async def delete_hook(self, name: str) -> None:
        """Delete the trigger URL of a job."""
        await self._connection.request("DELETE", self._path(name, "hook"))

    async def run(
        self, name: str, *, mode: str = "force", payload: Json = None, overlap_policy: str | None = None
    ) -> RunShape | None:
        """Run a job now; None: with the mode `due`, no tick is due."""
        given: dict[str, Json] = {"mode": mode, "payload": payload, "overlapPolicy": overlap_policy}
        body: dict[str, Json] = {field: value for field, value in given.items() if value is not None}
        where = self._path(name, "run")
        reply = await self._connection.request("POST", where, body=body, optional=mode == "due")
        return cast(RunShape | None, reply)

    async def runs(self, name: str, *, limit: int = 20, cursor: str | None = None) -> Page[RunShape]:
        """Return the runs of a job, newest first."""
        query: Query = {"limit": limit, "cursor": cursor}
        return read_page(await self._connection.request("GET", self._path(name, "runs"), query=query), "runs")

    async def backfill(self, name: str, start: str, end: str, *, overlap_policy: str | None = None) -> int:
        """Run the ticks between two instants of the past; return how many there are."""
        body: dict[str, Json] = {"start": start, "end": end}
        if overlap_policy is not None:
            body["overlapPolicy"] = overlap_policy
        reply = await self._connection.request("POST", self._path(name, "backfill"), body=body)
        count = cast(dict[str, Json], reply).get("count")
        if not isinstance(count, int):
            raise Unavailable("the server responded, but not as Wakeful does: 'count' is not a number")
        return count
