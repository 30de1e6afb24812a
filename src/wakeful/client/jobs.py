"""The jobs of an agent, on a server."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Unpack, cast, overload

from wakeful.client.connection import Connection, Page, Query, path
from wakeful.client.fields import document, label_texts
from wakeful.client.types import JobShape, RunShape, SkippedShape
from wakeful.job import Json
from wakeful.policy import Overlap

if TYPE_CHECKING:
    from wakeful.app.fields import JobFields, JobPatch, JsonLike

_PAGE = 500


class Jobs:
    """The jobs of one agent: `client.jobs`. Fields are those of a job document, in Python's spelling."""

    def __init__(self, connection: Connection, workspace: str, agent: str) -> None:
        self._connection = connection
        self._where = (workspace, agent)

    def of(self, agent: str, workspace: str | None = None) -> Jobs:
        """The jobs of another agent."""
        return Jobs(self._connection, workspace or self._where[0], agent)

    def _path(self, *parts: str) -> str:
        workspace, agent = self._where
        return path(workspace, "agents", agent, "jobs", *parts)

    async def _job(self, method: str, *parts: str, body: Json = None, **headers: str) -> JobShape:
        answer = await self._connection.ask(method, self._path(*parts), body=body, headers=headers)
        return cast(JobShape, answer)

    async def create(self, name: str, **fields: Unpack[JobFields]) -> JobShape:
        """Add a job; AlreadyExists if the name is taken.

        The webhook `secret` in what is returned is not shown again.
        """
        return await self.send_new({"name": name, **document(fields)})

    async def upsert(self, name: str, **fields: Unpack[JobFields]) -> JobShape:
        """Make the job what these fields say. The same again changes nothing: not even a pause."""
        return await self.send({"name": name, **document(fields)})

    async def send_new(self, job: Mapping[str, Json]) -> JobShape:
        """`create` for a document that is JSON already."""
        return await self._job("POST", body=dict(job))

    async def send(self, job: Mapping[str, Json]) -> JobShape:
        """`upsert` for a document that is JSON already."""
        return await self._job("PUT", str(job.get("name")), body=dict(job))

    async def check(self, job: Mapping[str, Json]) -> None:
        """Raise what `send` would, and change nothing; how many jobs there may be is not asked."""
        where = self._path(str(job.get("name")))
        await self._connection.ask("PUT", where, body=dict(job), query={"dry_run": True})

    async def send_patch(self, name: str, patch: Mapping[str, Json]) -> JobShape:
        """`update` for a patch that is JSON already."""
        return await self._job("PATCH", name, body=dict(patch))

    async def update(
        self, name: str, /, *, if_version: int | None = None, **fields: Unpack[JobPatch]
    ) -> JobShape:
        """Change these fields and no others; None puts one back to its default.

        With `if_version`, only if the job is still at that version; FailedPrecondition otherwise.
        """
        headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
        return await self._job("PATCH", name, body=document(fields), **headers)

    async def get(self, name: str) -> JobShape:
        """The job of that name with its next ticks, or NotFound."""
        return await self._job("GET", name)

    async def list(
        self,
        *,
        include_disabled: bool = True,
        all_agents: bool = False,
        labels: Mapping[str, str] | Sequence[str] = (),
    ) -> builtins.list[JobShape]:
        """All its jobs, by name; with `all_agents`, those of the whole workspace.

        With `labels`, only those that have all of them: `{"team": "ops"}`, or `["team=ops", "urgent"]`.
        """
        where = path(self._where[0], "jobs") if all_agents else self._path()
        found: builtins.list[JobShape] = []
        cursor: str | None = None
        while True:
            query: Query = {
                "include_disabled": include_disabled,
                "label": label_texts(labels),
                "limit": _PAGE,
                "cursor": cursor,
            }
            page = Page[JobShape](await self._connection.ask("GET", where, query=query), "jobs")
            found += page
            cursor = page.cursor
            if not cursor:
                return found

    async def pause(
        self, name: str, *, note: str | None = None, until: datetime | str | None = None
    ) -> JobShape:
        """Stop its ticks and withdraw what is planned; time that passes now is never missed.

        It resumes by itself at `until`: an instant, or text such as "in 2h".
        """
        given = {"note": note, "until": until}
        body = document({key: value for key, value in given.items() if value is not None})
        return await self._job("POST", name, "pause", body=body or None)

    async def resume(self, name: str) -> JobShape:
        """Start its ticks again, from now."""
        return await self._job("POST", name, "resume")

    async def skip_next(self, name: str) -> SkippedShape:
        """Skip its next tick: it is recorded as skipped, with the reason `asked`."""
        return cast(SkippedShape, await self._job("POST", name, "skip-next"))

    async def delete(self, name: str) -> None:
        """Delete it and withdraw what has not started; its runs can still be seen."""
        await self._connection.ask("DELETE", self._path(name))

    async def rotate_secret(self, name: str) -> JobShape:
        """Give it a new webhook secret; for a day, deliveries are signed with both."""
        return await self._job("POST", name, "rotate-secret")

    @overload
    async def run(
        self,
        name: str,
        *,
        mode: Literal["force"] = "force",
        payload: JsonLike = None,
        overlap_policy: Overlap | None = None,
    ) -> RunShape: ...
    @overload
    async def run(
        self,
        name: str,
        *,
        mode: Literal["due"],
        payload: JsonLike = None,
        overlap_policy: Overlap | None = None,
    ) -> RunShape | None: ...
    async def run(
        self,
        name: str,
        *,
        mode: Literal["force", "due"] = "force",
        payload: JsonLike = None,
        overlap_policy: Overlap | None = None,
    ) -> RunShape | None:
        """Run it now, with this payload or its own; with `mode="due"`, only if a tick is due, else None.

        It starts at once, beside any other run of the job, unless `overlap_policy` says otherwise.
        """
        given = {"mode": mode, "payload": payload, "overlapPolicy": overlap_policy}
        body = document({field: value for field, value in given.items() if value is not None})
        answer = await self._connection.ask("POST", self._path(name, "run"), body=body)
        return cast(RunShape | None, answer)

    async def runs(self, name: str, *, limit: int = 20, cursor: str | None = None) -> Page[RunShape]:
        """Its runs, newest first; `cursor` is that of the page before."""
        query = {"limit": limit, "cursor": cursor}
        return Page(await self._connection.ask("GET", self._path(name, "runs"), query=query), "runs")

    async def backfill(self, name: str, start: datetime, end: datetime) -> int:
        """Run its ticks from `start` to `end`, both in the past. Returns how many there are."""
        body = document({"start": start, "end": end})
        answer = await self._connection.ask("POST", self._path(name, "backfill"), body=body)
        return cast(int, cast(dict[str, Json], answer)["count"])
