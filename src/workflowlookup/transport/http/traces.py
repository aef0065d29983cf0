"""Traces for OpenTelemetry, when somebody collects them: a span for each message, and beneath it what came of it.

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
    from workflowlookup.transport.http.metrics import Outcome

log = logging.getLogger(__name__)

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
LONGEST: Final = 200
"""How much of a name or an attribute is told: clients say what they like in them."""


def start_traces(environment: Mapping[str, str]) -> bool:
    """Send traces where the environment says; whether it is so. Needs the extra `otel`."""
    wanted = next((name for name in ENDPOINTS if environment.get(name)), None)
    if wanted is None:
        return False
    try:
        from opentelemetry import trace  # noqa: PLC0415 - only where somebody wants it
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        about = f"{extras.explain_missing(extras.OTEL)} {extras.how_to_install(extras.OTEL)}"
        log.warning("%s is set, but no traces are sent. %s", wanted, about)
        return False
    own = {"service.name": "workflowlookup", "service.version": __version__}
    said = OTELResourceDetector().detect().attributes  # by OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
    limits = SpanLimits(max_span_attribute_length=LONGEST)
    provider = TracerProvider(resource=Resource.create({**own, **said}), span_limits=limits)
    provider.add_span_processor(BatchSpanProcessor(_discreet(OTLPSpanExporter())))
    trace.set_tracer_provider(provider)
    return True


class RequestSpan:
    """The span of one request, from its arrival to its reply."""

    def __init__(self, request: "Request", headers: Mapping[bytes, bytes], version: str) -> None:
        """The trace is that in `_meta`, else that in the headers."""
        from opentelemetry import propagate, trace  # noqa: PLC0415 - only where somebody wants it

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

    def end(self, outcome: "Outcome") -> None:
        """End the span with the outcome of the request."""
        from opentelemetry.trace import StatusCode  # noqa: PLC0415

        if outcome.word != "ok":
            self._span.set_attribute("error.type", "tool_error" if outcome.code is None else str(outcome.code))
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


_TRACE_CONTEXT: Final = ("traceparent", "tracestate")
_NAME_ATTRIBUTES: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""The attribute for the `name` of a request, by method."""


def _discreet(exporter: "SpanExporter") -> "SpanExporter":
    """An exporter that tells that something failed and of what kind that was, and nobody's words about it: those of
    other servers may repeat what they were sent.
    """
    from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415 - only where somebody wants it
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult  # noqa: PLC0415
    from opentelemetry.trace import Status  # noqa: PLC0415

    def without_words(span: "ReadableSpan") -> "ReadableSpan":
        return ReadableSpan(
            name=span.name[:LONGEST],
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

    class Discreet(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return exporter.export([without_words(span) for span in spans])

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return exporter.force_flush(timeout_millis)

    return Discreet()
