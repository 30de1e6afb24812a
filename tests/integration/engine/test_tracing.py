"""Spans of the engine, collected by an exporter in memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.integration.service.admin.test_channel_alerts import posts, to_channels
from tests.support.api_client import served
from tests.support.receiver import Receiver
from tests.support.waiting import eventually, over
from wakeful import EngineConfig, Function, Launch, Permanent, Webhook
from wakeful.launch.port import launch_ids

QUICKLY = {"base": "20ms", "max": "20ms"}
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traces:
    """The spans of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._exporter = InMemorySpanExporter()

    def on(self, sampler: Sampler | None = None, processor: SpanProcessor | None = None) -> None:
        """Set the provider of the program, as an embedding program does."""
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(processor or SimpleSpanProcessor(self._exporter))
        self._monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the finished spans of that name, in the order of their start."""
        found = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return sorted(found, key=lambda span: span.start_time or 0)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Traces:
    traces = Traces(monkeypatch)
    traces.on()
    return traces


def _trace(span: ReadableSpan) -> str:
    return f"{_ids(span)[0]:032x}"


def _linked(span: ReadableSpan) -> set[tuple[int, int]]:
    return {(link.context.trace_id, link.context.span_id) for link in span.links}


def _ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


class Broken(SpanProcessor):
    """Raises at the start or at the end of each span."""

    def __init__(self, at: str) -> None:
        self._at = at

    def on_start(self, span: object, parent_context: object = None) -> None:
        if self._at == "start":
            raise RuntimeError("no span starts")

    def on_end(self, span: object) -> None:
        if self._at == "end":
            raise RuntimeError("no span ends")


@pytest.mark.parametrize("at", ["start", "end"])
async def test_an_error_of_a_span_processor_takes_neither_runs_nor_slots_nor_deliveries(
    new_app: NewApp, traces: Traces, receiver: Receiver, at: str
):
    traces.on(processor=Broken(at))
    app = new_app(config=EngineConfig(lanes={"cron": 1}), settings=to_channels(team=posts(receiver)))
    calls: list[Launch] = []

    @app.function()
    async def work(run: Launch) -> None:
        calls.append(run)

    async with app:
        await app.jobs.create("soon", schedule="in 100ms", target=Function("work"))
        await eventually(lambda: calls)
        await app.jobs.create("later", schedule=SELDOM, target=Function("work"))
        for _ in range(2):
            assert (await over(app, (await app.jobs.run("later")).id)).state == "succeeded"
        await app.jobs.create("claimed", schedule=SELDOM, target={"kind": "pull"})
        waits = await app.jobs.run("claimed")
        assert [run.id for run in await app.runs.claim("executor")] == [waits.id]
        await app.jobs.create("sent", schedule=SELDOM, target={"kind": "echo"}, deliver=True, channel="team")
        sent = await app.jobs.run("sent", payload="hello")

        async def is_delivered() -> bool:
            return (await app.runs.get(sent.id)).delivery == "delivered"

        await eventually(is_delivered)


async def test_a_webhook_run_is_a_trace_that_its_receiver_continues(
    new_app: NewApp, traces: Traces, receiver: Receiver
):
    app = new_app()
    async with app:
        job = await app.jobs.create("digest", schedule="in 100ms", target=Webhook(receiver.url))
        await eventually(lambda: traces.named("finish"))
        (run,) = await app.runs.list()
    (launch,) = traces.named("launch")
    assert dict(launch.attributes or {}) == {
        "wakeful.run.id": run.id,
        "wakeful.job.id": job.id,
        "wakeful.job": "digest",
        "wakeful.agent": "default",
        "wakeful.workspace": "default",
        "wakeful.attempt": 1,
        "wakeful.scheduled_at": run.scheduled_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "wakeful.trigger": "schedule",
        "wakeful.lane": "cron",
        "wakeful.target": "webhook",
        "wakeful.worker": (launch.attributes or {})["wakeful.worker"],
        "wakeful.outcome": "succeeded",
        "http.response.status_code": 200,
    }
    assert (launch.kind, launch.status.status_code, launch.parent) == (
        SpanKind.CLIENT,
        StatusCode.UNSET,
        None,
    )
    trace_id, span_id = _ids(launch)
    assert receiver.headers["traceparent"] == f"00-{trace_id:032x}-{span_id:016x}-01"

    plan = traces.named("plan")[0]
    assert (plan.attributes or {})["wakeful.jobs.due"] == 1
    assert (plan.attributes or {})["wakeful.runs.planned"] == 1
    (finish,) = traces.named("finish")
    assert (finish.attributes or {})["wakeful.outcomes.written"] == 1
    for batch in (plan, finish):
        assert _linked(batch) == {_ids(launch)}
        assert _trace(batch) != _trace(launch)


async def test_all_attempts_are_one_trace_and_a_replay_links_to_the_original(
    new_app: NewApp, traces: Traces, receiver: Receiver
):
    receiver.answers(500, "no luck")
    app = new_app()
    async with app:
        await app.jobs.create(
            "digest", schedule=SELDOM, target=Webhook(receiver.url), backoff=QUICKLY, max_attempts=2
        )
        first = await over(app, (await app.jobs.run("digest")).id)
        receiver.answers(200)
        replay = await over(app, (await app.runs.replay(first.id)).id)
        sent = [request.headers["traceparent"] for request in receiver.requests]
    spans = traces.named("launch")
    assert (first.state, replay.state, len(spans)) == ("failed", "succeeded", 3)
    assert len({_trace(span) for span in spans}) == 1
    assert sent == [f"00-{_trace(span)}-{_ids(span)[1]:016x}-01" for span in spans]
    for span in spans[:2]:
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "HTTP 500 Internal Server Error: no luck"
        assert (span.attributes or {})["http.response.status_code"] == 500
        assert (span.attributes or {})["error.type"] == "http"
    assert spans[2].status.status_code is StatusCode.UNSET
    assert [_linked(span) for span in spans] == [set(), {_ids(spans[0])}, {_ids(spans[1])}]
    assert [dict(link.attributes or {}) for span in spans for link in span.links] == [
        {"wakeful.link": "previous_attempt"},
        {"wakeful.link": "replay_of"},
    ]
    assert (spans[2].attributes or {})["wakeful.run.id"] == replay.id


@on_one_store
async def test_spans_of_a_function_are_children_of_its_launch(new_app: NewApp, traces: Traces):
    app = new_app()
    seen: list[str | None] = []

    @app.function()
    async def work(run: Launch) -> None:
        seen.append(run.traceparent)
        with trace.get_tracer("mine").start_as_current_span("inner"):
            pass

    @app.function()
    async def broken() -> None:
        raise Permanent("never: http://u:hunter2@h/")

    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"))
        await app.jobs.create("bad", schedule=SELDOM, target=Function("broken"))
        await over(app, (await app.jobs.run("job")).id)
        await over(app, (await app.jobs.run("bad")).id)
    launch, bad = traces.named("launch")
    (inner,) = traces.named("inner")
    assert inner.parent is not None
    assert (inner.parent.trace_id, inner.parent.span_id) == _ids(launch)
    assert seen == [f"00-{_trace(launch)}-{_ids(launch)[1]:016x}-01"]
    assert launch.kind is SpanKind.INTERNAL
    assert bad.status.description == "never: http://***@h/"
    assert not trace.get_current_span().get_span_context().is_valid


@on_one_store
async def test_an_attempt_that_times_out_is_an_error(new_app: NewApp, traces: Traces):
    app = new_app()

    @app.function()
    async def slow() -> None:
        await asyncio.Event().wait()

    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("slow"), timeout="50ms", max_attempts=1)
        await over(app, (await app.jobs.run("job")).id)
    (launch,) = traces.named("launch")
    assert launch.status.status_code is StatusCode.ERROR
    assert (launch.attributes or {})["wakeful.reason"] == "timeout"


@on_one_store
async def test_a_request_with_a_trace_is_linked_to_the_run_it_triggers(
    new_app: NewApp, traces: Traces, receiver: Receiver
):
    app = new_app()
    async with app, served(app) as ask:
        await app.jobs.create("digest", schedule=SELDOM, target=Webhook(receiver.url))
        path = "/agents/default/jobs/digest/run"
        answer = await ask("POST", path, {}, headers={"traceparent": CALLER})
        run_id = answer.body["id"]
        await over(app, run_id)
        await ask("POST", path, {}, headers={"traceparent": "nonsense"})
        await eventually(lambda: len(traces.named("launch")) == 2)
    (trigger,) = traces.named("trigger")
    launch, other = traces.named("launch")
    assert (_trace(trigger), trigger.kind) == ("0af7651916cd43dd8448eb211c80319c", SpanKind.PRODUCER)
    assert trigger.parent is not None
    assert f"{trigger.parent.span_id:016x}" == "b7ad6b7169203331"
    assert (trigger.attributes or {})["wakeful.run.id"] == run_id
    assert _linked(trigger) == {_ids(launch)}
    assert _linked(launch) == {_ids(trigger)}
    assert _linked(other) == set()


@on_one_store
async def test_a_run_triggered_inside_a_span_of_the_program_links_to_it(new_app: NewApp, traces: Traces):
    app = new_app()

    @app.function()
    async def work() -> None: ...

    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"))
        with trace.get_tracer("mine").start_as_current_span("outer") as outer:
            run = await app.jobs.run("job")
        await over(app, run.id)
    (trigger,), (launch,) = traces.named("trigger"), traces.named("launch")
    assert trigger.parent is not None
    assert trigger.parent.span_id == outer.get_span_context().span_id
    assert _linked(launch) == {_ids(trigger)}


@on_one_store
async def test_an_executor_continues_the_trace_of_the_run_it_claims(new_app: NewApp, traces: Traces):
    app = new_app()
    async with app:
        await app.jobs.create("job", schedule=SELDOM, backoff=QUICKLY)
        run = await app.jobs.run("job")
        (claimed,) = await app.runs.claim("laptop", wait_ms=60_000)
        await app.runs.complete(claimed, "failed", error="no luck")
        (again,) = await app.runs.claim("laptop", wait_ms=60_000)
        await app.runs.complete(again, "succeeded")
    first, second = traces.named("launch")
    assert [claimed.traceparent, again.traceparent] == [
        launch_ids(run.idempotency_key, attempt).traceparent() for attempt in (1, 2)
    ]
    assert claimed.traceparent == f"00-{_trace(first)}-{_ids(first)[1]:016x}-01"
    assert (first.kind, (first.attributes or {})["wakeful.worker"]) == (SpanKind.PRODUCER, "laptop")
    assert _linked(second) == {_ids(first)}
    assert [_linked(finish) for finish in traces.named("finish")] == [{_ids(first)}, {_ids(second)}]


@on_one_store
async def test_a_delivery_is_a_span_of_the_run_s_trace(new_app: NewApp, traces: Traces, receiver: Receiver):
    app = new_app(settings=to_channels(team=posts(receiver)))

    @app.function()
    async def say() -> str:
        return "Good morning."

    async with app:
        await app.jobs.create("digest", schedule=SELDOM, target=Function("say"), deliver=True, channel="team")
        run = await over(app, (await app.jobs.run("digest")).id)
        await eventually(lambda: traces.named("delivery"))
    (delivery,), (launch,) = traces.named("delivery"), traces.named("launch")
    assert _trace(delivery) == _trace(launch)
    assert _linked(delivery) == {_ids(launch)}
    known = dict(delivery.attributes or {})
    assert (known["wakeful.run.id"], known["wakeful.channel"]) == (run.id, "team")
    assert (known["wakeful.outcome"], delivery.status.status_code) == ("delivered", StatusCode.UNSET)


@on_one_store
@pytest.mark.parametrize("sampler", [ALWAYS_OFF, ParentBased(TraceIdRatioBased(0.0))])
async def test_a_trace_that_is_not_sampled_says_so_to_the_receiver(
    new_app: NewApp, traces: Traces, receiver: Receiver, sampler: Sampler
):
    traces.on(sampler)
    app = new_app()
    async with app:
        await app.jobs.create("digest", schedule=SELDOM, target=Webhook(receiver.url))
        run = await over(app, (await app.jobs.run("digest")).id)
    ids = launch_ids(run.idempotency_key, 1)
    assert receiver.headers["traceparent"] == ids.traceparent(sampled=False)
    assert traces.named("launch") == []


@on_one_store
async def test_log_events_have_the_trace_of_their_run(
    new_app: NewApp, traces: Traces, caplog: pytest.LogCaptureFixture
):
    app = new_app()

    @app.function()
    async def broken() -> None:
        raise Permanent("never")

    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("broken"))
        await over(app, (await app.jobs.run("job")).id)
    (launch,) = traces.named("launch")
    (failed,) = [
        record.getMessage() for record in caplog.records if "event=run.failed" in record.getMessage()
    ]
    assert f"trace_id={_trace(launch)}" in failed


_OFF = """
import asyncio, json, sys
from wakeful import Function, Wakeful

async def main():
    app = Wakeful("sqlite:///" + sys.argv[1])
    done = asyncio.Event()

    @app.function()
    async def work(run):
        assert run.traceparent is None
        done.set()

    async with app:
        await app.jobs.create("job", schedule="in 100ms", target=Function("work"))
        await done.wait()

asyncio.run(main())
print(json.dumps([name for name in sys.modules if name.startswith("opentelemetry")]))
"""


def test_without_an_exporter_nothing_of_opentelemetry_is_imported(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _OFF, str(tmp_path / "a.db")], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []
