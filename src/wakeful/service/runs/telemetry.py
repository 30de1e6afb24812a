"""Metrics and spans of what requests do with runs. The engine records what it does itself."""

from __future__ import annotations

from wakeful.engine.metrics import Metrics
from wakeful.engine.tracing import Tracing
from wakeful.logs import get_logger
from wakeful.run.outcome import Finished
from wakeful.store.rows import RunView, TakenRun

log = get_logger("wakeful.service")


class RunTelemetry:
    """Records the runs that requests create, claim and complete."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        #: set when the engine starts; None: no spans are recorded
        self.tracing: Tracing | None = None

    def record_trigger(self, run: RunView) -> None:
        """Record a run that a request has created."""
        if self.tracing is not None:
            self.tracing.record_trigger(run)

    def record_claim(self, run: TakenRun, worker: str) -> str | None:
        """Record a run that an executor has claimed. Returns the `traceparent` of its span."""
        return None if self.tracing is None else self.tracing.record_claim(run, worker)

    def record_completion(self, finished: Finished, run: RunView) -> None:
        """Record an outcome that was reported from outside and is stored. An error is logged."""
        try:
            self._metrics.record_finished([finished], (), [(run.workspace, run.agent, finished.state)])
            if self.tracing is not None:
                self.tracing.record_finish(self.tracing.now_ns(), run.worker or "", [run], 1, 1)
        except Exception:
            log.exception("report.error", **run.log_fields)
