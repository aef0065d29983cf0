"""The errors that a request can be answered with.

Each class has the JSON-RPC code and the constant message that the specs give it. The details of one error go into
`data`, and `remedy` is a sentence that tells the caller what to do. Findings about outputs and documents are not errors
but values (`language.model.Issue`, `language.findings.Finding`).
"""

import errno
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

JOURNAL_SECONDS: Final = 5.0
"""Default time limit for one use of the journal."""
UNAVAILABLE_RETRY_SECONDS: Final = 5
"""`Retry-After` of requests that fail because the journal does not answer."""
MAX_TEXT: Final = 8_192
"""Limit on the texts of an error, because they repeat names that callers choose."""
_UNKNOWN_OUTCOME: Final = (
    "It is not known whether it was stored. In a moment call workflow_status with the runId (workflow_runs, if you "
    "started a run without one), and send this again only if that shows that it was not."
)
_REPEATABLE: Final = (
    "It may have been stored. Sending the same request again is safe: what was stored is recognised, not stored twice."
)


class WorkflowLookupError(Exception):
    """An error with a code of its own. Any other exception is a bug and becomes `InternalError`."""

    code: ClassVar[int]
    message: ClassVar[str]

    def __init__(self, remedy: str = "", /, **data: Any) -> None:
        self.remedy = _sendable(remedy)
        super().__init__(self.remedy or self.message)
        self.data: Mapping[str, Any] = {
            name: _sendable(value) if isinstance(value, str) else value for name, value in data.items()
        }

    def explain(self) -> str:
        """What went wrong and what to do, for a reader who sees neither `code` nor `data`."""
        return f"{self.message}. {self.remedy}" if self.remedy else f"{self.message}."


def _sendable(text: str) -> str:
    """The text as valid UTF-8, because file names may hold other bytes. A long text loses its middle."""
    if len(text) > MAX_TEXT:
        text = f"{text[: MAX_TEXT // 2]}…{text[-MAX_TEXT // 2 :]}"
    return text.encode(errors="surrogateescape").decode(errors="replace")


class ParseError(WorkflowLookupError):
    """The line is not JSON, not UTF-8, or too long."""

    code, message = -32700, "Parse error"


class InvalidRequest(WorkflowLookupError):
    """The line is JSON, but not a JSON-RPC request."""

    code, message = -32600, "Invalid Request"


class MethodNotFound(WorkflowLookupError):
    """There is no such method."""

    code, message = -32601, "Method not found"


class InvalidParams(WorkflowLookupError):
    """The parameters do not match the schema; `details` names each one and what was expected."""

    code, message = -32602, "Invalid params"

    def __init__(self, details: str, /, **data: Any) -> None:
        super().__init__(details, details=details, **data)


class InternalError(WorkflowLookupError):
    """A bug in the server; its traceback is only in the log."""

    code, message = -32603, "Internal error"

    def __init__(self) -> None:
        super().__init__("This is a bug in the server. Its log on standard error has the details.")


class UnsupportedProtocolVersion(WorkflowLookupError):
    """`initialize` asked for a version that is not served with a handshake; the client may try another."""

    code, message = -32000, "Unsupported protocol version"


class NotInitialized(WorkflowLookupError):
    """A handshake-era request came before `initialize`."""

    code, message = -32000, "Server not initialized"


class UnsupportedEnvelopeVersion(WorkflowLookupError):
    """A request of the envelope era names a version that is not served."""

    code, message = -32022, "Unsupported protocol version"


class HeaderMismatch(WorkflowLookupError):
    """The headers of an HTTP request contradict its body."""

    code, message = -32020, "Header mismatch"


class RequestCancelled(WorkflowLookupError):
    """The client cancelled its request. Over HTTP the stream of the request still ends with an answer."""

    code, message = -32800, "Request cancelled"


class MissingClientCapability(WorkflowLookupError):
    """The tool needs a capability that the client did not declare."""

    code, message = -32021, "Missing required client capability"


class WorkflowNotFound(WorkflowLookupError):
    """No source of the catalog has this id."""

    code, message = -32001, "Workflow not found"


class InvalidWorkflow(WorkflowLookupError):
    """The document, or a JSON Schema inside it, is malformed."""

    code, message = -32002, "Invalid workflow"


class ResourceNotFound(WorkflowLookupError):
    """No resource has this URI. MCP gives it the code that we use for a malformed workflow."""

    code, message = -32002, "Resource not found"


class StepNotFound(WorkflowLookupError):
    """The workflow has no step with this id."""

    code, message = -32003, "Step not found"


class InvalidCriteria(WorkflowLookupError):
    """The step's validation criteria are not well-formed."""

    code, message = -32004, "Validation error"


class RunStateError(WorkflowLookupError):
    """The run is in a state that does not allow this; `data` has the state, and `details` says what to do."""

    code, message = -32005, "Run state error"

    def __init__(self, details: str, /, **data: Any) -> None:
        super().__init__(details, details=details, **data)


class RunNotFound(RunStateError):
    """The journal has no run with this id."""

    message = "Run not found"


class StorageError(WorkflowLookupError):
    """A document exists but cannot be read, or the journal cannot be read or written."""

    code, message = -32006, "Storage error"


class JournalUnavailable(StorageError):
    """The journal does not answer in time. With `retryAfterSeconds` in its data, HTTP sends a 503 with `Retry-After`.

    If a change may have been stored, `retryAfterSeconds` is left out, because a proxy would repeat the request. It
    stays if repeating the request is safe (`as_repeatable`).
    """

    def __init__(self, reason: str, /, *, is_unknown: bool = False, is_repeatable: bool = False, **data: Any) -> None:
        """`reason`: a sentence without its full stop. `is_unknown`: a change was sent and may have been stored.

        `is_repeatable`: if the request is sent again, a change that was stored is recognised.
        """
        self.reason = reason
        self.is_unknown = is_unknown
        if is_repeatable or not is_unknown:
            data["retryAfterSeconds"] = UNAVAILABLE_RETRY_SECONDS
        outcome = _REPEATABLE if is_repeatable else _UNKNOWN_OUTCOME
        details = f"{reason}. {outcome if is_unknown else 'Nothing was changed. Try again in a moment.'}"
        super().__init__(details, **data, details=details)

    def as_repeatable(self) -> "JournalUnavailable":
        """The same error, for a request that can safely be repeated whether or not its change was stored."""
        return JournalUnavailable(self.reason, is_unknown=self.is_unknown, is_repeatable=True)


class JournalBusy(JournalUnavailable):
    """The journal answers, but a lock was held for too long, or it lacks disk space, memory or connections."""


class OutOfDescriptors(StorageError):
    """The process or the machine has no file descriptors left; a later attempt may succeed."""


def out_of_descriptors(**data: Any) -> OutOfDescriptors:
    """The error for any operation that needs a file while none can be opened."""
    details = "too many open files: try again in a moment, close connections, or raise the limit (`ulimit -n`)"
    return OutOfDescriptors(f"No file can be opened: {details}.", details=details, **data)


class NotReadYet(StorageError):
    """Documents have not been read yet, because others took long. Later requests read them."""


def not_read_yet(message: str = "Not all documents of the library are read yet", /, **data: Any) -> NotReadYet:
    """The error for documents that there was no time to read, and for ids that one of them may have."""
    details = f"{message}, because reading the others took long. The next requests read on: ask again in a moment"
    return NotReadYet(f"{details}.", details=details, **data)


def is_out_of_descriptors(problem: BaseException) -> bool:
    """Whether the system refused to open a file because too many are open."""
    return isinstance(problem, OSError) and problem.errno in (errno.EMFILE, errno.ENFILE)


class RunDamaged(StorageError):
    """The events of one run are damaged in the journal and cannot be read. Other runs can."""

    def __init__(self, problem: str, /, run_id: str, copies: Sequence[str] = ()) -> None:
        """`problem`: a sentence. `copies`: the names of the damaged files that were set aside."""
        self.problem = problem
        aside = f" The journal was damaged, and is kept as {', '.join(copies)}." if copies else ""
        advice = "`workflowlookup purge --damaged` deletes such runs; runs from a backup can then be imported"
        details = f"{problem}{aside} The run cannot go on or be cancelled; others can. {advice}."
        super().__init__(details, runId=run_id, details=details)


class RunUnproven(RunDamaged):
    """A person's answer in a run is not proven here, so the run can be read and cancelled, but cannot go on."""

    def __init__(self, problem: str, /, run_id: str) -> None:
        """`problem`: a sentence."""
        self.problem = problem
        details = (
            f"{problem} So the run cannot go on here. Cancel it and start another, or have the person make their key "
            "known here."
        )
        StorageError.__init__(self, details, runId=run_id, details=details)


class SecurityError(WorkflowLookupError):
    """Reading a document would be unsafe."""

    code, message = -32007, "Security error"


class Untrusted(SecurityError):
    """Something that a repository brought would run, and the user has not trusted it; `untrusted` names each entry."""


class NotAsLocked(SecurityError):
    """A document or a source from git is not what the lock file says; `fix` is what to do about it."""

    def __init__(self, problem: str, fix: str = "", /, **data: Any) -> None:
        """`problem` and `fix`: sentences."""
        self.problem = problem
        self.fix = fix
        super().__init__(f"{problem} {fix}".strip(), **{"details": problem, **data})


class ExecutionFailed(WorkflowLookupError):
    """A run that a call waited for did not complete; `data` says how it ended, and which of its calls were stopped."""

    code, message = -32008, "Workflow execution failed"


class ProviderUnavailable(WorkflowLookupError):
    """The system that the workflow belongs to does not answer."""

    code, message = -32009, "Provider not available"
    was_sent = True
    """Whether the request may have reached it."""


class NotSupported(WorkflowLookupError):
    """The system that the workflow belongs to cannot do this."""

    code, message = -32010, "Not supported"


class MissingExtra(NotSupported):
    """A required package is not installed: `extra` names the extra that has it, `install` is the command to type."""


class Forbidden(WorkflowLookupError):
    """The caller sees the workflow or run, but may not do this; `scope` is the missing scope."""

    code, message = -32011, "Not allowed"


class Overloaded(WorkflowLookupError):
    """Too many requests or sessions, or the server is stopping; `retryAfterSeconds` says when to try again."""

    code, message = -32012, "Server busy"
