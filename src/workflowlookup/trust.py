"""Trust: what a repository brings is read, but runs nothing until the user has trusted exactly that content.

A `TrustEntry` is one thing that would run: a setting, a server, a provider, a command, a call or proof of a step. The
`TrustStore` is a file in the user's configuration directory with the SHA-256 of each entry that a person trusted.
`settings.SETTINGS` says which settings need trust, `STEP_KINDS` which parts of a step do, and `repository` which files
are a repository's.
"""

import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from workflowlookup.atomic import FileVersion, locked, read_own_file, replace_file
from workflowlookup.errors import SecurityError, StorageError, Untrusted
from workflowlookup.web import is_loopback_name

if TYPE_CHECKING:
    from workflowlookup.language.model import Workflow

MAX_STORE_BYTES: Final = 8 << 20
MAX_PROGRAMS: Final = 64
"""How many files of the repository one entry may name."""
MAX_PROGRAM_BYTES: Final = 256 << 20
UNREADABLE: Final = "unreadable"
"""Stands for the digest of a file that is missing, too long, or not a regular file."""
IMPORTED: Final = "imported"
"""The origin of a run that was imported and names no file: none of its calls is trusted."""

SETTING: Final = "setting"
SERVER: Final = "mcpServers"
PROVIDER: Final = "providers"
COMMAND: Final = "commands"
SOURCE: Final = "sources"
PROOF_COMMAND: Final = "run"
PROOF_REQUEST: Final = "http"


def _call(step: Mapping[str, Any]) -> Any:
    """A call with its `requireConfirmation`, because a call without confirmation needs trust of its own."""
    return {name: step[name] for name in ("call", "requireConfirmation") if name in step} if "call" in step else None


def _commands(step: Mapping[str, Any]) -> Any:
    """The proofs that run a command of their own, or add arguments or variables to one of the user's."""
    return [proof for proof in step.get("proof", ()) if {"run", "args", "env"} & proof.keys()] or None


def _requests(step: Mapping[str, Any]) -> Any:
    """The proofs that ask another machine."""
    requests = [proof for proof in step.get("proof", ()) if "url" in proof]
    return [proof for proof in requests if not is_loopback_name(host_of(str(proof["url"])))] or None


def host_of(url: str) -> str:
    """The host of a URL, without port; empty if it has none."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - only where a proof names a URL

    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


STEP_KINDS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "call": _call,
    PROOF_COMMAND: _commands,
    PROOF_REQUEST: _requests,
}
"""By kind: a function that gives the part of a step that needs trust, or None if the step has none."""

KINDS: Final[Mapping[str, str]] = {
    SETTING: "setting",
    SERVER: "MCP server",
    PROVIDER: "provider",
    COMMAND: "command",
    SOURCE: "fetching of source",
    "call": "call of step",
    PROOF_COMMAND: "commands that prove step",
    PROOF_REQUEST: "requests that prove step",
}
"""The kinds of entries, and their names for people."""


class TrustEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a file of a repository that takes effect only when it is trusted."""

    file: str
    """The real path."""
    kind: str
    """A key of `KINDS`."""
    name: str
    value: Any
    """The content in the file, as JSON values."""
    programs: tuple[str, ...] = ()
    """Files of the repository that it runs or names; their content is trusted with it."""

    def __str__(self) -> str:
        return f"{KINDS[self.kind]} {self.name!a}"

    def file_digests(self) -> Mapping[str, str] | None:
        """By path: the current SHA-256 of each program; None when there are too many, or one cannot be read."""
        if len(self.programs) > MAX_PROGRAMS:
            return None
        files = {path: file_digest(path) for path in self.programs}
        return None if UNREADABLE in files.values() else files

    def digest(self, files: Mapping[str, str]) -> str:
        """The SHA-256 of the canonical form: ASCII JSON with sorted keys and without spaces."""
        content = {"kind": self.kind, "name": self.name, "value": self.value, "files": files}
        text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=repr)
        return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: str) -> str:
    """The SHA-256 of a regular file; `UNREADABLE` for anything else, and for a file that grows while it is read."""
    digest = hashlib.sha256()
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_PROGRAM_BYTES:
                return UNREADABLE
            remaining = status.st_size
            while data := stream.read(1 << 18):
                remaining -= len(data)
                if remaining < 0:
                    return UNREADABLE
                digest.update(data)
    except OSError:
        return UNREADABLE
    return digest.hexdigest()


def step_entries(origin: str, document: Mapping[str, Any]) -> list[TrustEntry]:
    """The entries of a workflow that a repository brought in the file `origin`."""
    from workflowlookup.language.document.parts import walk_steps  # noqa: PLC0415 - settings alone need no documents

    return [
        TrustEntry(file=origin, kind=kind, name=f"{document['id']}/{step['id']}", value=value)
        for _, step in walk_steps(document["steps"])
        for kind, content in STEP_KINDS.items()
        if (value := content(step)) is not None
    ]


def how_to_trust(files: Iterable[str]) -> str:
    """A sentence: how a person can trust the entries of these files."""
    import shlex  # noqa: PLC0415 - only where something is ignored

    commands = " and ".join(f"`workflowlookup trust {shlex.quote(file)}`" for file in dict.fromkeys(files))
    return f"A person can look at it and allow it in a terminal: {commands}."


# ── redaction ───────────────────────────────────────────────────────────────────────────────────────────────────

_SECRET_NAME: Final = re.compile(
    r"(?!GIT_|BASH)\w*(?:key|token|secret|passw|credential|auth|cookie|dsn)\w*", re.IGNORECASE
)
_SECRET_VALUE: Final = re.compile(r"[\w+=~-][\w+=~./-]{5,}", re.ASCII)
"""One word that is neither a path nor a command. Any other value of a secret-looking name is shown."""
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")
_PASSWORD: Final = re.compile(r"(://[^:/?#@\\\s]*:)([^/?#@\\\s]+)(?=@)")
_SECRET_PARAMETER: Final = re.compile(rf"([?&]{_SECRET_NAME.pattern}=)([^&#\s]+)", re.IGNORECASE)
_URL_FIELDS: Final = frozenset({"url", "base_url", "journal"})


def redacted(entry: TrustEntry) -> Any:
    """The content of an entry without the secrets in environments, headers and URLs.

    Everything else is shown, even if its name says that it is a secret: it may be what runs.
    """
    is_system = entry.kind not in STEP_KINDS
    return _redacted(entry.value, entry.name if entry.kind == SETTING else "", is_system=is_system)


def _redacted(value: Any, name: str, *, is_system: bool) -> Any:
    match value:
        case Mapping() if is_system and name == "headers":
            return {key: _hidden(str(part)) for key, part in value.items()}
        case Mapping() if is_system and name == "env":
            return {key: _hidden(part) if _is_secret(key, part) else part for key, part in value.items()}
        case Mapping():
            return {key: _redacted(part, key, is_system=is_system) for key, part in value.items()}
        case str() if is_system and name in _URL_FIELDS:
            return _redacted_url(value)
    return value


def _redacted_url(url: str) -> str:
    """A URL without passwords and keys. Every host is shown, even in the query, where databases allow one. So are the
    environment variables that would be sent there.
    """

    def hide(match: re.Match[str]) -> str:
        ellipsis = "…" if _REFERENCE.sub("", match[2]) else ""
        return match[1] + "".join(_REFERENCE.findall(match[2])) + ellipsis

    return _SECRET_PARAMETER.sub(hide, _PASSWORD.sub(hide, url))


def _is_secret(name: str, value: object) -> bool:
    is_word = isinstance(value, str) and _SECRET_VALUE.fullmatch(_REFERENCE.sub("", value) or "reference") is not None
    return is_word and _SECRET_NAME.fullmatch(name) is not None


def _hidden(text: str) -> str:
    """The references to environment variables in a text, and the length of the rest, which is not shown."""
    hidden = len(_REFERENCE.sub("", text))
    return " ".join([*_REFERENCE.findall(text), *([f"({hidden} characters that are not shown)"] if hidden else [])])


def redacted_json(entry: TrustEntry) -> str:
    """The redacted content as ASCII JSON, so that no character looks like another or moves the cursor."""
    return json.dumps(redacted(entry), indent=2, ensure_ascii=True, default=repr)


# ── the store ───────────────────────────────────────────────────────────────────────────────────────────────────


class TrustRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trusted entry in the store."""

    file: str
    kind: str
    name: str
    sha256: str
    time: int = 0
    """In milliseconds since 1970."""
    by: str = ""
    """How the person answered: on a terminal, in a form of the client, or in the console."""


class _StoredRecords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: Literal[1] = 1
    trusted: tuple[TrustRecord, ...] = ()


Key = tuple[str, str, str]


class TrustStore:
    """The file with what the user has trusted. If anything is wrong with the file, nothing is trusted."""

    def __init__(self, path: str, problem: str = "") -> None:
        """`problem`: why the path is not the user's own; then nothing is trusted and nothing is stored."""
        self.path = path
        self.problem = problem
        self._version: FileVersion | None = None
        self._records: Mapping[Key, TrustRecord] = {}

    def records(self) -> Mapping[Key, TrustRecord]:
        """By file, kind and name. If the file cannot be used, `problem` says why and there are no records."""
        if not self.path:
            return {}
        try:
            data, version = read_own_file(self.path, MAX_STORE_BYTES, self._version)
            if data is not None:
                trusted = msgspec.json.decode(data, type=_StoredRecords).trusted
                self._records = {(record.file, record.kind, record.name): record for record in trusted}
                self._version, self.problem = version, ""
        except FileNotFoundError:
            self._records, self._version, self.problem = {}, None, ""
        except (OSError, ValueError, RecursionError) as problem:
            self._records, self._version = {}, None
            self.problem = f"{self.path} cannot be used, so nothing is trusted: {problem}"
        return self._records

    def fault(self) -> str:
        """Why the file cannot be used; empty when it can, or does not exist."""
        self.records()
        return self.problem

    def pins(self, entry: TrustEntry) -> Mapping[str, str] | None:
        """The digests of the programs of an entry whose current content is trusted; None when it is not."""
        record = self.records().get((entry.file, entry.kind, entry.name))
        files = entry.file_digests() if record is not None else None
        if record is None or files is None:
            return None
        return files if entry.digest(files) == record.sha256 else None

    def has_record(self, entry: TrustEntry) -> bool:
        """Whether some content of an entry is trusted, perhaps an older one; false once it is revoked."""
        return (entry.file, entry.kind, entry.name) in self.records()

    def trust(self, digests: Iterable[tuple[TrustEntry, str]], *, by: str, time: int) -> None:
        """Trust entries by the digests of the content that was shown. Raises `SecurityError`, `StorageError`."""
        new = {
            (entry.file, entry.kind, entry.name): TrustRecord(
                file=entry.file, kind=entry.kind, name=entry.name, sha256=digest, time=time, by=by
            )
            for entry, digest in digests
        }
        self._change(lambda records: {**records, **new})

    def revoke(self, matches: Callable[[TrustRecord], bool]) -> list[TrustRecord]:
        """Remove the records that match, and return them. Raises `SecurityError`, `StorageError`."""
        revoked = [record for record in self.records().values() if matches(record)]
        if revoked:
            self._change(lambda records: {key: record for key, record in records.items() if not matches(record)})
        return revoked

    def _change(self, change: Callable[[Mapping[Key, TrustRecord]], Mapping[Key, TrustRecord]]) -> None:
        if not self.path:
            raise SecurityError(self.problem)
        try:
            with locked(self.path):
                before = self.records()
                if self.problem:
                    raise SecurityError(f"{self.problem}. Look at the file, and remove it to start over.")
                replace_file(
                    os.path.realpath(self.path),
                    msgspec.json.format(msgspec.json.encode(_StoredRecords(trusted=(*change(before).values(),)))),
                )
        except (OSError, UnicodeEncodeError) as problem:
            raise StorageError(f"{self.path} cannot be written: {problem}.") from problem


# ── workflows ───────────────────────────────────────────────────────────────────────────────────────────────────


class Consent:
    """Decides which calls the steps of workflows may make, and which of their proofs may run something. The user's own
    workflows have no origin and may do all of it.
    """

    def __init__(
        self,
        store: TrustStore,
        ignored: Callable[[], Sequence[TrustEntry]] = tuple,
        systems: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`ignored`: the entries of settings without effect; `systems`: the servers and providers in force."""
        self.store = store
        self.ignored = ignored
        self._systems = systems
        self._nonces: dict[str, str] = {}
        self._answered: set[str] = set()

    def untrusted(self, origin: str, document: Mapping[str, Any], step_id: str | None = None) -> list[TrustEntry]:
        """The untrusted entries of a workflow or of one of its steps, and what they use that is not trusted: systems
        that they call, and commands of the project.
        """
        ignored = [entry for entry in self.ignored() if entry.kind != SETTING]
        if not origin and not ignored:
            return []  # the user's own workflows need trust only to use what is ignored
        name = f"{document['id']}/{step_id}"
        entries = [entry for entry in step_entries(origin, document) if step_id is None or entry.name == name]
        own = [entry for entry in entries if origin and self.store.pins(entry) is None]
        called = {str(_system_of(entry)) for entry in entries} - set(self._systems())
        used = _used_commands(document, step_id)
        names = {SERVER: called, PROVIDER: called, COMMAND: used}
        return [*own, *(entry for entry in ignored if entry.name in names.get(entry.kind, ()))]

    def untrusted_proof(self, origin: str, document: Mapping[str, Any], step_id: str, kind: str) -> TrustEntry | None:
        """The proofs of a step of one kind, `PROOF_COMMAND` or `PROOF_REQUEST`, if they are not trusted."""
        if not origin:
            return None
        name = f"{document['id']}/{step_id}"
        entries = [entry for entry in step_entries(origin, document) if (entry.name, entry.kind) == (name, kind)]
        return next((entry for entry in entries if self.store.pins(entry) is None), None)

    def untrusted_in(self, workflows: "Iterable[Workflow]") -> list[TrustEntry]:
        """The untrusted entries of the settings and of these workflows, without duplicates."""
        entries = list(self.ignored())
        for workflow in workflows:
            untrusted = self.untrusted(workflow.origin, workflow.document)
            entries += [entry for entry in untrusted if entry not in entries]
        return entries

    def refuse_untrusted(self, origin: str, document: Mapping[str, Any], step_id: str | None = None) -> None:
        """Raises `Untrusted` if a workflow or one of its steps has untrusted calls. A proof that is not trusted is not
        taken, and that is decided later.
        """
        untrusted = self.untrusted(origin, document, step_id)
        if entries := [entry for entry in untrusted if entry.kind not in _PROOF_KINDS]:
            raise _refusal(entries)

    def trust(self, digests: Sequence[tuple[TrustEntry, str]], *, by: str) -> None:
        """Trust the content that a person was shown. Raises `SecurityError`, `StorageError`."""
        self.store.trust(digests, by=by, time=int(time.time() * 1000))

    def question_key(self, digests: Sequence[tuple[TrustEntry, str]]) -> str:
        """An unguessable key for the question about these entries; empty when it was answered before."""
        content = digest_of_all(digests)
        if content in self._answered:
            return ""
        return f"trust-{content[:16]}-{self._nonces.setdefault(content, secrets.token_hex(8))}"

    def note_answer(self, digests: Sequence[tuple[TrustEntry, str]]) -> None:
        """Remember that a person answered yes or no, so that this process does not ask about the same content again."""
        self._answered.add(digest_of_all(digests))


def digests_of(entries: Iterable[TrustEntry]) -> list[tuple[TrustEntry, str]]:
    """Entries with the digests of their current content, without entries that cannot be trusted."""
    digests: list[tuple[TrustEntry, str]] = []
    for entry in entries:
        files = entry.file_digests()
        if files is not None and entry.file != IMPORTED:
            digests.append((entry, entry.digest(files)))
    return digests


def digest_of_all(digests: Iterable[tuple[TrustEntry, str]]) -> str:
    """One digest for all entries that are shown together."""
    text = "\n".join(f"{entry.file}\0{digest}" for entry, digest in digests)
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()


_PROOF_KINDS: Final = frozenset({COMMAND, PROOF_COMMAND, PROOF_REQUEST})


def _used_commands(document: Mapping[str, Any], step_id: str | None) -> set[str]:
    """The names of the project's commands that the proofs of a workflow, or of one of its steps, use."""
    from workflowlookup.language.document.parts import walk_steps  # noqa: PLC0415 - as above

    steps = [step for _, step in walk_steps(document["steps"]) if step_id is None or step["id"] == step_id]
    return {str(proof["use"]) for step in steps for proof in step.get("proof", ()) if "use" in proof}


def _system_of(entry: TrustEntry) -> object:
    """The server or provider that a call goes to."""
    call = entry.value["call"] if entry.kind == "call" else {}
    return call.get("server") or call.get("provider")


NO_CONSENT: Final = Consent(TrustStore(""))
"""Allows nothing that a repository brought."""


def _refusal(entries: Sequence[TrustEntry]) -> Untrusted:
    names = ", ".join(dict.fromkeys(map(str, entries)))
    files = [entry.file for entry in entries if entry.file != IMPORTED]
    remedy = f"{how_to_trust(files)} An agent must not do that; tell the user."
    return Untrusted(
        f"Not trusted, because it came with a repository: {names}. {remedy}"
        if files
        else f"Not trusted, because the run was imported: {names}. Start the workflow here with workflow_start.",
        untrusted=[{"file": entry.file, "kind": entry.kind, "name": entry.name} for entry in entries],
    )
