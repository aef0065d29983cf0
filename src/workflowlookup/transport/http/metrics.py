"""Metrics of a server over HTTP, as OpenMetrics text.

Requests are counted as they come. Metrics that can be computed when somebody asks, such as the runs by state, are
computed then, by the functions in `collectors`.
"""

import bisect
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.cache import ExpiringCache
from workflowlookup.errors import InternalError, RequestCancelled, StorageError, WorkflowLookupError
from workflowlookup.greenlets import Busy
from workflowlookup.protocol.connection import METHODS

if TYPE_CHECKING:
    from workflowlookup.protocol.backend import Backend

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of the latency buckets, in seconds."""
COUNTS_SECONDS: Final = 10.0
"""How long the counts of runs are cached: counting takes longer the more runs there are."""
WAIT_SECONDS: Final = 30.0
"""How long a request waits for another request that counts the runs."""


class MetricFamily:
    """A metric family of OpenMetrics: name, type, help text and samples."""

    def __init__(
        self, name: str, kind: str, help_text: str, samples: Iterable[tuple[Mapping[str, str], float]]
    ) -> None:
        self.name, self.kind, self.help_text = name, kind, help_text
        self.samples = list(samples)


class _Data(msgspec.Struct, rename="camel"):
    retry_after_seconds: int | None = None


class _ToolError(msgspec.Struct):
    """An error of a tool, in a result."""

    data: _Data | None = None


class _Result(msgspec.Struct, rename="camel"):
    is_error: object = False
    structured_content: msgspec.Raw = msgspec.Raw(b"{}")


class _Error(msgspec.Struct):
    code: int
    data: msgspec.Raw = msgspec.Raw(b"null")


class _Reply(msgspec.Struct):
    """The parts of a reply that decide its outcome."""

    result: _Result | None = None
    error: _Error | None = None


_decode_reply: Final = msgspec.json.Decoder(_Reply).decode


class RequestOutcome(msgspec.Struct, frozen=True):
    """The outcome of one request."""

    label: str
    """`ok`, `refused` (by a tool), `cancelled`, or the error code."""
    code: int | None = None
    """The error code; None if there is no error."""
    retry_seconds: int | None = None
    """When to send the request again, if the server could not serve it now."""


CANCELLED: Final = RequestOutcome("cancelled", RequestCancelled.code)
_OK: Final = RequestOutcome("ok")
_REFUSED: Final = RequestOutcome("refused")
_decode_data: Final = msgspec.json.Decoder(_Data | None).decode
_decode_tool_error: Final = msgspec.json.Decoder(_ToolError).decode


def outcome_of(reply: bytes) -> RequestOutcome:
    """The outcome of a request, by its reply."""
    parts = _decode_reply(reply)
    if parts.error is not None:
        code = parts.error.code
        if code == RequestCancelled.code:
            return CANCELLED
        data = _decode_data(parts.error.data) if code == StorageError.code else None
        return RequestOutcome(str(code), code, data.retry_after_seconds if data is not None else None)
    if parts.result is None or not parts.result.is_error:
        return _OK
    try:
        data = _decode_tool_error(parts.result.structured_content).data
    except msgspec.ValidationError:  # not an error of ours
        return _REFUSED
    retry_seconds = data.retry_after_seconds if data is not None else None
    return _REFUSED if retry_seconds is None else RequestOutcome("refused", retry_seconds=retry_seconds)


class _Latency:
    """The latency histogram of one method."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0


class Metrics:
    """The counters of one server."""

    def __init__(self, collectors: Sequence[Callable[[], Iterable[MetricFamily]]] = ()) -> None:
        self.collectors = list(collectors)
        self._requests: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._latencies: defaultdict[str, _Latency] = defaultdict(_Latency)
        self._refusals: defaultdict[str, int] = defaultdict(int)
        self._failures = {"mcp": 0, "http": 0}

    def count(self, method: str, outcome: RequestOutcome, begun_at: float) -> None:
        """Count a request by method and outcome; `begun_at`: when it arrived, by `time.perf_counter`."""
        name = method if method in METHODS else "other"  # clients must not create new labels
        self._requests[name, outcome.label] += 1
        if outcome.code == InternalError.code:
            self.fail("mcp")
        if name != "subscriptions/listen":  # it lasts as long as the client likes
            seconds = time.perf_counter() - begun_at
            latency = self._latencies[name]
            latency.counts[bisect.bisect_left(BOUNDS, seconds)] += 1
            latency.sum += seconds

    def refuse(self, reason: str) -> None:
        """Count a request that was refused before it was handled. `reason` must be one of a few words."""
        self._refusals[reason] += 1

    def fail(self, where: str) -> None:
        """Count a fault of the server: a JSON-RPC internal error (`mcp`), or an HTTP response 500 (`http`)."""
        self._failures[where] += 1

    def text(self) -> str:
        """All metrics as OpenMetrics text."""
        lines: list[str] = []
        for family in self._families():
            name = f"workflowlookup_{family.name}"
            lines += [f"# TYPE {name} {family.kind}", f"# HELP {name} {_escaped(family.help_text)}"]
            suffix = "_total" if family.kind == "counter" else ""
            lines += [f"{name}{suffix}{_labels(labels)} {_number(value)}" for labels, value in family.samples]
        lines += self._histogram()
        return "\n".join([*lines, "# EOF", ""])

    def _families(self) -> Iterator[MetricFamily]:
        requests = (({"method": method, "outcome": label}, count) for (method, label), count in self._requests.items())
        yield MetricFamily("requests", "counter", "MCP requests, by method and outcome.", requests)
        refusals = (({"reason": reason}, count) for reason, count in self._refusals.items())
        yield MetricFamily("refusals", "counter", "HTTP requests that were refused, by reason.", refusals)
        failures = (({"where": where}, count) for where, count in self._failures.items())
        yield MetricFamily("failures", "counter", "Requests that failed because of an internal error.", failures)
        for collect in self.collectors:
            yield from collect()

    def _histogram(self) -> Iterator[str]:
        name = "workflowlookup_request_seconds"
        yield f"# TYPE {name} histogram"
        yield f"# UNIT {name} seconds"
        yield f"# HELP {name} How long MCP requests took."
        for method, latency in self._latencies.items():
            total = 0
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), latency.counts, strict=True):
                total += count
                yield f"{name}_bucket{_labels({'method': method, 'le': bound})} {total}"
            yield f"{name}_count{_labels({'method': method})} {total}"
            yield f"{name}_sum{_labels({'method': method})} {_number(latency.sum)}"


def _labels(labels: Mapping[str, str]) -> str:
    joined = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{joined}}}" if joined else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(round(value, 9))


class RunMetrics:
    """Collects metrics of the providers, the journal and its runs."""

    def __init__(self, backend: "Backend", find_fault: Callable[[], str]) -> None:
        """`find_fault` returns why the journal cannot be read now; empty if it can."""
        self._backend = backend
        self._find_fault = find_fault
        self._counts: ExpiringCache[None, dict[str, int]] = ExpiringCache(COUNTS_SECONDS, 1)

    def families(self) -> Iterable[MetricFamily]:
        up = [({"provider": name}, float(is_up)) for name, is_up in sorted(_providers(self._backend).items())]
        if up:
            yield MetricFamily("provider_up", "gauge", "Whether a provider of workflows answers.", up)
        counts = self._count_runs()
        is_up = counts is not None
        yield MetricFamily("journal_up", "gauge", "Whether the journal of runs can be read.", [({}, is_up)])
        if counts is not None:
            by_state = [({"state": str(state)}, float(count)) for state, count in sorted(counts.items())]
            yield MetricFamily("runs", "gauge", "Runs by their state.", by_state)
            yield MetricFamily("queue_length", "gauge", "Runs that wait for a slot.", [({}, counts.get("queued", 0))])

    def _count_runs(self) -> dict[str, int] | None:
        """The number of runs by state; None if the journal cannot be read."""
        if self._find_fault():
            return None
        try:
            with self._counts.entry(None, WAIT_SECONDS) as entry:
                if entry.value is None:
                    entry.value = self._backend.services.runs.counts()
                return entry.value
        except (WorkflowLookupError, Busy):
            return None


def _providers(backend: "Backend") -> Mapping[str, bool]:
    """Whether each provider answered when it was last polled; without those that were never polled."""
    workflows = backend.services.workflows
    if workflows is None:
        return {}
    return {
        name: not discovered.is_away
        for name, discovered in workflows.discovered().items()
        if discovered.is_listed or discovered.is_away
    }
