"""One connection: from a line to its reply, in both eras of MCP.

The lifecycle gate, the method tables and the place where exceptions become replies are here; what the methods *do* is
in `tools`. A connection is synchronous: lookups are answered in the order asked, before the next line is read. What
waits (a subscription, a call whose tool asked a person) is remembered and leaves the read loop free. Messages that the
server starts leave by `outbox`.
"""

import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from workflowlookup.errors import (
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingClientCapability,
    NotInitialized,
    RequestCancelled,
    RunStateError,
    UnsupportedProtocolVersion,
    WorkflowLookupError,
)
from workflowlookup.language.values import Json
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.jsonrpc import Batch, Malformed, Message, Notification, Request, Response
from workflowlookup.protocol.memory import MemoryMeter
from workflowlookup.protocol.notifications import News
from workflowlookup.protocol.replies import (
    PENDING,
    SERVER_INFO,
    cacheable,
    cacheable_in,
    comes_as_result,
    explain,
    in_envelope,
    refusal,
    refuse,
    success,
    tool_result,
)
from workflowlookup.protocol.requests import (
    Call,
    bounded_capabilities,
    enter,
    name_of,
    refuse_cursor,
    run_named_in,
    without_questions,
)
from workflowlookup.protocol.versions import (
    EARLIEST,
    ENVELOPE_VERSIONS,
    HANDSHAKE_VERSIONS,
    LATEST,
    META_CAPABILITIES,
    META_CLIENT_INFO,
    META_SERVER_INFO,
    META_SUBSCRIPTION,
    RULES,
    Rules,
    capabilities_at,
)
from workflowlookup.tools.contract import Caller, Elicitation, Outcome, Pending

if TYPE_CHECKING:
    from workflowlookup.protocol.pending_calls import Waiting
    from workflowlookup.protocol.questions import Questions
    from workflowlookup.protocol.tasks import Tasks

log = logging.getLogger(__name__)

INSTRUCTIONS: Final = (
    "Workflows lead you through a task one step at a time. Find one with workflow_list, look at it with workflow_get, "
    "and begin it with workflow_start: do exactly the step it gives, hand in your output with workflow_submit, and "
    "repeat until the run is complete; every answer says in next what to do. Runs are kept: workflow_runs and "
    "workflow_status find them again. To follow a workflow without keeping a run, call workflow_next with the ids of "
    "the steps you completed and the context variables you know, check your output with workflow_validate, and repeat "
    "until isComplete is true. Do not skip steps."
)
_Method = Callable[["Connection", Call], Json]


LIST_SECONDS: Final = 1.0
"""How often it is looked whether a list that the client holds is old."""
LOOK_SECONDS: Final = 0.4
"""How often changes by others are looked for, while somebody waits or wants to hear of them."""


class Connection:
    """The state of one client's connection: its version, its subscriptions, and whether it is over."""

    def __init__(self, backend: Backend) -> None:
        self.outbox: list[bytes] = []
        self.is_finished = False
        self.question_prefix = "wl"
        """Of the ids of our questions."""
        self._backend = backend
        self._rules: Rules | None = None
        self._client: tuple[Mapping[str, Json], str] = ({}, "")
        self._caller: Caller | None = None
        self._questions: Questions[Call] | None = None
        self._waiting: Waiting | None = None
        self._tasks: Tasks | None = None
        self._news = News(backend, self.outbox)
        self._memory = MemoryMeter()
        self._last: Call | None = None
        """The request to shut down, while what waits is given its time: its reply is the last."""

    # ── from a line to a reply ──────────────────────────────────────────────────────────────────────────────────

    def handle(self, line: bytes) -> bytes | None:
        """Answer one message: its reply, or None when there is nothing to say (yet)."""
        started = monotonic()  # reading the processor time would cost ten times as much
        reply = self.answer(jsonrpc.decode(line))
        if self._memory.add(monotonic() - started):
            self._memory.release()
        return reply

    def answer(self, message: Message) -> bytes | None:
        if isinstance(message, Request):
            return self._answer_request(message)
        if isinstance(message, Malformed):
            if message.is_response:  # which is never answered; a call that waits for it goes on
                return self._hear(Response(message.id, b"", msgspec.json.encode(message.problem.message)))
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

    def _answer_request(self, request: Request | Call) -> bytes | None:
        rules = self._rules or EARLIEST
        try:
            call = enter(request, rules) if isinstance(request, Request) else request
            rules = call.rules
            result = self._dispatch(call)
            if result is PENDING:
                return None
            return success(call, result)
        except Exception as problem:  # noqa: BLE001 - broad on purpose: details go to the log, not to the wire
            return explain(request, problem, rules)

    def _dispatch(self, call: Call) -> Json:
        method = (self._ENVELOPE if call.rules.envelope else self._HANDSHAKE).get(call.method)
        if method is None:
            return self._call_directly(call)
        if self._rules is None and not call.rules.envelope and call.method not in _ALWAYS_ANSWERED:
            raise _not_initialized()
        return method(self, call)

    # ── lifecycle ───────────────────────────────────────────────────────────────────────────────────────────────

    def _initialize(self, call: Call) -> Json:
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
        self._client, self._caller = (bounded_capabilities(capabilities), name_of(client_info)), None
        return {
            "protocolVersion": requested,
            "capabilities": capabilities_at(self._rules, tells_changes=self._backend.tells_changes()),
            "serverInfo": SERVER_INFO,
            "instructions": INSTRUCTIONS,
        }

    def _discover(self, _: Call) -> Json:
        capabilities = capabilities_at(LATEST, tells_changes=self._backend.tells_changes())
        return cacheable(
            {"supportedVersions": list(ENVELOPE_VERSIONS), "capabilities": capabilities, "instructions": INSTRUCTIONS}
        )

    def _discover_without_envelope(self, call: Call) -> Json:
        return in_envelope(self._discover(call))

    def _ping(self, _: Call) -> Json:
        return {}

    def _shutdown(self, call: Call) -> Json:
        """Take nothing new. What waits is given its time by the transport, and the reply is the last word of all."""
        self.is_finished = True
        if self._waiting:
            self._last = call
            return PENDING
        self.close()
        return None

    async def prepare(self, request: Request, caller: str) -> Request:
        """Have what a request needs of a long run made ready without holding up other clients: the run, its report.

        `caller`: whose requests wait for each other while a report is made.
        """
        run_id = run_named_in(request)
        if not run_id:
            return request
        from workflowlookup.store.loading import load_in_slices  # noqa: PLC0415 - with the first run
        from workflowlookup.tools.resources import prepare_report  # noqa: PLC0415

        services = self._backend.services
        try:
            await load_in_slices(services.runs, run_id)
            if request.method == "resources/read" and isinstance(request.params, dict):
                report = await prepare_report(services, str(request.params.get("uri")), caller)
                return request if report is None else msgspec.structs.replace(request, report=report)
        except RunStateError as problem:  # not found out again: a run that is too long was read for it
            return msgspec.structs.replace(request, report=problem)
        except WorkflowLookupError:  # as the answer will say
            pass
        return request

    def input_schema_of(self, name: str) -> Mapping[str, Json] | None:
        """Of a tool that is not built in, by its name: it may mark arguments that are repeated in headers."""
        registry = self._backend.registry
        tool = None if name in registry.built_in else registry.tools.get(name)
        return tool.arguments.schema if tool is not None else None

    def settle(self) -> None:
        """Start what goes on behind; called once, after the first reply was sent."""
        self._backend.settle()

    def refresh(self) -> None:
        """Read the settings again and have every provider asked: somebody sent SIGHUP."""
        try:
            self._backend.refresh()
        except Exception:  # broad on purpose: everything stays as it is
            log.exception("the settings could not be read again")

    @property
    def is_busy(self) -> bool:
        """Whether a call waits for its answer."""
        return bool(self._waiting)

    def close(self, *, hands_over: bool = False) -> None:
        """Give up what waits, end every subscription with its result, forget open questions, end what goes on behind;
        called before the connection goes. `hands_over`: runs that are waited for go on, here later or elsewhere.
        """
        if self._waiting:
            for call, problem in self._waiting.end(hands_over=hands_over):
                self.outbox.append(refuse(call, problem))
        if self._questions is not None:
            unanswered = "The session ended before the person answered. Call the tool again in another session."
            for call in self._questions.drop():
                self.outbox.append(refuse(call, RequestCancelled(unanswered)))
        for request_id, key in self._news.end():
            result = {"resultType": "complete", "_meta": {META_SERVER_INFO: SERVER_INFO, META_SUBSCRIPTION: key}}
            self.outbox.append(jsonrpc.success(request_id, result))
        self._backend.close()
        if self._last is not None:
            self.outbox.append(jsonrpc.success(self._last.id, None))
            self._last = None

    def _notice(self, message: Notification) -> None:
        if message.method == "notifications/initialized":
            self._news.is_initialized = True
        elif message.method == "notifications/cancelled" and isinstance(message.params, dict):
            cancelled = message.params.get("requestId")
            if self._questions is not None:
                self._questions.withdraw(lambda call: jsonrpc.same_id(msgspec.json.decode(call.id), cancelled))
            self._news.cancel(cancelled)
            if self._waiting:
                self._waiting.cancel(cancelled, message.params.get("reason"))

    # ── what others bring about ─────────────────────────────────────────────────────────────────────────────────

    @property
    def is_watching(self) -> bool:
        """Whether somebody waits, or wants to hear of changes, so that `look` should be called every now and then."""
        if not self._news.is_wanted and self._waiting is None and self._tasks is None:
            return False  # as yet, and for most clients always: asked between any two messages
        return self._news.is_holding or self._is_awaited

    @property
    def look_seconds(self) -> float:
        """How often that is."""
        return LOOK_SECONDS if self._is_awaited else LIST_SECONDS

    @property
    def _is_awaited(self) -> bool:
        """Whether there are calls that wait, or runs that are followed."""
        if self._tasks is not None and self._tasks.is_watching:
            return True
        return bool(self._waiting) or self._news.is_followed

    def look(self) -> None:
        """Put the answers that are there now, and what changed, into the outbox."""
        if self._waiting:
            self._waiting.look(self._answer_waiting)
        self._news.look()
        if self._tasks is not None and self._tasks.is_watching:
            self._tasks.look(self._handshake_caller())

    def continues(self) -> None:
        """Another connection of the same client came before this one, and may have given it lists."""
        self._news.continues()

    def _listen(self, call: Call) -> Json:
        """Hold the request open; the acknowledgement is the first frame of its stream."""
        wanted = call.optional("notifications", dict, "an object")
        if wanted is None:
            raise InvalidParams("notifications is required")
        self._news.listen(call.id, wanted)
        return PENDING

    @property
    def followed(self) -> frozenset[str]:
        """The addresses that the client subscribed to, one by one."""
        return self._news.addresses

    def follow(self, addresses: frozenset[str]) -> None:
        """Follow these and no others: the client said so to another server."""
        self._news.follow(addresses)

    def _subscribe(self, call: Call) -> Json:
        self._news.subscribe(call.text("uri"))
        return {}

    def _unsubscribe(self, call: Call) -> Json:
        self._news.unsubscribe(call.text("uri"))
        return {}

    # ── tools ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _list_tools(self, call: Call) -> Json:
        refuse_cursor(call)
        return cacheable_in(call, {"tools": self._news.tools()})

    def _call_tool(self, call: Call) -> Json:
        registry = self._backend.registry
        name = call.text("name")
        tool = registry.find(name)
        if tool is None:
            raise registry.unknown_tool(name)
        arguments = call.optional("arguments", dict, "an object")
        is_task = call.rules.tasks and call.wants_task()
        if is_task and not tool.can_be_task:
            raise MethodNotFound(f"The tool '{name}' cannot be called as a task.", method=call.method)
        try:
            result = registry.call(tool, arguments, self._caller_of(call), call.size)
        except WorkflowLookupError as error:
            if comes_as_result(error, call.rules):
                return refusal(error)
            raise
        if is_task:
            return self._create_task(call, result)
        return self._result_of(call, result)

    def _result_of(self, call: Call, outcome: Outcome) -> Json:
        """The result of a call whose tool gave this; `PENDING` while there is none."""
        if isinstance(outcome, Elicitation):
            return self._ask(call, outcome)
        if isinstance(outcome, Pending):
            return self._wait(call, outcome)
        return tool_result(outcome) if call.method == "tools/call" else outcome

    def _call_directly(self, call: Call) -> Json:
        """A tool called by its own name as the method: the same handler, the same answer, the spec's own errors."""
        registry = self._backend.registry
        tool = registry.find(call.method)
        if tool is None:
            raise MethodNotFound("Call tools/list to see the tools.", method=call.method)
        if self._rules is None and not call.rules.envelope:
            raise _not_initialized()
        params = call.params
        if isinstance(params, dict) and "_meta" in params:
            params = {name: value for name, value in params.items() if name != "_meta"}
        return self._result_of(call, registry.call(tool, params, self._caller_of(call), call.size))

    def _caller_of(self, call: Call) -> Caller:
        """Who sent a request: told once by `initialize`, or by each request of the envelope era for itself."""
        if call.meta is not None:
            capabilities = call.meta[META_CAPABILITIES]
            name = self._backend.sign(name_of(call.meta.get(META_CLIENT_INFO)))
            if call.method != "tools/call":
                capabilities = without_questions(capabilities)  # no other method may be answered with a question
            return Caller(capabilities=capabilities, name=name, answers=call.answers, timeout_seconds=call.timeout)
        caller = self._handshake_caller()
        if not call.answers and call.timeout is None:
            return caller
        return msgspec.structs.replace(caller, answers=call.answers, timeout_seconds=call.timeout)

    def _handshake_caller(self) -> Caller:
        """Who shook hands."""
        if self._caller is None:
            capabilities, name = self._client
            if self._rules is None or not self._rules.asks:
                capabilities = without_questions(capabilities)
            self._caller = Caller(capabilities=capabilities, name=self._backend.sign(name))
        return self._caller

    # ── answers that are not there yet ──────────────────────────────────────────────────────────────────────────

    def _wait(self, call: Call, later: Pending) -> Json:
        """Keep a call until its answer is there, for which `look` asks; where the client knows tasks it becomes one."""
        if later.run_id and call.rules.envelope and call.method == "tools/call":
            from workflowlookup.protocol.tasks import knows_tasks  # noqa: PLC0415 - with the first run

            if knows_tasks(call):
                return self._open_tasks().promise(later)
        if self._waiting is None:
            from workflowlookup.protocol.pending_calls import Waiting  # noqa: PLC0415 - seldom needed

            self._waiting = Waiting(self.outbox)
        self._waiting.put(call, later)
        return PENDING

    def _answer_waiting(self, call: Call, later: Pending) -> bytes | None:
        """The reply to a call that waits; None while there is none, or when it waits for a person from now on."""
        try:
            result = later.poll()
            if result is None:
                return None
            self._stop_waiting(call)
            reply = self._result_of(call, result)
        except Exception as problem:  # noqa: BLE001 - broad on purpose: as for every call
            self._stop_waiting(call)
            return refuse(call, problem)
        if reply is PENDING:
            return None
        return success(call, reply)

    def _stop_waiting(self, call: Call) -> None:
        if self._waiting is not None:
            self._waiting.take(call)

    # ── questions to a person ───────────────────────────────────────────────────────────────────────────────────

    def _ask(self, call: Call, ask: Elicitation) -> Json:
        """Put a tool's question to the person at the client; the call is done again when the answer is there."""
        from workflowlookup.protocol.questions import Questions, elicitation, given, signed_key  # noqa: PLC0415 - seldom needed

        if ask.key in call.answers:
            raise RuntimeError(f"'{ask.key}' was asked again after it was answered")
        if not self._caller_of(call).supports_elicitation:
            raise MissingClientCapability(
                "This call needs a client that shows its user forms (elicitation).",
                requiredCapabilities={"elicitation": {}},
            )
        if not call.rules.envelope:
            if self._questions is None:
                self._questions = Questions(self.outbox, self.question_prefix)
            self._questions.put(call, ask)
            return PENDING
        key = signed_key(ask, self._backend.services)
        answer = given(call.object_params().get("inputResponses"), ask, key)
        if answer is None:
            return {"resultType": "input_required", "inputRequests": {key: elicitation(ask)}}
        return self._dispatch(call.answered(ask.key, answer))

    def asker_of(self, question_id: str) -> bytes | None:
        """The id of the request that an open question of ours is about."""
        call = self._questions.call_of(question_id) if self._questions is not None else None
        return call.id if call is not None else None

    def _hear(self, response: Response) -> bytes | None:
        """Go on with the call that waited for this; a response to nothing that is open is passed over."""
        asked = self._questions.take(response) if self._questions is not None else None
        if asked is None:
            log.debug("a response to nothing: %s", response.id)
            return None
        from workflowlookup.protocol.questions import answer_in  # noqa: PLC0415

        call, ask = asked
        return self._answer_request(call.answered(ask.key, answer_in(response, ask)))

    # ── resources, prompts, completions ─────────────────────────────────────────────────────────────────────────

    def _list_resources(self, call: Call) -> Json:
        self._news.lists_resources()
        return self._offer(call)

    def _offer(self, call: Call) -> Json:
        from workflowlookup.protocol.library_methods import OFFERS  # noqa: PLC0415 - with the core, when first asked for

        return OFFERS[call.method](self._backend, call)

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _open_tasks(self) -> "Tasks":
        if self._tasks is None:
            from workflowlookup.protocol.tasks import Tasks  # noqa: PLC0415 - with the first run

            self._tasks = Tasks(self._backend, self.outbox)
        return self._tasks

    def _create_task(self, call: Call, result: Outcome) -> Json:
        if isinstance(result, Elicitation):
            return self._ask(call, result)
        return self._open_tasks().create(call, result, self._caller_of(call))

    def _task(self, call: Call) -> Json:
        """The methods of tasks at 2025-11-25."""
        if not call.rules.tasks:
            raise MethodNotFound("Tasks came with version 2025-11-25.", method=call.method)
        tasks, caller = self._open_tasks(), self._caller_of(call)
        match call.method:
            case "tasks/get":
                return tasks.get(call, caller)
            case "tasks/result":
                return self._result_of(call, tasks.result(call, caller))
            case "tasks/cancel":
                return tasks.cancel(call, caller)
        return tasks.list(call, caller)

    def _get_task(self, call: Call) -> Json:
        return self._open_tasks().get_detailed(call)

    def _update_task(self, call: Call) -> Json:
        return self._open_tasks().update(call)

    def _cancel_task(self, call: Call) -> Json:
        return self._open_tasks().cancel_quietly(call)

    # ── which method is answered by what ────────────────────────────────────────────────────────────────────────

    _SHARED: ClassVar[Mapping[str, _Method]] = {
        "tools/list": _list_tools,
        "tools/call": _call_tool,
        "resources/list": _list_resources,
        "resources/templates/list": _offer,
        "resources/read": _offer,
        "prompts/list": _offer,
        "prompts/get": _offer,
        "completion/complete": _offer,
    }
    _HANDSHAKE: ClassVar[Mapping[str, _Method]] = {
        **_SHARED,
        "initialize": _initialize,
        "ping": _ping,
        "resources/subscribe": _subscribe,
        "resources/unsubscribe": _unsubscribe,
        "shutdown": _shutdown,
        "server/discover": _discover_without_envelope,
        "tasks/get": _task,
        "tasks/result": _task,
        "tasks/cancel": _task,
        "tasks/list": _task,
    }
    _ENVELOPE: ClassVar[Mapping[str, _Method]] = {
        **_SHARED,
        "server/discover": _discover,
        "subscriptions/listen": _listen,
        "tasks/get": _get_task,
        "tasks/update": _update_task,
        "tasks/cancel": _cancel_task,
    }


def _not_initialized() -> NotInitialized:
    details = "Send initialize first"
    return NotInitialized(f"{details}.", details=details, supportedVersions=list(HANDSHAKE_VERSIONS))


_ALWAYS_ANSWERED: Final = frozenset({"initialize", "ping", "shutdown", "server/discover"})

METHODS: Final = frozenset({*Connection._HANDSHAKE, *Connection._ENVELOPE})  # noqa: SLF001 - our own
"""What is answered by a method of its own, in either era; any other name may be that of a tool."""
