"""A collector of traces on 127.0.0.1: it receives OTLP over HTTP and decodes the spans."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """The requests that a collector has received."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    def add(self, body: bytes, headers: dict[str, str]) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        with self._lock:
            self._requests.append(request)
            self.headers.append(headers)

    def spans(self, name: str) -> list[Span]:
        """Return the spans of that name, in the order of their start."""
        with self._lock:
            found = [
                span
                for request in self._requests
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
                if span.name == name
            ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def resource(self) -> dict[str, str]:
        """Return the attributes of the process that exports."""
        with self._lock:
            return attributes(self._requests[0].resource_spans[0].resource)

    def text(self) -> str:
        """Return everything that was received, as text."""
        with self._lock:
            return "\n".join(str(request) for request in self._requests)


def attributes(owner: object) -> dict[str, str]:
    """Return the attributes of a span, link or resource, as text."""
    found: dict[str, str] = {}
    for each in owner.attributes:  # type: ignore[attr-defined]
        kind = each.value.WhichOneof("value")
        found[each.key] = str(getattr(each.value, kind)) if kind else ""
    return found


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/v1/traces", self.path
            collector.add(body, {name.lower(): value for name, value in self.headers.items()})
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
