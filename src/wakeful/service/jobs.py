"""What can be done with jobs. Everything is judged whole before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from wakeful.clock import Clock
from wakeful.document import Defaults, patch_definition, payload_to_text, read_definition
from wakeful.document.values import json_value
from wakeful.engine.births import lane_of, of_trigger
from wakeful.engine.targets import Targets
from wakeful.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from wakeful.job import Definition, Job, check_slug
from wakeful.launch.secrets import ROTATION_MS, Keyring, new_secret, shown
from wakeful.logs import get_logger
from wakeful.service.arrivals import Arrivals
from wakeful.service.editing import cut_off, edited, paused, resumed
from wakeful.service.making import Maker, Saved, needs_secret
from wakeful.store.port import Store
from wakeful.store.records import changed_row, job_of
from wakeful.store.rows import JobChange, JobFilter, JobRow, RunView

MAX_BACKFILL: Final = 10_000

log = get_logger("wakeful.service")


class JobService:
    """Creates, changes and triggers jobs."""

    def __init__(
        self,
        store: Store,
        targets: Targets,
        keyring: Keyring,
        defaults: Defaults,
        secret_changed: Callable[[str], None] = lambda job_id: None,
    ) -> None:
        self._store = store
        self._targets = targets
        self._keyring = keyring
        self._defaults = defaults
        self._maker = Maker(targets, keyring, defaults)
        self._arrivals = Arrivals(store)
        #: told the id of a job whose secret is another now: who remembers secrets forgets this one
        self._secret_changed = secret_changed

    @property
    def _clock(self) -> Clock:
        return self._store.clock

    async def create(self, workspace: str, agent: str, document: Mapping[str, object]) -> Saved:
        """Add a job; AlreadyExists if the name is taken."""
        check_slug(agent, "agent")
        saved = self._maker.make(workspace, agent, document, self._clock.now_ms())
        await self._arrivals.add(saved.row)
        return saved

    async def create_many(
        self, workspace: str, agent: str, documents: Sequence[Mapping[str, object]]
    ) -> list[Saved]:
        """Add many jobs in one go: all of them, or none."""
        check_slug(agent, "agent")
        now_ms = self._clock.now_ms()
        saved = [self._maker.make(workspace, agent, document, now_ms) for document in documents]
        await self._store.create_jobs([each.row for each in saved])
        return saved

    async def upsert(self, workspace: str, agent: str, document: Mapping[str, object]) -> Saved:
        """Make the job what the document says.

        The same document again changes nothing: not the pause, the secret, the anchor or the next tick.
        """
        name = document.get("name")
        row = await self._store.job(workspace, agent, name) if isinstance(name, str) else None
        if row is None:
            try:
                return await self.create(workspace, agent, document)
            except AlreadyExists:  # somebody was quicker: then it is theirs that we change
                row = await self._store.job(workspace, agent, str(name))
                if row is None:
                    raise
        _switch(document)
        now_ms = self._clock.now_ms()
        return await self._edit(
            row.id,
            lambda old: read_definition(document, now_ms=now_ms, defaults=self._defaults, old=old.definition),
        )

    async def update(
        self,
        workspace: str,
        agent: str,
        name: str,
        patch: Mapping[str, object],
        *,
        version: int | None = None,
    ) -> Saved:
        """Change the fields that a patch names; with `version`, only if the job is still at that one."""
        row = await self._row(workspace, agent, name)
        now_ms = self._clock.now_ms()

        def patched(old: Job) -> Definition:
            if version is not None and old.version != version:
                raise FailedPrecondition(
                    f"job '{name}' has changed: it is at version {old.version}, not {version}; read it again"
                )
            return patch_definition(old.definition, patch, now_ms=now_ms, defaults=self._defaults)

        return await self._edit(row.id, patched, _switch(patch))

    async def get(self, workspace: str, agent: str, name: str) -> Job:
        """The job of that name, or NotFound."""
        return job_of(await self._row(workspace, agent, name))

    async def list(self, only: JobFilter) -> list[Job]:
        """Jobs, by agent and name. One that cannot be read is named in the log and left out."""
        jobs = []
        for row in await self._store.jobs(only):
            try:
                jobs.append(job_of(row))
            except InvalidArgument as error:
                log.error("job.unreadable", job=row.name, agent=row.agent, id=row.id, error=error.message)
        return jobs

    async def pause(self, workspace: str, agent: str, name: str) -> Job:
        """Stop its ticks. Its planned runs are withdrawn; time that passes now is never missed."""

        def pause(row: JobRow) -> JobChange | None:
            if not row.enabled:
                return None
            now_ms = self._clock.now_ms()
            changed = changed_row(row, paused(job_of(row), now_ms))
            return JobChange(changed, withdraw="paused", born=cut_off(row, now_ms, "paused"))

        return job_of(await self._change(workspace, agent, name, pause))

    async def resume(self, workspace: str, agent: str, name: str) -> Job:
        """Start its ticks again, from now."""

        def resume(row: JobRow) -> JobChange | None:
            if row.enabled:
                return None
            return JobChange(changed_row(row, resumed(job_of(row), self._clock.now_ms())))

        return job_of(await self._change(workspace, agent, name, resume))

    async def delete(self, workspace: str, agent: str, name: str) -> None:
        """Delete it. What runs goes on; what has not started is withdrawn; its runs can still be seen."""
        row = await self._row(workspace, agent, name)
        if not await self._store.delete_job(row.id, self._clock.now_ms(), "deleted"):
            raise _not_found(name)

    async def rotate_secret(self, workspace: str, agent: str, name: str) -> Saved:
        """Give it a new webhook secret. For a day, deliveries are signed with both."""
        secret = new_secret()

        def rotated(row: JobRow) -> JobChange | None:
            if row.secret is None:
                raise FailedPrecondition(f"job '{name}' has no webhook, so it has no secret to rotate")
            now_ms = self._clock.now_ms()
            until_ms = now_ms + ROTATION_MS
            now = row._replace(old_secret=row.secret, old_secret_until_ms=until_ms, updated_ms=now_ms)
            return JobChange(now._replace(secret=self._keyring.seal(secret)))

        row = await self._change(workspace, agent, name, rotated)
        self._secret_changed(row.id)
        return Saved(row, shown(secret))

    async def trigger(
        self,
        workspace: str,
        agent: str,
        name: str,
        *,
        mode: Literal["force", "due"] = "force",
        payload: object = None,
        triggered_by: str | None = None,
    ) -> RunView | None:
        """Run it now: `force` whatever its schedule says, `due` only if a tick is due (None: it is not)."""
        own = self._payload(payload)
        row = await self._row(workspace, agent, name)
        job, now_ms = job_of(row), self._clock.now_ms()
        if mode == "due" and (job.next_ms is None or job.next_ms > now_ms):
            return None
        run = of_trigger(
            job_id=job.id,
            workspace=workspace,
            agent=agent,
            job_name=name,
            lane=lane_of(job.definition.work),
            trigger="user",
            now_ms=now_ms,
            triggered_by=triggered_by,
            payload=own,
        )
        await self._store.add_runs([run])
        return await self._store.run(run.id)

    async def backfill(
        self,
        workspace: str,
        agent: str,
        name: str,
        start_ms: int,
        end_ms: int,
        *,
        triggered_by: str | None = None,
    ) -> int:
        """Run its ticks of a past range, oldest first, whether or not they ran before. Returns how many."""
        job, now_ms = await self.get(workspace, agent, name), self._clock.now_ms()
        ticks = job.ticks
        if ticks is None:
            raise FailedPrecondition(f"job '{name}' has no schedule of its own to fill in")
        if not start_ms <= end_ms <= now_ms:
            raise InvalidArgument("a backfill is over a past range: start <= end <= now")
        wanted = ticks.count(start_ms - 1, end_ms)
        if wanted > MAX_BACKFILL:
            raise InvalidArgument(
                f"that range has {wanted} ticks; at most {MAX_BACKFILL} are filled in at once"
            )
        runs = [
            of_trigger(
                job_id=job.id,
                workspace=workspace,
                agent=agent,
                job_name=name,
                lane=lane_of(job.definition.work),
                trigger="backfill",
                now_ms=now_ms,
                scheduled_ms=tick,
                triggered_by=triggered_by,
                serial=job.definition.policy.overlap != "allow",
            )
            for tick in ticks.upcoming(start_ms - 1, wanted)
        ]
        await self._store.add_runs(runs)
        return len(runs)

    # --- inside ----------------------------------------------------------------------------------

    def _payload(self, value: object) -> str | None:
        """A payload that a run is given, judged as a job's own is."""
        try:
            return payload_to_text(json_value(value, self._defaults.max_payload_bytes))
        except InvalidArgument as error:
            raise InvalidArgument(f"payload: {error.message}") from error

    async def _edit(
        self, job_id: str, edit: Callable[[Job], Definition], enabled: bool | None = None
    ) -> Saved:
        made: list[bytes] = []
        changed = False

        def apply(row: JobRow) -> JobChange | None:
            nonlocal changed
            old = job_of(row)
            definition = edit(old)
            # Texts are compared, not values: to Python 1 and true are equal, to a receiver they are not.
            same = changed_row(row, replace(old, definition=definition)) == row
            if same and enabled in (None, old.enabled):
                return None
            changed = True
            self._targets.check(definition.work.target)
            now_ms = self._clock.now_ms()
            job = edited(old, definition, now_ms, enabled)
            changed_to = changed_row(row, job)
            if row.secret is None and needs_secret(definition):
                made.append(new_secret())
                changed_to = changed_to._replace(secret=self._keyring.seal(made[0]))
            if definition.timing != old.definition.timing:
                return JobChange(changed_to, withdraw="edited", born=cut_off(row, now_ms, "edited"))
            if old.enabled and not job.enabled:
                return JobChange(changed_to, withdraw="paused", born=cut_off(row, now_ms, "paused"))
            return JobChange(changed_to)

        row = await self._store.change_job(job_id, apply)
        if row is None:
            raise NotFound("the job was deleted meanwhile")
        if made:
            self._secret_changed(row.id)
        return Saved(row, shown(made[0]) if made else None, changed=changed)

    async def _change(
        self, workspace: str, agent: str, name: str, change: Callable[[JobRow], JobChange | None]
    ) -> JobRow:
        row = await self._row(workspace, agent, name)
        after = await self._store.change_job(row.id, change)
        if after is None:
            raise _not_found(name)
        return after

    async def _row(self, workspace: str, agent: str, name: str) -> JobRow:
        row = await self._store.job(workspace, agent, name)
        if row is None:
            raise _not_found(name)
        return row


def _switch(document: Mapping[str, object]) -> bool | None:
    enabled = document.get("enabled")
    if enabled is None or isinstance(enabled, bool):
        return enabled
    raise InvalidArgument("enabled: write true or false")


def _not_found(name: str) -> NotFound:
    return NotFound(f"no job '{name}'; list the jobs to see what there is")
