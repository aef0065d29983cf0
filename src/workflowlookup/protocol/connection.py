"""One connection: from a line to its reply, in both eras of MCP.

The lifecycle gate, the method tables and the place where exceptions become replies are here; what the methods *do* is
in `tools`. A connection is synchronous: lookups are answered in the order asked, before the next line is read. What
waits (a subscription, a call whose tool asked a person) is remembered and leaves the read loop free. Messages that the
server starts leave by `outbox`.
"""

import functools
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from workflowlookup import __version__
from workflowlookup.core.values import Json
from workflowlookup.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    InvalidWorkflow,
    MethodNotFound,
    MissingClientCapability,
    NotInitialized,
    ResourceNotFound,
    UnsupportedEnvelopeVersion,
    UnsupportedProtocolVersion,
    WorkflowLookupError,
)
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.jsonrpc import Batch, Malformed, Message, Notification, Request, Response
from workflowlookup.protocol.versions import (
    EARLIEST,
    ENVELOPE,
    ENVELOPE_VERSIONS,
    HANDSHAKE_VERSIONS,
    META_CAPABILITIES,
    META_CLIENT_INFO,
    META_SERVER_INFO,
    META_SUBSCRIPTION,
    META_VERSION,
    RULES,
    Rules,
)

if TYPE_CHECKING:
    from workflowlookup.protocol.asking import Answer, Questions
    from workflowlookup.protocol.subscriptions import Listener, Subscriptions, Watch
    from workflowlookup.tools.registry import Ask, Caller, Registry, Services

log = logging.getLogger(__name__)

SERVER_INFO: Final[Mapping[str, Json]] = {
    "name": "workflowlookup",
    "version": __version__,
    "description": "Workflow Orchestration System MCP Server",
}
CAPABILITIES: Final[Mapping[str, Json]] = {
    "tools": {"listChanged": False, "notifyProgress": False},
    "resources": {"subscribe": True, "listChanged": False},
    "prompts": {"listChanged": False},
    "completions": {},
}
INSTRUCTIONS: Final = (
    "Workflows lead you through a task one step at a time. Find one with workflow_list, look at it with workflow_get, "
    "and begin it with workflow_start: do exactly the step it gives, hand in your output with workflow_submit, and "
    "repeat until the run is complete; every answer says in next what to do. Runs are kept: workflow_runs and "
    "workflow_status find them again. To follow a workflow without keeping a run, call workflow_next with the ids of "
    "the steps you completed and the context variables you know, check your output with workflow_validate, and repeat "
    "until isComplete is true. Do not skip steps."
)
LIST_TTL_MS: Final = 0
"""How long a client may keep a list: not at all, the library can change at any time."""
MOST_NAME: Final = 200
"""How much of a client's name is kept."""


class Surface:
    """What the connection calls: the tools and the library behind them, imported when first asked for."""

    def __init__(self, make_services: "Callable[[], Services]") -> None:
        self._make_services = make_services

    @functools.cached_property
    def services(self) -> "Services":
        return self._make_services()

    @functools.cached_property
    def registry(self) -> "Registry":
        from workflowlookup.tools import BUILTIN_TOOLS  # noqa: PLC0415 - `initialize` must not wait for the core
        from workflowlookup.tools.registry import Registry  # noqa: PLC0415

        return Registry(BUILTIN_TOOLS, self.services)

    @functools.cached_property
    def make_caller(self) -> "type[Caller]":
        from workflowlookup.tools.registry import Caller  # noqa: PLC0415

        return Caller

    @functools.cached_property
    def ask_type(self) -> "type[Ask]":
        from workflowlookup.tools.registry import Ask  # noqa: PLC0415

        return Ask

    def watch(self, listener: "Listener") -> "Watch":
        """Follow the runs, until closed."""
        return self.services.runs.watch(listener)


class _Call(msgspec.Struct):
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

    def answered(self, key: str, answer: "Answer") -> "_Call":
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


_PENDING: Final = object()
_Method = Callable[["Connection", _Call], Json]


class Connection:
    """The state of one client's connection: its version, its subscriptions, and whether it is over."""

    def __init__(self, surface: Surface) -> None:
        self.outbox: list[bytes] = []
        self.is_finished = False
        self._surface = surface
        self._rules: Rules | None = None
        self._client: tuple[Mapping[str, Json], str] = ({}, "")
        self._caller: Caller | None = None
        self._questions: Questions[_Call] | None = None
        self._subscriptions: Subscriptions | None = None

    # ── from a line to a reply ──────────────────────────────────────────────────────────────────────────────────

    def handle(self, line: bytes) -> bytes | None:
        """Answer one message: its reply, or None when there is nothing to say (yet)."""
        message = jsonrpc.decode(line)
        return self._answer_request(message) if type(message) is Request else self.answer(message)

    def answer(self, message: Message) -> bytes | None:
        if isinstance(message, Request):
            return self._answer_request(message)
        if isinstance(message, Malformed):
            return jsonrpc.failure(message.id, message.problem)
        if isinstance(message, Batch):
            return self._answer_batch(message)
        if isinstance(message, Response):
            return self._hear(message)
        self._notice(message)
        return None

    def _answer_batch(self, batch: Batch) -> bytes | None:
        if self._rules is None or not self._rules.batches:
            problem = "batches are answered at 2024-11-05 and 2025-03-26 only; send each message on a line of its own"
            return jsonrpc.failure(jsonrpc.NULL_ID, InvalidRequest(problem, details=problem))
        replies = [reply for message in batch.messages if (reply := self._answer_element(message)) is not None]
        return b"[%b]" % b",".join(replies) if replies else None

    def _answer_element(self, message: Message) -> bytes | None:
        if isinstance(message, Request) and message.method in ("initialize", "shutdown"):
            problem = f"{message.method} must not be part of a batch"
            return jsonrpc.failure(message.id, InvalidRequest(problem, details=problem))
        return self.answer(message)

    def _answer_request(self, request: Request | _Call) -> bytes | None:
        rules = self._rules or EARLIEST
        try:
            call = self._enter(request) if isinstance(request, Request) else request
            rules = call.rules
            result = self._dispatch(call)
            if result is _PENDING:
                return None
            return jsonrpc.success(request.id, _in_envelope(result) if rules.envelope else result)
        except WorkflowLookupError as error:
            return _failure(request.id, error, rules)
        except RecursionError:  # what msgspec decodes may still be too deep to work with
            log.info("%s was nested too deeply", request.method, exc_info=True)
            return _failure(request.id, InvalidParams("params are nested too deeply"), rules)
        except Exception:  # broad on purpose: details go to the log, not to the wire
            log.exception("%s failed", request.method)
            return jsonrpc.failure(request.id, InternalError())

    def _enter(self, request: Request) -> _Call:
        """Find the era of a request, and refuse what its era does not allow."""
        params = request.params
        meta = params.get("_meta") if type(params) is dict else None
        if meta is not None:
            if not isinstance(meta, dict):
                raise InvalidParams("_meta must be an object")
            token = meta.get("progressToken")
            if token is not None and type(token) not in (str, int):
                raise InvalidParams("_meta.progressToken must be text or a whole number")
            if META_VERSION in meta:
                _check_envelope(meta)
                return _Call(request.id, request.method, params, request.size, ENVELOPE, meta)
        return _Call(request.id, request.method, params, request.size, self._rules or EARLIEST, None)

    def _dispatch(self, call: _Call) -> Json:
        method = (self._ENVELOPE if call.rules.envelope else self._HANDSHAKE).get(call.method)
        if method is None:
            return self._call_directly(call)
        if not call.rules.envelope and call.method not in _ALWAYS_ANSWERED:
            self._require_handshake()
        return method(self, call)

    def _require_handshake(self) -> None:
        if self._rules is None:
            raise NotInitialized(
                "Send initialize first.", details="Send initialize first", supportedVersions=list(HANDSHAKE_VERSIONS)
            )

    # ── lifecycle ───────────────────────────────────────────────────────────────────────────────────────────────

    def _initialize(self, call: _Call) -> Json:
        requested = call.text("protocolVersion")
        capabilities = call.optional("capabilities", dict, "an object")
        if capabilities is None:
            raise InvalidParams("capabilities is required")
        client_info = call.optional("clientInfo", dict, "an object")
        if requested not in HANDSHAKE_VERSIONS:
            raise UnsupportedProtocolVersion(
                f"Try again with one of {', '.join(HANDSHAKE_VERSIONS)}.",
                supportedVersions=list(HANDSHAKE_VERSIONS),
                requestedVersion=requested,
            )
        self._rules = RULES[requested]
        self._client, self._caller = (capabilities, _name(client_info)), None
        return {
            "protocolVersion": requested,
            "capabilities": CAPABILITIES,
            "serverInfo": SERVER_INFO,
            "instructions": INSTRUCTIONS,
        }

    def _discover(self, _: _Call) -> Json:
        return _cacheable(
            {"supportedVersions": list(ENVELOPE_VERSIONS), "capabilities": CAPABILITIES, "instructions": INSTRUCTIONS}
        )

    def _discover_without_envelope(self, call: _Call) -> Json:
        return _in_envelope(self._discover(call))

    def _ping(self, _: _Call) -> Json:
        return {}

    def _shutdown(self, _: _Call) -> Json:
        self.close()
        self.is_finished = True
        return None

    def close(self) -> None:
        """End every subscription with its result and forget open questions; called before the connection goes."""
        if self._questions is not None:
            self._questions.drop()
        if self._subscriptions is not None:
            for request_id, key in self._subscriptions.end():
                result = {"resultType": "complete", "_meta": {META_SERVER_INFO: SERVER_INFO, META_SUBSCRIPTION: key}}
                self.outbox.append(jsonrpc.success(request_id, result))

    def _notice(self, message: Notification) -> None:
        if message.method == "notifications/cancelled" and isinstance(message.params, dict):
            cancelled = message.params.get("requestId")
            if self._questions is not None:
                self._questions.withdraw(lambda call: jsonrpc.same_id(msgspec.json.decode(call.id), cancelled))
            if self._subscriptions is not None:
                self._subscriptions.cancel(cancelled)

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_watching(self) -> bool:
        """Whether somebody wants to hear of changes, so that `look` should be called every now and then."""
        return self._subscriptions is not None and self._subscriptions.is_watching

    def look(self) -> None:
        """Put what other processes changed into the outbox."""
        if self._subscriptions is not None:
            self._subscriptions.look()

    def _open_subscriptions(self) -> "Subscriptions":
        if self._subscriptions is None:
            from workflowlookup.protocol.subscriptions import Subscriptions  # noqa: PLC0415 - seldom needed

            self._subscriptions = Subscriptions(self.outbox, self._surface.watch)
        return self._subscriptions

    def _listen(self, call: _Call) -> Json:
        """Hold the request open; the acknowledgement is the first frame of its stream."""
        wanted = call.optional("notifications", dict, "an object")
        if wanted is None:
            raise InvalidParams("notifications is required")
        self._open_subscriptions().listen(call.id, wanted)
        return _PENDING

    def _subscribe(self, call: _Call) -> Json:
        self._open_subscriptions().subscribe(call.text("uri"))
        return {}

    def _unsubscribe(self, call: _Call) -> Json:
        self._open_subscriptions().unsubscribe(call.text("uri"))
        return {}

    # ── tools ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _list_tools(self, call: _Call) -> Json:
        _refuse_cursor(call)
        return _cacheable_in(call, {"tools": self._surface.registry.listed()})

    def _call_tool(self, call: _Call) -> Json:
        registry = self._surface.registry
        name = call.text("name")
        tool = registry.tools.get(name)
        if tool is None:
            raise registry.unknown(name)
        arguments = call.optional("arguments", dict, "an object")
        try:
            result = registry.call(tool, arguments, self._caller_of(call), call.size)
        except WorkflowLookupError as error:
            if _comes_as_result(error, call.rules):
                return _refusal(error)
            raise
        if type(result) is self._surface.ask_type:
            return self._ask(call, result)
        encoded = bytes(result) if isinstance(result, msgspec.Raw) else msgspec.json.encode(result)
        return {"content": [{"type": "text", "text": encoded.decode()}], "structuredContent": msgspec.Raw(encoded)}

    def _call_directly(self, call: _Call) -> Json:
        """A tool called by its own name as the method: the same handler, the same answer, the spec's own errors."""
        registry = self._surface.registry
        tool = registry.tools.get(call.method)
        if tool is None:
            raise MethodNotFound("Call tools/list to see the tools.", method=call.method)
        if not call.rules.envelope:
            self._require_handshake()
        params = call.params
        if isinstance(params, dict) and "_meta" in params:
            params = {name: value for name, value in params.items() if name != "_meta"}
        result = registry.call(tool, params, self._caller_of(call), call.size)
        return self._ask(call, result) if type(result) is self._surface.ask_type else result

    def _caller_of(self, call: _Call) -> "Caller":
        """Who sent a request: told once by `initialize`, or by each request of the envelope era for itself."""
        if call.meta is not None:
            capabilities, name = call.meta[META_CAPABILITIES], _name(call.meta.get(META_CLIENT_INFO))
            if call.method != "tools/call":
                capabilities = _without_questions(capabilities)  # no other method may be answered with a question
            return self._surface.make_caller(capabilities=capabilities, name=name, answers=call.answers)
        if self._caller is None:
            capabilities, name = self._client
            if not call.rules.asks:
                capabilities = _without_questions(capabilities)
            self._caller = self._surface.make_caller(capabilities=capabilities, name=name)
        return msgspec.structs.replace(self._caller, answers=call.answers) if call.answers else self._caller

    # ── questions to a person ───────────────────────────────────────────────────────────────────────────────────

    def _ask(self, call: _Call, ask: "Ask") -> Json:
        """Put a tool's question to the person at the client; the call is done again when the answer is there."""
        from workflowlookup.protocol.asking import Questions, elicitation, given  # noqa: PLC0415 - seldom needed

        if ask.key in call.answers:
            raise RuntimeError(f"'{ask.key}' was asked again after it was answered")
        if not self._caller_of(call).can_be_asked:
            raise MissingClientCapability(
                "This call needs a client that shows its user forms (elicitation).",
                requiredCapabilities={"elicitation": {}},
            )
        if not call.rules.envelope:
            if self._questions is None:
                self._questions = Questions(self.outbox)
            self._questions.put(call, ask)
            return _PENDING
        answer = given(call.object_params().get("inputResponses"), ask)
        if answer is None:
            return {"resultType": "input_required", "inputRequests": {ask.key: elicitation(ask)}}
        return self._dispatch(call.answered(ask.key, answer))

    def _hear(self, response: Response) -> bytes | None:
        """Go on with the call that waited for this; a response to nothing that is open is passed over."""
        asked = self._questions.take(response) if self._questions is not None else None
        if asked is None:
            log.debug("a response to nothing: %s", response.id)
            return None
        from workflowlookup.protocol.asking import answer_in  # noqa: PLC0415

        call, ask = asked
        return self._answer_request(call.answered(ask.key, answer_in(response, ask)))

    # ── resources, prompts, completions ─────────────────────────────────────────────────────────────────────────

    def _list_resources(self, call: _Call) -> Json:
        from workflowlookup.tools.resources import list_resources  # noqa: PLC0415 - with the core, when first asked for

        call.optional("cursor", str, "text")
        return _cacheable_in(call, list_resources(self._surface.services, call.object_params()))

    def _list_templates(self, call: _Call) -> Json:
        from workflowlookup.tools.resources import list_templates  # noqa: PLC0415

        _refuse_cursor(call)
        return _cacheable_in(call, list_templates(self._surface.services, call.object_params()))

    def _read_resource(self, call: _Call) -> Json:
        from workflowlookup.tools.resources import read_resource  # noqa: PLC0415

        call.text("uri")
        return _cacheable_in(call, read_resource(self._surface.services, call.object_params()))

    def _list_prompts(self, call: _Call) -> Json:
        from workflowlookup.tools.prompts import list_prompts  # noqa: PLC0415

        call.optional("cursor", str, "text")
        return _cacheable_in(call, list_prompts(self._surface.services, call.object_params()))

    def _get_prompt(self, call: _Call) -> Json:
        from workflowlookup.tools.prompts import get_prompt  # noqa: PLC0415

        call.text("name")
        call.optional("arguments", dict, "an object")
        return get_prompt(self._surface.services, call.object_params())

    def _complete(self, call: _Call) -> Json:
        from workflowlookup.tools.completion import complete  # noqa: PLC0415

        for name in ("ref", "argument"):
            if call.optional(name, dict, "an object") is None:
                raise InvalidParams(f"{name} is required")
        return complete(self._surface.services, call.object_params())

    # ── which method is answered by what ────────────────────────────────────────────────────────────────────────

    _SHARED: ClassVar[Mapping[str, _Method]] = {
        "tools/list": _list_tools,
        "tools/call": _call_tool,
        "resources/list": _list_resources,
        "resources/templates/list": _list_templates,
        "resources/read": _read_resource,
        "prompts/list": _list_prompts,
        "prompts/get": _get_prompt,
        "completion/complete": _complete,
    }
    _HANDSHAKE: ClassVar[Mapping[str, _Method]] = {
        **_SHARED,
        "initialize": _initialize,
        "ping": _ping,
        "resources/subscribe": _subscribe,
        "resources/unsubscribe": _unsubscribe,
        "shutdown": _shutdown,
        "server/discover": _discover_without_envelope,
    }
    _ENVELOPE: ClassVar[Mapping[str, _Method]] = {
        **_SHARED,
        "server/discover": _discover,
        "subscriptions/listen": _listen,
    }


_ALWAYS_ANSWERED: Final = frozenset({"initialize", "ping", "shutdown", "server/discover"})
_PROTOCOL_CODES: Final = frozenset({-32021, -32022, -32603})
"""Refusals that are about the protocol, not about the tool: never a tool's result."""


def _without_questions(capabilities: Mapping[str, Json]) -> Mapping[str, Json]:
    """What a client can do where its person cannot be asked."""
    return {name: value for name, value in capabilities.items() if name != "elicitation"}


def _name(client_info: Json) -> str:
    """What a client calls itself, as far as it says so."""
    name = client_info.get("name") if isinstance(client_info, dict) else None
    return name[:MOST_NAME] if isinstance(name, str) else ""


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


def _refuse_cursor(call: _Call) -> None:
    """Lists that come whole have given no cursor to go on from."""
    if call.optional("cursor", str, "text") is not None:
        raise InvalidParams("cursor is not one that this server gave: the list comes in one page")


def _cacheable(result: Mapping[str, Json]) -> dict[str, Json]:
    return {**result, "ttlMs": LIST_TTL_MS, "cacheScope": "private"}


def _cacheable_in(call: _Call, result: Mapping[str, Json]) -> Mapping[str, Json]:
    return _cacheable(result) if call.rules.envelope else result


def _in_envelope(result: Mapping[str, Json] | msgspec.Raw) -> dict[str, Json]:
    fields = msgspec.json.decode(result, type=dict[str, msgspec.Raw]) if isinstance(result, msgspec.Raw) else result
    return {"resultType": "complete", **fields, "_meta": {META_SERVER_INFO: SERVER_INFO}}


def _comes_as_result(error: WorkflowLookupError, rules: Rules) -> bool:
    """Whether what a tool refused is a result for the model to read, or an error of the protocol."""
    if isinstance(error, InvalidParams):
        return rules.misfits_as_results
    return rules.errors_as_results and error.code not in _PROTOCOL_CODES


def _refusal(error: WorkflowLookupError) -> dict[str, Json]:
    """What a tool refused, as a result that a model reads."""
    return {
        "content": [{"type": "text", "text": error.explain()}],
        "structuredContent": {"code": error.code, "message": error.message, "data": error.data},
        "isError": True,
    }


def _failure(request_id: bytes, error: WorkflowLookupError, rules: Rules) -> bytes:
    """A refusal on the wire; in the envelope era -32002 is forbidden and travels inside -32602."""
    if rules.envelope and isinstance(error, ResourceNotFound):
        return jsonrpc.failure(request_id, error, code=InvalidParams.code)
    if rules.envelope and isinstance(error, InvalidWorkflow):
        data = {"code": error.code, **error.data}
        return jsonrpc.failure(request_id, error, code=InvalidParams.code, data=data)
    return jsonrpc.failure(request_id, error)
