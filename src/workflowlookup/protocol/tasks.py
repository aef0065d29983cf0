"""Calls that became tasks: a run seen as a task, in the form of 2025-11-25 and in that of the 2026-07-28 extension.

A task has the id of its run, and all that is told of it comes from the journal: any connection may ask, also one that
is opened after the server was started anew. In 2025-11-25 the client asks for a task; in the extension a client says
that it knows tasks, and a call whose answer takes time becomes one. A task is the call, not the run: it is done as
soon as the call has something to tell, be it that the run waits for the agent.
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
from workflowlookup.protocol.pending_calls import Told, token_of
from workflowlookup.protocol.questions import elicitation, given, signed_key
from workflowlookup.protocol.replies import refusal, tool_result
from workflowlookup.protocol.requests import Call, name_of
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
"""How often a client that polls should."""
PAGE_SIZE: Final = 50
MAX_FOLLOWED: Final = 256
OVER: Final = ("completed", "failed", "cancelled")
"""The states of a task in which nothing happens any more."""


class _Followed(msgspec.Struct):
    """A task of this connection, and what its client knows of it."""

    run_id: str
    status: str
    told: Told


class Tasks:
    """The tasks as one connection sees them."""

    def __init__(self, backend: Backend, outbox: list[bytes]) -> None:
        self._backend = backend
        self._outbox = outbox
        self._followed: dict[str, _Followed] = {}

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
        """The answer to a call that its client wants as a task: the task, whether or not it is done already."""
        run = self._services.runs.get(_run_in(result))
        status = self._status(run, caller)
        if status not in OVER and len(self._followed) < MAX_FOLLOWED:
            self._followed[run.id] = _Followed(run.id, status, Told(token_of(call)))
        return {"task": self._view(run, status)}

    def get(self, call: Call, caller: Caller) -> Json:
        run = self._run(call)
        return self._view(run, self._status(run, caller))

    def result(self, call: Call, caller: Caller) -> Outcome:
        """What the call would have been answered; waits for it. A person who is needed is asked on the way."""
        run = self._run(call)
        moved = answered_run(self._services, run.id, caller)
        if moved is not None and moved.open_question is not None:
            answered = elicit_confirmation(self._services, moved, caller)
            if isinstance(answered, Elicitation):
                return answered
            run = answered

        def tell(run: Run) -> Result | Elicitation:
            if self._needs_person(run, caller) and not has_answer(run, caller):
                question = elicit_confirmation(self._services, run, caller)
                if isinstance(question, Elicitation):
                    return msgspec.structs.replace(question, meta={RELATED: {"taskId": run.id}})
            return {**self._payload(run, caller), "_meta": {RELATED: {"taskId": run.id}}}

        return await_end(self._services, run, tell)

    def cancel(self, call: Call, caller: Caller) -> Json:
        run = self._run(call)
        if run.is_over:
            raise InvalidParams(f"task '{run.id}' is over: {run.state}")
        run = self._services.runs.cancel(run.id, "the task was cancelled", by=caller.name)
        return self._view(run, "cancelled")

    def list(self, call: Call, caller: Caller) -> Json:
        """Every run as a task, the last started first."""
        place = decode_run_cursor(call.optional("cursor", str, "text"))
        found = self._services.runs.summaries(RunQuery(after=place, limit=PAGE_SIZE + 1))
        shown = found[:PAGE_SIZE]
        following = {"nextCursor": encode_run_cursor(shown[-1])} if len(found) > PAGE_SIZE else {}
        return {"tasks": [self._line(summary, caller) for summary in shown], **following}

    def _line(self, summary: "RunSummary", caller: Caller) -> dict[str, Json]:
        asks = summary.waiting_for == "confirmation" and self._needs_person(self._services.runs.get(summary.id), caller)
        status = "input_required" if asks else _STATUS.get(summary.state, "working")
        moments = {"createdAt": iso(summary.started), "lastUpdatedAt": iso(summary.updated)}
        return {"taskId": summary.id, "status": status, **moments, "ttl": None, "pollInterval": POLL_MS}

    @property
    def is_watching(self) -> bool:
        """Whether there are tasks whose client is told what becomes of them."""
        return bool(self._followed)

    def look(self, caller: Caller) -> None:
        """Tell what became of the tasks of this connection."""
        for followed in list(self._followed.values()):
            try:
                run = self._services.runs.get(followed.run_id)
            except RunNotFound:
                del self._followed[followed.run_id]
                continue
            except WorkflowLookupError:  # the journal cannot be read now: it is looked at again the next time
                log.debug("task '%s' cannot be seen", followed.run_id, exc_info=True)
                continue
            self._tell_progress(followed, run)
            status = self._status(run, caller)
            if status != followed.status:
                followed.status = status
                self._outbox.append(jsonrpc.notification("notifications/tasks/status", self._view(run, status)))
            if status in OVER:
                del self._followed[followed.run_id]

    def _tell_progress(self, followed: _Followed, run: Run) -> None:
        if followed.told.token is None:
            return
        news = followed.told.news(progress_of(self._services, run), {RELATED: {"taskId": run.id}})
        if news is not None:
            self._outbox.append(news)

    def _view(self, run: Run, status: str) -> dict[str, Json]:
        return {**_common(run, status), "ttl": None, "pollInterval": POLL_MS}

    def _status(self, run: Run, caller: Caller) -> str:
        if is_at_work(run):
            return "working"
        if self._needs_person(run, caller):
            return "input_required"
        return _STATUS[run.state]

    def _needs_person(self, run: Run, caller: Caller) -> bool:
        """Whether the person at this client is to be asked now."""
        return run.open_question is not None and not run.is_over and may_elicit(self._services, run, caller)

    # ── since 2026-07-28: the extension ─────────────────────────────────────────────────────────────────────────

    def promise(self, later: Pending) -> Json:
        """The answer to a call that becomes a task, because it takes time and its client knows tasks."""
        run = self._services.runs.get(later.run_id)
        return {"resultType": "task", **_common(run, "working"), **_UNLIMITED}

    def get_detailed(self, call: Call) -> Json:
        """A task with what came of it, or with what a person is asked."""
        caller = self._declared(call)
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
        """What a person answered to what a task asks; answers to nothing that is open are passed over."""
        caller = self._declared(call)
        responses = call.optional("inputResponses", dict, "an object")
        if responses is None:
            raise InvalidParams("inputResponses is required")
        run = self._run(call)
        question = elicit_confirmation(self._services, run, caller) if self._needs_person(run, caller) else None
        if isinstance(question, Elicitation):
            answer = given(responses, question, signed_key(question, self._services))
            if answer is not None:
                elicit_confirmation(
                    self._services, run, msgspec.structs.replace(caller, answers={question.key: answer})
                )
        return {}

    def cancel_quietly(self, call: Call) -> Json:
        """The task is cancelled, or was over; its state tells."""
        caller = self._declared(call)
        run = self._run(call)
        if not run.is_over:
            self._services.runs.cancel(run.id, "the task was cancelled", by=caller.name)
        return {}

    def _declared(self, call: Call) -> Caller:
        """Who asks, if it knows tasks."""
        if not knows_tasks(call):
            needed: Json = {"extensions": {TASKS_EXTENSION: {}}}
            raise MissingClientCapability("Tasks need a client that declares them.", requiredCapabilities=needed)
        meta: Any = call.meta
        name = self._backend.sign(name_of(meta.get(META_CLIENT_INFO)))
        return Caller(capabilities=meta[META_CAPABILITIES], name=name)

    # ── both ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _payload(self, run: Run, caller: Caller) -> dict[str, Json]:
        """What the call would have been answered."""
        if run.state in (State.FAILED, State.CANCELLED):
            return refusal(failure_of(run))
        return tool_result(answer_with_result(self._services, run, caller))


_STATUS: Final[Mapping[str, str]] = {
    State.QUEUED: "working",
    State.RUNNING: "working",
    State.WAITING: "completed",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
    State.UNKNOWN: "completed",
}
"""What a run is as a task. One that waits for the agent is done: the call has been answered with what to do. So is one
whose end cannot be known: its answer says so.
"""

_UNLIMITED: Final[Mapping[str, Json]] = {"ttlMs": None, "pollIntervalMs": POLL_MS}


def _common(run: Run, status: str) -> dict[str, Json]:
    moments = {"createdAt": iso(run.started), "lastUpdatedAt": iso(run.updated)}
    return {"taskId": run.id, "status": status, "statusMessage": _message(run), **moments}


def _message(run: Run) -> str:
    if is_at_work(run):
        return f"{'Queued' if run.state is State.QUEUED else 'Running'}: {title_of(run)}"
    if run.end is not None and run.end.reason:
        return run.end.reason
    return f"The run waits for {run.waiting_for}: {title_of(run)}" if run.waiting_for else f"The run is {run.state}."


def _run_in(result: Result | Pending) -> str:
    """The run that a tool's answer is about."""
    if isinstance(result, Pending) and not result.run_id:
        raise RunStateError("Its provider has not answered yet. Try again in a moment, or call it without task.")
    if isinstance(result, Pending):
        return result.run_id
    told: Mapping[str, Json] = msgspec.json.decode(result) if isinstance(result, msgspec.Raw) else result
    run_id = told.get("runId")
    if not isinstance(run_id, str):
        raise MethodNotFound("This call began no run: call it without task.")
    return run_id


def knows_tasks(call: Call) -> bool:
    """Whether a request of the envelope era says that its client knows the extension."""
    capabilities = call.meta[META_CAPABILITIES] if call.meta is not None else {}
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and TASKS_EXTENSION in extensions
