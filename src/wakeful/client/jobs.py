"""The jobs of an agent: their methods, implemented by requests to a server."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeVar, Unpack, cast, overload

from wakeful.client.fields import document, label_texts
from wakeful.errors import Unavailable
from wakeful.job.policy import Overlap
from wakeful.logs import get_logger
from wakeful.model import BulkResult, Hook, Job, OverlapPolicy, Page, Revision, Run
from wakeful.model.codec import from_json, page_from_json
from wakeful.values.json_value import Json

if TYPE_CHECKING:
    from wakeful.client.rest import RestClient
    from wakeful.model.job_fields import JobFields, JobPatch, JsonLike

T = TypeVar("T")

#: The most agents whose warnings are logged.
_LIMIT: Final = 1_000
_reported: set[tuple[str, str]] = set()

log = get_logger("wakeful.jobs")


class Jobs:
    """The jobs of one agent: `client.jobs`. Fields are those of a job document, in Python spelling.

    Where a method takes the name of a job, it takes its id too.
    """

    def __init__(self, rest: RestClient, agent: str) -> None:
        self._rest = rest
        self._agent = agent

    def of(self, agent: str, workspace: str | None = None) -> Jobs:
        """Return the jobs of another agent."""
        return Jobs(self._rest.in_workspace(workspace), agent)

    async def create(self, name: str, **fields: Unpack[JobFields]) -> Job:
        """Create a job; AlreadyExists if the name is taken.

        `schedule` takes any of its forms: `"0 9 * * 1-5"`, `"every 15m"`, `"in 20m"`, a mapping. The webhook
        `secret` in the result is not shown again.
        """
        created = await self._rest.create_job(self._agent, {"name": name, **fields})
        return log_warnings(from_json(Job, created, created=True))

    async def create_many(self, documents: Iterable[Mapping[str, object]]) -> Sequence[Job]:
        """Create many jobs in one transaction, all or none: each is a mapping of a `name` and its fields.

        A request to a server has at most 10,000 of them and 8 MB. `errors` of the error that is raised has
        the errors of all documents.
        """
        saved = await self._rest.create_jobs(self._agent, jobs=[document(each) for each in documents])
        created = CreatedJobs(saved, partial(from_json, Job, created=True))
        if created:
            log_warnings(created[0])
        return created

    async def upsert(self, name: str, **fields: Unpack[JobFields]) -> Job:
        """Create the job, or change it to match these fields. The same fields again change nothing.

        A pause stays. `created` in the result says whether the job is new.
        """
        job, created = await self._rest.save_job(self._agent, {"name": name, **fields})
        return log_warnings(from_json(Job, job, created=created))

    async def dry_run(self, name: str, **fields: Unpack[JobFields]) -> None:
        """Raise the error of `upsert`, and change nothing. Quotas are not checked."""
        await self._rest.check_job(self._agent, {"name": name, **fields})

    async def update(self, name: str, /, *, if_version: int | None = None, **fields: Unpack[JobPatch]) -> Job:
        """Change only these fields; None resets a field to its default.

        With `if_version`, only if the job still has that revision; FailedPrecondition otherwise.
        """
        job = await self._rest.update_job(self._agent, name, fields, if_version=if_version)
        return log_warnings(from_json(Job, job))

    async def get(self, name: str) -> Job:
        """Return a job with its next ticks and last runs, or raise NotFound."""
        return from_json(Job, await self._rest.get_job(self._agent, name))

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
        agent = None if all_agents else self._agent
        found = await self._rest.list_every_job(agent, include_disabled=include_disabled, labels=labels)
        return [from_json(Job, job) for job in found]

    async def pause(self, name: str, *, note: str | None = None, until: datetime | str | None = None) -> Job:
        """Stop the ticks of a job and withdraw its planned runs. Ticks during a pause are not missed.

        The job resumes by itself at `until`: an instant, or text such as `"in 2h"`.
        """
        return from_json(Job, await self._rest.pause_job(self._agent, name, note=note, until=until))

    async def resume(self, name: str) -> Job:
        """Start the ticks again, from now."""
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
        """Pause these jobs, or without `names` the enabled jobs of the agent that have all `labels`.

        With `all_agents`, those of the whole workspace. A name may be an id, or `agent/name`. An unknown
        name changes nothing; a job that cannot be paused is in `errors` of the result. With `dry_run` the
        jobs are counted, and nothing changes.
        """
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
        """Resume these jobs, or without `names` the paused jobs that are selected as in `pause_many`."""
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
        """Return the load of the coming week: `peaks`, its busiest minutes, and `hours`, each with `starts`.

        It is at most a minute old (`ageMs`). Without `all_agents`, only the jobs of this agent count.
        """
        agent = None if all_agents else self._agent
        return cast(dict[str, Json], await self._rest.get_peaks(agent=agent))

    async def preview(self, *, count: int = 10, **fields: Unpack[JobFields]) -> dict[str, Json]:
        """Return a schedule in words and its next `ticks`, with the `clockChanges` between them.

        It takes the fields that determine the ticks (`schedule`, `tz`, `exclude` …) and changes nothing.
        """
        given = {**_camel_fields(fields), "count": count, "agentId": self._agent}
        return cast(dict[str, Json], await self._rest.preview_schedule(given))

    async def test_target(self, name: str | None = None, **fields: Unpack[JobFields]) -> dict[str, Json]:
        """Send a signed test request to a webhook, or check a target of another kind: `ok` and `message`.

        `name` is a job whose target and secret are used; `fields` replace those of the job. A test is no run.
        """
        tested = await self._rest.test_target(self._agent, {**_camel_fields(fields), "job": name})
        return cast(dict[str, Json], tested)

    async def skip_next(self, name: str) -> Job:
        """Record the next tick as skipped, with the reason `asked`. The run is `skipped` in the result."""
        return from_json(Job, await self._rest.skip_next_tick(self._agent, name))

    async def delete(self, name: str) -> None:
        """Delete a job and withdraw its planned runs. Its finished runs stay."""
        await self._rest.delete_job(self._agent, name)

    async def rotate_secret(self, name: str) -> Job:
        """Create a new webhook secret. For a day, deliveries are signed with both."""
        return from_json(Job, await self._rest.rotate_secret(self._agent, name))

    async def revisions(self, name: str) -> builtins.list[Revision]:
        """Return the changes of the definition of a job, newest first; the last one is its creation.

        At most 50. Values of credentials are not kept.
        """
        return [from_json(Revision, each) for each in await self._rest.list_revisions(self._agent, name)]

    async def restore(self, name: str, revision: int) -> Job:
        """Give a job the fields of an earlier revision. That is an edit: its pause and its secret stay.

        FailedPrecondition: the fields had credentials, which are not kept.
        """
        return log_warnings(from_json(Job, await self._rest.restore_revision(self._agent, name, revision)))

    async def create_hook(self, name: str) -> Hook:
        """Give a job a new trigger URL, which is returned only once.

        If it has one already, that one works for another day.
        """
        return from_json(Hook, await self._rest.create_hook(self._agent, name))

    async def get_hook(self, name: str) -> Hook:
        """Return when the trigger URL of a job was created. NotFound: it has none."""
        return from_json(Hook, await self._rest.get_hook(self._agent, name))

    async def delete_hook(self, name: str) -> None:
        """Delete the trigger URL of a job, and the one before it. NotFound: it has none."""
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
        """Run a job now, with this payload or its own. With `mode="due"`, only if a tick is due, else None.

        The run starts at once, beside other runs of the job, unless `overlap_policy` says otherwise.
        `runs.wait(run.id)` waits for its end.
        """
        run = await self._rest.run_job(
            self._agent, name, mode=mode, payload=payload, overlap_policy=overlap_policy
        )
        return None if run is None else from_json(Run, run)

    async def runs(self, name: str, *, limit: int = 20, cursor: str | None = None) -> Page[Run]:
        """Return the runs of a job, newest first; `cursor` is that of the previous page."""
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
        """Run the ticks from `start` to `end`, both in the past. Return their number.

        They overlap as the job's policy says, or as `overlap_policy` says: `queue` or `allow`.
        """
        reply = await self._rest.backfill_job(
            self._agent, name, start=start, end=end, overlap_policy=overlap_policy
        )
        count = reply.get("count")
        if not isinstance(count, int):
            raise Unavailable("the server responded, but not as Wakeful does: 'count' is not a number")
        return count


class CreatedJobs(Sequence[Job]):
    """Jobs that were created together; each is converted when it is read."""

    def __init__(self, saved: Sequence[T], convert: Callable[[T], Job]) -> None:
        self._read: Callable[[int], Job] = lambda index: convert(saved[index])
        self._numbers = range(len(saved))

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | Sequence[Job]:
        numbers = self._numbers[index]
        return CreatedJobs(numbers, self._read) if isinstance(numbers, range) else self._read(numbers)


def log_warnings(job: Job) -> Job:
    """Log the warnings about a job, once for each agent and process; return the job.

    Programs may not read `Job.warnings`.
    """
    owner = job.workspace, job.agent
    if job.warnings and owner not in _reported and len(_reported) < _LIMIT:
        _reported.add(owner)
        for warning in job.warnings:
            log.warning(
                "job.warning", job_id=job.id, job=job.name, agent=job.agent, workspace=job.workspace,
                warning=warning,
            )  # fmt: skip
    return job


def _camel_fields(fields: Mapping[str, object]) -> dict[str, Json]:
    from wakeful.values.json_value import camel  # takes long to import, and few programs need it

    return {camel(name): value for name, value in document(fields).items()}
