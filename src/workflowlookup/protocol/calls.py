"""A request with what its era says about it, and the forms that results and refusals take on the wire."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup import __version__
from workflowlookup.core.values import Json
from workflowlookup.errors import (
    InternalError,
    InvalidParams,
    InvalidWorkflow,
    ResourceNotFound,
    UnsupportedEnvelopeVersion,
    WorkflowLookupError,
)
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.jsonrpc import Request
from workflowlookup.protocol.versions import (
    ENVELOPE_VERSIONS,
    META_CAPABILITIES,
    META_SERVER_INFO,
    META_TIMEOUT,
    META_VERSION,
    Rules,
)

if TYPE_CHECKING:
    from workflowlookup.protocol.asking import Answer

log = logging.getLogger(__name__)

SERVER_INFO: Final[Mapping[str, Json]] = {
    "name": "workflowlookup",
    "version": __version__,
    "description": "Workflow Orchestration System MCP Server",
}
LIST_TTL_MS: Final = 0
"""How long a client may keep a list: not at all, the library can change at any time."""
MOST_NAME: Final = 200
"""How much of a client's name is kept."""
MOST_TIMEOUT: Final = 31_536_000
"""A year, in seconds."""


PENDING: Final = object()
"""In place of a result: it comes later, or never."""


class Call(msgspec.Struct):
    """A request with what its era says about it."""

    id: bytes
    method: str
    params: Any
    size: int
    rules: Rules
    meta: Mapping[str, Json] | None
    """Of a request with an envelope: what it says about its client."""
    answers: "Mapping[str, Answer]" = {}
    """What a person answered to the questions that this call led to."""
    timeout: float | None = None
    """How many seconds the client gives a run that the call starts."""

    def answered(self, key: str, answer: "Answer") -> "Call":
        """The same call, with one answer more."""
        return msgspec.structs.replace(self, answers={**self.answers, key: answer})

    def object_params(self) -> dict[str, Json]:
        if isinstance(self.params, list):
            raise InvalidParams("params must be an object")
        return self.params or {}

    def text(self, name: str) -> str:
        """A parameter that must be there, as text."""
        value = self.object_params().get(name)
        if value is None:
            raise InvalidParams(f"{name} is required")
        if not isinstance(value, str):
            raise InvalidParams(f"{name} must be text ('string')")
        return value

    def optional(self, name: str, kind: type, words: str) -> Any:
        value = self.object_params().get(name)
        if value is not None and not isinstance(value, kind):
            raise InvalidParams(f"{name} must be {words}")
        return value


_PROTOCOL_CODES: Final = frozenset({-32021, -32022, -32603})
"""Refusals that are about the protocol, not about the tool: never a tool's result."""


def without_questions(capabilities: Mapping[str, Json]) -> Mapping[str, Json]:
    """What a client can do where its person cannot be asked."""
    return {name: value for name, value in capabilities.items() if name != "elicitation"}


def name_of(client_info: Json) -> str:
    """What a client calls itself, as far as it says so."""
    name = client_info.get("name") if isinstance(client_info, dict) else None
    return name[:MOST_NAME] if isinstance(name, str) else ""


def check_envelope(meta: Mapping[str, Json]) -> None:
    """Refuse an envelope that is not complete, or of a version that is not served."""
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


def timeout_in(meta: Mapping[str, Json]) -> float:
    """How long the client gives what it calls."""
    seconds = meta[META_TIMEOUT]
    if type(seconds) not in (int, float) or not 0 < seconds <= MOST_TIMEOUT:
        raise InvalidParams(f"_meta['{META_TIMEOUT}'] must be a number of seconds, more than 0, up to {MOST_TIMEOUT:,}")
    return float(seconds)


def refuse_cursor(call: Call) -> None:
    """Lists that come whole have given no cursor to go on from."""
    if call.optional("cursor", str, "text") is not None:
        raise InvalidParams("cursor is not one that this server gave: the list comes in one page")


def cacheable(result: Mapping[str, Json]) -> dict[str, Json]:
    return {**result, "ttlMs": LIST_TTL_MS, "cacheScope": "private"}


def cacheable_in(call: Call, result: Mapping[str, Json]) -> Mapping[str, Json]:
    return cacheable(result) if call.rules.envelope else result


def in_envelope(result: Mapping[str, Json] | msgspec.Raw) -> dict[str, Json]:
    fields = msgspec.json.decode(result, type=dict[str, msgspec.Raw]) if isinstance(result, msgspec.Raw) else result
    return {"resultType": "complete", **fields, "_meta": {META_SERVER_INFO: SERVER_INFO}}


def comes_as_result(error: WorkflowLookupError, rules: Rules) -> bool:
    """Whether what a tool refused is a result for the model to read, or an error of the protocol."""
    if isinstance(error, InvalidParams):
        return rules.misfits_as_results
    return rules.errors_as_results and error.code not in _PROTOCOL_CODES


def tool_result(result: Mapping[str, Json] | msgspec.Raw) -> dict[str, Json]:
    """What a tool gave, as the result of `tools/call`."""
    encoded = bytes(result) if isinstance(result, msgspec.Raw) else msgspec.json.encode(result)
    return {"content": [{"type": "text", "text": encoded.decode()}], "structuredContent": msgspec.Raw(encoded)}


def refusal(error: WorkflowLookupError) -> dict[str, Json]:
    """What a tool refused, as a result that a model reads."""
    return {
        "content": [{"type": "text", "text": error.explain()}],
        "structuredContent": {"code": error.code, "message": error.message, "data": error.data},
        "isError": True,
    }


def failure(request_id: bytes, error: WorkflowLookupError, rules: Rules) -> bytes:
    """A refusal on the wire; in the envelope era -32002 is forbidden and travels inside -32602."""
    if rules.envelope and isinstance(error, ResourceNotFound):
        return jsonrpc.failure(request_id, error, code=InvalidParams.code)
    if rules.envelope and isinstance(error, InvalidWorkflow):
        data = {"code": error.code, **error.data}
        return jsonrpc.failure(request_id, error, code=InvalidParams.code, data=data)
    return jsonrpc.failure(request_id, error)


def refuse(call: Call, problem: Exception) -> bytes:
    """What went wrong with a call that waited, in the form in which its tool refuses."""
    if (
        isinstance(problem, WorkflowLookupError)
        and call.method == "tools/call"
        and comes_as_result(problem, call.rules)
    ):
        told = refusal(problem)
        return jsonrpc.success(call.id, in_envelope(told) if call.rules.envelope else told)
    return explain(call, problem, call.rules)


def explain(request: Request | Call, problem: Exception, rules: Rules) -> bytes:
    """What went wrong, as the reply to a request."""
    if isinstance(problem, WorkflowLookupError):
        return failure(request.id, problem, rules)
    if isinstance(problem, RecursionError):  # what msgspec decodes may still be too deep to work with
        log.info("%s was nested too deeply", request.method, exc_info=problem)
        return failure(request.id, InvalidParams("params are nested too deeply"), rules)
    log.error("%s failed", request.method, exc_info=problem)
    return jsonrpc.failure(request.id, InternalError())
