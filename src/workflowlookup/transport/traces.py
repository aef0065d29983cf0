"""Traces for OpenTelemetry, when somebody collects them: a span for each message, and beneath it what came of it.

The SDK makes the spans of messages, in and out; `execution.driver` those of the calls that runs make. Here is where
they go, whose trace a message belongs to, and what of a span is told to nobody.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from workflowlookup import __version__

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
INSTALL: Final = "install it with `pip install 'workflowlookup[otel]'`"
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
        log.warning("%s is set, but no traces are sent: what sends them is not installed; %s", wanted, INSTALL)
        return False
    own = {"service.name": "workflowlookup", "service.version": __version__}
    said = OTELResourceDetector().detect().attributes  # by OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
    limits = SpanLimits(max_span_attribute_length=LONGEST)
    provider = TracerProvider(resource=Resource.create({**own, **said}), span_limits=limits)
    provider.add_span_processor(BatchSpanProcessor(_discreet(OTLPSpanExporter())))
    trace.set_tracer_provider(provider)
    return True


async def under_caller(ctx: "ServerRequestContext[Any, Any]", call_next: "CallNext") -> "HandlerResult":
    """Middleware: a message belongs to the trace that the header `traceparent` names. What `_meta` says goes first."""
    from opentelemetry import context, propagate  # noqa: PLC0415 - only where somebody wants it

    headers = ctx.request.headers if ctx.request is not None else {}
    before = context.attach(propagate.extract({name: headers[name] for name in _CARRIED if name in headers}))
    try:
        return await call_next(ctx)
    finally:
        context.detach(before)


_CARRIED: Final = ("traceparent", "tracestate")


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
