"""What can be done with a job that is there. A change is judged whole, in the transaction that writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from wakeful.bounded_cache import bypass
from wakeful.clock import Clock
from wakeful.document import patch_definition
from wakeful.document.values import compact
from wakeful.engine.calendar_loader import excludes_something, has_calendar, load, work_out
from wakeful.engine.targets import Targets
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.job import Definition, Job, Json, inherit
from wakeful.launch.secrets import ROTATION_MS, Keyring, new_secret, shown
from wakeful.service.access import Action, Principal
from wakeful.service.budgets import Budgets, check_tighter
from wakeful.service.chains import check_chain
from wakeful.service.directory import Directory, Home
from wakeful.service.editing import cut_off, edited, moved
from wakeful.service.inheritance import needs_secret, signed_by_agent, with_agents_secret
from wakeful.service.making import Saved, check_lane
from wakeful.service.masking import unmasked
from wakeful.service.ownership import check_change, check_removal, is_admins
from wakeful.service.reach import Reach, check_name, check_whose
from wakeful.store.guarding import Owner
from wakeful.store.office import Entry, Inherited
from wakeful.store.port import Store
from wakeful.store.records import changed_row, job_of
from wakeful.store.rows import JobChange, JobRow, RunFilter, RunRow


class JobChanges:
    """Changes jobs."""

    def __init__(
        self,
        store: Store,
        targets: Targets,
        keyring: Keyring,
        directory: Directory,
        lanes: Iterable[str] | None,
        budgets: Budgets,
        reach: Reach,
    ) -> None:
        self._store = store
        self._targets = targets
        self._keyring = keyring
        self._directory = directory
        self._lanes = frozenset(lanes or ()) or None  # a process without lanes speaks for others
        self._budgets = budgets
        self._reach = reach

    @property
    def _clock(self) -> Clock:
        return self._store.clock

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
        await check_chain(self._store, workspace, agent, name, patch.get("after"))

        def patched(old: Job, home: Home) -> Definition:
            still_at(old, version)
            given = unmasked(patch, old.definition)
            return patch_definition(old.definition, given, now_ms=now_ms, defaults=home.defaults)

        if has_calendar(row.timing) or excludes_something(patch):
            home = await self._directory.home(workspace, agent)
            await work_out(partial(patched, job_of(row), home), now_ms)
        entry = who.entry(workspace, "job.update", f"{agent}/{name}", told(patch))
        return await self._edit(who, row, patched, entry, switch(patch))

    async def delete(
        self, who: Principal, workspace: str, agent: str, name: str, *, version: int | None = None
    ) -> None:
        """Delete it; with `version`, only if it is still at that one.

        What runs goes on; what has not started is withdrawn; its runs can still be seen.
        """
        row = await self._found(who, "job.write", workspace, agent, name)
        if is_admins(who, row):
            running = RunFilter(workspace, agent, row.id, ("running",))
            check_removal(who, row, await self._store.runs(running))
        now_ms = self._clock.now_ms()

        def leave(row: JobRow) -> tuple[RunRow, ...]:
            still_at(row, version)
            return _overdue(row, now_ms)

        entry = who.entry(workspace, "job.delete", f"{agent}/{name}")
        if not await self._store.delete_job(row.id, now_ms, "deleted", [entry], leave):
            raise no_job(name)

    async def rotate_secret(
        self, who: Principal, workspace: str, agent: str, name: str, *, version: int | None = None
    ) -> Saved:
        """Give it a new webhook secret. For a day, deliveries are signed with both."""
        secret = new_secret()

        def rotated(home: Home, row: JobRow) -> JobChange | None:
            if row.secret is None:
                raise FailedPrecondition(f"job '{name}' has no webhook, so it has no secret to rotate")
            if signed_by_agent(job_of(row).definition.work, home.inherited):
                raise FailedPrecondition(
                    f"job '{name}' is signed with the secret of its agent '{agent}', whose webhook it "
                    f"inherits; rotate that one: POST /agents/{agent}/rotate-secret"
                )
            now_ms = self._clock.now_ms()
            until_ms = now_ms + ROTATION_MS
            now = row._replace(old_secret=row.secret, old_secret_until_ms=until_ms, updated_ms=now_ms)
            return JobChange(now._replace(secret=self._keyring.seal(secret)))

        async def change(home: Home) -> JobRow:
            checked = partial(rotated, home)
            return await self._change(
                who, "job.rotate-secret", workspace, agent, name, checked, version, home.inherited
            )

        row = await self._directory.with_home(workspace, agent, change)
        return Saved(row, shown(secret))

    # --- inside ----------------------------------------------------------------------------------

    async def _edit(
        self,
        who: Principal,
        row: JobRow,
        edit: Callable[[Job, Home], Definition],
        entry: Entry,
        enabled: bool | None = None,
        *,
        rehearse: bool = False,
    ) -> Saved:
        async def change(home: Home) -> Saved:
            return await self._edit_for(home, who, row.id, edit, entry, enabled, rehearse)

        return await self._directory.with_home(row.workspace, row.agent, change)

    async def _edit_for(
        self,
        home: Home,
        who: Principal,
        job_id: str,
        edit: Callable[[Job, Home], Definition],
        entry: Entry,
        enabled: bool | None,
        rehearse: bool,
    ) -> Saved:
        made: list[bytes] = []
        rebudgeted: list[bool] = []
        changed = False

        def apply(row: JobRow) -> JobChange | None:
            nonlocal changed
            old = job_of(row)
            definition = edit(old, home)
            definition = replace(definition, work=inherit(definition.work, home.target))
            if enabled and not home.active:
                raise agent_inactive(home)
            # Texts are compared, not values: to Python 1 and true are equal, to a receiver they are not.
            same = changed_row(row, replace(old, definition=definition)) == row
            if same and enabled in (None, old.enabled):
                return None
            changed = True
            rebudgeted.append(definition.work.budget != old.definition.work.budget)
            check_change(who, row)
            check_whose(who, definition.name)
            check_name(definition.name, old.definition)
            check_tighter(who, definition.work.budget, old.definition.work.budget)
            self._reach.check(who, definition.work, home, old.definition.work)
            self._reach.check_delivery(who, definition.work, home, old.definition.work)
            self._targets.check(definition.work.target)
            self._targets.check_precheck(definition.work)
            check_lane(definition.work, self._lanes)
            now_ms = self._clock.now_ms()
            job = edited(old, definition, now_ms, enabled)
            made[:] = []
            changed_to = changed_row(row, job)
            if signed_by_agent(definition.work, home.inherited):
                changed_to = with_agents_secret(changed_to, home.inherited, now_ms)
            elif needs_secret(definition) and row.secret in (None, home.inherited.secret):
                made[:] = [new_secret()]
                changed_to = changed_to._replace(
                    secret=self._keyring.seal(made[0]), old_secret=None, old_secret_until_ms=None
                )
            change = JobChange(changed_to, move=moved(old, job))
            if definition.timing != old.definition.timing:
                return change._replace(
                    withdraw="edited", born=cut_off(row, now_ms, "edited"), keeps=job.has_tick
                )
            if old.enabled and not job.enabled:
                return change._replace(withdraw="paused", born=cut_off(row, now_ms, "paused"))
            return change

        if rehearse:
            row = await self._store.job_by_id(job_id)
            with bypass():
                change = None if row is None else apply(row)
            row = row if change is None else change.job
        else:
            row = await self._store.change_job(job_id, apply, [entry], home.inherited)
        if row is None:
            raise NotFound("the job was deleted meanwhile")
        if rehearse:
            return Saved(row, changed=changed)
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
        version: int | None = None,
        inherited: Inherited | None = None,
        details: str = "{}",
    ) -> JobRow:
        row = await self._row(who, "job.write", workspace, agent, name)

        def checked(row: JobRow) -> JobChange | None:
            still_at(row, version)
            return change(row)

        entry = who.entry(workspace, action, f"{agent}/{name}", details)
        after = await self._store.change_job(row.id, checked, [entry], inherited)
        if after is None:
            raise no_job(name)
        return after

    async def _row(self, who: Principal, action: Action, workspace: str, agent: str, name: str) -> JobRow:
        """The job, if they may do this with it."""
        row = await self._found(who, action, workspace, agent, name)
        if action == "job.write":
            check_change(who, row)
        return row

    async def _found(self, who: Principal, action: Action, workspace: str, agent: str, name: str) -> JobRow:
        await self._directory.enter(who, action, workspace, agent)
        if action != "read":
            check_whose(who, name)
        row = await self._store.job(workspace, agent, name)
        if row is None:
            raise no_job(name)
        await load([row.timing], self._clock.now_ms())
        return row


def told(document: Mapping[str, object]) -> str:
    """What the audit says of a document: its schedule, and the names of the rest."""
    schedule = document.get("schedule", document.get("cron"))
    fields: list[Json] = [*sorted(str(key)[:64] for key in document)[:64]]
    about: dict[str, Json] = {"fields": fields}
    if isinstance(schedule, str):
        about["schedule"] = schedule[:200]
    elif isinstance(schedule, Mapping):
        about["schedule"] = {str(key)[:64]: str(value)[:200] for key, value in list(schedule.items())[:8]}
    return compact(about)


def _overdue(row: JobRow, now_ms: int) -> tuple[RunRow, ...]:
    """What a job leaves behind that is deleted; nothing, where it cannot be read: it goes all the same."""
    try:
        return cut_off(row, now_ms, "deleted")
    except InvalidArgument:
        return ()


def agent_inactive(home: Home) -> FailedPrecondition:
    """The error for enabling a job whose agent is not active."""
    return FailedPrecondition(f"the agent '{home.agent}' is not active; make it so, and its jobs go on")


def still_at(job: Job | JobRow, version: int | None) -> None:
    """Refuse what was made up for another version of the job."""
    if version is not None and job.version != version:
        raise FailedPrecondition(
            f"job '{job.name}' has changed: it is at version {job.version}, not {version}; read it again"
        )


def switch(document: Mapping[str, object]) -> bool | None:
    """Whether a document says that the job is to be enabled; None: it says nothing of it."""
    enabled = document.get("enabled")
    if enabled is None or isinstance(enabled, bool):
        return enabled
    raise InvalidArgument("enabled: write true or false")


def no_job(name: str) -> NotFound:
    """There is none of that name, or id."""
    return NotFound(f"no job '{name}'; list the jobs to see what there is")
