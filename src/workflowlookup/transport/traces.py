"""Traces for OpenTelemetry, when somebody collects them: the SDK makes a span for each message."""

import logging
from collections.abc import Mapping
from typing import Final

log = logging.getLogger(__name__)

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"


def start_traces(environment: Mapping[str, str]) -> bool:
    """Send traces where the environment says; whether it is so. Needs the extra `otel`."""
    if not environment.get(ENDPOINT):
        return False
    try:
        from opentelemetry import trace  # noqa: PLC0415 - only where somebody wants it
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        log.warning("%s is set, but no traces are sent: install workflowlookup[otel]", ENDPOINT)
        return False
    name = environment.get("OTEL_SERVICE_NAME", "workflowlookup")
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True
