"""A request with what its era says about it: how it is entered, and what is refused at the door."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.errors import InvalidParams, UnsupportedEnvelopeVersion, WorkflowLookupError
from workflowlookup.language.values import MAX_TIMEOUT_SECONDS, Json
from workflowlookup.protocol.jsonrpc import Request
from workflowlookup.protocol.versions import (
    ENVELOPE_VERSIONS,
    META_CAPABILITIES,
    META_TIMEOUT,
    META_VERSION,
    RULES,
    Rules,
)

if TYPE_CHECKING:
    from workflowlookup.protocol.questions import Answer

MAX_CAPABILITIES_BYTES: Final = 4_096
"""Of `capabilities` in `initialize`, which are kept as long as the connection."""
MAX_RUN_NAME: Final = 2_000
"""A run that is named by more, as in the address of a resource, is not looked for."""
MOST_NAME: Final = 200
"""How much of a client's name is kept."""


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
    report: str | WorkflowLookupError | None = None
    """As in `Request`."""

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

    def wants_task(self) -> bool:
        """Whether its client wants it as a task. How long that is kept is ours to say: for ever."""
        task = self.optional("task", dict, "an object")
        if task and type(task.get("ttl")) not in (int, float, type(None)):
            raise InvalidParams("task.ttl must be a number of milliseconds")
        return task is not None


def without_questions(capabilities: Mapping[str, Json]) -> Mapping[str, Json]:
    """What a client can do where its person cannot be asked."""
    return {name: value for name, value in capabilities.items() if name != "elicitation"}


def bounded_capabilities(capabilities: Mapping[str, Json]) -> Mapping[str, Json]:
    """What is kept of the capabilities in `initialize`: of long ones, only those that matter to us."""
    if len(msgspec.json.encode(capabilities)) <= MAX_CAPABILITIES_BYTES:
        return capabilities
    return {"elicitation": {}} if "elicitation" in capabilities else {}


def name_of(client_info: Json) -> str:
    """What a client calls itself, as far as it says so: on one line, and without characters that nobody sees."""
    name = client_info.get("name") if isinstance(client_info, dict) else None
    if not isinstance(name, str):
        return ""
    name = name[:MOST_NAME]
    if not (name.isascii() and name.isprintable()):
        from workflowlookup.language.text import visible  # noqa: PLC0415 - seldom needed

        name = visible(name)
    return " ".join(name.split())


def enter(request: Request, rules: Rules) -> Call:
    """The request as a call: by the rules of its envelope, or by those that were agreed on when it has none.

    Raises `InvalidParams` and `UnsupportedEnvelopeVersion` for what cannot be in `_meta`.
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
        request.id, request.method, params, request.size, RULES[meta[META_VERSION]], meta, {}, timeout, request.report
    )


def _check_envelope(meta: Mapping[str, Json]) -> None:
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


def _timeout_in(meta: Mapping[str, Json]) -> float:
    """How long the client gives what it calls."""
    seconds = meta[META_TIMEOUT]
    if type(seconds) not in (int, float) or not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        raise InvalidParams(
            f"_meta['{META_TIMEOUT}'] must be a number of seconds, more than 0, up to {MAX_TIMEOUT_SECONDS:,}"
        )
    return float(seconds)


def refuse_cursor(call: Call) -> None:
    """Lists that come whole have given no cursor to go on from."""
    if call.optional("cursor", str, "text") is not None:
        raise InvalidParams("cursor is not one that this server gave: the list comes in one page")


def run_named_in(request: Request) -> str:
    """The id of the run that a request is about, whatever its method; empty when it names none."""
    params = request.params if isinstance(request.params, dict) else {}
    arguments = params.get("arguments") if request.method == "tools/call" else params
    named = (arguments.get("runId") if isinstance(arguments, dict) else None) or params.get("taskId")
    if not named and isinstance(uri := params.get("uri"), str):
        from workflowlookup.tools.resources import RUN_SCHEME  # noqa: PLC0415 - with the core, when first asked for

        named = uri.removeprefix(RUN_SCHEME) if uri.startswith(RUN_SCHEME) else ""
    return named if isinstance(named, str) and len(named) <= MAX_RUN_NAME else ""
