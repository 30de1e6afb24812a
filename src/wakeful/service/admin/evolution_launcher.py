"""Evolution targets: a run analyzes the jobs of its agent, or evaluates the applied suggestions.

    {"kind": "evolution", "task": "analysis"}

Only the internal jobs of evolution have such a target. The output of a run says what it did.
"""

from __future__ import annotations

from collections.abc import Mapping

from wakeful.document.values import compact
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.job.job import Json
from wakeful.launch.port import Launch, truncate
from wakeful.logs import get_logger
from wakeful.run.outcome import Failed, Outcome, Succeeded
from wakeful.service.admin.evolution import Evolution
from wakeful.service.admin.evolution_jobs import ANALYSIS, EVALUATION, EVOLUTION_KIND, TIMEOUT_MS

log = get_logger("wakeful.evolution")


class EvolutionLauncher:
    """Runs analyses and evaluations."""

    kind = EVOLUTION_KIND
    default_timeout_ms = TIMEOUT_MS

    def __init__(self, evolution: Evolution) -> None:
        self._evolution = evolution

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

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
