"""Warnings about saved jobs that are valid and yet unlikely to do what their author expects.

A job without a target, of an agent without one, is a `pull` job: its runs wait for an executor, and if there
is none, nothing happens until they expire. A job whose function or agent class no running replica has waits
for a replica that has it. A job that starts in the same minute as many others waits for them. The output of a
job without a channel, or with one that the server does not have, is not delivered. A job that comes after a
missing one waits for it; the store checks chains (`after`) when it writes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from wakeful.deliver.channels import setting_name
from wakeful.forecast.peaks import MANY, Week, peak_warning
from wakeful.job.job import NO_WORK, Definition, JobRecord, check_chain
from wakeful.job.policy import DEFAULT_POLICY
from wakeful.job.self_scheduling import APPROVAL
from wakeful.job.start_rules import Requirement, is_called
from wakeful.service.admin.peaks import WeekCache
from wakeful.service.runs.executors import RECENTLY, Executors, Replicas
from wakeful.settings.event_servers import EventServer, refusal
from wakeful.store.accounts import AgentRow
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import JobRow
from wakeful.values.duration import MINUTE, spell_duration

_NO_SERVERS: Final[Mapping[str, EventServer]] = MappingProxyType({})
#: How many jobs a warning names.
_NAMES: Final = 3

#: How many jobs that come after a deleted one are named.
MOST_FOLLOWERS: Final = 20


class Untargeted(NamedTuple):
    """What a warning about a job without a target says of it."""

    lane: str
    #: how long a run waits for a claim
    claim_timeout_ms: int


def untargeted(definition: Definition) -> Untargeted | None:
    """Return what matters of a job whose runs wait for an executor because no target is set; else None.

    A job with the target `pull` waits for an executor on purpose.
    """
    if definition.work.target is not None:
        return None
    return Untargeted(definition.work.lane, definition.policy.claim_timeout_ms)


class SaveWarnings:
    """Finds the warnings for saved jobs and agents."""

    def __init__(
        self,
        executors: Executors,
        replicas: Replicas,
        weeks: WeekCache,
        channels: Collection[str] = (),
        event_servers: Mapping[str, EventServer] = _NO_SERVERS,
    ) -> None:
        self._executors = executors
        self._replicas = replicas
        self._weeks = weeks
        self._channels = channels
        self._event_servers = event_servers
        #: the last warning about a schedule: a batch of jobs often has one
        self._last: tuple[Week, int, str | None, str | None] | None = None

    def week(self, workspace: str) -> Week | None:
        """Return the week of a workspace for `of_schedule`, if one is known. Reads no database."""
        return self._weeks.known(workspace)

    def of_schedule(self, row: JobRow, week: Week) -> tuple[str, ...]:
        """Return the warning for a saved job that starts together with many others. Reads no database."""
        if row.next_ms is None or '"jitterMs"' in row.policy or (week.starts_at(row.next_ms) or 0) < MANY:
            return ()
        timing = job_from_row(row).definition.timing
        minute, tz = row.next_ms // MINUTE, timing.schedule.tz if timing else None
        last = self._last
        if last is None or last[0] is not week or last[1:3] != (minute, tz):
            last = self._last = week, minute, tz, peak_warning(week, row.next_ms, tz)
        return () if last[3] is None else (last[3],)

    def of_delivery(self, job: JobRecord, channel: str | None) -> tuple[str, ...]:
        """Return the warning for a job whose output cannot be delivered; `channel` is that of its agent."""
        work = job.definition.work
        if not work.deliver:
            return ()
        problem = undeliverable(work.channel or channel, self._channels)
        return () if problem is None else (f"the output of job '{job.name}' is not delivered: {problem}",)

    def of_event(self, row: JobRow) -> tuple[str, ...]:
        """Return the warning for a job whose event nobody may subscribe to. Reads no database."""
        source = job_from_row(row).definition.work.on if '"on":{' in row.work else None
        if source is None:
            return ()
        problem = refusal(self._event_servers, str(source["server"]), row.workspace, row.agent)
        return () if problem is None else (f"no event starts job '{row.name}': {problem}",)

    async def of_job(
        self, workspace: str, agent: str, name: str, job: Untargeted | None, requirement: Requirement
    ) -> tuple[str, ...]:
        """Return the warnings for a saved job.

        `job` is what `untargeted` returned for it, and `requirement` what its runs require.
        """
        if await self._replicas.lack_for_saving(requirement):
            return (f"the runs of job '{name}' wait: {requirement.advice}",)
        if job is None or await self._executors.last_seen_ms(workspace, agent, job.lane) is not None:
            return ()
        return (job_waits(name, agent, job.claim_timeout_ms),)

    async def of_agent(
        self, agent: AgentRow, jobs: Collection[str], requirement: Requirement
    ) -> tuple[str, ...]:
        """Return the warnings for a saved agent.

        `jobs` are those whose target was removed with it, and `requirement` is what its target requires.
        """
        problem = None if agent.channel is None else undeliverable(agent.channel, self._channels)
        found: tuple[str, ...] = (
            () if problem is None else (f"nothing is delivered for agent '{agent.name}': {problem}",)
        )
        if await self._replicas.lack_for_saving(requirement):
            return (*found, f"runs with the target of agent '{agent.name}' wait: {requirement.advice}")
        seen_ms = await self._executors.last_seen_ms(agent.workspace, agent.name, NO_WORK.lane) if jobs else 0
        return found if seen_ms is not None else (*found, jobs_wait(jobs, agent.name))


def needs_trigger_url(job: JobRow) -> tuple[str, ...]:
    """Return the warning for a new job that only a trigger URL starts: it has none yet."""
    if (
        job.timing is not None
        or job.after_job is not None
        or job_from_row(job).definition.work.on is not None
        or is_called(job_from_row(job).definition.work.target)
    ):
        return ()
    create = f"POST …/jobs/{job.name}/hook, or wakeful hook {job.name}"
    return (f"nothing but a manual run starts job '{job.name}' until it has a trigger URL: {create}",)


def waits_for_approval(job: JobRow) -> tuple[str, ...]:
    """Return the warning for a job that waits until a person enables it."""
    if job.disabled_reason != APPROVAL:
        return ()
    return (
        f"job '{job.name}' waits for approval: agent '{job.agent}' needs it for the jobs that it makes, and "
        f"a person enables them (wakeful resume {job.agent}/{job.name})",
    )


def undeliverable(channel: str | None, known: Collection[str]) -> str | None:
    """Return why nothing can be delivered to a channel of a job or its agent, and what to do; else None.

    >>> undeliverable("team", ["team"]), undeliverable("team", ["ops"])
    (None, "this server has no channel 'team', only ops; the operator sets it with WAKEFUL_CHANNEL_TEAM")
    """
    if channel is None:
        return "neither the job nor its agent has a channel; set one of them, or leave deliver out"
    if channel in known:
        return None
    others = f", only {', '.join(sorted(known)[:_NAMES])}" if known else ""
    return (
        f"this server has no channel '{channel}'{others}; the operator sets it with {setting_name(channel)}"
    )


def job_waits(name: str, agent: str, claim_timeout_ms: int) -> str:
    """Return the warning for a job without a target.

    >>> job_waits("hello", "default", 3_600_000)[:79]
    "job 'hello' has no target, nor has its agent 'default': its runs wait for an ex"
    """
    return (
        f"job '{name}' has no target, nor has its agent '{agent}': its runs {_wait(agent, claim_timeout_ms)}"
    )


def jobs_wait(jobs: Collection[str], agent: str) -> str:
    """Return the warning for the jobs of an agent whose target was removed.

    >>> jobs_wait(["b", "a"], "writer")[:70]
    "agent 'writer' has no target any more, nor have 2 jobs of it (a, b): t"
    """
    named = ", ".join(sorted(jobs)[:_NAMES]) + (", …" if len(jobs) > _NAMES else "")
    of_it = (
        f"has 1 job of it ({named}): its"
        if len(jobs) == 1
        else f"have {len(jobs)} jobs of it ({named}): their"
    )
    wait = _wait(agent, DEFAULT_POLICY.claim_timeout_ms)
    return f"agent '{agent}' has no target any more, nor {of_it} runs {wait}"


def _wait(agent: str, claim_timeout_ms: int) -> str:
    return (
        f"wait for an executor, and a run that none claims within {spell_duration(claim_timeout_ms)} fails; "
        f"no executor has asked for runs of this agent in the last {RECENTLY}. Set a target of the job "
        "(webhookUrl or target; --url in the CLI), or of the agent (wakeful agents set "
        f"""{agent} target='{{"kind": "webhook", "url": "URL"}}')"""
    )


async def check_new_chain(store: Store, row: JobRow) -> None:
    """Raise InvalidArgument if a job, which is not written yet, would come after itself."""
    if row.after_job is not None:
        before = await store.jobs_before(row.workspace, row.agent, [row.after_job])
        check_chain(row.name, {**before, row.name: row.after_job})


async def missing_upstream(store: Store, rows: Sequence[JobRow]) -> dict[str, tuple[str, ...]]:
    """Return the warning for each of these jobs of one agent that comes after a job that does not exist."""
    wanted = {row.after_job for row in rows if row.after_job is not None} - {row.name for row in rows}
    if not wanted:
        return {}
    known = await store.jobs_before(rows[0].workspace, rows[0].agent, sorted(wanted))
    missing = wanted - set(known)
    return {row.name: (no_upstream(row.name, row.after_job),) for row in rows if row.after_job in missing}


def no_upstream(name: str, after: str) -> str:
    """Return the warning for a job that comes after one that does not exist.

    >>> no_upstream("report", "extract")
    "job 'report' comes after 'extract', which does not exist: it fires once there is a job of that name"
    """
    return (
        f"job '{name}' comes after '{after}', which does not exist: it fires once there is a job of that name"
    )
