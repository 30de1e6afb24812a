"""OpenTelemetry spans of the engine: `plan`, `launch`, `finish`, `delivery`, and `trigger`.

The spans of a run are root spans of one trace, whose id follows from the run (`launch.port`), so the
attempts of a run on different replicas and its replays share it, and a sampler that looks at the trace id
decides the same for all of them. Spans of batches (`plan`, `finish`) have traces of their own and link to the
launches.

This module imports nothing of OpenTelemetry: `tracing_setup` creates a `Tracing` only if tracing is on.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, ParamSpec

from wakeful.engine.in_flight import InFlight
from wakeful.job.target_kinds import TARGET_KINDS
from wakeful.launch.port import Launch, SpanIds, launch_ids
from wakeful.logs import get_logger
from wakeful.logs.redaction import redact
from wakeful.run.outcome import AwaitingCallback, AwaitingVerification, Failed, Outcome, Skipped, Succeeded
from wakeful.run.run import NewRun
from wakeful.store.deliveries import TakenDelivery
from wakeful.store.rows import RunView, TakenRun
from wakeful.values.instants import iso_utc

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TracerProvider

P = ParamSpec("P")

#: The SDK keeps 128 links of a span by default.
_MAX_LINKS: Final = 128
_MAX_ERROR: Final = 200
#: How many triggers of runs are remembered until this process launches them.
_MAX_TRIGGERS: Final = 1_000

#: The header `traceparent` of the request that is being handled.
incoming_traceparent: ContextVar[str | None] = ContextVar("wakeful_traceparent", default=None)


log = get_logger("wakeful.tracing")


def _harmless(record: Callable[P, None]) -> Callable[P, None]:
    """Log an error of the provider, such as one of a span processor of the program: runs go on without it."""

    @wraps(record)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            record(*args, **kwargs)
        except Exception:
            log.exception("tracing.error")

    return call


class Tracing:
    """Creates the spans of one engine with the tracer of a provider, whose errors hold up no run."""

    def __init__(self, provider: TracerProvider, version: str) -> None:
        self._trace: Any = import_module("opentelemetry.trace")
        self._context: Any = import_module("opentelemetry.context")
        self._tracer = provider.get_tracer("wakeful", version)
        self._ids = _run_ids(self._tracer)
        self._triggers: OrderedDict[str, SpanContext] = OrderedDict()

    # --- launches --------------------------------------------------------------------------------

    async def launch(self, run: InFlight, worker: str) -> Outcome:
        """Start a run inside a launch span. `end_launch` ends the span, with what became of the attempt."""
        launch = run.launch
        kind = str(launch.target.get("kind"))
        replayed = launch.trigger == "replay" and not run.failed_attempts
        about = _about(launch.id, launch.job_id, launch.job, launch.agent, launch.workspace)
        try:
            span = self._start_launch(launch, about, run.lane, kind, worker, replayed)
        except Exception:
            log.exception("tracing.error")
            return await run.launcher.start(launch)
        run.span = span
        launch.traceparent = _traceparent(span)
        token = self._context.attach(self._trace.set_span_in_context(span))
        try:
            return await run.launcher.start(launch)
        finally:
            self._context.detach(token)

    def record_claim(self, run: TakenRun, worker: str) -> str | None:
        """Record that an executor has claimed a run. Returns the trace context that it continues, if any."""
        replayed = run.trigger == "replay" and not run.failed_attempts
        about = _about(run.id, run.job_id, run.job_name, run.agent, run.workspace)
        try:
            span = self._start_launch(run, about, run.lane, "pull", worker, replayed)
            span.set_attribute("wakeful.outcome", "claimed")
            span.end()
        except Exception:
            log.exception("tracing.error")
            return None
        return _traceparent(span)

    def _start_launch(
        self,
        run: Launch | TakenRun,
        about: dict[str, str | int],
        lane: str,
        kind: str,
        worker: str,
        replayed: bool,
    ) -> Span:
        links: list[Link] = []
        trigger = self._triggers.pop(run.id, None)
        if trigger is not None:
            links.append(self._trace.Link(trigger, {"wakeful.link": "trigger"}))
        if run.attempt > 1:
            relation = "replay_of" if replayed else "previous_attempt"
            before = launch_ids(run.idempotency_key, run.attempt - 1)
            links.append(self._link(before, **{"wakeful.link": relation}))
        ids = launch_ids(run.idempotency_key, run.attempt)
        return self._root(
            "launch",
            {
                **about,
                "wakeful.attempt": run.attempt,
                "wakeful.scheduled_at": iso_utc(run.scheduled_ms),
                "wakeful.trigger": run.trigger,
                "wakeful.lane": lane,
                "wakeful.target": kind,
                "wakeful.worker": worker,
            },
            kind=self._kind(kind),
            links=links,
            trace_id=ids.trace_id,
            span_id=ids.span_id,
        )

    @_harmless
    def end_launch(self, run: InFlight, outcome: Outcome | str) -> None:
        """End the launch span. A word is why this worker writes no outcome: released, lost, completed …"""
        span, run.span = run.span, None
        if span is None:
            return
        if isinstance(outcome, str):
            span.set_attribute("wakeful.outcome", outcome)
        else:
            span.set_attribute("wakeful.outcome", _NAMES[type(outcome)])
            if not isinstance(outcome, Skipped) and outcome.response_code is not None:
                span.set_attribute("http.response.status_code", outcome.response_code)
            if isinstance(outcome, Failed | Skipped) and outcome.reason is not None:
                span.set_attribute("wakeful.reason", outcome.reason)
            if isinstance(outcome, Failed):
                span.set_attribute("error.type", outcome.reason or "failed")
                self._fail(span, outcome.error)
        span.end()

    # --- batches ---------------------------------------------------------------------------------

    @staticmethod
    def now_ns() -> int:
        """Return the start time of a span that is created when it ends."""
        return time.time_ns()

    @_harmless
    def record_plan(self, began_ns: int, worker: str, due: int, runs: Sequence[NewRun], started: int) -> None:
        """Record a planning pass that had due jobs."""
        links = [launch_ids(run.idempotency_key, run.attempt) for run in runs[:_MAX_LINKS] if run.attempt]
        attributes: dict[str, str | int] = {
            "wakeful.jobs.due": due,
            "wakeful.runs.planned": len(runs),
            "wakeful.runs.started": started,
            "wakeful.worker": worker,
        }
        self._root("plan", attributes, links=[self._link(ids) for ids in links], began_ns=began_ns).end()

    @_harmless
    def record_finish(
        self, began_ns: int, worker: str, launches: Iterable[Launch | RunView], count: int, written: int
    ) -> None:
        """Record a batch of outcomes that was written."""
        links: list[Link] = []
        for launch in launches:
            if len(links) == _MAX_LINKS:
                break
            links.append(self._link(launch_ids(launch.idempotency_key, launch.attempt)))
        attributes: dict[str, str | int] = {
            "wakeful.outcomes": count,
            "wakeful.outcomes.written": written,
            "wakeful.worker": worker,
        }
        self._root("finish", attributes, links=links, began_ns=began_ns).end()

    @contextmanager
    def delivery(self, delivery: TakenDelivery) -> Iterator[Span | None]:
        """Open a span for one attempt at a delivery, in the trace of its run; None: it cannot be opened."""
        try:
            span = self._start_delivery(delivery)
        except Exception:
            log.exception("tracing.error")
            yield None
            return
        try:
            with self._trace.use_span(span):
                yield span
        finally:
            self._end(span)

    def _start_delivery(self, delivery: TakenDelivery) -> Span:
        launch = launch_ids(delivery.idempotency_key, delivery.run_attempt)
        return self._root(
            "delivery",
            {
                **_about(
                    delivery.run_id, delivery.job_id, delivery.job_name, delivery.agent, delivery.workspace
                ),
                "wakeful.channel": delivery.channel or "",
                "wakeful.delivery.attempt": delivery.attempt,
            },
            kind=self._trace.SpanKind.CLIENT,
            links=[self._link(launch)],
            trace_id=launch.trace_id,
        )

    @_harmless
    def _end(self, span: Span) -> None:
        span.end()

    @_harmless
    def record_delivery(self, span: Span | None, became: str, error: str | None) -> None:
        """Set what became of a delivery."""
        if span is None:
            return
        span.set_attribute("wakeful.outcome", became)
        if became in ("failed", "unknown", "pending"):
            self._fail(span, error or became)

    # --- triggers --------------------------------------------------------------------------------

    @_harmless
    def record_trigger(self, run: RunView) -> None:
        """Record that a request created a run: a span in the trace of the request that links to the run.

        The request's trace is that of its header `traceparent`, or in an embedded program the current one.
        Without either, nothing is recorded.
        """
        parent = self._caller()
        if parent is None:
            return
        attributes = {
            **_about(run.id, run.job_id, run.job_name, run.agent, run.workspace),
            "wakeful.trigger": run.trigger,
        }
        span = self._tracer.start_span(
            "trigger",
            context=parent,
            kind=self._trace.SpanKind.PRODUCER,
            attributes=attributes,
            links=[self._link(launch_ids(run.idempotency_key, run.attempt))],
        )
        span.end()
        self._triggers[run.id] = span.get_span_context()
        if len(self._triggers) > _MAX_TRIGGERS:
            self._triggers.popitem(last=False)

    def _caller(self) -> Context | None:
        header = incoming_traceparent.get()
        if header is not None:
            propagator = import_module("opentelemetry.trace.propagation.tracecontext")
            context: Context = propagator.TraceContextTextMapPropagator().extract(
                {"traceparent": header}, context=self._context.Context()
            )
        else:
            context = self._context.get_current()
        valid: bool = self._trace.get_current_span(context).get_span_context().is_valid
        return context if valid else None

    # --- spans -----------------------------------------------------------------------------------

    def _root(
        self,
        name: str,
        attributes: dict[str, str | int],
        *,
        kind: SpanKind | None = None,
        links: Sequence[Link] = (),
        began_ns: int | None = None,
        trace_id: int | None = None,
        span_id: int | None = None,
    ) -> Span:
        """Start a root span, with these ids where they are given."""
        context: Context = self._context.Context()
        if trace_id is not None and self._ids is None:  # a provider that lets nobody choose ids
            parent = self._span_context(SpanIds(trace_id, span_id or 1))
            context = self._trace.set_span_in_context(self._trace.NonRecordingSpan(parent), context)
        if self._ids is not None:
            self._ids.force(trace_id, span_id)
        try:
            return self._tracer.start_span(
                name,
                context=context,
                kind=kind or self._trace.SpanKind.INTERNAL,
                attributes=attributes,
                links=links,
                start_time=began_ns,
            )
        finally:
            if self._ids is not None:
                self._ids.force(None, None)

    def _span_context(self, ids: SpanIds) -> SpanContext:
        sampled = self._trace.TraceFlags(self._trace.TraceFlags.SAMPLED)
        context: SpanContext = self._trace.SpanContext(
            ids.trace_id, ids.span_id, is_remote=True, trace_flags=sampled
        )
        return context

    def _link(self, ids: SpanIds, **attributes: str) -> Link:
        link: Link = self._trace.Link(self._span_context(ids), attributes)
        return link

    def _kind(self, target: str) -> SpanKind:
        if target == "channel":
            span = "client"
        else:
            span = TARGET_KINDS[target].span if target in TARGET_KINDS else "internal"
        kind: SpanKind = self._trace.SpanKind[span.upper()]
        return kind

    def _fail(self, span: Span, error: str) -> None:
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, redact(error)[:_MAX_ERROR]))


_NAMES: Final = {
    Succeeded: "succeeded",
    Failed: "failed",
    Skipped: "skipped",
    AwaitingCallback: "awaiting_callback",
    AwaitingVerification: "verifying",
}


def _about(
    run_id: str, job_id: str | None, job: str | None, agent: str, workspace: str
) -> dict[str, str | int]:
    known = {"wakeful.job.id": job_id, "wakeful.job": job}
    return {
        "wakeful.run.id": run_id,
        **{name: value for name, value in known.items() if value is not None},
        "wakeful.agent": agent,
        "wakeful.workspace": workspace,
    }


def _traceparent(span: Span) -> str:
    context = span.get_span_context()
    return SpanIds(context.trace_id, context.span_id).traceparent(context.trace_flags.sampled)


class RunIds:
    """The ids of the next span: those that are forced, else those of the provider's own generator."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._forced = threading.local()

    def force(self, trace_id: int | None, span_id: int | None) -> None:
        """Use these ids for the next span of this thread; None: a generated one."""
        self._forced.trace_id, self._forced.span_id = trace_id, span_id

    def generate_trace_id(self) -> int:
        """Return the id of a new trace."""
        forced: int | None = getattr(self._forced, "trace_id", None)
        return forced or int(self._inner.generate_trace_id())

    def generate_span_id(self) -> int:
        """Return the id of a new span."""
        forced: int | None = getattr(self._forced, "span_id", None)
        return forced or int(self._inner.generate_span_id())

    def is_trace_id_random(self) -> bool:
        """Return whether the id of a new trace is random by the rules of W3C."""
        forced = getattr(self._forced, "trace_id", None) is not None
        return not forced and bool(getattr(self._inner, "is_trace_id_random", bool)())


def _run_ids(tracer: Any) -> RunIds | None:
    """Return what chooses the ids of this tracer's spans. Only tracers of the SDK have it."""
    inner = getattr(tracer, "id_generator", None)
    if inner is None:
        return None
    if not isinstance(inner, RunIds):  # the provider returns the same tracer again
        inner = tracer.id_generator = RunIds(inner)
    return inner
