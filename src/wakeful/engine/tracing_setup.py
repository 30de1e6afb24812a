"""Turns tracing on: by the usual `OTEL_…` variables, or with the provider of the embedding program.

Without either, OpenTelemetry is not imported. Spans are exported by a thread with a bounded queue: a
collector that is down or slow never delays a run. What it does not accept in time is dropped.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from wakeful.engine.tracing import Tracing
from wakeful.errors import InvalidArgument
from wakeful.logs import get_logger
from wakeful.values.package import VERSION, install_command

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

#: Seconds for the last spans at the stop.
CLOSE_S: Final = 5.0
#: More than the SDK's 2,048: a storm creates thousands of spans at once.
_QUEUE: Final = 16_384
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_GROUP: Final = "opentelemetry_traces_exporter"

log = get_logger("wakeful.tracing")


def requested_exporters(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the exporters that the environment configures; none: tracing is off.

    >>> requested_exporters({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"})
    ['otlp_proto_http']
    >>> requested_exporters({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"})
    []
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    default = "otlp" if any(environment.get(name) for name in _ENDPOINTS) else "none"
    names = [name.strip() for name in (environment.get("OTEL_TRACES_EXPORTER") or default).split(",")]
    protocol = (
        environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    otlp = _PROTOCOLS.get(protocol.strip(), f"otlp with the protocol {protocol}")
    return [otlp if name == "otlp" else name for name in names if name not in ("", "none")]


def provider_from_environment(environment: Mapping[str, str]) -> TracerProvider | None:
    """Return a new provider as the environment says; None: tracing is off, or not installed."""
    names = requested_exporters(environment)
    if not names:
        return None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("tracing.unavailable", error=f"OpenTelemetry is not installed: {install_command('otel')}")
        return None
    known: dict[str, str | int | float | bool] = {"service.version": VERSION}
    if not environment.get("OTEL_SERVICE_NAME") and "service.name=" not in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        known["service.name"] = "wakeful"
    provider = TracerProvider(resource=Resource.create(known), shutdown_on_exit=False)
    queue = None if environment.get("OTEL_BSP_MAX_QUEUE_SIZE") else _QUEUE
    for name in names:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name), max_queue_size=queue))
    log.info("tracing.started", exporters=names)
    return provider


def _exporter(name: str) -> Any:
    from importlib.metadata import entry_points

    found = list(entry_points(group=_GROUP, name=name))
    if not found:
        known = ", ".join(sorted({each.name for each in entry_points(group=_GROUP)}))
        raise InvalidArgument(
            f"OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_PROTOCOL: no exporter '{name}' is installed; "
            f"installed are {known}"
        )
    return found[0].load()()


def program_provider() -> TracerProvider | None:
    """Return the provider that this program has set; None if it has set none."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider: TracerProvider = trace.get_tracer_provider()
    unset = isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
    return None if unset else provider


@asynccontextmanager
async def engine_tracing() -> AsyncIterator[Tracing | None]:
    """Yield the tracing of an engine; None: tracing is off. A provider of its own is closed at the end."""
    provider = program_provider()
    own = provider_from_environment(os.environ) if provider is None else None
    used = provider or own
    try:
        yield None if used is None else Tracing(used, VERSION)
    finally:
        if own is not None:
            await close_provider(own)


@asynccontextmanager
async def process_tracing() -> AsyncIterator[None]:
    """Set the provider of a server process, so that the code of its functions uses it too."""
    provider = provider_from_environment(os.environ) if program_provider() is None else None
    if provider is None:
        yield
        return
    from opentelemetry import trace

    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        await close_provider(provider)


async def close_provider(provider: TracerProvider, seconds: float = CLOSE_S) -> bool:
    """Export the last spans within this time. Returns False if they were not all exported."""
    loop = asyncio.get_running_loop()
    closed = asyncio.Event()

    def close() -> None:
        try:
            provider.shutdown()
        finally:
            with suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(closed.set)

    # A daemon: the process must not wait for a collector that does not respond.
    threading.Thread(target=close, name="wakeful-traces", daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            await closed.wait()
    except TimeoutError:
        log.warning("tracing.cut_off", error="the collector did not accept the last spans in time")
        return False
    return True
