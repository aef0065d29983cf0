"""One connection: from a message to its reply, in both eras of MCP.

This module has the lifecycle, the tables of methods, and the place where exceptions become replies; what the methods
*do* is in `tools`. A connection is synchronous: it answers requests in order, each before the next message is read.
Requests that have to wait (a subscription, a pending call, a question to a person) are stored, and other messages are
answered meanwhile. Messages that the server starts are put into `outbox`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
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
    WorkflowLookupError,
)
from workflowlookup.language.values import Json
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.handshake import Handshake
from workflowlookup.protocol.jsonrpc import Batch, MalformedMessage, Message, Notification, Request, Response
from workflowlookup.protocol.notifications import Notifications
from workflowlookup.protocol.requests import (
    PENDING,
    SERVER_INFO,
    Call,
    cacheable_in,
    error_result,
    explain,
    is_sent_as_result,
    refuse,
    refuse_cursor,
    run_id_in,
    success,
    to_call,
    tool_result,
)
from workflowlookup.protocol.versions import (
    EARLIEST,
    HANDSHAKE_VERSIONS,
    META_CAPABILITIES,
    META_SERVER_INFO,
    META_SUBSCRIPTION,
)
from workflowlookup.tools.contract import Elicitation, Outcome, Pending

if TYPE_CHECKING:
    from workflowlookup.protocol.pending_calls import PendingCalls
    from workflowlookup.protocol.questions import Questions
    from workflowlookup.protocol.roots import ClientRoots
    from workflowlookup.protocol.tasks import Tasks

log = logging.getLogger(__name__)

_Method = Callable[["Connection", Call], Json]


LIST_POLL_SECONDS: Final = 1.0
"""How often `poll` should be called to notice that a list of the client has changed."""
POLL_SECONDS: Final = 0.4
"""How often `poll` should be called while calls are pending, or the client is subscribed to runs."""


class Connection:
    """The connection of one client: its version, its subscriptions and its pending calls."""

    def __init__(
        self,
        backend: Backend,
        set_roots: "Callable[[Sequence[str]], None] | None" = None,
        *,
        is_remote: bool = False,
    ) -> None:
        """`set_roots` is called with the directories in which the client works; None if nobody needs them.
        `is_remote`: the server cannot see these, but runs keep their names, for witnesses.
        """
        self._is_remote = is_remote
        self.outbox: list[bytes] = []
        self._set_roots = set_roots
        self._roots: ClientRoots | None = None
        self.is_finished = False
        self.question_prefix = "wl"
        """Of the request ids of questions to the client."""
        self._backend = backend
        self._handshake = Handshake(backend)
        self._questions: Questions[Call] | None = None
        self._pending_calls: PendingCalls | None = None
        self._tasks: Tasks | None = None
        self._notifications = Notifications(backend, self.outbox)
        self._shutdown_request: Call | None = None
        """The `shutdown` request, while pending calls get their time: its reply is the last message."""

    # ── from a message to its reply ─────────────────────────────────────────────────────────────────────────────

    def handle(self, line: bytes) -> bytes | None:
        """Handle one message. Returns the reply, or None if there is none (yet)."""
        return self.answer(jsonrpc.decode(line))

    def answer(self, message: Message) -> bytes | None:
        if isinstance(message, Request):
            return self._answer_request(message)
        if isinstance(message, MalformedMessage):
            if message.is_response:  # it gets no reply, but the call that waits for it must go on
                return self._handle_response(Response(message.id, b"", msgspec.json.encode(message.problem.message)))
            return jsonrpc.failure(message.id, message.problem)
        if isinstance(message, Batch):
            return self._answer_batch(message)
        if isinstance(message, Response):
            return self._handle_response(message)
        self._handle_notification(message)
        return None

    def _answer_batch(self, batch: Batch) -> bytes | None:
        if self._handshake.rules is None or not self._handshake.rules.batches:
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
        rules = self._handshake.rules or EARLIEST
        try:
            call = to_call(request, rules) if isinstance(request, Request) else request
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
        if self._handshake.rules is None and not call.rules.envelope and call.method not in _ALWAYS_ANSWERED:
            raise _not_initialized()
        return method(self, call)

    # ── lifecycle ───────────────────────────────────────────────────────────────────────────────────────────────

    def _initialize(self, call: Call) -> Json:
        return self._handshake.initialize(call)

    def _discover(self, call: Call) -> Json:
        return self._handshake.discover(call)

    def _ping(self, _: Call) -> Json:
        return {}

    def _shutdown(self, call: Call) -> Json:
        """Accept no more messages. The transport gives pending calls some time; the reply is the last message."""
        self.is_finished = True
        if self._pending_calls:
            self._shutdown_request = call
            return PENDING
        self.close()
        return None

    async def prepare(self, request: Request, caller: str) -> Request:
        """Load what a request needs of a long run, its events and its report, without blocking other clients.

        `caller`: reports of the same caller are made one after the other.
        """
        run_id = run_id_in(request)
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
        except RunStateError as problem:  # stored, because finding it out took long
            return msgspec.structs.replace(request, report=problem)
        except WorkflowLookupError:  # the method raises it again, and the reply has it
            pass
        return request

    def input_schema_of(self, name: str) -> Mapping[str, Json] | None:
        """The input schema of a tool that is not built in: it may mark arguments that HTTP headers repeat."""
        registry = self._backend.registry
        tool = None if name in registry.built_in else registry.tools.get(name)
        return tool.arguments.schema if tool is not None else None

    def start_background(self) -> None:
        """Start background work; called once, after the first reply was sent."""
        self._backend.start_background()

    def refresh(self) -> None:
        """Read the settings again and poll every provider; called on SIGHUP."""
        try:
            self._backend.refresh()
        except Exception:  # broad on purpose: the earlier settings stay
            log.exception("the settings could not be read again; the earlier ones stay in effect")

    @property
    def is_busy(self) -> bool:
        """Whether a call is pending."""
        return bool(self._pending_calls)

    def close(self, *, hands_over: bool = False) -> None:
        """End pending calls, questions and subscriptions, each with a reply in the outbox, and background work.

        `hands_over`: the runs of pending calls go on, at another server or when this one is started again.
        """
        if self._pending_calls:
            for call, problem in self._pending_calls.close(hands_over=hands_over):
                self.outbox.append(refuse(call, problem))
        if self._questions is not None:
            message = "The session ended before the person answered. Call the tool again in another session."
            for call in self._questions.clear():
                self.outbox.append(refuse(call, RequestCancelled(message)))
        for request_id, key in self._notifications.close():
            result = {"resultType": "complete", "_meta": {META_SERVER_INFO: SERVER_INFO, META_SUBSCRIPTION: key}}
            self.outbox.append(jsonrpc.success(request_id, result))
        self._backend.close()
        if self._shutdown_request is not None:
            self.outbox.append(jsonrpc.success(self._shutdown_request.id, None))
            self._shutdown_request = None

    def _handle_notification(self, message: Notification) -> None:
        if message.method == "notifications/initialized":
            self._notifications.is_initialized = True
            self._request_roots()
        elif message.method == "notifications/roots/list_changed":
            self._request_roots()
        elif message.method == "notifications/cancelled" and isinstance(message.params, dict):
            cancelled = message.params.get("requestId")
            if self._questions is not None:
                self._questions.withdraw(lambda call: jsonrpc.same_id(msgspec.json.decode(call.id), cancelled))
            self._notifications.cancel(cancelled)
            if self._pending_calls:
                self._pending_calls.cancel(cancelled, message.params.get("reason"))

    def _request_roots(self) -> None:
        """Ask a client of the handshake era for its roots, if it has any."""
        roots = self._roots_of(self._handshake.capabilities) if self._handshake.rules is not None else None
        if roots is not None:
            self.outbox.append(roots.request())

    def _roots_of(self, capabilities: Mapping[str, Json]) -> "ClientRoots | None":
        """The roots of a client with these capabilities; None if it has none, or nobody needs them."""
        if self._set_roots is None or "roots" not in capabilities:
            return None
        if self._roots is None:
            from workflowlookup.protocol.roots import ClientRoots  # noqa: PLC0415 - only for clients that have roots

            self._roots = ClientRoots(self._set_roots)
        return self._roots

    # ── polling and notifications ───────────────────────────────────────────────────────────────────────────────

    @property
    def needs_polling(self) -> bool:
        """Whether calls are pending, or the client is notified of changes, so that `poll` should be called."""
        if not self._notifications.is_used and self._pending_calls is None and self._tasks is None:
            return False  # the usual case, and this is called after every message
        return self._notifications.has_lists or self._has_waiters

    @property
    def poll_seconds(self) -> float:
        """How often `poll` should be called."""
        return POLL_SECONDS if self._has_waiters else LIST_POLL_SECONDS

    @property
    def _has_waiters(self) -> bool:
        """Whether calls are pending, or the client is subscribed to runs or tasks."""
        if self._tasks is not None and self._tasks.is_watching:
            return True
        return bool(self._pending_calls) or self._notifications.has_subscriptions

    def poll(self) -> None:
        """Put the replies that are ready, and notifications of what changed, into the outbox."""
        if self._pending_calls:
            self._pending_calls.poll(self._answer_pending)
        self._notifications.poll()
        if self._tasks is not None and self._tasks.is_watching:
            self._tasks.poll(self._handshake.initialized_caller())

    def watch_lists(self) -> None:
        """Watch all lists: an earlier connection of the same client may have sent them."""
        self._notifications.watch_lists()

    def _listen(self, call: Call) -> Json:
        """Hold the request open; the acknowledgement is the first message of its stream."""
        requested = call.optional("notifications", dict, "an object")
        if requested is None:
            raise InvalidParams("notifications is required")
        self._notifications.listen(call.id, requested)
        return PENDING

    @property
    def subscribed_uris(self) -> frozenset[str]:
        """The URIs that the client has subscribed to with `resources/subscribe`."""
        return self._notifications.subscribed_uris

    def replace_subscriptions(self, uris: frozenset[str]) -> None:
        """Be subscribed to these URIs and no others: the client subscribed at another replica."""
        self._notifications.replace_subscriptions(uris)

    def _subscribe(self, call: Call) -> Json:
        self._notifications.subscribe(call.text("uri"))
        return {}

    def _unsubscribe(self, call: Call) -> Json:
        self._notifications.unsubscribe(call.text("uri"))
        return {}

    # ── tools ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _list_tools(self, call: Call) -> Json:
        refuse_cursor(call)
        return cacheable_in(call, {"tools": self._notifications.list_tools()})

    def _call_tool(self, call: Call) -> Json:
        registry = self._backend.registry
        name = call.text("name")
        tool = registry.find(name)
        if tool is None:
            raise registry.unknown_tool(name)
        if self._roots is not None and self._roots.is_awaited:
            return self._add_pending(call, self._roots.hold())
        roots = self._roots_of(call.meta[META_CAPABILITIES]) if call.meta is not None else None
        responses = call.object_params().get("inputResponses")
        asking = roots.result_that_asks(responses) if roots is not None else None
        if asking is not None:
            return asking
        caller = self._handshake.caller_of(call)
        if self._is_remote and tool.starts_run and call.meta is not None and "roots" in caller.capabilities:
            from workflowlookup.protocol.roots import paths_in, roots_request  # noqa: PLC0415 - with the first run

            if responses is None:
                return roots_request()
            caller = msgspec.structs.replace(caller, roots=paths_in(responses))
        arguments = call.optional("arguments", dict, "an object")
        is_task = call.rules.tasks and call.wants_task()
        if is_task and not tool.can_be_task:
            raise MethodNotFound(f"The tool '{name}' cannot be called as a task.", method=call.method)
        try:
            result = registry.call(tool, arguments, caller, call.size)
        except WorkflowLookupError as error:
            if is_sent_as_result(error, call.rules):
                return error_result(error)
            raise
        if is_task:
            return self._create_task(call, result)
        return self._result_of(call, result)

    def _result_of(self, call: Call, outcome: Outcome) -> Json:
        """The result of a call by the outcome of its tool; `PENDING` if it comes later."""
        if isinstance(outcome, Elicitation):
            return self._elicit(call, outcome)
        if isinstance(outcome, Pending):
            return self._add_pending(call, outcome)
        if call.method != "tools/call":
            return outcome
        params = call.object_params()
        return tool_result(outcome, params["name"], params.get("arguments"), has_links=call.rules.resource_links)

    def _call_directly(self, call: Call) -> Json:
        """Call a tool whose name is the method: the same handler and result, but errors are JSON-RPC errors."""
        registry = self._backend.registry
        tool = registry.find(call.method)
        if tool is None:
            raise MethodNotFound("Call tools/list to see the tools.", method=call.method)
        if self._handshake.rules is None and not call.rules.envelope:
            raise _not_initialized()
        if self._roots is not None and self._roots.is_awaited:
            return self._add_pending(call, self._roots.hold())
        params = call.params
        if isinstance(params, dict) and "_meta" in params:
            params = {name: value for name, value in params.items() if name != "_meta"}
        return self._result_of(call, registry.call(tool, params, self._handshake.caller_of(call), call.size))

    # ── pending calls ───────────────────────────────────────────────────────────────────────────────────────────

    def _add_pending(self, call: Call, pending: Pending) -> Json:
        """Store a call until `poll` has its result. If the client supports tasks, it becomes a task instead."""
        if pending.run_id and call.rules.envelope and call.method == "tools/call":
            from workflowlookup.protocol.tasks import supports_tasks  # noqa: PLC0415 - with the first run

            if supports_tasks(call):
                return self._open_tasks().create_from_pending(pending)
        if self._pending_calls is None:
            from workflowlookup.protocol.pending_calls import PendingCalls  # noqa: PLC0415 - seldom needed

            self._pending_calls = PendingCalls(self.outbox)
        self._pending_calls.add(call, pending)
        return PENDING

    def _answer_pending(self, call: Call, pending: Pending) -> bytes | None:
        """The reply to a pending call; None if there is none yet, or if it now waits for a person."""
        try:
            result = pending.poll()
            if result is None:
                return None
            self._remove_pending(call)
            if self._roots is not None and self._roots.is_known(result):
                return self._answer_request(call)
            reply = self._result_of(call, result)
        except Exception as problem:  # noqa: BLE001 - broad on purpose: as in `_answer_request`
            self._remove_pending(call)
            return refuse(call, problem)
        if reply is PENDING:
            return None
        return success(call, reply)

    def _remove_pending(self, call: Call) -> None:
        if self._pending_calls is not None:
            self._pending_calls.remove(call)

    # ── questions to a person (elicitation) ─────────────────────────────────────────────────────────────────────

    def _elicit(self, call: Call, question: Elicitation) -> Json:
        """Ask the person at the client a question of a tool. With the answer, the tool is called again."""
        from workflowlookup.protocol.questions import Questions, elicitation, find_answer, signed_key  # noqa: PLC0415 - seldom needed

        if question.key in call.answers:
            raise RuntimeError(f"'{question.key}' was asked again after it was answered")
        if not self._handshake.caller_of(call).supports_elicitation:
            raise MissingClientCapability(
                "This call needs a client that shows its user forms (elicitation).",
                requiredCapabilities={"elicitation": {}},
            )
        if not call.rules.envelope:
            if self._questions is None:
                self._questions = Questions(self.outbox, self.question_prefix)
            self._questions.ask(call, question)
            return PENDING
        key = signed_key(question, self._backend.services)
        answer = find_answer(call.object_params().get("inputResponses"), question, key)
        if answer is None:
            return {"resultType": "input_required", "inputRequests": {key: elicitation(question)}}
        return self._dispatch(call.with_answer(question.key, answer))

    def call_id_of_question(self, question_id: str) -> bytes | None:
        """The id of the request that led to an open question."""
        call = self._questions.call_of(question_id) if self._questions is not None else None
        return call.id if call is not None else None

    def _handle_response(self, response: Response) -> bytes | None:
        """Continue the call that waits for this response; a response to no open question is ignored."""
        if self._roots is not None and self._roots.receive(response):
            if self._pending_calls:  # some may have waited for this
                self._pending_calls.poll(self._answer_pending)
            return None
        waiting = self._questions.pop(response) if self._questions is not None else None
        if waiting is None:
            log.debug("a response to no open question: %s", response.id)
            return None
        from workflowlookup.protocol.questions import answer_in  # noqa: PLC0415

        call, question = waiting
        return self._answer_request(call.with_answer(question.key, answer_in(response, question)))

    # ── resources, prompts, completions ─────────────────────────────────────────────────────────────────────────

    def _list_resources(self, call: Call) -> Json:
        self._notifications.watch_resources()
        return self._call_library_method(call)

    def _call_library_method(self, call: Call) -> Json:
        from workflowlookup.protocol.library_methods import LIBRARY_METHODS  # noqa: PLC0415 - with the core, when first asked for

        return LIBRARY_METHODS[call.method](self._backend, call)

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _open_tasks(self) -> "Tasks":
        if self._tasks is None:
            from workflowlookup.protocol.tasks import Tasks  # noqa: PLC0415 - with the first run

            self._tasks = Tasks(self._backend, self.outbox)
        return self._tasks

    def _create_task(self, call: Call, result: Outcome) -> Json:
        if isinstance(result, Elicitation):
            return self._elicit(call, result)
        return self._open_tasks().create(call, result, self._handshake.caller_of(call))

    def _task(self, call: Call) -> Json:
        """The task methods of 2025-11-25."""
        if not call.rules.tasks:
            raise MethodNotFound("Tasks came with version 2025-11-25.", method=call.method)
        tasks, caller = self._open_tasks(), self._handshake.caller_of(call)
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

    # ── the tables of methods ───────────────────────────────────────────────────────────────────────────────────

    _SHARED: ClassVar[Mapping[str, _Method]] = {
        "tools/list": _list_tools,
        "tools/call": _call_tool,
        "resources/list": _list_resources,
        "resources/templates/list": _call_library_method,
        "resources/read": _call_library_method,
        "prompts/list": _call_library_method,
        "prompts/get": _call_library_method,
        "completion/complete": _call_library_method,
    }
    _HANDSHAKE: ClassVar[Mapping[str, _Method]] = {
        **_SHARED,
        "initialize": _initialize,
        "ping": _ping,
        "resources/subscribe": _subscribe,
        "resources/unsubscribe": _unsubscribe,
        "shutdown": _shutdown,
        "server/discover": _discover,
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
        "resources/directory/read": _call_library_method,
        "skills/list": _call_library_method,
        "skills/get": _call_library_method,
    }


def _not_initialized() -> NotInitialized:
    details = "Send initialize first"
    return NotInitialized(f"{details}.", details=details, supportedVersions=list(HANDSHAKE_VERSIONS))


_ALWAYS_ANSWERED: Final = frozenset({"initialize", "ping", "shutdown", "server/discover"})

METHODS: Final = frozenset({*Connection._HANDSHAKE, *Connection._ENVELOPE})  # noqa: SLF001 - of the same module
"""The methods of either era; any other method may be the name of a tool."""
