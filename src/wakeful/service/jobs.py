"""What can be done with jobs: permitted, charged and written down. Everything is judged whole before anything
changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from wakeful.clock import Clock
from wakeful.document import Defaults, patch_definition, read_definition
from wakeful.document.values import compact
from wakeful.engine.targets import Targets
from wakeful.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from wakeful.job import Definition, Job, Json, check_slug, inherit
from wakeful.launch.secrets import ROTATION_MS, Keyring, new_secret, shown
from wakeful.logs import get_logger
from wakeful.service.access import LOCAL, Action, Principal, narrowed
from wakeful.service.arrivals import Arrivals
from wakeful.service.budgets import Budgets, check_tighter
from wakeful.service.chains import check_chain
from wakeful.service.directory import Directory, Home
from wakeful.service.editing import cut_off, edited, moved, paused, resumed
from wakeful.service.making import Maker, Saved, check_lane, needs_secret
from wakeful.service.reach import Reach
from wakeful.service.triggered import by_hand, of_the_past, payload_of
from wakeful.store.guarding import Owner
from wakeful.store.office import Allowance, Entry
from wakeful.store.port import Store
from wakeful.store.records import changed_row, job_of, view_of
from wakeful.store.rows import JobChange, JobFilter, JobRow, RunRow, RunView

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
        *,
        directory: Directory | None = None,
        allowance: Allowance | None = None,
        lanes: Iterable[str] | None = None,
        budgets: Budgets | None = None,
        reach: Reach | None = None,
    ) -> None:
        self._store = store
        self._targets = targets
        self._keyring = keyring
        self._defaults = defaults
        self._directory = directory or Directory(store, defaults)
        self._lanes = frozenset(lanes or ()) or None  # a process without lanes speaks for others
        self._maker = Maker(targets, keyring, self._lanes)
        self._reach = reach or Reach()
        self._allowance = allowance
        self._arrivals = Arrivals(store, allowance)
        self._budgets = budgets or Budgets(store)
        #: told the id of a job whose secret is another now: who remembers secrets forgets this one
        self._secret_changed = secret_changed

    @property
    def _clock(self) -> Clock:
        return self._store.clock

    async def create(
        self, who: Principal, workspace: str, agent: str, document: Mapping[str, object]
    ) -> Saved:
        """Add a job; AlreadyExists if the name is taken."""
        await self._directory.enter(who, "job.write", workspace, agent)
        home = await self._directory.home(workspace, check_slug(agent, "agent"))
        saved = self._made(who, home, document, self._clock.now_ms())
        await check_chain(self._store, workspace, agent, saved.row.name, saved.row.after_job)
        entry = who.entry(workspace, "job.create", f"{agent}/{saved.row.name}", _told(document))
        await self._arrivals.add(saved.row, entry)
        return saved

    async def create_many(
        self, who: Principal, workspace: str, agent: str, documents: Sequence[Mapping[str, object]]
    ) -> list[Saved]:
        """Add many jobs in one go: all of them, or none. The audit has one entry for them all."""
        await self._directory.enter(who, "job.write", workspace, agent)
        home = await self._directory.home(workspace, check_slug(agent, "agent"))
        now_ms = self._clock.now_ms()
        saved = [self._made(who, home, document, now_ms) for document in documents]
        if saved:
            told: dict[str, Json] = {
                "count": len(saved),
                "first": saved[0].row.name,
                "last": saved[-1].row.name,
            }
            entry = who.entry(workspace, "job.create-many", agent, compact(told))
            await self._store.create_jobs([each.row for each in saved], [entry], self._allowance)
        return saved

    async def upsert(
        self,
        who: Principal,
        workspace: str,
        agent: str,
        document: Mapping[str, object],
        *,
        version: int | None = None,
    ) -> Saved:
        """Make the job what the document says; with `version`, only if it is still at that one.

        The same document again changes nothing: not the pause, the secret, the anchor or the next tick.
        """
        await self._directory.enter(who, "job.write", workspace, agent)
        name = document.get("name")
        row = await self._store.job(workspace, agent, name) if isinstance(name, str) else None
        if row is None and version is not None:
            raise _not_found(str(name))
        if row is None:
            try:
                return await self.create(who, workspace, agent, document)
            except AlreadyExists:  # somebody was quicker: then it is theirs that we change
                row = await self._store.job(workspace, agent, str(name))
                if row is None:
                    raise
        _switch(document)
        now_ms = self._clock.now_ms()
        home = await self._directory.home(workspace, agent)
        await check_chain(self._store, workspace, agent, row.name, document.get("after"))

        def converged(old: Job) -> Definition:
            _still_at(old, version)
            return read_definition(document, now_ms=now_ms, defaults=home.defaults, old=old.definition)

        entry = who.entry(workspace, "job.update", f"{agent}/{name}", _told(document))
        return await self._edit(who, row.id, home, converged, entry)

    async def update(
        self,
        who: Principal,
        workspace: str,
        agent: str,
        name: str,
        patch: Mapping[str, object],
        *,
        version: int | None = None,
    ) -> Saved:
        """Change the fields that a patch names; with `version`, only if the job is still at that one."""
        row = await self._row(who, "job.write", workspace, agent, name)
        now_ms = self._clock.now_ms()
        home = await self._directory.home(workspace, agent)
        await check_chain(self._store, workspace, agent, name, patch.get("after"))

        def patched(old: Job) -> Definition:
            _still_at(old, version)
            return patch_definition(old.definition, patch, now_ms=now_ms, defaults=home.defaults)

        entry = who.entry(workspace, "job.update", f"{agent}/{name}", _told(patch))
        return await self._edit(who, row.id, home, patched, entry, _switch(patch))

    async def get(self, who: Principal, workspace: str, agent: str, name: str) -> Job:
        """The job of that name, or NotFound."""
        return job_of(await self._row(who, "read", workspace, agent, name))

    async def by_id(self, who: Principal, workspace: str, job_id: str) -> Job:
        """The job of that id, or NotFound."""
        await self._directory.enter(who, "read", workspace)
        row = await self._store.job_by_id(job_id)
        if row is None or row.workspace != workspace or who.agent not in (None, row.agent):
            raise _not_found(job_id)
        return job_of(row)

    async def list(self, who: Principal, only: JobFilter) -> list[Job]:
        """Jobs, by agent and name. One that cannot be read is named in the log and left out."""
        await self._directory.enter(who, "read", only.workspace, only.agent)
        rows = await self._store.jobs(only._replace(agent=narrowed(who, only.agent)))
        if not rows and only.agent not in (None, who.agent) and who is not LOCAL:
            await self._directory.agent(only.workspace, only.agent)
        jobs = []
        for row in rows:
            try:
                jobs.append(job_of(row))
            except InvalidArgument as error:
                log.error("job.unreadable", job=row.name, agent=row.agent, id=row.id, error=error.message)
        return jobs

    async def pause(self, who: Principal, workspace: str, agent: str, name: str) -> Job:
        """Stop its ticks. Its planned runs are withdrawn; time that passes now is never missed."""

        def pause(row: JobRow) -> JobChange | None:
            if not row.enabled:
                return None
            now_ms = self._clock.now_ms()
            changed = changed_row(row, paused(job_of(row), now_ms))
            return JobChange(changed, withdraw="paused", born=cut_off(row, now_ms, "paused"))

        return job_of(await self._change(who, "job.pause", workspace, agent, name, pause))

    async def resume(self, who: Principal, workspace: str, agent: str, name: str) -> Job:
        """Start its ticks again, from now."""

        home = await self._directory.home(workspace, agent)

        def resume(row: JobRow) -> JobChange | None:
            if row.enabled:
                return None
            if not home.active:
                raise _asleep(home)
            return JobChange(changed_row(row, resumed(job_of(row), self._clock.now_ms())))

        return job_of(await self._change(who, "job.resume", workspace, agent, name, resume))

    async def delete(
        self, who: Principal, workspace: str, agent: str, name: str, *, version: int | None = None
    ) -> None:
        """Delete it; with `version`, only if it is still at that one.

        What runs goes on; what has not started is withdrawn; its runs can still be seen.
        """
        row = await self._row(who, "job.write", workspace, agent, name)
        now_ms = self._clock.now_ms()

        def leave(row: JobRow) -> tuple[RunRow, ...]:
            _still_at(row, version)
            return _overdue(row, now_ms)

        entry = who.entry(workspace, "job.delete", f"{agent}/{name}")
        if not await self._store.delete_job(row.id, now_ms, "deleted", [entry], leave):
            raise _not_found(name)

    async def rotate_secret(self, who: Principal, workspace: str, agent: str, name: str) -> Saved:
        """Give it a new webhook secret. For a day, deliveries are signed with both."""
        secret = new_secret()

        def rotated(row: JobRow) -> JobChange | None:
            if row.secret is None:
                raise FailedPrecondition(f"job '{name}' has no webhook, so it has no secret to rotate")
            now_ms = self._clock.now_ms()
            until_ms = now_ms + ROTATION_MS
            now = row._replace(old_secret=row.secret, old_secret_until_ms=until_ms, updated_ms=now_ms)
            return JobChange(now._replace(secret=self._keyring.seal(secret)))

        row = await self._change(who, "job.rotate-secret", workspace, agent, name, rotated)
        self._secret_changed(row.id)
        return Saved(row, shown(secret))

    async def trigger(
        self,
        who: Principal,
        workspace: str,
        agent: str,
        name: str,
        *,
        mode: Literal["force", "due"] = "force",
        payload: object = None,
    ) -> RunView | None:
        """Run it now: `force` whatever its schedule says, `due` only if a tick is due (None: it is not).

        A forced run asks no precheck. ResourceExhausted: what it may use today is used up.
        """
        own = payload_of(payload, self._defaults.max_payload_bytes)
        row = await self._row(who, "run", workspace, agent, name)
        job, now_ms = job_of(row), self._clock.now_ms()
        if own is not None:
            home = await self._directory.home(workspace, agent)
            self._reach.check_payload(who, job.definition.work, home)
        if mode == "due" and (job.next_ms is None or job.next_ms > now_ms):
            return None
        await self._budgets.check(Owner(workspace, agent, job.id), name)
        run = by_hand(who, job, now_ms, mode=mode, payload=own)
        entry = who.entry(workspace, "job.run", f"{agent}/{name}", compact({"run": run.id, "mode": mode}))
        await self._store.add_runs([run], [entry])
        return view_of(run, now_ms)

    async def backfill(
        self,
        who: Principal,
        workspace: str,
        agent: str,
        name: str,
        start_ms: int,
        end_ms: int,
    ) -> int:
        """Run its ticks of a past range, oldest first, whether or not they ran before. Returns how many."""
        job = job_of(await self._row(who, "run", workspace, agent, name))
        runs = of_the_past(who, job, start_ms, end_ms, self._clock.now_ms())
        await self._budgets.check(Owner(workspace, agent, job.id), name)
        told = compact({"count": len(runs), "startMs": start_ms, "endMs": end_ms})
        await self._store.add_runs(runs, [who.entry(workspace, "job.backfill", f"{agent}/{name}", told)])
        return len(runs)

    # --- inside ----------------------------------------------------------------------------------

    def _made(self, who: Principal, home: Home, document: Mapping[str, object], now_ms: int) -> Saved:
        saved = self._maker.make(home, document, now_ms)
        if who.role == "agent":
            self._reach.check(who, saved.job.definition.work, home)
        return saved

    async def _edit(
        self,
        who: Principal,
        job_id: str,
        home: Home,
        edit: Callable[[Job], Definition],
        entry: Entry,
        enabled: bool | None = None,
    ) -> Saved:
        made: list[bytes] = []
        rebudgeted: list[bool] = []
        changed = False

        def apply(row: JobRow) -> JobChange | None:
            nonlocal changed
            old = job_of(row)
            definition = edit(old)
            definition = replace(definition, work=inherit(definition.work, home.target))
            if enabled and not home.active:
                raise _asleep(home)
            # Texts are compared, not values: to Python 1 and true are equal, to a receiver they are not.
            same = changed_row(row, replace(old, definition=definition)) == row
            if same and enabled in (None, old.enabled):
                return None
            changed = True
            rebudgeted.append(definition.work.budget != old.definition.work.budget)
            check_tighter(who, definition.work.budget, old.definition.work.budget)
            self._reach.check(who, definition.work, home, old.definition.work)
            self._targets.check(definition.work.target)
            self._targets.check_precheck(definition.work)
            check_lane(definition.work, self._lanes)
            now_ms = self._clock.now_ms()
            job = edited(old, definition, now_ms, enabled)
            changed_to = changed_row(row, job)
            if row.secret is None and needs_secret(definition):
                made.append(new_secret())
                changed_to = changed_to._replace(secret=self._keyring.seal(made[0]))
            change = JobChange(changed_to, move=moved(old, job))
            if definition.timing != old.definition.timing:
                return change._replace(withdraw="edited", born=cut_off(row, now_ms, "edited"))
            if old.enabled and not job.enabled:
                return change._replace(withdraw="paused", born=cut_off(row, now_ms, "paused"))
            return change

        row = await self._store.change_job(job_id, apply, [entry])
        if row is None:
            raise NotFound("the job was deleted meanwhile")
        if made:
            self._secret_changed(row.id)
        if rebudgeted and rebudgeted[-1]:
            await self._budgets.weigh(Owner(row.workspace, row.agent, row.id))
        return Saved(row, shown(made[0]) if made else None, changed=changed)

    async def _change(
        self,
        who: Principal,
        action: str,
        workspace: str,
        agent: str,
        name: str,
        change: Callable[[JobRow], JobChange | None],
    ) -> JobRow:
        row = await self._row(who, "job.write", workspace, agent, name)
        after = await self._store.change_job(
            row.id, change, [who.entry(workspace, action, f"{agent}/{name}")]
        )
        if after is None:
            raise _not_found(name)
        return after

    async def _row(self, who: Principal, action: Action, workspace: str, agent: str, name: str) -> JobRow:
        await self._directory.enter(who, action, workspace, agent)
        row = await self._store.job(workspace, agent, name)
        if row is None:
            raise _not_found(name)
        return row


def _told(document: Mapping[str, object]) -> str:
    """What the audit says of a document: its schedule, and the names of the rest."""
    schedule = document.get("schedule", document.get("cron"))
    fields: list[Json] = [*sorted(str(key)[:64] for key in document)[:64]]
    told: dict[str, Json] = {"fields": fields}
    if isinstance(schedule, str):
        told["schedule"] = schedule[:200]
    elif isinstance(schedule, Mapping):
        told["schedule"] = {str(key)[:64]: str(value)[:200] for key, value in list(schedule.items())[:8]}
    return compact(told)


def _overdue(row: JobRow, now_ms: int) -> tuple[RunRow, ...]:
    """What a job leaves behind that is deleted; nothing, where it cannot be read: it goes all the same."""
    try:
        return cut_off(row, now_ms, "deleted")
    except InvalidArgument:
        return ()


def _asleep(home: Home) -> FailedPrecondition:
    return FailedPrecondition(f"the agent '{home.agent}' is not active; make it so, and its jobs go on")


def _still_at(job: Job | JobRow, version: int | None) -> None:
    if version is not None and job.version != version:
        raise FailedPrecondition(
            f"job '{job.name}' has changed: it is at version {job.version}, not {version}; read it again"
        )


def _switch(document: Mapping[str, object]) -> bool | None:
    enabled = document.get("enabled")
    if enabled is None or isinstance(enabled, bool):
        return enabled
    raise InvalidArgument("enabled: write true or false")


def _not_found(name: str) -> NotFound:
    return NotFound(f"no job '{name}'; list the jobs to see what there is")
