"""The jobs of an agent, for a Python program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, Unpack, overload

from wakeful.app.fields import JobFields, JobPatch, JsonLike
from wakeful.job import JobRecord
from wakeful.policy import Overlap
from wakeful.service.auth.access import LOCAL
from wakeful.service.jobs.job_factory import SaveResult
from wakeful.service.jobs.jobs import JobService
from wakeful.service.jobs.label_filter import read_label_filter
from wakeful.service.jobs.pauses import SkippedTick
from wakeful.store.rows import RunView
from wakeful.target import Target

_JSON: Final = frozenset({str, int, float, bool, dict, list, type(None)})


class Jobs:
    """The jobs of one agent: `app.jobs`. Fields are those of a job document, in Python's spelling."""

    def __init__(self, service: JobService, workspace: str, agent: str) -> None:
        self._service = service
        self._where = (workspace, agent)

    def of(self, agent: str, workspace: str | None = None) -> Jobs:
        """The jobs of another agent."""
        return Jobs(self._service, workspace or self._where[0], agent)

    async def create(self, name: str, **fields: Unpack[JobFields]) -> SaveResult:
        """Add a job; AlreadyExists if the name is taken.

        `schedule` is any of its forms (`"0 9 * * 1-5"`, `"every 15m"`, `"in 20m"`, a mapping); `target` a
        `Webhook`, a `Function` or a mapping. The webhook secret in what is returned is not shown again.
        """
        return await self._service.create(LOCAL, *self._where, _document(name, fields))

    async def create_many(self, documents: Iterable[Mapping[str, object]]) -> list[SaveResult]:
        """Add many jobs at once, all of them or none: each a mapping of a `name` and its fields."""
        return await self._service.create_many(
            LOCAL, *self._where, [_plain_fields(each) for each in documents]
        )

    async def upsert(self, name: str, **fields: Unpack[JobFields]) -> SaveResult:
        """Make the job what these fields say. The same again changes nothing: not even a pause."""
        return await self._service.upsert(LOCAL, *self._where, _document(name, fields))

    async def update(
        self, name: str, /, *, if_version: int | None = None, **fields: Unpack[JobPatch]
    ) -> SaveResult:
        """Change these fields and no others; None puts one back to its default.

        With `if_version`, only if the job is still at that version; FailedPrecondition otherwise.
        """
        return await self._service.update(
            LOCAL, *self._where, name, _plain_fields(fields), version=if_version
        )

    async def get(self, name: str) -> JobRecord:
        """The job of that name, or NotFound."""
        return await self._service.get(LOCAL, *self._where, name)

    async def list(
        self, *, include_disabled: bool = True, labels: Mapping[str, str] | Sequence[str] = ()
    ) -> Sequence[JobRecord]:
        """All its jobs, by name; with `labels`, only those that have all of them."""
        return await self._service.list(
            LOCAL, *self._where, include_disabled=include_disabled, labels=read_label_filter(labels)
        )

    async def pause(
        self, name: str, *, note: str | None = None, until: datetime | str | None = None
    ) -> JobRecord:
        """Stop its ticks and withdraw what is planned; time that passes now is never missed.

        It resumes by itself at `until`: an instant, or text such as "in 2h".
        """
        end = until.isoformat() if isinstance(until, datetime) else until
        return await self._service.pause(LOCAL, *self._where, name, note=note, until=end)

    async def resume(self, name: str) -> JobRecord:
        """Start its ticks again, from now."""
        return await self._service.resume(LOCAL, *self._where, name)

    async def skip_next(self, name: str) -> SkippedTick:
        """Skip its next tick: it is recorded as skipped, with the reason `asked`."""
        return await self._service.skip_next(LOCAL, *self._where, name)

    async def delete(self, name: str) -> None:
        """Delete it and withdraw what has not started; its runs can still be seen."""
        await self._service.delete(LOCAL, *self._where, name)

    async def rotate_secret(self, name: str) -> SaveResult:
        """Give it a new webhook secret; for a day, deliveries are signed with both."""
        return await self._service.rotate_secret(LOCAL, *self._where, name)

    @overload
    async def run(
        self,
        name: str,
        *,
        mode: Literal["force"] = "force",
        payload: JsonLike = None,
        overlap_policy: Overlap | None = None,
    ) -> RunView: ...
    @overload
    async def run(
        self,
        name: str,
        *,
        mode: Literal["due"],
        payload: JsonLike = None,
        overlap_policy: Overlap | None = None,
    ) -> RunView | None: ...
    async def run(
        self,
        name: str,
        *,
        mode: Literal["force", "due"] = "force",
        payload: JsonLike = None,
        overlap_policy: Overlap | None = None,
    ) -> RunView | None:
        """Run it now, with this payload or its own; with `mode="due"`, only if a tick is due, else None.

        It starts at once, beside any other run of the job, unless `overlap_policy` says otherwise.

        `await app.runs.wait(run.id)` waits for its end.
        """
        return await self._service.trigger(
            LOCAL, *self._where, name, mode=mode, payload=payload, overlap=overlap_policy
        )

    async def backfill(self, name: str, start: datetime, end: datetime) -> int:
        """Run its ticks from `start` to `end`, both in the past. Returns how many there are."""
        span = round(start.timestamp() * 1000), round(end.timestamp() * 1000)
        return await self._service.backfill(LOCAL, *self._where, name, *span)


def _document(name: str, fields: Mapping[str, object]) -> dict[str, object]:
    return {"name": name, **_plain_fields(fields)}


def _plain_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields as JSON has them, where Python has objects of its own for them."""
    if _JSON.issuperset(map(type, fields.values())):  # as mostly they are
        return dict(fields)
    return {
        key: value.to_json()
        if isinstance(value, Target)
        else value.isoformat()
        if isinstance(value, datetime)
        else value
        for key, value in fields.items()
    }
