"""Requests and replies in the form of each era.

A `Call` is a request with what its era adds (version, capabilities, timeout), checked before any method is called.
Results and exceptions become replies here.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup import __version__
from workflowlookup.errors import (
    InternalError,
    InvalidParams,
    InvalidWorkflow,
    ResourceNotFound,
    UnsupportedEnvelopeVersion,
    WorkflowLookupError,
    is_out_of_descriptors,
    out_of_descriptors,
)
from workflowlookup.language.values import MAX_TIMEOUT_SECONDS, Json
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.jsonrpc import Request
from workflowlookup.protocol.versions import (
    ENVELOPE_VERSIONS,
    META_CAPABILITIES,
    META_SERVER_INFO,
    META_TIMEOUT,
    META_VERSION,
    VERSION_RULES,
    Rules,
)

if TYPE_CHECKING:
    from workflowlookup.protocol.questions import Answer

MAX_RESULT_CHARACTERS: Final = 30_000
"""Of a longer result, an answer has the first part. The smallest limit of a client is about 10,000 tokens."""
MAX_RUN_ID: Final = 2_000
"""The longest run id that is looked up."""


class Call(msgspec.Struct):
    """A request with what its era adds."""

    id: bytes
    method: str
    params: Any
    size: int
    rules: Rules
    meta: Mapping[str, Json] | None
    """The envelope, with the capabilities of the client; None in the handshake era."""
    answers: "Mapping[str, Answer]" = {}
    """The answers of a person to the questions of this call, by the key of the question."""
    timeout: float | None = None
    """The client's limit, in seconds, for a run that the call starts."""
    report: str | WorkflowLookupError | None = None
    """As in `Request`."""

    def with_answer(self, key: str, answer: "Answer") -> "Call":
        """The same call with another answer."""
        return msgspec.structs.replace(self, answers={**self.answers, key: answer})

    def object_params(self) -> dict[str, Json]:
        if isinstance(self.params, list):
            raise InvalidParams("params must be an object")
        return self.params or {}

    def text(self, name: str) -> str:
        """A required parameter of type string."""
        value = self.object_params().get(name)
        if value is None:
            raise InvalidParams(f"{name} is required")
        if not isinstance(value, str):
            raise InvalidParams(f"{name} must be text ('string')")
        return value

    def optional(self, name: str, kind: type, description: str) -> Any:
        value = self.object_params().get(name)
        if value is not None and not isinstance(value, kind):
            raise InvalidParams(f"{name} must be {description}")
        return value

    def wants_task(self) -> bool:
        """Whether the client wants the call as a task. Its `ttl` is checked and ignored: tasks are stored for ever."""
        task = self.optional("task", dict, "an object")
        if task and type(task.get("ttl")) not in (int, float, type(None)):
            raise InvalidParams("task.ttl must be a number of milliseconds")
        return task is not None


def to_call(request: Request, rules: Rules) -> Call:
    """The request as a call, with the rules of its envelope; without one, with `rules`.

    Raises `InvalidParams` or `UnsupportedEnvelopeVersion` if `_meta` is not valid.
    """
    params = request.params
    meta = params.get("_meta") if type(params) is dict else None
    if meta is None:
        return Call(request.id, request.method, params, request.size, rules, None, report=request.report)
    if not isinstance(meta, dict):
        raise InvalidParams("_meta must be an object")
    token = meta.get("progressToken")
    if token is not None and type(token) not in (str, int):
        raise InvalidParams("_meta.progressToken must be text or a whole number")
    timeout = _timeout_in(meta) if META_TIMEOUT in meta else None
    if META_VERSION not in meta:
        return Call(request.id, request.method, params, request.size, rules, None, {}, timeout, request.report)
    _check_envelope(meta)
    return Call(
        request.id,
        request.method,
        params,
        request.size,
        VERSION_RULES[meta[META_VERSION]],
        meta,
        {},
        timeout,
        request.report,
    )


def _check_envelope(meta: Mapping[str, Json]) -> None:
    """Raises for an envelope that is incomplete or of an unsupported version."""
    version = meta[META_VERSION]
    if not isinstance(version, str):
        raise InvalidParams(f"_meta['{META_VERSION}'] must be text ('string')")
    if version not in ENVELOPE_VERSIONS:
        raise UnsupportedEnvelopeVersion(
            f"Send requests of version {', '.join(ENVELOPE_VERSIONS)}, or initialize for an earlier one.",
            supported=list(ENVELOPE_VERSIONS),
            requested=version,
        )
    if not isinstance(meta.get(META_CAPABILITIES), dict):
        raise InvalidParams(f"_meta['{META_CAPABILITIES}'] is required, as an object")


def _timeout_in(meta: Mapping[str, Json]) -> float:
    """The client's limit for a run that the call starts."""
    seconds = meta[META_TIMEOUT]
    if type(seconds) not in (int, float) or not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        raise InvalidParams(
            f"_meta['{META_TIMEOUT}'] must be a number of seconds, more than 0, up to {MAX_TIMEOUT_SECONDS:,}"
        )
    return float(seconds)


def refuse_cursor(call: Call) -> None:
    """Raises `InvalidParams` for a cursor to a list that has only one page."""
    if call.optional("cursor", str, "text") is not None:
        raise InvalidParams("cursor is not one that this server gave: the list comes in one page")


def run_id_in(request: Request) -> str:
    """The id of the run that a request names, whatever its method; empty if it names none."""
    params = request.params if isinstance(request.params, dict) else {}
    arguments = params.get("arguments") if request.method == "tools/call" else params
    run_id = (arguments.get("runId") if isinstance(arguments, dict) else None) or params.get("taskId")
    if not run_id and isinstance(uri := params.get("uri"), str):
        from workflowlookup.tools.resources import run_named_by  # noqa: PLC0415 - with the core, when first asked for

        run_id = run_named_by(uri)
    return run_id if isinstance(run_id, str) and len(run_id) <= MAX_RUN_ID else ""


log = logging.getLogger(__name__)

SERVER_INFO: Final[Mapping[str, Json]] = {
    "name": "workflowlookup",
    "version": __version__,
    "description": "Workflow Orchestration System MCP Server",
}
LIST_TTL_MS: Final = 0
"""How long a client may cache a list: not at all, because the library can change at any time."""
PENDING: Final = object()
"""In place of a result that comes later, or never."""
_PROTOCOL_CODES: Final = frozenset({-32021, -32022, -32603})
"""Errors about the protocol, not about the tool: never a tool's result."""


# ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────


def cacheable(result: Mapping[str, Json]) -> dict[str, Json]:
    return {**result, "ttlMs": LIST_TTL_MS, "cacheScope": "private"}


def cacheable_in(call: Call, result: Mapping[str, Json]) -> Mapping[str, Json]:
    return cacheable(result) if call.rules.envelope else result


def success(call: Call, result: Json) -> bytes:
    """The reply to a call that succeeded."""
    return jsonrpc.success(call.id, in_envelope(result) if call.rules.envelope else result)


def in_envelope(result: Mapping[str, Json] | msgspec.Raw) -> dict[str, Json]:
    fields = msgspec.json.decode(result, type=dict[str, msgspec.Raw]) if isinstance(result, msgspec.Raw) else result
    return {"resultType": "complete", **fields, "_meta": {META_SERVER_INFO: SERVER_INFO}}


def tool_result(
    result: Mapping[str, Json] | msgspec.Raw,
    tool: str = "",
    arguments: Mapping[str, Json] | None = None,
    *,
    has_links: bool = False,
) -> dict[str, Json]:
    """The result of a tool as the result of `tools/call`.

    Of a long one the first part, and a resource with all of it; `has_links`: the content may link to resources.
    """
    encoded = bytes(result) if isinstance(result, msgspec.Raw) else msgspec.json.encode(result)
    text = encoded.decode()
    links: list[Json] = []
    if len(text) > MAX_RESULT_CHARACTERS:
        from workflowlookup.tools.long_results import first_part, link_to, uri_of  # noqa: PLC0415 - seldom needed

        whole = msgspec.json.decode(encoded)
        uri = uri_of(tool, arguments or {}, whole)
        if uri is not None:
            links = [link_to(uri, len(text))] if uri and has_links else []
            encoded = msgspec.json.encode(first_part(whole, len(text), uri))
            text = encoded.decode()
    return {"content": [{"type": "text", "text": text}, *links], "structuredContent": msgspec.Raw(encoded)}


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────


def is_sent_as_result(error: WorkflowLookupError, rules: Rules) -> bool:
    """Whether an error of a tool is sent as a result, which the model reads; else it is a JSON-RPC error."""
    if isinstance(error, InvalidParams):
        return rules.misfits_as_results
    return rules.errors_as_results and error.code not in _PROTOCOL_CODES


def error_result(error: WorkflowLookupError) -> dict[str, Json]:
    """An error of a tool as a result, which the model reads."""
    return {
        "content": [{"type": "text", "text": error.explain()}],
        "structuredContent": {"code": error.code, "message": error.message, "data": error.data},
        "isError": True,
    }


def _failure(request_id: bytes, error: WorkflowLookupError, rules: Rules) -> bytes:
    """An error reply. In the envelope era -32002 is forbidden and is sent as -32602 with the code in `data`."""
    if rules.envelope and isinstance(error, ResourceNotFound):
        return jsonrpc.failure(request_id, error, code=InvalidParams.code)
    if rules.envelope and isinstance(error, InvalidWorkflow):
        data = {"code": error.code, **error.data}
        return jsonrpc.failure(request_id, error, code=InvalidParams.code, data=data)
    return jsonrpc.failure(request_id, error)


def refuse(call: Call, problem: Exception) -> bytes:
    """The error reply to a pending call, in the same form as that of a call that fails at once."""
    if (
        isinstance(problem, WorkflowLookupError)
        and call.method == "tools/call"
        and is_sent_as_result(problem, call.rules)
    ):
        return success(call, error_result(problem))
    return explain(call, problem, call.rules)


def explain(request: Request | Call, problem: Exception, rules: Rules) -> bytes:
    """The error reply to a request."""
    if isinstance(problem, WorkflowLookupError):
        return _failure(request.id, problem, rules)
    if isinstance(problem, RecursionError):  # msgspec decodes deeper nesting than we can handle
        log.info("%s was nested too deeply", request.method, exc_info=problem)
        return _failure(request.id, InvalidParams("params are nested too deeply"), rules)
    if is_out_of_descriptors(problem):
        log.warning("%s failed: no file descriptor is left", request.method)
        return _failure(request.id, out_of_descriptors(), rules)
    log.error("%s failed", request.method, exc_info=problem)
    return jsonrpc.failure(request.id, InternalError())
