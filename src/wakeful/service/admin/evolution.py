"""Evolution: analyze the runs of an agent for suggestions, and evaluate those that were applied.

A run of an internal job does one of both for one agent (`evolution_jobs`), so an error of one agent does not
stop the others, and no agent is analyzed twice at a time. The rules are in `wakeful.evolution.rules`.

    {"kind": "evolution", "task": "analysis"}

Only the internal jobs of evolution have such a target. The output of a run says what it did.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from wakeful.document.agents import SUGGEST
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import FailedPrecondition, InvalidArgument, Unavailable, WakefulError
from wakeful.evolution.evaluation import Evaluation, JobProposals, evaluate, is_evaluated, reconcile
from wakeful.evolution.rules import (
    NO_RUNS,
    PEAK_JOBS,
    WINDOW_MS,
    AnalyzedJob,
    RunSummary,
    is_recurring,
    propose,
)
from wakeful.evolution.suggestion import Suggestion
from wakeful.job.job import JobRecord
from wakeful.launch.port import Launch, Launcher, truncate
from wakeful.logs import get_logger
from wakeful.run.outcome import Failed, Outcome, Succeeded
from wakeful.service.admin.evolution_jobs import ANALYSIS, EVALUATION, EVOLUTION_KIND, TIMEOUT_MS
from wakeful.service.admin.suggestions import WAKEFUL, SuggestionService
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import JobFilter, JobRow
from wakeful.store.sql.suggestions import SuggestionFilter
from wakeful.values.ids import new_id
from wakeful.values.json_value import Json, compact

_PAGE: Final = 500
_CURRENT: Final = ("open", "applied", "dismissed", "rolled_back")

log = get_logger("wakeful.evolution")


class AnalysisResult(NamedTuple):
    """What an analysis did."""

    jobs: int
    opened: int
    refreshed: int
    withdrawn: int


class EvaluationResult(NamedTuple):
    """What an evaluation found."""

    evaluated: int
    rolled_back: int


class Evolution:
    """Analyzes agents and evaluates their suggestions."""

    def __init__(self, store: Store, launchers: LauncherRegistry, suggestions: SuggestionService) -> None:
        self._store = store
        self._launchers = launchers
        self._suggestions = suggestions

    async def is_on(self, workspace: str, agent: str) -> bool:
        """Return whether the agent has `evolution: suggest`."""
        row = await self._store.agent(workspace, agent)
        return row is not None and row.evolution == SUGGEST

    async def analyze(self, workspace: str, agent: str) -> AnalysisResult:
        """Compare the runs of the last 28 days with the rules, and write what follows."""
        now_ms = self._store.clock.now_ms()
        jobs = await self._jobs(workspace, agent)
        summaries = await self._store.run_summaries(list(jobs), now_ms - WINDOW_MS, PEAK_JOBS)
        analyzed = [self._proposals(job, summaries.get(job.id, NO_RUNS)) for job in jobs.values()]
        existing = await self._existing(workspace, agent, _CURRENT)
        changes = reconcile(workspace, agent, analyzed, existing, now_ms, new_id)
        await self._store.write_suggestions([*changes.opened, *changes.refreshed, *changes.withdrawn])
        for each in changes.opened:
            log.info("suggestion.opened", **_fields(each), figures=each.figures, change=each.change)
        for each in changes.withdrawn:
            log.info("suggestion.withdrawn", **_fields(each))
        found = AnalysisResult(len(jobs), len(changes.opened), len(changes.refreshed), len(changes.withdrawn))
        log.info("evolution.analyzed", workspace=workspace, agent=agent, **found._asdict())
        return found

    async def evaluate(self, workspace: str, agent: str) -> EvaluationResult:
        """Compare applied suggestions with the time before, and roll back those whose figure got worse."""
        now_ms = self._store.clock.now_ms()
        applied = await self._existing(workspace, agent, ("applied",))
        evaluated = rolled_back = 0
        for each in applied:
            if not is_evaluated(each, now_ms):
                continue
            try:
                found = await self._evaluated(each, now_ms)
                if found.verdict == "too_early":
                    continue
                rolled_back += await self._settle(each, found, now_ms)
                evaluated += 1
            except Unavailable:
                raise
            except WakefulError as error:  # such as a job that cannot be read: the others go on
                log.warning("suggestion.not_evaluated", **_fields(each), error=error.message)
        result = EvaluationResult(evaluated, rolled_back)
        log.info("evolution.evaluated", workspace=workspace, agent=agent, **result._asdict())
        return result

    async def _evaluated(self, suggestion: Suggestion, now_ms: int) -> Evaluation:
        job = await self._store.job_by_id(suggestion.job_id)
        if job is None:
            return evaluate(suggestion, None, NO_RUNS, None, now_ms)
        since_ms = suggestion.decided_ms or now_ms
        summaries = await self._store.run_summaries([job.id], since_ms, PEAK_JOBS)
        timeout_ms = self._timeout_ms(job_from_row(job))
        return evaluate(suggestion, job.version, summaries.get(job.id, NO_RUNS), timeout_ms, now_ms)

    async def _settle(self, suggestion: Suggestion, found: Evaluation, now_ms: int) -> bool:
        """Record an evaluation. Returns whether the suggestion was rolled back."""
        text = compact(found.to_json())
        if found.verdict == "worse":
            try:
                await self._suggestions.rollback(WAKEFUL, suggestion.workspace, suggestion.id, text)
                log.warning("suggestion.rolled_back", **_fields(suggestion), evaluation=text)
                return True
            except FailedPrecondition as error:  # the job was changed, or a person rolled it back, just now
                log.info("suggestion.not_rolled_back", **_fields(suggestion), reason=error.message)
                return False

        def noted(old: Suggestion) -> Suggestion | None:
            if old.status != "applied":
                return None
            return old._replace(evaluated_ms=now_ms, evaluation=text)

        await self._store.change_suggestion(suggestion.workspace, suggestion.id, noted)
        return False

    async def _jobs(self, workspace: str, agent: str) -> dict[str, JobRecord]:
        """Return the jobs that the rules apply to: enabled, recurring, and neither internal nor in code."""
        found: dict[str, JobRecord] = {}
        after: tuple[str, str] | None = None
        while True:
            rows = await self._store.jobs(JobFilter(workspace, agent, False, after, _PAGE, internal=False))
            for row in rows:
                job = None if row.instance_id is not None else _read(row)
                if job is not None and is_recurring(job.definition):
                    found[job.id] = job
            if len(rows) < _PAGE:
                return found
            after = (rows[-1].agent, rows[-1].name)

    async def _existing(self, workspace: str, agent: str, statuses: tuple[str, ...]) -> list[Suggestion]:
        found: list[Suggestion] = []
        before: str | None = None
        while True:
            only = SuggestionFilter(workspace, agent, None, statuses, before, _PAGE)
            page = await self._store.suggestions(only)
            found += page
            if len(page) < _PAGE:
                return found
            before = page[-1].id

    def _proposals(self, job: JobRecord, runs: RunSummary) -> JobProposals:
        analyzed = AnalyzedJob(job.definition, self._timeout_ms(job))
        return JobProposals(job.id, job.name, job.version, job.updated_ms, propose(analyzed, runs))

    def _timeout_ms(self, job: JobRecord) -> int | None:
        """Return the timeout of its attempts: its own, else that of its target; None: there is none."""
        policy, work = job.definition.policy, job.definition.work
        if policy.timeout_ms is not None or work.pulled:
            return policy.timeout_ms
        target: Mapping[str, Json] = work.final_target or {}
        launcher = self._launchers.launcher(target.get("kind"))
        return None if launcher is None or work.instance is not None else launcher.default_timeout_ms


def _read(row: JobRow) -> JobRecord | None:
    try:
        return job_from_row(row)
    except InvalidArgument as error:
        log.error("job.unreadable", **row.log_fields, error=error.message)
        return None


def _fields(suggestion: Suggestion) -> dict[str, object]:
    return {
        "suggestion_id": suggestion.id,
        "rule": suggestion.rule,
        "job": suggestion.job_name,
        "job_id": suggestion.job_id,
        "agent": suggestion.agent,
        "workspace": suggestion.workspace,
    }


class EvolutionLauncher(Launcher):
    """Runs analyses and evaluations."""

    kind = EVOLUTION_KIND
    default_timeout_ms = TIMEOUT_MS

    def __init__(self, evolution: Evolution) -> None:
        self._evolution = evolution

    def check(self, target: Mapping[str, Json]) -> None:
        """Raise InvalidArgument for an unknown task."""
        if target.get("task") not in (ANALYSIS, EVALUATION):
            raise InvalidArgument(f"target: the task of an evolution target is {ANALYSIS} or {EVALUATION}")

    async def start(self, run: Launch) -> Outcome:
        """Analyze or evaluate the agent of the run."""
        task = run.target.get("task")
        try:
            if not await self._evolution.is_on(run.workspace, run.agent):
                return Succeeded(f"evolution of agent '{run.agent}' is off")
            if task == EVALUATION:
                evaluated = await self._evolution.evaluate(run.workspace, run.agent)
                return Succeeded(compact(evaluated._asdict()))
            analyzed = await self._evolution.analyze(run.workspace, run.agent)
            return Succeeded(compact(analyzed._asdict()))
        except WakefulError as error:
            log.warning("evolution.failed", **run.log_fields, task=task, error=error.message)
            return Failed(truncate(error.message))
