"""The internal jobs of evolution: a daily analysis of an agent, and a weekly evaluation of its suggestions.

They are ordinary jobs: their runs are listed, and people may pause and run them. They exist once an agent has
`evolution: suggest`, and are disabled while it does not. The analysis also runs a minute after a process
starts (`EvolutionStarter`): its interval begins anew then. Each start moves the same job, under its lock, so
several replicas that start together cause one run. Before, the internal jobs that earlier versions left
without their agents' documents are repaired.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from wakeful.engine.loop import Loop
from wakeful.errors import Unavailable
from wakeful.job.job import AGENT_INACTIVE, Definition, JobRecord, Timing, Work
from wakeful.job.policy import Catchup, Policy
from wakeful.logs import get_logger
from wakeful.run.job_transitions import disable_job
from wakeful.schedule.schedules import Every
from wakeful.service.jobs.job_factory import unscheduled_job
from wakeful.store.accounts import AgentRow
from wakeful.store.internal_jobs import (
    ANALYSIS_JOB,
    EVALUATION_JOB,
    EVOLUTION_LABELS,
    InternalChange,
    InternalRules,
)
from wakeful.store.port import Store
from wakeful.store.row_mapping import changed_row, job_from_row, job_to_row
from wakeful.store.rows import JobChange, JobRow
from wakeful.values.duration import DAY, HOUR, MINUTE, WEEK

#: The kind of target of these jobs. No other job can have it.
EVOLUTION_KIND: Final = "evolution"
ANALYSIS: Final = "analysis"
EVALUATION: Final = "evaluation"
#: Why the jobs are disabled.
EVOLUTION_OFF: Final = "evolution_off"
#: When the first analysis runs, after a start or after evolution was turned on.
FIRST_AFTER_MS: Final = MINUTE
#: A start causes no analysis if another one did so recently.
START_INTERVAL_MS: Final = HOUR
#: The longest time of an analysis or an evaluation.
TIMEOUT_MS: Final = 5 * MINUTE

_TASKS: Final = {ANALYSIS_JOB: (ANALYSIS, DAY), EVALUATION_JOB: (EVALUATION, WEEK)}
_DESCRIPTIONS: Final = {
    ANALYSIS_JOB: "Looks for better settings of the jobs of its agent.",
    EVALUATION_JOB: "Compares applied suggestions with the time before, and rolls back those that did harm.",
}

#: The analyses of many agents do not begin at one instant: each waits this much longer, at most a minute.
_SPACING_MS: Final = 250
_SPREAD_MS: Final = MINUTE

#: Writes the internal jobs of an agent (workspace, name) by its document.
Repair = Callable[[str, str], Awaitable[None]]

log = get_logger("wakeful.evolution")


class EvolutionJobs:
    """Decides about the jobs of evolution, in the transaction that writes their agent."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def rules(self, agent: AgentRow) -> InternalRules:
        """Return what creates and enables the jobs of an agent, or disables them.

        The same again changes nothing: not a pause, nor the next tick.
        """
        return {name: partial(self._decide, agent, name) for name in _TASKS}

    def rules_of_deletion(self) -> InternalRules:
        """Return what deletes the jobs, with their agent."""
        return dict.fromkeys(_TASKS, self._delete)

    async def sync(self, workspace: str, agent: str) -> None:
        """Repair the jobs of an agent: earlier versions wrote them after it, and could be interrupted."""
        await self._store.put_agent(workspace, agent, lambda old: None, internal=self.rules)

    async def start(self, workspace: str, agent: str, at_ms: int) -> bool:
        """Let the analysis of an agent run at this time, and daily from then on.

        False: it is paused, or a start let it run within the last hour.
        """
        started = False

        def moved(row: JobRow) -> JobChange | None:
            nonlocal started
            # Its ticks follow the anchor at intervals, so the anchor is a day before the first one.
            started = row.enabled and row.anchor_ms + DAY <= at_ms - START_INTERVAL_MS
            if not started:
                return None
            return JobChange(row._replace(anchor_ms=at_ms - DAY, next_ms=at_ms, wake_ms=at_ms))

        found = await self._store.job(workspace, agent, ANALYSIS_JOB)
        if found is not None and self.owns(found):
            await self._store.change_job(found.id, moved)
        return started

    @staticmethod
    def owns(row: JobRow) -> bool:
        """Return whether a job is one of evolution."""
        return row.name in _TASKS and row.labels == EVOLUTION_LABELS

    def _delete(self, row: JobRow | None) -> InternalChange | None:
        return InternalChange(delete=True) if row is not None and self.owns(row) else None

    def _decide(self, agent: AgentRow, name: str, row: JobRow | None) -> InternalChange | None:
        enabled, now_ms = agent.evolution is not None, self._store.clock.now_ms()
        if row is None:
            return InternalChange(add=_new_job(agent, name, now_ms)) if enabled else None
        if not self.owns(row):
            return None
        job = job_from_row(row)
        if enabled and row.disabled_reason == EVOLUTION_OFF:
            new = _begun(job, now_ms) if agent.active else disable_job(job, now_ms, AGENT_INACTIVE)
        elif not enabled and (row.enabled or row.disabled_reason == AGENT_INACTIVE):
            new = disable_job(job, now_ms, EVOLUTION_OFF)
        else:
            return None
        return InternalChange(
            change=JobChange(changed_row(row, new), withdraw=None if enabled else EVOLUTION_OFF)
        )


def _new_job(agent: AgentRow, name: str, now_ms: int) -> JobRow:
    job = unscheduled_job(agent.workspace, agent.name, _definition(name), now_ms)
    return job_to_row(_begun(job, now_ms) if agent.active else disable_job(job, now_ms, AGENT_INACTIVE))


def _begun(job: JobRecord, now_ms: int) -> JobRecord:
    """Return the job enabled: the analysis runs in a minute, the evaluation in a week."""
    timing = job.definition.timing
    assert timing is not None
    assert isinstance(timing.schedule, Every)
    first_ms = now_ms + (FIRST_AFTER_MS if job.name == ANALYSIS_JOB else timing.schedule.every_ms)
    return replace(
        job,
        enabled=True,
        disabled_reason=None,
        anchor_ms=first_ms - timing.schedule.every_ms,
        next_ms=first_ms,
        wake_ms=first_ms,
        updated_ms=now_ms,
        pause_note=None,
        pause_until_ms=None,
    )


def _definition(name: str) -> Definition:
    task, every_ms = _TASKS[name]
    # A missed evaluation is made up for; the start of a process causes an analysis anyway.
    catchup: Catchup = "latest" if task == EVALUATION else "none"
    return Definition(
        name,
        Timing(Every(every_ms)),
        Policy(catchup=catchup, max_attempts=1, timeout_ms=TIMEOUT_MS, catchup_window_ms=WEEK),
        Work({"kind": EVOLUTION_KIND, "task": task}),
        description=_DESCRIPTIONS[name],
        labels=json.loads(EVOLUTION_LABELS),
    )


class EvolutionStarter(Loop):
    """Starts the analyses once. Afterwards its steps do nothing."""

    name = "evolution"

    def __init__(self, store: Store, jobs: EvolutionJobs, repair: Repair | None = None) -> None:
        super().__init__(store.clock, MINUTE)
        self._repair = repair
        self._store = store
        self._jobs = jobs
        self._due_ms: int | None = None
        self._is_done = False

    async def step(self) -> int | None:
        """Start the analyses when they are due."""
        now_ms = self.clock.now_ms()
        if self._due_ms is None:
            self._due_ms = now_ms + FIRST_AFTER_MS
        if self._is_done or now_ms < self._due_ms:
            return None if self._is_done else self._due_ms
        if self._repair is not None:
            await self._repair_all(self._repair)
        agents = await self._store.evolving_agents()
        spacing_ms = min(_SPACING_MS, _SPREAD_MS // max(len(agents), 1))
        started = 0
        for number, (workspace, agent, _) in enumerate(agents):
            self.report_progress()
            try:
                await self._jobs.sync(workspace, agent)
                started += await self._jobs.start(workspace, agent, now_ms + number * spacing_ms)
            except Unavailable:
                raise
            except Exception:
                log.exception("evolution.not_started", workspace=workspace, agent=agent)
        self._is_done = True
        if agents:
            log.info("evolution.started", agents=len(agents), started=started)
        return None

    async def _repair_all(self, repair: Repair) -> None:
        for workspace, agent in await self._store.agents_with_internal_jobs():
            self.report_progress()
            try:
                await repair(workspace, agent)
            except Unavailable:
                raise
            except Exception:
                log.exception("agent.not_repaired", workspace=workspace, agent=agent)
