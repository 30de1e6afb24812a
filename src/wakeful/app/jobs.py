"""The jobs of an agent in this process. `wakeful.client.jobs` documents the methods."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, TypeVar, Unpack, overload

from wakeful.app.home import Home, LocalPart
from wakeful.app.in_transaction import plan_and_write
from wakeful.app.pages import check_cursor, make_page, one_more
from wakeful.client.jobs import CreatedJobs, log_warnings
from wakeful.client.jobs import Jobs as ClientJobs
from wakeful.job.policy import Overlap
from wakeful.job.targets import Target
from wakeful.model import BulkResult, Hook, Job, OverlapPolicy, Page, Revision, Run
from wakeful.model.codec import from_json
from wakeful.model.job_fields import JobFields, JobPatch, JsonLike
from wakeful.service.auth.access import LOCAL
from wakeful.service.jobs.job_query import JobQuery, JobSelection, read_label_filter, read_selection
from wakeful.service.jobs.jobs import JobService
from wakeful.service.model_mapping import (
    job_as_read,
    job_from_record,
    job_from_saved,
    run_as_listed,
    run_from_view,
)
from wakeful.service.serializers import REVISIONS, serialize_bulk_result, serialize_hook
from wakeful.service.services import Services
from wakeful.values.json_value import Json, camel

T = TypeVar("T")

#: How many jobs `list` reads at once.
_PAGE: Final = 200
_JSON: Final = frozenset({str, int, float, bool, dict, list, type(None)})


class Jobs(LocalPart, ClientJobs):
    """The jobs of one agent: `app.jobs`."""

    def __init__(self, services: Services, workspace: str, agent: str, home: Home | None = None) -> None:
        super().__init__(services, workspace, home)
        self._service = services.jobs
        self._where = (workspace, agent)

    def of(self, agent: str, workspace: str | None = None) -> Jobs:
        return Jobs(self._services, workspace or self._where[0], agent, self._home)

    async def create(
        self, name: str, *, connection: object | None = None, **fields: Unpack[JobFields]
    ) -> Job:
        document = _document(name, fields)
        saved = await self._perform(connection, name, lambda jobs: jobs.create(LOCAL, *self._where, document))
        return log_warnings(job_from_saved(saved))

    async def create_many(self, documents: Iterable[Mapping[str, object]]) -> Sequence[Job]:
        plain = [plain_fields(each) for each in documents]
        saved = await self._service.create_many(LOCAL, *self._where, plain)
        created = CreatedJobs(saved, job_from_saved)
        if created:
            log_warnings(created[0])
        return created

    async def upsert(
        self, name: str, *, connection: object | None = None, **fields: Unpack[JobFields]
    ) -> Job:
        document = _document(name, fields)
        saved = await self._perform(
            connection, name, lambda jobs: jobs.upsert(LOCAL, *self._where, document), look_first=True
        )
        return log_warnings(job_from_saved(saved))

    async def _perform(
        self,
        connection: object | None,
        name: str,
        call: Callable[[JobService], Awaitable[T]],
        *,
        look_first: bool = False,
    ) -> T:
        """Call the service of jobs; with a connection, in the transaction that the caller has begun on it."""
        if connection is None:
            return await call(self._service)
        key = (*self._where, name)
        return await plan_and_write(self._services, lambda jobs, _: call(jobs), key, look_first=look_first)

    async def dry_run(self, name: str, **fields: Unpack[JobFields]) -> None:
        await self._service.upsert(LOCAL, *self._where, _document(name, fields), dry_run=True)

    async def update(self, name: str, /, *, if_version: int | None = None, **fields: Unpack[JobPatch]) -> Job:
        patch = plain_fields(fields)
        saved = await self._service.update(LOCAL, *self._where, name, patch, version=if_version)
        return log_warnings(job_from_saved(saved))

    async def get(self, name: str) -> Job:
        workspace, agent = self._where
        found = await self._service.read(LOCAL, workspace, agent, name)
        return job_as_read(
            found.job,
            hook=found.has_hook,
            precheck_state=found.precheck_state,
            subscription=found.subscription,
            spent=found.spent,
            last_runs=tuple(map(run_as_listed, found.runs)),
        )

    async def list(
        self,
        *,
        include_disabled: bool = True,
        all_agents: bool = False,
        labels: Mapping[str, str] | Sequence[str] = (),
    ) -> builtins.list[Job]:
        workspace, agent = self._where
        wanted = read_label_filter(labels)
        jobs: builtins.list[Job] = []
        after: tuple[str, str] | None = None
        while True:
            found = await self._service.list(
                LOCAL,
                workspace,
                None if all_agents else agent,
                include_disabled=include_disabled,
                labels=wanted,
                after=after,
                limit=_PAGE,
            )
            jobs += [job_as_read(job, ticks=False) for job in found]
            if len(found) < _PAGE:
                return jobs
            after = jobs[-1].agent, jobs[-1].name

    async def pause(self, name: str, *, note: str | None = None, until: datetime | str | None = None) -> Job:
        end = until.isoformat() if isinstance(until, datetime) else until
        return job_from_record(await self._service.pause(LOCAL, *self._where, name, note=note, until=end))

    async def resume(self, name: str) -> Job:
        return job_from_record(await self._service.resume(LOCAL, *self._where, name))

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
        select = self._selection(names, labels, all_agents)
        result = await self._service.pause_many(
            LOCAL, self._where[0], select, note=note, until=end, dry_run=dry_run
        )
        return from_json(BulkResult, serialize_bulk_result(result))

    async def resume_many(
        self,
        names: Iterable[str] | None = None,
        *,
        labels: Mapping[str, str] | Sequence[str] = (),
        all_agents: bool = False,
        dry_run: bool = False,
    ) -> BulkResult:
        select = self._selection(names, labels, all_agents)
        result = await self._service.resume_many(LOCAL, self._where[0], select, dry_run=dry_run)
        return from_json(BulkResult, serialize_bulk_result(result))

    def _selection(
        self,
        names: Iterable[str] | None,
        labels: Mapping[str, str] | Sequence[str],
        all_agents: bool,
    ) -> JobSelection:
        agent = None if all_agents else self._where[1]
        if names is not None:
            given = labels if isinstance(labels, Mapping | str) else [*labels]
            return read_selection({"jobs": [*names], "agent": agent, "label": given})
        return JobSelection((), JobQuery(agent, read_label_filter(labels)))

    async def peaks(self, *, all_agents: bool = True) -> dict[str, Json]:
        workspace, agent = self._where[0], None if all_agents else self._where[1]
        computed = await self._services.admin.peaks.get(LOCAL, workspace, agent)
        from wakeful.service.report_serializers import serialize_week

        return serialize_week(computed, workspace, agent, self._services.now_ms())

    async def preview(self, *, count: int = 10, **fields: Unpack[JobFields]) -> dict[str, Json]:
        given = {**_camel_fields(fields), "count": count, "agentId": self._where[1]}
        from wakeful.service.report_serializers import serialize_preview

        return serialize_preview(await self._services.jobs.previews.preview(LOCAL, self._where[0], given))

    async def test_target(self, name: str | None = None, **fields: Unpack[JobFields]) -> dict[str, Json]:
        given = {**_camel_fields(fields), "job": name}
        from wakeful.service.report_serializers import serialize_target_test

        return serialize_target_test(await self._services.jobs.target_tests.test(LOCAL, *self._where, given))

    async def skip_next(self, name: str) -> Job:
        done = await self._service.skip_next(LOCAL, *self._where, name)
        return job_from_record(done.job, skipped=run_from_view(done.run))

    async def delete(self, name: str) -> None:
        await self._service.delete(LOCAL, *self._where, name)

    async def rotate_secret(self, name: str) -> Job:
        return job_from_saved(await self._service.rotate_secret(LOCAL, *self._where, name))

    async def revisions(self, name: str) -> builtins.list[Revision]:
        found = await self._service.revisions.list(LOCAL, *self._where, name)
        return [REVISIONS.to_model(each) for each in found]

    async def restore(self, name: str, revision: int) -> Job:
        saved = await self._service.revisions.restore(LOCAL, *self._where, name, revision)
        return log_warnings(job_from_saved(saved))

    async def create_hook(self, name: str) -> Hook:
        hook = await self._service.hooks.create(LOCAL, *self._where, name)
        return from_json(Hook, serialize_hook(hook, self._services.public_url))

    async def get_hook(self, name: str) -> Hook:
        return from_json(Hook, serialize_hook(await self._service.hooks.get(LOCAL, *self._where, name)))

    async def delete_hook(self, name: str) -> None:
        await self._service.hooks.delete(LOCAL, *self._where, name)

    @overload
    async def run(
        self,
        name: str,
        *,
        mode: Literal["force"] = "force",
        payload: JsonLike = None,
        overlap_policy: OverlapPolicy | Overlap | None = None,
        connection: object | None = None,
    ) -> Run: ...
    @overload
    async def run(
        self,
        name: str,
        *,
        mode: Literal["due"],
        payload: JsonLike = None,
        overlap_policy: OverlapPolicy | Overlap | None = None,
        connection: object | None = None,
    ) -> Run | None: ...
    async def run(
        self,
        name: str,
        *,
        mode: Literal["force", "due"] = "force",
        payload: JsonLike = None,
        overlap_policy: OverlapPolicy | Overlap | None = None,
        connection: object | None = None,
    ) -> Run | None:
        run = await self._perform(
            connection,
            name,
            lambda jobs: jobs.trigger(
                LOCAL, *self._where, name, mode=mode, payload=payload, overlap=overlap_policy
            ),
        )
        return None if run is None else run_from_view(run)

    async def runs(self, name: str, *, limit: int = 20, cursor: str | None = None) -> Page[Run]:
        job = await self._service.get(LOCAL, *self._where, name)
        found = await self._services.runs.list(
            LOCAL, *self._where, job_id=job.id, before=check_cursor(cursor), limit=one_more(limit)
        )
        return make_page(found, limit, run_as_listed, lambda run: run.id)

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        overlap_policy: Literal["queue", "allow"] | None = None,
    ) -> int:
        span = round(start.timestamp() * 1000), round(end.timestamp() * 1000)
        return await self._service.backfill(LOCAL, *self._where, name, *span, overlap=overlap_policy)


def _document(name: str, fields: Mapping[str, object]) -> dict[str, object]:
    return {"name": name, **plain_fields(fields)}


def _camel_fields(fields: Mapping[str, object]) -> dict[str, object]:
    return {camel(name): value for name, value in plain_fields(fields).items()}


def plain_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields with targets and datetimes as JSON has them."""
    if _JSON.issuperset(map(type, fields.values())):  # the common case
        return dict(fields)
    return {
        key: value.to_json()
        if isinstance(value, Target)
        else value.isoformat()
        if isinstance(value, datetime)
        else value
        for key, value in fields.items()
    }
