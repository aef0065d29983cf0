"""Traces for OpenTelemetry, if an endpoint is set: a span for each message, with the spans of its work below it.

This module makes the spans of messages, exports all spans, and removes what must not leave the server.
`execution.driver` makes the spans of calls of runs, the MCP SDK those of requests to other servers.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from workflowlookup import __version__, extras

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

    from workflowlookup.protocol.jsonrpc import Request
    from workflowlookup.transport.http.metrics import RequestOutcome

log = logging.getLogger(__name__)

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
MAX_TEXT: Final = 200
"""How many characters of a name or an attribute are sent: clients may send any text."""


def start_traces(environment: Mapping[str, str]) -> bool:
    """Send traces to the endpoint in the environment. Returns whether there is one. Needs the extra `otel`."""
    endpoint_name = next((name for name in ENDPOINTS if environment.get(name)), None)
    if endpoint_name is None:
        return False
    try:
        from opentelemetry import trace  # noqa: PLC0415 - only if an endpoint is set
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        remedy = f"{extras.explain_missing(extras.OTEL)} {extras.how_to_install(extras.OTEL)}"
        log.warning("%s is set, but no traces are sent. %s", endpoint_name, remedy)
        return False
    defaults = {"service.name": "workflowlookup", "service.version": __version__}
    detected = OTELResourceDetector().detect().attributes  # by OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
    limits = SpanLimits(max_span_attribute_length=MAX_TEXT)
    provider = TracerProvider(resource=Resource.create({**defaults, **detected}), span_limits=limits)
    provider.add_span_processor(BatchSpanProcessor(_redacting(OTLPSpanExporter())))
    trace.set_tracer_provider(provider)
    return True


class RequestSpan:
    """The span of one request, from its arrival to its reply."""

    def __init__(self, request: "Request", headers: Mapping[bytes, bytes], version: str) -> None:
        """The trace is the one in `_meta`, else the one in the headers."""
        from opentelemetry import propagate, trace  # noqa: PLC0415 - only if an endpoint is set

        params = request.params if isinstance(request.params, dict) else {}
        meta, name = params.get("_meta"), params.get("name")
        carrier = {
            field: headers[field.encode()].decode("latin-1") for field in _TRACE_CONTEXT if field.encode() in headers
        }
        if isinstance(meta, dict) and isinstance(meta.get("traceparent"), str):
            carrier = {field: meta[field] for field in _TRACE_CONTEXT if isinstance(meta.get(field), str)}
        attributes = {"mcp.method.name": request.method, "jsonrpc.request.id": request.id.decode().strip('"')}
        if version:
            attributes["mcp.protocol.version"] = version
        if isinstance(name, str) and request.method in _NAME_ATTRIBUTES:
            attributes[_NAME_ATTRIBUTES[request.method]] = name
        if request.method == "tools/call":
            attributes["gen_ai.operation.name"] = "execute_tool"
        self._span = trace.get_tracer("workflowlookup").start_span(
            f"{request.method} {name}" if isinstance(name, str) else request.method,
            context=propagate.extract(carrier),
            kind=trace.SpanKind.SERVER,
            attributes=attributes,
        )

    def active(self) -> "AbstractContextManager[Span]":
        """While this context is entered, new spans are children of this one."""
        from opentelemetry import trace  # noqa: PLC0415

        return trace.use_span(self._span)

    def end(self, outcome: "RequestOutcome") -> None:
        """End the span with the outcome of the request."""
        from opentelemetry.trace import StatusCode  # noqa: PLC0415

        if outcome.label != "ok":
            self._span.set_attribute("error.type", "tool_error" if outcome.code is None else str(outcome.code))
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


_TRACE_CONTEXT: Final = ("traceparent", "tracestate")
_NAME_ATTRIBUTES: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""The attribute for the `name` of a request, by method."""


def _redacting(exporter: "SpanExporter") -> "SpanExporter":
    """An exporter that removes events and status messages: error texts of other servers may repeat their input."""
    from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415 - only if an endpoint is set
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult  # noqa: PLC0415
    from opentelemetry.trace import Status  # noqa: PLC0415

    def redacted(span: "ReadableSpan") -> "ReadableSpan":
        return ReadableSpan(
            name=span.name[:MAX_TEXT],
            context=span.context,
            parent=span.parent,
            resource=span.resource,
            attributes=span.attributes,
            links=span.links,
            kind=span.kind,
            status=Status(span.status.status_code),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )

    class RedactingExporter(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return exporter.export([redacted(span) for span in spans])

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return exporter.force_flush(timeout_millis)

    return RedactingExporter()
