"""Trust: what a repository brings may describe, never run, until the user has trusted exactly that content.

An `Entry` is one thing that would run: a setting, a server, a provider, a call of a step. The `Store` is a file in the
user's own configuration directory with the SHA-256 of each entry that a person trusted. Which settings need trust is in
`settings.SETTINGS`; what of a workflow's steps does is in `STEP_KINDS`. Whose file one is, `repository` says.
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

from workflowlookup.atomic import locked, replace_file
from workflowlookup.errors import SecurityError, StorageError, Untrusted

if TYPE_CHECKING:
    from workflowlookup.language.model import Workflow

MAX_STORE_BYTES: Final = 8 << 20
MAX_PROGRAMS: Final = 64
"""How many files of the repository one entry may name."""
MAX_PROGRAM_BYTES: Final = 256 << 20
UNREADABLE: Final = "unreadable"
"""In place of a digest, of a file that is not there, is too long, or is no regular file."""
IMPORTED: Final = "imported"
"""The origin of a run that came from another journal and names no file: nothing that it calls is trusted."""

SETTING: Final = "setting"
SERVER: Final = "mcpServers"
PROVIDER: Final = "providers"


def _call(step: Mapping[str, Any]) -> Any:
    """A call with its `requireConfirmation`: a call that nobody is asked about is another thing to trust."""
    return {name: step[name] for name in ("call", "requireConfirmation") if name in step} if "call" in step else None


STEP_KINDS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {"call": _call}
"""What of a step needs trust in a workflow that a repository brings: by kind, the content, or None for none."""

KINDS: Final[Mapping[str, str]] = {
    SETTING: "setting",
    SERVER: "MCP server",
    PROVIDER: "provider",
    "call": "call of step",
}
"""The kinds of entries, in the words in which a person reads them."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a file of a repository brings and that counts only when it is trusted."""

    file: str
    """The real path."""
    kind: str
    """A key of `KINDS`."""
    name: str
    value: Any
    """The content as it stands in the file, of JSON's kinds."""
    programs: tuple[str, ...] = ()
    """Files of the repository that it runs or names; their content is trusted with it."""

    def __str__(self) -> str:
        return f"{KINDS[self.kind]} {self.name!a}"

    def file_digests(self) -> Mapping[str, str] | None:
        """By path: the SHA-256 of each program as it is now; None when there are too many, or one cannot be read."""
        if len(self.programs) > MAX_PROGRAMS:
            return None
        files = {path: file_digest(path) for path in self.programs}
        return None if UNREADABLE in files.values() else files

    def digest(self, files: Mapping[str, str]) -> str:
        """The SHA-256 of the canonical form: JSON with sorted keys and without blanks, in ASCII."""
        whole = {"kind": self.kind, "name": self.name, "value": self.value, "files": files}
        text = json.dumps(whole, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=repr)
        return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: str) -> str:
    """The SHA-256 of a regular file; `UNREADABLE` for anything else, and for one that is longer than it says."""
    digest = hashlib.sha256()
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_PROGRAM_BYTES:
                return UNREADABLE
            rest = status.st_size
            while data := stream.read(1 << 18):
                rest -= len(data)
                if rest < 0:
                    return UNREADABLE
                digest.update(data)
    except OSError:
        return UNREADABLE
    return digest.hexdigest()


def step_entries(origin: str, document: Mapping[str, Any]) -> list[Entry]:
    """The entries of a workflow that a repository brought in this file."""
    from workflowlookup.language.document import walk_steps  # noqa: PLC0415 - settings alone need no documents

    return [
        Entry(file=origin, kind=kind, name=f"{document['id']}/{step['id']}", value=value)
        for _, step in walk_steps(document["steps"])
        for kind, content in STEP_KINDS.items()
        if (value := content(step)) is not None
    ]


def how_to_trust(files: Iterable[str]) -> str:
    """What a person does to trust what is in files."""
    import shlex  # noqa: PLC0415 - only where something is ignored

    commands = " and ".join(f"`workflowlookup trust {shlex.quote(file)}`" for file in dict.fromkeys(files))
    return f"A person can look at it and allow it in a terminal: {commands}."


# ── what is shown ───────────────────────────────────────────────────────────────────────────────────────────────

_SECRET_NAME: Final = re.compile(
    r"(?!GIT_|BASH)\w*(?:key|token|secret|passw|credential|auth|cookie|dsn)\w*", re.IGNORECASE
)
_SECRET_VALUE: Final = re.compile(r"[\w+=~-][\w+=~./-]{5,}", re.ASCII)
"""One word that is no path and no command; what else stands under such a name is shown."""
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")
_PASSWORD: Final = re.compile(r"(://[^:/?#@\\\s]*:)([^/?#@\\\s]+)(?=@)")
_SECRET_PARAMETER: Final = re.compile(rf"([?&]{_SECRET_NAME.pattern}=)([^&#\s]+)", re.IGNORECASE)
_ADDRESSES: Final = frozenset({"url", "base_url", "journal"})


def shown(entry: Entry) -> Any:
    """The content of an entry as it may be printed: without secrets in environments, headers and addresses.

    Everything else is shown, also what is called a secret: it could be what runs.
    """
    return _shown(entry.value, entry.name if entry.kind == SETTING else "", is_system=entry.kind != "call")


def _shown(value: Any, name: str, *, is_system: bool) -> Any:
    match value:
        case Mapping() if is_system and name == "headers":
            return {key: _hidden(str(part)) for key, part in value.items()}
        case Mapping() if is_system and name == "env":
            return {key: _hidden(part) if _is_secret(key, part) else part for key, part in value.items()}
        case Mapping():
            return {key: _shown(part, key, is_system=is_system) for key, part in value.items()}
        case str() if is_system and name in _ADDRESSES:
            return _shown_address(value)
    return value


def _shown_address(address: str) -> str:
    """An address without passwords and keys. Every host is shown, also one in the query, where databases allow it; and
    so are the variables of the environment that would be sent there.
    """

    def hide(found: re.Match[str]) -> str:
        rest = "…" if _REFERENCE.sub("", found[2]) else ""
        return found[1] + "".join(_REFERENCE.findall(found[2])) + rest

    return _SECRET_PARAMETER.sub(hide, _PASSWORD.sub(hide, address))


def _is_secret(name: str, value: object) -> bool:
    is_word = isinstance(value, str) and _SECRET_VALUE.fullmatch(_REFERENCE.sub("", value) or "reference") is not None
    return is_word and _SECRET_NAME.fullmatch(name) is not None


def _hidden(text: str) -> str:
    """The references to variables in a text, and how long the rest is that is not shown."""
    rest = len(_REFERENCE.sub("", text))
    return " ".join([*_REFERENCE.findall(text), *([f"({rest} characters that are not shown)"] if rest else [])])


def printed(entry: Entry) -> str:
    """The content of an entry as JSON in ASCII: nothing in it can look like something else, or move a cursor."""
    return json.dumps(shown(entry), indent=2, ensure_ascii=True, default=repr)


# ── the store ───────────────────────────────────────────────────────────────────────────────────────────────────


class Trusted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry that a person trusted, as it is stored."""

    file: str
    kind: str
    name: str
    sha256: str
    time: int = 0
    """In milliseconds since 1970."""
    by: str = ""
    """How the person was asked: on a terminal, by a form of the client, in the console."""


class _Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: Literal[1] = 1
    trusted: tuple[Trusted, ...] = ()


Key = tuple[str, str, str]


class Store:
    """What the user has trusted. Whatever is wrong with the file, nothing is trusted by it."""

    def __init__(self, path: str, problem: str = "") -> None:
        """`problem`: why this place cannot be the user's own; then nothing is trusted and nothing is stored."""
        self.path = path
        self.problem = problem
        self._signature: object = None
        self._records: Mapping[Key, Trusted] = {}

    def records(self) -> Mapping[Key, Trusted]:
        """By file, kind and name. A file that cannot be used is named in `problem`, and holds nothing."""
        if not self.path:
            return {}
        try:
            with open(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
                status = os.fstat(stream.fileno())
                signature = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)
                if signature != self._signature:
                    self._records, self.problem = {}, ""
                    self._records = _read(stream.read(MAX_STORE_BYTES + 1), status)
                    self._signature = signature
        except FileNotFoundError:
            self._records, self._signature, self.problem = {}, None, ""
        except (OSError, ValueError) as problem:
            self._records, self._signature = {}, None
            self.problem = f"{self.path} cannot be used, so nothing is trusted: {problem}"
        return self._records

    def fault(self) -> str:
        """Why the file cannot be used; empty when it can, or is not there."""
        self.records()
        return self.problem

    def pins(self, entry: Entry) -> Mapping[str, str] | None:
        """The digests of the programs of an entry that is trusted as it is now; None when it is not."""
        record = self.records().get((entry.file, entry.kind, entry.name))
        files = entry.file_digests() if record is not None else None
        if record is None or files is None:
            return None
        return files if entry.digest(files) == record.sha256 else None

    def has_record(self, entry: Entry) -> bool:
        """Whether some content of an entry is trusted: false once it is revoked."""
        return (entry.file, entry.kind, entry.name) in self.records()

    def trust(self, digests: Iterable[tuple[Entry, str]], *, by: str, time: int) -> None:
        """Trust entries, each by the digest of what was shown. Raises `SecurityError`, `StorageError`."""
        new = {
            (entry.file, entry.kind, entry.name): Trusted(
                file=entry.file, kind=entry.kind, name=entry.name, sha256=digest, time=time, by=by
            )
            for entry, digest in digests
        }
        self._change(lambda records: {**records, **new})

    def revoke(self, is_meant: Callable[[Trusted], bool]) -> list[Trusted]:
        """Revoke the records that are meant, and return them. Raises `SecurityError`, `StorageError`."""
        gone = [record for record in self.records().values() if is_meant(record)]
        if gone:
            self._change(lambda records: {key: kept for key, kept in records.items() if not is_meant(kept)})
        return gone

    def _change(self, change: Callable[[Mapping[Key, Trusted]], Mapping[Key, Trusted]]) -> None:
        if not self.path:
            raise SecurityError(self.problem)
        try:
            with locked(self.path):
                before = self.records()
                if self.problem:
                    raise SecurityError(f"{self.problem}. Look at the file, and remove it to begin again.")
                replace_file(
                    os.path.realpath(self.path),
                    msgspec.json.format(msgspec.json.encode(_Stored(trusted=(*change(before).values(),)))),
                )
        except (OSError, UnicodeEncodeError) as problem:
            raise StorageError(f"{self.path} cannot be written: {problem}.") from problem


def _read(data: bytes, status: os.stat_result) -> dict[Key, Trusted]:
    if not stat.S_ISREG(status.st_mode) or len(data) > MAX_STORE_BYTES:
        raise ValueError("it is not a regular file, or too long")
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise ValueError("others can write to it")
    stored = msgspec.json.decode(data, type=_Stored)
    return {(record.file, record.kind, record.name): record for record in stored.trusted}


# ── workflows ───────────────────────────────────────────────────────────────────────────────────────────────────


class Consent:
    """Decides what the steps of workflows may do. The user's own workflows have no origin, and may do everything."""

    def __init__(
        self,
        store: Store,
        ignored: Callable[[], Sequence[Entry]] = tuple,
        systems: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`ignored`: the entries of settings that do not count; `systems`: the servers and providers that do."""
        self.store = store
        self.ignored = ignored
        self._systems = systems
        self._nonces: dict[str, str] = {}
        self._answered: set[str] = set()

    def untrusted(self, origin: str, document: Mapping[str, Any], step_id: str | None = None) -> list[Entry]:
        """What a workflow, or one of its steps, would do and nobody trusted: its entries, and the systems they call."""
        ignored = [entry for entry in self.ignored() if entry.kind != SETTING]
        if not origin and not ignored:
            return []  # of the user's own workflows only calls of systems that are ignored can be refused
        name = f"{document['id']}/{step_id}"
        entries = [entry for entry in step_entries(origin, document) if step_id is None or entry.name == name]
        calls = [entry for entry in entries if origin and self.store.pins(entry) is None]
        called = {str(_called(entry)) for entry in entries} - set(self._systems())
        return [*calls, *(entry for entry in ignored if entry.name in called)]

    def untrusted_in(self, workflows: "Iterable[Workflow]") -> list[Entry]:
        """What the settings and these workflows bring and nobody trusted, each entry once."""
        entries = list(self.ignored())
        for workflow in workflows:
            entries += [one for one in self.untrusted(workflow.origin, workflow.document) if one not in entries]
        return entries

    def refuse_untrusted(self, origin: str, document: Mapping[str, Any], step_id: str | None = None) -> None:
        """Raises `Untrusted` for a workflow, or for one of its steps, that would do what is not trusted."""
        if entries := self.untrusted(origin, document, step_id):
            raise _refusal(entries)

    def trust(self, digests: Sequence[tuple[Entry, str]], *, by: str) -> None:
        """Trust what a person was shown. Raises `SecurityError`, `StorageError`."""
        self.store.trust(digests, by=by, time=int(time.time() * 1000))

    def question_key(self, digests: Sequence[tuple[Entry, str]]) -> str:
        """The name of the question about these entries, which nobody can guess; empty when it was answered before."""
        content = digest_of_all(digests)
        if content in self._answered:
            return ""
        return f"trust-{content[:16]}-{self._nonces.setdefault(content, secrets.token_hex(8))}"

    def note_answer(self, digests: Sequence[tuple[Entry, str]]) -> None:
        """A person answered, whatever it was: this process does not ask about the same content again."""
        self._answered.add(digest_of_all(digests))


def digests_of(entries: Iterable[Entry]) -> list[tuple[Entry, str]]:
    """Entries with the digests of what they are now, without those that cannot be trusted."""
    found: list[tuple[Entry, str]] = []
    for entry in entries:
        files = entry.file_digests()
        if files is not None and entry.file != IMPORTED:
            found.append((entry, entry.digest(files)))
    return found


def digest_of_all(digests: Iterable[tuple[Entry, str]]) -> str:
    """One digest for what is shown together."""
    text = "\n".join(f"{entry.file}\0{digest}" for entry, digest in digests)
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()


def _called(entry: Entry) -> object:
    """The server or the provider that a call goes to."""
    call = entry.value["call"] if entry.kind == "call" else {}
    return call.get("server") or call.get("provider")


NO_CONSENT: Final = Consent(Store(""))
"""Nothing that came with a repository may be done."""


def _refusal(entries: Sequence[Entry]) -> Untrusted:
    """The refusal to do what nobody trusted."""
    what = ", ".join(dict.fromkeys(map(str, entries)))
    files = [entry.file for entry in entries if entry.file != IMPORTED]
    remedy = f"{how_to_trust(files)} An agent must not do that; tell the user."
    return Untrusted(
        f"Not trusted, because it came with a repository: {what}. {remedy}"
        if files
        else f"Not trusted, because the run was imported: {what}. Start the workflow here with workflow_start.",
        untrusted=[{"file": entry.file, "kind": entry.kind, "name": entry.name} for entry in entries],
    )
