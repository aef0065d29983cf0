"""The calls of runs as spans of OpenTelemetry, for `transport.traces`, which says where they go."""

import contextlib
import sys
from typing import Any

from workflowlookup.core.run import Run


def span_of(run: Run) -> contextlib.AbstractContextManager[Any]:
    """Lasts as long as one attempt at the call that is due; beneath whatever moved the run there, if that was here."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:  # nobody collects them: nothing is loaded to tell nobody
        return contextlib.nullcontext()
    told = {
        "workflowlookup.run": run.id,
        "workflowlookup.workflow": run.workflow.id,
        "workflowlookup.step": run.current,
        "workflowlookup.attempt": run.calling.attempt if run.calling else 1,
    }
    span: contextlib.AbstractContextManager[Any] = trace.get_tracer("workflowlookup").start_as_current_span(
        f"call {run.current}", attributes=told
    )
    return span
