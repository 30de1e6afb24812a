"""Trigger URLs: a secret URL with which an outside system runs one job, and nothing else.

The token is 32 random bytes, returned once and stored as a hash: a lookup compares hashes, so its time says
nothing about the token. A new URL replaces the present one, which works for another day.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, replace
from typing import Final

from wakeful.errors import FailedPrecondition, NotFound, WakefulError
from wakeful.job.job import AGENT_INACTIVE, StaleJob
from wakeful.job.start_rules import BudgetOwner
from wakeful.launch.secrets import ROTATION_MS
from wakeful.logs import get_logger
from wakeful.service.auth.access import Principal
from wakeful.service.auth.agent_policy import check_not_event_job, check_payload
from wakeful.service.auth.rate_limits import RateLimited, RateLimiter, limited_address
from wakeful.service.jobs.job_editor import JobDependencies, JobEditor, check_version, run_as_it_is
from wakeful.service.jobs.job_query import no_job
from wakeful.service.runs.manual_runs import hook_run, read_payload
from wakeful.service.runs.run_starter import RunStarter
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import Keyed
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import JobRow, RunView
from wakeful.store.sql.driver import current_tenant
from wakeful.store.sql.hooks import HookRow
from wakeful.values.json_value import compact

PREFIX: Final = "hook_"
#: How many requests with unknown tokens a process looks up in a minute, per address: one sender of wrong
#: requests does not stop the others.
UNKNOWN_PER_MINUTE: Final = 600

_TOKEN: Final = re.compile(PREFIX + r"[A-Za-z0-9_-]{43}")
#: How many hashes of valid tokens are kept, to tell them from unknown ones.
_MOST: Final = 10_000

log = get_logger("wakeful.hooks")


@dataclass(frozen=True, slots=True)
class Hook:
    """The trigger URL of a job. `token` is set only when it is new."""

    row: HookRow
    #: the one before it, while it works
    previous: HookRow | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class HookCaller:
    """The sender of a request with a valid token."""

    row: HookRow
    job: JobRow
    #: acts in the name of the URL
    principal: Principal


class JobHooks:
    """Creates and deletes the trigger URLs of jobs, and runs jobs by them."""

    def __init__(self, dependencies: JobDependencies, editor: JobEditor) -> None:
        self._store = dependencies.store
        self._accounts = dependencies.accounts
        self._budgets = dependencies.budgets
        self._target_policy = dependencies.target_policy
        self._origins = dependencies.origins
        self._telemetry = dependencies.telemetry
        self._starter = RunStarter(dependencies.store)
        self._editor = editor
        self._per_minute = dependencies.hooks_per_minute
        self._requests = RateLimiter[str](self._per_minute)
        self._unknown = RateLimiter[str](UNKNOWN_PER_MINUTE)
        #: hashes of tokens that were valid lately: unknown ones do not use up their lookups
        self._seen: set[bytes] = set()

    # --- people ------------------------------------------------------------------------------------

    async def create(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        *,
        version: int | None = None,
        keyed: Keyed[Hook] | None = None,
    ) -> Hook:
        """Give the job a new trigger URL. The one before it works for another day."""
        row = await self._editor.find_row(principal, "job.write", workspace, agent, name)
        check_not_event_job(row)
        check_version(row, version)
        context = await self._accounts.context(workspace, agent)
        self._target_policy.check_payload(principal, job_from_row(row).definition.work, context)
        call = await self._origins.call(principal, workspace, agent)
        if call is not None:
            call.add_trigger_url(job_from_row(row), context)
        now_ms = self._store.clock.now_ms()
        token = PREFIX + secrets.token_urlsafe(32)
        hook = HookRow(_hash(token), row.id, now_ms, principal.creator)

        def entries(replaced: HookRow | None) -> list[AuditEntry]:
            action = "job.create-hook" if replaced is None else "job.rotate-hook"
            details = {"hook": hook.id, **({"replaced": replaced.id} if replaced else {})}
            return [principal.entry(workspace, action, f"{agent}/{row.name}", compact({**details}))]

        until_ms = now_ms + ROTATION_MS

        def made(result: tuple[bool, HookRow | None]) -> Hook:
            found, replaced = result
            if not found:
                raise no_job(name)
            return Hook(hook, replaced and replaced._replace(expires_ms=until_ms), token)

        response = keyed.of(made) if keyed else None
        charge = call.charge if call else None
        return made(await self._store.replace_hook(hook, until_ms, entries, version, response, charge))

    async def get(self, principal: Principal, workspace: str, agent: str, name: str) -> Hook:
        """Return the trigger URL of a job, without its token. NotFound: it has none."""
        row = await self._editor.find_row(principal, "read", workspace, agent, name)
        found = await self._store.hooks_of_job(row.id)
        if not found:
            raise _no_hook(row)
        await self._accounts.names.load((found[0].created_by,))
        return Hook(found[0], found[1] if len(found) > 1 else None)

    async def exists(self, job_id: str) -> bool:
        """Return whether a job has a trigger URL. The caller has authorized access to the job."""
        return bool(await self._store.hooks_of_job(job_id))

    async def delete(
        self, principal: Principal, workspace: str, agent: str, name: str, *, version: int | None = None
    ) -> None:
        """Delete the trigger URL of a job, and the one before it. NotFound: it has none."""
        row = await self._editor.find_row(principal, "job.write", workspace, agent, name)
        check_version(row, version)
        entry = principal.entry(workspace, "job.delete-hook", f"{agent}/{row.name}")
        if not await self._store.delete_hooks(row.id, [entry], version):
            raise _no_hook(row)

    # --- senders -----------------------------------------------------------------------------------

    async def authenticate(self, token: str, address: str | None = None) -> HookCaller:
        """Return the sender of a request. NotFound: the token is unknown. RateLimited: too many requests."""
        if _TOKEN.fullmatch(token) is None:
            raise _unknown()
        hashed, now_ms, sender = _hash(token), self._store.clock.now_ms(), limited_address(address)
        if hashed not in self._seen and (wait_s := self._unknown.wait_s(sender, now_ms)):
            raise RateLimited("too many requests with unknown trigger URLs; try again later", wait_s)
        found = await self._store.hook(hashed)
        if found is None:
            self._seen.discard(hashed)
            self._unknown.take(sender, now_ms)
            raise _unknown()
        hook, job = found
        current_tenant.set(job.workspace)  # the sender has no key
        if len(self._seen) >= _MOST:
            self._seen.clear()
        self._seen.add(hashed)
        wait_s = self._requests.take(job.id, now_ms)
        if wait_s:
            raise RateLimited(
                f"this trigger URL takes {self._per_minute} requests a minute; try again in {wait_s} s",
                wait_s,
            )
        by_agent = hook.created_by.startswith("agent:")
        principal = Principal(
            f"hook:{hook.id}", "agent" if by_agent else "member", job.workspace, job.agent, address
        )
        return HookCaller(hook, job, principal)

    async def fire(
        self, caller: HookCaller, payload: object, *, keyed: Keyed[RunView] | None = None
    ) -> RunView:
        """Run the job now, with this payload; None: with its own. It starts beside other runs of the job.

        FailedPrecondition: the job is not enabled. ResourceExhausted: a budget is used up.
        """

        job: JobRow | None = caller.job

        @run_as_it_is
        async def start() -> RunView:
            nonlocal job
            if job is None:
                raise _unknown()
            try:
                return await self._fire(job, caller.principal, payload, keyed)
            except StaleJob:
                job = await self._store.job_by_id(caller.job.id)
                raise

        try:
            run = await start()
        except WakefulError as error:
            log.info("hook.refused", **caller.job.log_fields, hook=caller.row.id, reason=error.code)
            raise
        log.info("hook.fired", **run.log_fields, hook=caller.row.id)
        self._telemetry.record_trigger(run)
        return run

    async def _fire(
        self, row: JobRow, principal: Principal, payload: object, keyed: Keyed[RunView] | None
    ) -> RunView:
        own = read_payload(payload, self._accounts.defaults.max_payload_bytes)
        job = job_from_row(row)
        if not job.enabled:
            raise _not_enabled(row)
        if own is not None:  # an agent's URL sends no more than a request with the agent's key
            check_payload(principal, job)
            context = await self._accounts.context(row.workspace, row.agent)
            self._target_policy.check_payload(principal, job.definition.work, context)
        await self._budgets.check(BudgetOwner(row.workspace, row.agent, row.id), row.name)
        run = hook_run(principal, job, self._store.clock.now_ms(), own)
        return await self._starter.start(run, row.version, keyed=keyed)


def per_job(caller: HookCaller) -> Principal:
    """Return the owner of the idempotency keys of a sender: the job, since a URL may be replaced."""
    return replace(caller.principal, actor=f"hook:{caller.job.id}")


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _unknown() -> NotFound:
    return NotFound(
        "no such trigger URL: it was replaced or deleted, or its job was deleted; "
        "get a new one with 'wakeful hook NAME --rotate'"
    )


def _no_hook(job: JobRow) -> NotFound:
    return NotFound(
        f"job '{job.name}' has no trigger URL; create one with 'wakeful hook {job.agent}/{job.name}'"
    )


def _not_enabled(job: JobRow) -> FailedPrecondition:
    if job.disabled_reason == AGENT_INACTIVE:
        return FailedPrecondition(
            f"the agent of job '{job.name}' is not active; activate it, then send again"
        )
    if job.disabled_reason == "paused":
        return FailedPrecondition(f"job '{job.name}' is paused; resume it, then send again")
    return FailedPrecondition(
        f"job '{job.name}' is disabled ({job.disabled_reason}); enable it, then send again"
    )
