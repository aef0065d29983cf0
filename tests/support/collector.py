"""A collector of OpenTelemetry traces, on loopback: takes what the real exporter sends, and keeps it."""

import gzip
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from support.json_values import JsonObject

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span, as it came."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: JsonObject = field(default_factory=dict)
    is_error: bool = False


class Collector:
    """Listens while it is entered, at `endpoint`."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.bodies: list[bytes] = []
        """What came, unpacked: whatever is in no body was told to nobody."""
        self.resource: JsonObject = {}
        self.spans: list[Span] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.paths.add(self.path)
                collector.take(body)
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.end_headers()
                self.wfile.write(ExportTraceServiceResponse().SerializeToString())

            def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - its name there
                """Nobody reads it."""

        return Handler

    def take(self, body: bytes) -> None:
        self.bodies.append(body)
        for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource = attributes(sent.resource.attributes)
            for span in [span for scope in sent.scope_spans for span in scope.spans]:
                self.spans.append(
                    Span(
                        name=span.name,
                        trace=span.trace_id.hex(),
                        id=span.span_id.hex(),
                        parent=span.parent_span_id.hex(),
                        attributes=attributes(span.attributes),
                        is_error=span.status.code == span.status.STATUS_CODE_ERROR,
                    )
                )

    def named(self, name: str, count: int = 1) -> list[Span]:
        """The spans of a name, once there are so many."""
        end = time.monotonic() + PATIENCE_SECONDS
        while len(spans := [span for span in self.spans if span.name == name]) < count:
            assert time.monotonic() < end, f"no '{name}' among {sorted(span.name for span in self.spans)}"
            time.sleep(0.02)
        return spans

    def one(self, name: str) -> Span:
        (span,) = self.named(name)
        return span

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def attributes(pairs: Any) -> JsonObject:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
