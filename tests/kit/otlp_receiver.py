"""A collector for tests: takes OTLP over HTTP on loopback, and keeps the spans."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span and the service that sent it. Times in Unix nanoseconds."""

    service: str
    span: Span


@dataclass
class Received:
    """What came so far; written by the server's threads, read by the test."""

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    metric_names: set[str] = field(default_factory=set)

    def of_trace(self, trace_id: bytes) -> list[ReceivedSpan]:
        return [found for found in tuple(self.spans) if found.span.trace_id == trace_id]

    def take(self, path: str, body: bytes) -> None:
        """One export."""
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = _text(list(resource.resource.attributes), "service.name")
                for scope in resource.scope_spans:
                    self.spans += [ReceivedSpan(service, span) for span in scope.spans]
        elif path == "/v1/metrics":
            for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scoped in measured.scope_metrics:
                    self.metric_names |= {metric.name for metric in scoped.metrics}


def _text(attributes: list[KeyValue], key: str) -> str:
    return next((found.value.string_value for found in attributes if found.key == key), "")


@contextmanager
def otlp_receiver() -> Iterator[Received]:
    """Serve on a free port of 127.0.0.1 until the block ends."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        timeout: ClassVar[float] = 10.0

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.take(self.path, body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        received.url = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        serving.start()
        try:
            yield received
        finally:
            server.shutdown()
            serving.join(5)
