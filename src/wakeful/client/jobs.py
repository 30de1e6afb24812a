"""The jobs of an agent on a server. `wakeful.client.scheduler` documents the methods."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Unpack, cast, overload

from wakeful.client.fields import document
from wakeful.client.rest.jobs import RestJobs
from wakeful.client.scheduler import JobsApi
from wakeful.job.policy import Overlap
from wakeful.model import BulkResult, Hook, Job, OverlapPolicy, Page, Revision, Run
from wakeful.model.codec import from_json, page_from_json
from wakeful.model.job_warnings import log_warnings
from wakeful.values.json_value import Json

if TYPE_CHECKING:
    from wakeful.model.job_fields import JobFields, JobPatch, JsonLike


class Jobs(JobsApi):
    """The jobs of one agent: `client.jobs`."""

    def __init__(self, rest: RestJobs) -> None:
        self._rest = rest

    def of(self, agent: str, workspace: str | None = None) -> Jobs:
        return Jobs(self._rest.of(agent, workspace))

    async def create(self, name: str, **fields: Unpack[JobFields]) -> Job:
        return log_warnings(from_json(Job, await self._rest.create(_document(name, fields)), created=True))

    async def create_many(self, documents: Iterable[Mapping[str, object]]) -> Sequence[Job]:
        created = await self._rest.create_many([document(each) for each in documents])
        jobs = [from_json(Job, job, created=True) for job in created]
        if jobs:
            log_warnings(jobs[0])
        return jobs

    async def upsert(self, name: str, **fields: Unpack[JobFields]) -> Job:
        job, created = await self._rest.create_or_change(_document(name, fields))
        return log_warnings(from_json(Job, job, created=created))

    async def dry_run(self, name: str, **fields: Unpack[JobFields]) -> None:
        await self._rest.dry_run(_document(name, fields))

    async def update(self, name: str, /, *, if_version: int | None = None, **fields: Unpack[JobPatch]) -> Job:
        job = await self._rest.update(name, document(fields), if_version=if_version)
        return log_warnings(from_json(Job, job))

    async def get(self, name: str) -> Job:
        return from_json(Job, await self._rest.get(name))

    async def list(
        self,
        *,
        include_disabled: bool = True,
        all_agents: bool = False,
        labels: Mapping[str, str] | Sequence[str] = (),
    ) -> builtins.list[Job]:
        found = await self._rest.list(include_disabled=include_disabled, all_agents=all_agents, labels=labels)
        return [from_json(Job, job) for job in found]

    async def pause(self, name: str, *, note: str | None = None, until: datetime | str | None = None) -> Job:
        end = until.isoformat() if isinstance(until, datetime) else until
        return from_json(Job, await self._rest.pause(name, note=note, until=end))

    async def resume(self, name: str) -> Job:
        return from_json(Job, await self._rest.resume(name))

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
        end = until.isoformat() if isinstance(until, datetime) else until
        select = self._rest.selection(names, labels, all_agents)
        return from_json(
            BulkResult, await self._rest.pause_many(select, note=note, until=end, dry_run=dry_run)
        )

    async def resume_many(
        self,
        names: Iterable[str] | None = None,
        *,
        labels: Mapping[str, str] | Sequence[str] = (),
        all_agents: bool = False,
        dry_run: bool = False,
    ) -> BulkResult:
        select = self._rest.selection(names, labels, all_agents)
        return from_json(BulkResult, await self._rest.resume_many(select, dry_run=dry_run))

    async def peaks(self, *, all_agents: bool = True) -> dict[str, Json]:
        return cast(dict[str, Json], await self._rest.peaks(all_agents=all_agents))

    async def preview(self, *, count: int = 10, **fields: Unpack[JobFields]) -> dict[str, Json]:
        return await self._rest.preview({**_camel_fields(fields), "count": count})

    async def test_target(self, name: str | None = None, **fields: Unpack[JobFields]) -> dict[str, Json]:
        return await self._rest.test_target({**_camel_fields(fields), "job": name})

    async def skip_next(self, name: str) -> Job:
        return from_json(Job, await self._rest.skip_next(name))

    async def delete(self, name: str) -> None:
        await self._rest.delete(name)

    async def rotate_secret(self, name: str) -> Job:
        return from_json(Job, await self._rest.rotate_secret(name))

    async def revisions(self, name: str) -> builtins.list[Revision]:
        return [from_json(Revision, each) for each in await self._rest.revisions(name)]

    async def restore(self, name: str, revision: int) -> Job:
        return log_warnings(from_json(Job, await self._rest.restore(name, revision)))

    async def create_hook(self, name: str) -> Hook:
        return from_json(Hook, await self._rest.create_hook(name))

    async def get_hook(self, name: str) -> Hook:
        return from_json(Hook, await self._rest.get_hook(name))

    async def delete_hook(self, name: str) -> None:
        await self._rest.delete_hook(name)

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
        plain = document({"payload": payload})["payload"]
        run = await self._rest.run(name, mode=mode, payload=plain, overlap_policy=overlap_policy)
        return None if run is None else from_json(Run, run)

    async def runs(self, name: str, *, limit: int = 20, cursor: str | None = None) -> Page[Run]:
        page = await self._rest.runs(name, limit=limit, cursor=cursor)
        return page_from_json(Run, page)

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        overlap_policy: Literal["queue", "allow"] | None = None,
    ) -> int:
        return await self._rest.backfill(
            name, start.isoformat(), end.isoformat(), overlap_policy=overlap_policy
        )


def _camel_fields(fields: Mapping[str, object]) -> dict[str, Json]:
    from wakeful.values.json_value import camel  # takes long to import, and few programs need it

    return {camel(name): value for name, value in document(fields).items()}


def _document(name: str, fields: Mapping[str, object]) -> dict[str, Json]:
    return {"name": name, **document(fields)}
