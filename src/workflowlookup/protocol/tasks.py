"""Calls as tasks: a run shown as a task, in the form of 2025-11-25 and in that of the 2026-07-28 extension.

A task has the id of its run, and everything about it comes from the journal, so any connection can query it, also after
a restart of the server. In 2025-11-25 the client asks for a task; in the extension a client declares that it supports
tasks, and a call whose result is pending becomes one. A task is the call, not the run: it is done as soon as the call
has a result, which may be that the run waits for the agent.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.errors import (
    InvalidParams,
    MethodNotFound,
    MissingClientCapability,
    RunNotFound,
    RunStateError,
    WorkflowLookupError,
)
from workflowlookup.language.values import Json
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.handshake import client_name
from workflowlookup.protocol.pending_calls import ProgressReporter, progress_token_of
from workflowlookup.protocol.questions import elicitation, find_answer, signed_key
from workflowlookup.protocol.requests import Call, error_result, tool_result
from workflowlookup.protocol.versions import META_CAPABILITIES, META_CLIENT_INFO, TASKS_EXTENSION
from workflowlookup.runs.questions import title_of
from workflowlookup.runs.run import Run, State
from workflowlookup.store.journal import RunQuery
from workflowlookup.tools.builtin.workflow_runs import decode_run_cursor, encode_run_cursor
from workflowlookup.tools.contract import Caller, Elicitation, Outcome, Pending, Result
from workflowlookup.tools.elicitation import answered_run, elicit_confirmation, has_answer, may_elicit
from workflowlookup.tools.pending_runs import await_end, failure_of, is_at_work, progress_of
from workflowlookup.tools.run_answers import answer_with_result, iso

if TYPE_CHECKING:
    from workflowlookup.store.journal import RunSummary
    from workflowlookup.tools.contract import Services

log = logging.getLogger(__name__)

RELATED: Final = "io.modelcontextprotocol/related-task"
POLL_MS: Final = 500
"""How often a client should poll."""
PAGE_SIZE: Final = 50
MAX_WATCHED: Final = 256
TERMINAL_STATUSES: Final = ("completed", "failed", "cancelled")
"""The statuses of a task that never changes again."""


class _WatchedTask(msgspec.Struct):
    """A task of this connection, and what its client was last notified of."""

    run_id: str
    status: str
    reporter: ProgressReporter


class Tasks:
    """The tasks as one connection sees them."""

    def __init__(self, backend: Backend, outbox: list[bytes]) -> None:
        self._backend = backend
        self._outbox = outbox
        self._watched: dict[str, _WatchedTask] = {}

    @property
    def _services(self) -> "Services":
        return self._backend.services

    def _run(self, call: Call) -> Run:
        task_id = call.text("taskId")
        try:
            return self._services.runs.get(task_id)
        except RunNotFound as problem:
            raise InvalidParams(f"there is no task '{task_id[:100]}'") from problem

    # ── 2025-11-25: the client asks for a task ──────────────────────────────────────────────────────────────────

    def create(self, call: Call, result: Result | Pending, caller: Caller) -> Json:
        """The result of a call that its client wants as a task: the task, even if it is done already."""
        run = self._services.runs.get(_run_id_in(result))
        status = self._status(run, caller)
        if status not in TERMINAL_STATUSES and len(self._watched) < MAX_WATCHED:
            self._watched[run.id] = _WatchedTask(run.id, status, ProgressReporter(progress_token_of(call)))
        return {"task": self._view(run, status)}

    def get(self, call: Call, caller: Caller) -> Json:
        run = self._run(call)
        return self._view(run, self._status(run, caller))

    def result(self, call: Call, caller: Caller) -> Outcome:
        """The result that the call would have had, when it is there. If a person is needed, they are asked first."""
        run = self._run(call)
        answered = answered_run(self._services, run.id, caller)
        if answered is not None and answered.open_question is not None:
            outcome = elicit_confirmation(self._services, answered, caller)
            if isinstance(outcome, Elicitation):
                return outcome
            run = outcome

        def make_result(run: Run) -> Result | Elicitation:
            if self._needs_person(run, caller) and not has_answer(run, caller):
                question = elicit_confirmation(self._services, run, caller)
                if isinstance(question, Elicitation):
                    return msgspec.structs.replace(question, meta={RELATED: {"taskId": run.id}})
            return {**self._payload(run, caller), "_meta": {RELATED: {"taskId": run.id}}}

        return await_end(self._services, run, make_result)

    def cancel(self, call: Call, caller: Caller) -> Json:
        run = self._run(call)
        if run.is_over:
            raise InvalidParams(f"task '{run.id}' is over: {run.state}")
        run = self._services.runs.cancel(run.id, "the task was cancelled", by=caller.name)
        return self._view(run, "cancelled")

    def list(self, call: Call, caller: Caller) -> Json:
        """Every run as a task, the latest first."""
        cursor = decode_run_cursor(call.optional("cursor", str, "text"))
        summaries = self._services.runs.summaries(RunQuery(after=cursor, limit=PAGE_SIZE + 1))
        page = summaries[:PAGE_SIZE]
        next_page = {"nextCursor": encode_run_cursor(page[-1])} if len(summaries) > PAGE_SIZE else {}
        return {"tasks": [self._summary_view(summary, caller) for summary in page], **next_page}

    def _summary_view(self, summary: "RunSummary", caller: Caller) -> dict[str, Json]:
        status = _STATUS.get(summary.state, "working")
        if summary.waiting_for == "confirmation" and self._needs_person(self._services.runs.get(summary.id), caller):
            status = "input_required"
        times = {"createdAt": iso(summary.started), "lastUpdatedAt": iso(summary.updated)}
        return {"taskId": summary.id, "status": status, **times, "ttl": None, "pollInterval": POLL_MS}

    @property
    def is_watching(self) -> bool:
        """Whether there are unfinished tasks whose client is notified of their status."""
        return bool(self._watched)

    def poll(self, caller: Caller) -> None:
        """Put notifications of what changed about the tasks of this connection into the outbox."""
        for watched in list(self._watched.values()):
            try:
                run = self._services.runs.get(watched.run_id)
            except RunNotFound:
                del self._watched[watched.run_id]
                continue
            except WorkflowLookupError:  # the journal cannot be read now: the next poll tries again
                log.debug("task '%s' cannot be read", watched.run_id, exc_info=True)
                continue
            self._report_progress(watched, run)
            status = self._status(run, caller)
            if status != watched.status:
                watched.status = status
                self._outbox.append(jsonrpc.notification("notifications/tasks/status", self._view(run, status)))
            if status in TERMINAL_STATUSES:
                del self._watched[watched.run_id]

    def _report_progress(self, watched: _WatchedTask, run: Run) -> None:
        if watched.reporter.token is None:
            return
        notification = watched.reporter.notification(progress_of(self._services, run), {RELATED: {"taskId": run.id}})
        if notification is not None:
            self._outbox.append(notification)

    def _view(self, run: Run, status: str) -> dict[str, Json]:
        return {**_common(run, status), "ttl": None, "pollInterval": POLL_MS}

    def _status(self, run: Run, caller: Caller) -> str:
        if is_at_work(run):
            return "working"
        if self._needs_person(run, caller):
            return "input_required"
        return _STATUS[run.state]

    def _needs_person(self, run: Run, caller: Caller) -> bool:
        """Whether the person at this client must be asked now."""
        return run.open_question is not None and not run.is_over and may_elicit(self._services, run, caller)

    # ── since 2026-07-28: the extension ─────────────────────────────────────────────────────────────────────────

    def create_from_pending(self, pending: Pending) -> Json:
        """The result of a call that becomes a task, because its result is pending and its client supports tasks."""
        run = self._services.runs.get(pending.run_id)
        return {"resultType": "task", **_common(run, "working"), **_UNLIMITED}

    def get_detailed(self, call: Call) -> Json:
        """A task with its result, or with the question to a person."""
        caller = self._caller_with_tasks(call)
        run = self._run(call)
        status = self._status(run, caller)
        reply = {**_common(run, "completed" if status == "failed" else status), **_UNLIMITED}
        if status == "input_required":
            question = elicit_confirmation(self._services, run, caller)
            if isinstance(question, Elicitation):
                reply["inputRequests"] = {signed_key(question, self._services): elicitation(question)}
        elif status in ("completed", "failed"):
            reply["result"] = self._payload(run, caller)
        return reply

    def update(self, call: Call) -> Json:
        """Apply a person's answer to the question of a task; other answers are ignored."""
        caller = self._caller_with_tasks(call)
        responses = call.optional("inputResponses", dict, "an object")
        if responses is None:
            raise InvalidParams("inputResponses is required")
        run = self._run(call)
        question = elicit_confirmation(self._services, run, caller) if self._needs_person(run, caller) else None
        if isinstance(question, Elicitation):
            answer = find_answer(responses, question, signed_key(question, self._services))
            if answer is not None:
                elicit_confirmation(
                    self._services, run, msgspec.structs.replace(caller, answers={question.key: answer})
                )
        return {}

    def cancel_quietly(self, call: Call) -> Json:
        """Cancel a task; one that is over stays as it is."""
        caller = self._caller_with_tasks(call)
        run = self._run(call)
        if not run.is_over:
            self._services.runs.cancel(run.id, "the task was cancelled", by=caller.name)
        return {}

    def _caller_with_tasks(self, call: Call) -> Caller:
        """The caller. Raises `MissingClientCapability` if the client does not declare tasks."""
        if not supports_tasks(call):
            needed: Json = {"extensions": {TASKS_EXTENSION: {}}}
            raise MissingClientCapability("Tasks need a client that declares them.", requiredCapabilities=needed)
        meta: Any = call.meta
        name = self._backend.sign(client_name(meta.get(META_CLIENT_INFO)))
        return Caller(capabilities=meta[META_CAPABILITIES], name=name)

    # ── both ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _payload(self, run: Run, caller: Caller) -> dict[str, Json]:
        """The result that the call would have had."""
        if run.state in (State.FAILED, State.CANCELLED):
            return error_result(failure_of(run))
        return tool_result(answer_with_result(self._services, run, caller), has_links=True)


_STATUS: Final[Mapping[str, str]] = {
    State.QUEUED: "working",
    State.RUNNING: "working",
    State.WAITING: "completed",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
    State.UNKNOWN: "completed",
}
"""The status of a task by the state of its run. If the run waits for the agent, the call is done: its result says what
to do next. It is also done if the outcome of the run is unknown: its result says so.
"""

_UNLIMITED: Final[Mapping[str, Json]] = {"ttlMs": None, "pollIntervalMs": POLL_MS}


def _common(run: Run, status: str) -> dict[str, Json]:
    times = {"createdAt": iso(run.started), "lastUpdatedAt": iso(run.updated)}
    return {"taskId": run.id, "status": status, "statusMessage": _message(run), **times}


def _message(run: Run) -> str:
    if is_at_work(run):
        return f"{'Queued' if run.state is State.QUEUED else 'Running'}: {title_of(run)}"
    if run.end is not None and run.end.reason:
        return run.end.reason
    return f"The run waits for {run.waiting_for}: {title_of(run)}" if run.waiting_for else f"The run is {run.state}."


def _run_id_in(result: Result | Pending) -> str:
    """The id of the run that a tool's result is about."""
    if isinstance(result, Pending) and not result.run_id:
        raise RunStateError("Its provider has not answered yet. Try again in a moment, or call it without task.")
    if isinstance(result, Pending):
        return result.run_id
    fields: Mapping[str, Json] = msgspec.json.decode(result) if isinstance(result, msgspec.Raw) else result
    run_id = fields.get("runId")
    if not isinstance(run_id, str):
        raise MethodNotFound("This call started no run: call it without task.")
    return run_id


def supports_tasks(call: Call) -> bool:
    """Whether a request of the envelope era declares the tasks extension."""
    capabilities = call.meta[META_CAPABILITIES] if call.meta is not None else {}
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and TASKS_EXTENSION in extensions
