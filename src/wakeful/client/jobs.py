"""The jobs of an agent on a server. `wakeful.client.scheduler` documents the methods."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Unpack, cast, overload

from wakeful.client.fields import document, label_texts
from wakeful.client.scheduler import JobsApi
from wakeful.errors import Unavailable
from wakeful.job.policy import Overlap
from wakeful.model import BulkResult, Hook, Job, OverlapPolicy, Page, Revision, Run
from wakeful.model.codec import from_json, page_from_json
from wakeful.model.job_warnings import log_warnings
from wakeful.values.json_value import Json

if TYPE_CHECKING:
    from wakeful.client.rest import RestClient
    from wakeful.model.job_fields import JobFields, JobPatch, JsonLike


class Jobs(JobsApi):
    """The jobs of one agent: `client.jobs`."""

    def __init__(self, rest: RestClient, agent: str) -> None:
        self._rest = rest
        self._agent = agent

    def of(self, agent: str, workspace: str | None = None) -> Jobs:
        return Jobs(self._rest.in_workspace(workspace), agent)

    async def create(self, name: str, **fields: Unpack[JobFields]) -> Job:
        created = await self._rest.create_job(self._agent, {"name": name, **fields})
        return log_warnings(from_json(Job, created, created=True))

    async def create_many(self, documents: Iterable[Mapping[str, object]]) -> Sequence[Job]:
        created = await self._rest.create_jobs(self._agent, jobs=[document(each) for each in documents])
        jobs = [from_json(Job, job, created=True) for job in created]
        if jobs:
            log_warnings(jobs[0])
        return jobs

    async def upsert(self, name: str, **fields: Unpack[JobFields]) -> Job:
        job, created = await self._rest.save_job(self._agent, {"name": name, **fields})
        return log_warnings(from_json(Job, job, created=created))

    async def dry_run(self, name: str, **fields: Unpack[JobFields]) -> None:
        await self._rest.check_job(self._agent, {"name": name, **fields})

    async def update(self, name: str, /, *, if_version: int | None = None, **fields: Unpack[JobPatch]) -> Job:
        job = await self._rest.update_job(self._agent, name, fields, if_version=if_version)
        return log_warnings(from_json(Job, job))

    async def get(self, name: str) -> Job:
        return from_json(Job, await self._rest.get_job(self._agent, name))

    async def list(
        self,
        *,
        include_disabled: bool = True,
        all_agents: bool = False,
        labels: Mapping[str, str] | Sequence[str] = (),
    ) -> builtins.list[Job]:
        agent = None if all_agents else self._agent
        found = await self._rest.list_every_job(agent, include_disabled=include_disabled, labels=labels)
        return [from_json(Job, job) for job in found]

    async def pause(self, name: str, *, note: str | None = None, until: datetime | str | None = None) -> Job:
        return from_json(Job, await self._rest.pause_job(self._agent, name, note=note, until=until))

    async def resume(self, name: str) -> Job:
        return from_json(Job, await self._rest.resume_job(self._agent, name))

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
        select = self._select(names, labels, all_agents)
        body = {**select, "note": note, "until": until, "dryRun": dry_run}
        return from_json(BulkResult, await self._rest.pause_jobs(body))

    async def resume_many(
        self,
        names: Iterable[str] | None = None,
        *,
        labels: Mapping[str, str] | Sequence[str] = (),
        all_agents: bool = False,
        dry_run: bool = False,
    ) -> BulkResult:
        select = self._select(names, labels, all_agents)
        return from_json(BulkResult, await self._rest.resume_jobs({**select, "dryRun": dry_run}))

    def _select(
        self, names: Iterable[str] | None, labels: Mapping[str, str] | Sequence[str], all_agents: bool
    ) -> dict[str, object]:
        """Return the selection of an operation on several jobs: these, or those with the labels."""
        given: dict[str, object] = {"label": label_texts(labels)}
        if not all_agents:
            given["agent"] = self._agent
        return {**given, "all": True} if names is None else {**given, "jobs": [*names]}

    async def peaks(self, *, all_agents: bool = True) -> dict[str, Json]:
        agent = None if all_agents else self._agent
        return cast(dict[str, Json], await self._rest.get_peaks(agent=agent))

    async def preview(self, *, count: int = 10, **fields: Unpack[JobFields]) -> dict[str, Json]:
        given = {**_camel_fields(fields), "count": count, "agentId": self._agent}
        return cast(dict[str, Json], await self._rest.preview_schedule(given))

    async def test_target(self, name: str | None = None, **fields: Unpack[JobFields]) -> dict[str, Json]:
        tested = await self._rest.test_target(self._agent, {**_camel_fields(fields), "job": name})
        return cast(dict[str, Json], tested)

    async def skip_next(self, name: str) -> Job:
        return from_json(Job, await self._rest.skip_next_tick(self._agent, name))

    async def delete(self, name: str) -> None:
        await self._rest.delete_job(self._agent, name)

    async def rotate_secret(self, name: str) -> Job:
        return from_json(Job, await self._rest.rotate_secret(self._agent, name))

    async def revisions(self, name: str) -> builtins.list[Revision]:
        return [from_json(Revision, each) for each in await self._rest.list_revisions(self._agent, name)]

    async def restore(self, name: str, revision: int) -> Job:
        return log_warnings(from_json(Job, await self._rest.restore_revision(self._agent, name, revision)))

    async def create_hook(self, name: str) -> Hook:
        return from_json(Hook, await self._rest.create_hook(self._agent, name))

    async def get_hook(self, name: str) -> Hook:
        return from_json(Hook, await self._rest.get_hook(self._agent, name))

    async def delete_hook(self, name: str) -> None:
        await self._rest.delete_hook(self._agent, name)

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
        run = await self._rest.run_job(
            self._agent, name, mode=mode, payload=payload, overlap_policy=overlap_policy
        )
        return None if run is None else from_json(Run, run)

    async def runs(self, name: str, *, limit: int = 20, cursor: str | None = None) -> Page[Run]:
        page = await self._rest.list_job_runs(self._agent, name, limit=limit, cursor=cursor)
        return page_from_json(Run, page)

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        overlap_policy: Literal["queue", "allow"] | None = None,
    ) -> int:
        reply = await self._rest.backfill_job(
            self._agent, name, start=start, end=end, overlap_policy=overlap_policy
        )
        count = reply.get("count")
        if not isinstance(count, int):
            raise Unavailable("the server responded, but not as Wakeful does: 'count' is not a number")
        return count


def _camel_fields(fields: Mapping[str, object]) -> dict[str, Json]:
    from wakeful.values.json_value import camel  # takes long to import, and few programs need it

    return {camel(name): value for name, value in document(fields).items()}
