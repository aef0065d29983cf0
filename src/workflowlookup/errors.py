"""Every way in which a request can be refused.

Each class carries the JSON-RPC code and the constant message that the specs give it; the particulars of one
refusal go into `data`, and `remedy` is a sentence that tells the caller what to do. Findings about outputs and
documents are not errors: they are values (`core.model.Issue`, `core.document.Finding`).
"""

import errno
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

JOURNAL_SECONDS: Final = 5.0
"""How long a use of the journal may take, unless the settings say otherwise."""
AWAY_RETRY_SECONDS: Final = 5
"""`Retry-After` of requests that fail because the journal does not answer."""
MAX_TEXT: Final = 8_192
"""How long a text of a refusal may be: callers choose the names that it repeats."""
_UNKNOWN_OUTCOME: Final = (
    "Nobody can say whether it was stored. In a moment call workflow_status with the runId (workflow_runs, if you "
    "started a run without one), and send this again only if that shows that it was not."
)
_REPEATABLE: Final = (
    "It may have been stored. Sending the same request again is safe: what was stored is recognised, not stored twice."
)


class WorkflowLookupError(Exception):
    """A refusal with a code of its own; anything else that is raised is a bug and becomes `InternalError`."""

    code: ClassVar[int]
    message: ClassVar[str]

    def __init__(self, remedy: str = "", /, **data: Any) -> None:
        self.remedy = _sendable(remedy)
        super().__init__(self.remedy or self.message)
        self.data: Mapping[str, Any] = {
            name: _sendable(value) if isinstance(value, str) else value for name, value in data.items()
        }

    def explain(self) -> str:
        """What went wrong and what to do, for a reader who sees neither code nor data."""
        return f"{self.message}. {self.remedy}" if self.remedy else f"{self.message}."


def _sendable(text: str) -> str:
    """Text that can be sent; names of files may hold bytes that are no text. The middle of a long one is left out."""
    if len(text) > MAX_TEXT:
        text = f"{text[: MAX_TEXT // 2]}…{text[-MAX_TEXT // 2 :]}"
    return text.encode(errors="surrogateescape").decode(errors="replace")


class ParseError(WorkflowLookupError):
    """The line is not JSON, not UTF-8, or too long."""

    code, message = -32700, "Parse error"


class InvalidRequest(WorkflowLookupError):
    """The line is JSON, but not a request."""

    code, message = -32600, "Invalid Request"


class MethodNotFound(WorkflowLookupError):
    """Nobody answers to this method."""

    code, message = -32601, "Method not found"


class InvalidParams(WorkflowLookupError):
    """The parameters do not fit; `details` names each one and what was expected."""

    code, message = -32602, "Invalid params"

    def __init__(self, details: str, /, **data: Any) -> None:
        super().__init__(details, details=details, **data)


class InternalError(WorkflowLookupError):
    """A bug of ours; its traceback is in the log and nowhere else."""

    code, message = -32603, "Internal error"

    def __init__(self) -> None:
        super().__init__("This is a fault of the server. Its log on standard error says more.")


class UnsupportedProtocolVersion(WorkflowLookupError):
    """`initialize` asked for a version that has no handshake here; the client may try again."""

    code, message = -32000, "Unsupported protocol version"


class NotInitialized(WorkflowLookupError):
    """A handshake-era request came before `initialize`."""

    code, message = -32000, "Server not initialized"


class UnsupportedEnvelopeVersion(WorkflowLookupError):
    """A request of the envelope era names a version that is not served."""

    code, message = -32022, "Unsupported protocol version"


class HeaderMismatch(WorkflowLookupError):
    """The headers of a request over HTTP say something else than the request."""

    code, message = -32020, "Header mismatch"


class RequestCancelled(WorkflowLookupError):
    """The client cancelled its request; over HTTP the stream of the request still ends with an answer."""

    code, message = -32800, "Request cancelled"


class MissingClientCapability(WorkflowLookupError):
    """The tool needs something that the client did not say it can do."""

    code, message = -32021, "Missing required client capability"


class WorkflowNotFound(WorkflowLookupError):
    """No source in the catalog holds this id."""

    code, message = -32001, "Workflow not found"


class InvalidWorkflow(WorkflowLookupError):
    """The document, or a JSON Schema inside it, is malformed."""

    code, message = -32002, "Invalid workflow"


class ResourceNotFound(WorkflowLookupError):
    """No resource has this address. MCP gives it the same code as ours for a malformed workflow."""

    code, message = -32002, "Resource not found"


class StepNotFound(WorkflowLookupError):
    """The workflow has no step of this id."""

    code, message = -32003, "Step not found"


class InvalidCriteria(WorkflowLookupError):
    """The step's validation criteria are not well-formed."""

    code, message = -32004, "Validation error"


class RunStateError(WorkflowLookupError):
    """The run is not where this could be done; `data` says where it is, and `details` what to do."""

    code, message = -32005, "Run state error"

    def __init__(self, details: str, /, **data: Any) -> None:
        super().__init__(details, details=details, **data)


class RunNotFound(RunStateError):
    """The journal has no run of this id."""

    message = "Run not found"


class StorageError(WorkflowLookupError):
    """A document is there but cannot be read, or the journal of runs can be neither read nor written."""

    code, message = -32006, "Storage error"


class JournalAway(StorageError):
    """The journal does not answer in time. With `retryAfterSeconds` in its data, HTTP sends a 503 with `Retry-After`.

    If a change may have been stored, `retryAfterSeconds` is left out, because a proxy would repeat the request; unless
    repeating it is safe (`as_repeatable`).
    """

    def __init__(self, reason: str, /, *, is_unknown: bool = False, is_repeatable: bool = False, **data: Any) -> None:
        """`reason`: a sentence without its full stop. `is_unknown`: a change was sent that may have been stored.

        `is_repeatable`: the same request, sent again, is recognised if its change was stored.
        """
        self.reason = reason
        self.is_unknown = is_unknown
        if is_repeatable or not is_unknown:
            data["retryAfterSeconds"] = AWAY_RETRY_SECONDS
        unknown = _REPEATABLE if is_repeatable else _UNKNOWN_OUTCOME
        details = f"{reason}. {unknown if is_unknown else 'Nothing was changed. Try again in a moment.'}"
        super().__init__(details, **data, details=details)

    def as_repeatable(self) -> "JournalAway":
        """The same error, for a request that can safely be repeated whether or not its change was stored."""
        return JournalAway(self.reason, is_unknown=self.is_unknown, is_repeatable=True)


class JournalBusy(JournalAway):
    """The journal answers, but another process held a lock for too long, or it lacks room, memory or connections."""


class OutOfDescriptors(StorageError):
    """The process, or the machine, has no file descriptor left; a later attempt may succeed."""


def out_of_descriptors(**data: Any) -> OutOfDescriptors:
    """The error for any operation that needs a file while none can be opened."""
    details = "too many open files: try again in a moment, close connections, or raise the limit (`ulimit -n`)"
    return OutOfDescriptors(f"No file can be opened: {details}.", details=details, **data)


class NotReadYet(StorageError):
    """Documents have not been read yet, because others took long; a later request reads on."""


def not_read_yet(what: str = "Not all documents of the library are read yet", /, **data: Any) -> NotReadYet:
    """The error for documents that there was no time for, and for an id that one of them may have."""
    details = f"{what}, because reading the others took long. The next requests read on: ask again in a moment"
    return NotReadYet(f"{details}.", details=details, **data)


def is_out_of_descriptors(problem: BaseException) -> bool:
    """Whether the system refused to open a file because too many are open."""
    return isinstance(problem, OSError) and problem.errno in (errno.EMFILE, errno.ENFILE)


class RunDamaged(StorageError):
    """What the journal has of one run cannot be read, now or later; that of the others can."""

    def __init__(self, problem: str, /, run_id: str, kept: Sequence[str] = ()) -> None:
        """`problem`: a sentence. `kept`: the names of the damaged files that were set aside."""
        self.problem = problem
        aside = f" The journal was damaged, and is kept as {', '.join(kept)}." if kept else ""
        advice = "`workflowlookup purge --damaged` forgets such runs; a backup's can then be imported"
        details = f"{problem}{aside} The run cannot go on or be cancelled; others can. {advice}."
        super().__init__(details, runId=run_id, details=details)


class SecurityError(WorkflowLookupError):
    """A document is refused because reading it would be unsafe."""

    code, message = -32007, "Security error"


class Untrusted(SecurityError):
    """Something that a repository brought would run, and nobody has trusted it; `untrusted` names each entry."""


class ExecutionFailed(WorkflowLookupError):
    """A run that somebody waits for ended without being completed; `data` says how, and what was stopped beneath it."""

    code, message = -32008, "Workflow execution failed"


class ProviderAway(WorkflowLookupError):
    """The system that the workflow belongs to does not answer now."""

    code, message = -32009, "Provider not available"
    was_sent = True
    """Whether what was asked of it may have reached it."""


class NotSupported(WorkflowLookupError):
    """The system that the workflow belongs to cannot do this."""

    code, message = -32010, "Not supported"


class MissingExtra(NotSupported):
    """A package that this needs is not installed: `extra` names what brings it, `install` is the line to type."""


class Forbidden(WorkflowLookupError):
    """The caller may see what this is about, but may not do this; `scope` is what it would take."""

    code, message = -32011, "Not allowed"


class Overloaded(WorkflowLookupError):
    """The server takes no more now: too many requests or sessions, or it is stopping; `retryAfterSeconds` says when."""

    code, message = -32012, "Server busy"
