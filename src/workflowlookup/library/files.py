"""Reads one document from a directory that others can write to.

Nothing about a file is trusted: its kind, its size, where a link leads, its content. Every failure becomes one of our
errors, with the name of the file.
"""

import errno
import logging
import os
import re
import stat
from typing import Final

import msgspec

from workflowlookup.errors import (
    InvalidWorkflow,
    NotAsLocked,
    SecurityError,
    StorageError,
    WorkflowLookupError,
    is_out_of_descriptors,
    out_of_descriptors,
)
from workflowlookup.language.formats.syntax import (
    MAX_NESTING,
    RepeatedField,
    SyntaxProblem,
    TooDeep,
)
from workflowlookup.language.forms import DOCUMENT_SUFFIXES, FORMS, split_suffix
from workflowlookup.language.values import DEFAULT_CATEGORY, DEFAULT_VERSION, Json

log = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 1 << 20
FETCH_AGAIN: Final = "`workflowlookup update --locked` fetches it again."
"""What to do about a file in the cache that is not what the lock file says."""
FIXTURE_SUFFIXES: Final = (".test.yaml", ".test.yml", ".test.json")
FOLDER_SUFFIX: Final = ".files"
"""Of the folder beside a document with what the workflow brings along; see `attachments`."""
SKILL_FILE: Final = "SKILL.md"
"""What a workflow itself becomes in the folder of a skill."""

_OPEN_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)  # a named pipe must not block the server
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)

Signature = tuple[int, int, int, int]
"""Modification time, change time, size and inode: a changed file has another signature."""


class WorkflowSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of `workflow_list`."""

    id: str
    name: str
    description: str
    category: str
    version: str


def is_document_name(name: str) -> bool:
    """Whether a file with this name is a workflow document: not hidden, and not a test fixture."""
    return name.endswith(DOCUMENT_SUFFIXES) and not name.startswith(".") and not name.endswith(FIXTURE_SUFFIXES)


def folder_of(document: str) -> str:
    """The name or path of the folder with the files that a document brings along; there may be none."""
    return split_suffix(document)[0] + FOLDER_SUFFIX


def signature_of(status: os.stat_result) -> Signature:
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def read_bytes(path: str, root: str) -> tuple[bytes, Signature]:
    """The content of a regular file inside `root`, of at most `MAX_FILE_BYTES`."""
    try:
        try:
            descriptor = os.open(path, _OPEN_FLAGS)
        except OSError as problem:
            if problem.errno not in (errno.ELOOP, errno.EMLINK):
                raise
            descriptor = os.open(_inside(path, root), _OPEN_FLAGS)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise StorageError(f"{path} is not a regular file.", file=path)
            if status.st_size > MAX_FILE_BYTES:
                raise _too_large(path)
            data = os.read(descriptor, MAX_FILE_BYTES + 1 if status.st_size == 0 else status.st_size + 1)
            while len(data) < status.st_size and (more := os.read(descriptor, status.st_size - len(data))):
                data += more
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise unreadable(path, problem) from problem
    if len(data) > MAX_FILE_BYTES:  # it grew while it was read
        raise _too_large(path)
    return data, signature_of(status)


def data_digest(data: bytes) -> str:
    """The SHA-256 of the content of a file."""
    import hashlib  # noqa: PLC0415 - only for documents of a lock file

    return hashlib.sha256(data).hexdigest()


def refuse_unless_locked(data: bytes, path: str, digest: str | None) -> None:
    """Raises `NotAsLocked` unless the content has this digest, or the digest is None. It is empty for a document that
    the lock does not have.
    """
    if digest is None or data_digest(data) == digest:
        return
    why = "has another content than the lock file says" if digest else "is not in the lock file"
    fix = "`workflowlookup update --locked` fetches it again; if that does not help, the lock file was changed."
    raise NotAsLocked(f"{path} {why}.", fix, file=path)


def unreadable(path: str, problem: OSError) -> StorageError:
    """The error for a file or directory that the system does not let us read."""
    if is_out_of_descriptors(problem):
        return out_of_descriptors(file=path)
    reason = problem.strerror or str(problem)
    return StorageError(f"{path} cannot be read: {reason}.", file=path, details=reason)


def _too_large(path: str) -> SecurityError:
    details = f"larger than {MAX_FILE_BYTES:,} bytes"
    return SecurityError(f"{path} is {details}. Split the workflow.", file=path, details=details)


def _inside(path: str, root: str) -> str:
    """The target of a link. Raises `SecurityError` when it is outside the root."""
    target = os.path.realpath(path)
    if os.path.commonpath([target, os.path.realpath(root)]) != os.path.realpath(root):
        details = "a link that leads out of its directory"
        raise SecurityError(f"{path} is {details}. Copy the file instead.", file=path, details=details)
    return target


def parse_document(data: bytes, path: str) -> Json:
    """Parse the content of a file. Raises `InvalidWorkflow`, or `SecurityError` for nesting that is too deep."""
    try:
        return FORMS[split_suffix(path)[1]].parse(data)
    except TooDeep as problem:
        details = f"nested deeper than {MAX_NESTING} levels"
        raise SecurityError(f"{path} is {details}.", file=path, details=details) from problem
    except RepeatedField as problem:  # such documents have always loaded; `validate` reports an error
        log.warning("%s: %s; only the last one counts", path, problem.message)
        return problem.value
    except SyntaxProblem as problem:
        raise InvalidWorkflow(f"{path}: {problem.message}.", file=path, issues=[problem.message]) from problem


def summarise(document: Json, path: str) -> WorkflowSummary:
    """The summary of a valid document. Raises `InvalidWorkflow` with all errors of an invalid one."""
    from workflowlookup.language.document.checking import errors_in  # noqa: PLC0415 - with the first document

    issues = [finding.message for finding in errors_in(document)]
    if not issues:
        return WorkflowSummary(
            id=document["id"],
            name=document["name"],
            description=document["description"],
            category=document.get("category", DEFAULT_CATEGORY),
            version=document.get("version", DEFAULT_VERSION),
        )
    raise InvalidWorkflow(f"{path}: {'; '.join(issues[:3])}.", file=path, issues=issues)


_ID_IN_TEXT: Final = rb"""["']?\bid["']?\s*:\s*["']?(?P<id>[a-z0-9-][a-z0-9._-]{2,63})\b"""


def claimed_id(document: Json, data: bytes, path: str) -> str:
    """The id that an invalid document claims; its file name when it has none."""
    claimed = document.get("id") if isinstance(document, dict) else None
    if document is None and (match := re.search(_ID_IN_TEXT, data[:4096])):  # it could not be parsed
        return match["id"].decode()
    return claimed if isinstance(claimed, str) and claimed else split_suffix(os.path.basename(path))[0]


class ToolDetails(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of a document that matter when it is offered as a tool."""

    input_schema: msgspec.Raw = msgspec.Raw()
    execution_type: str = "async"
    metadata: msgspec.Raw = msgspec.Raw()


NO_DETAILS: Final = ToolDetails()
_DETAILS: Final = frozenset(ToolDetails.__struct_encode_fields__)


class LoadedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read: the summary of its workflow, or why it has none."""

    path: str
    id: str
    signature: Signature | None
    summary: WorkflowSummary | None = None
    details: ToolDetails = NO_DETAILS
    needs_agent: bool = True
    """Whether the agent carries out a step, not only the server or another system."""
    refusal: WorkflowLookupError | None = None
    digest: str | None = None
    """The SHA-256 that it must have; None if it may have any."""


def load(path: str, root: str, digest: str | None = None) -> LoadedFile:
    """Read a file. Never raises: an error becomes its `refusal`. `digest`: see `refuse_unless_locked`."""
    document: Json = None
    data = b""
    signature: Signature | None = None
    try:
        data, signature = read_bytes(path, root)
        refuse_unless_locked(data, path, digest)
        document = parse_document(data, path)
        summary = summarise(document, path)
        return LoadedFile(
            path=path,
            id=summary.id,
            signature=signature,
            summary=summary,
            details=_details(document),
            needs_agent=_needs_agent(document),
            digest=digest,
        )
    except WorkflowLookupError as refusal:
        refusal.__cause__ = refusal.__context__ = None
        refusal.with_traceback(None)  # its frames would keep this document, and the previous listing, in memory
        claimed = claimed_id(document, data, path)
        return LoadedFile(path=path, id=claimed, signature=signature, refusal=refusal, digest=digest)


def _details(document: Json) -> ToolDetails:
    """The tool details of a document. Most have none, and share one value."""
    if document.keys().isdisjoint(_DETAILS):
        return NO_DETAILS
    return msgspec.json.decode(msgspec.json.encode(document), type=ToolDetails)


def _needs_agent(document: Json) -> bool:
    """Whether a step of a valid document, also in a loop, is not a call."""
    steps = list(document["steps"])
    while steps:
        step = steps.pop()
        if "body" in step:
            steps += step["body"] if isinstance(step["body"], list) else ()  # else the id of a step in the list
        elif "call" not in step:
            return True
    return False
