"""What a journal promises: append-only records of runs, a line about each run for those who list them, and what all
servers at one journal share: names of tools, tokens, sessions, and announcements to each other.

An append is stored whole or not at all, and is durable when it returns. Each (run, sequence) is stored once: of two
appends that build on the same record one raises `Conflict`. What a journal cannot do raises `StorageError`.
Which kinds of journal there are is in `journals.JOURNALS`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from workflowlookup.access import Access
from workflowlookup.core.events import Record
from workflowlookup.core.run import Run
from workflowlookup.errors import StorageError
from workflowlookup.runs.levels import Level

STOP: Final = "stop"
"""What the line about a run says that it waits for when it is over and its call may still be running."""


class NoRoom(StorageError):
    """There is no room to write; what is stored can be read."""


class ReadOnly(StorageError):
    """The journal may not be written; what is stored can be read."""


class Conflict(Exception):
    """The run has gone on since it was read, or there is one of this id already."""


class Summary(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A line about a run: what is listed and filtered without reading its records. Times are in milliseconds."""

    id: str
    workflow_id: str
    version: str
    hash: str
    started: int
    updated: int
    state: str
    waiting_for: str | None
    step: str
    done: int
    total: int | None
    deadline: int | None
    sequence: int


def summarise(run: Run) -> Summary:
    return Summary(
        run.id,
        run.workflow.id,
        run.workflow.version,
        run.hash,
        run.started,
        run.updated,
        run.state.value,
        STOP if run.needs_stop else run.waiting_for and run.waiting_for.value,
        run.current,
        len(run.results),
        run.total,
        run.deadline,
        run.sequence,
    )


class Mark(msgspec.Struct, frozen=True):
    """Where a run is, and which it is: an id can be taken anew when its run was forgotten."""

    sequence: int
    started: int
    hash: str


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are listed: those that fit everything that is given, the last started first."""

    state: str | None = None
    workflow_id: str | None = None
    workflows: tuple[str, ...] | None = None
    """Patterns of ids, of which one must fit: `*` is any text, `?` any character."""
    since: int | None = None
    until: int | None = None
    """Started at or after the one, before the other."""
    after: tuple[int, str] | None = None
    """`started` and `id` of the last run of the page before."""
    limit: int = 50


class SetAside(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged journal that is kept under another name."""

    file: str
    outcome: str = ""
    """How much of it was saved; nothing where nobody knows."""
    details: tuple[str, ...] = ()
    """Which runs were not saved whole."""

    def __str__(self) -> str:
        return f"A damaged journal was set aside as {self.file}{self.outcome and ': '}{self.outcome}."


class Token(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known of a token. Times are in milliseconds."""

    id: str
    name: str
    kind: str
    scopes: tuple[str, ...]
    workflows: tuple[str, ...]
    created: int
    expires: int | None
    revoked: int | None
    maker: str

    def state(self, now: int) -> str:
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "valid"

    @property
    def access(self) -> Access:
        return Access(
            name=f"token {self.name}", kind=self.kind, scopes=frozenset(self.scopes), workflows=self.workflows
        )


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What one server tells the others at its journal."""

    number: int = 0
    """In the order in which they were stored, without gaps; the journal gives it."""
    time: int
    origin: str
    """Which server it is from."""
    topic: str
    body: str


class Journal(Protocol):
    """A place where runs are kept, and what the servers share that use it."""

    def append(self, run_id: str, expected: int, records: Sequence[Record], summary: Summary) -> None:
        """Store the records after the one with sequence `expected` of this very run; 0 begins it. Raises `Conflict`."""

    def head(self, run_id: str) -> int | None:
        """The sequence of the last record; None when there is no such run."""

    def mark(self, run_id: str) -> Mark | None:
        """Where a run is, and which; None when there is no such run."""

    def workflow_of(self, run_id: str) -> str | None:
        """The id of the workflow that a run is of; None when there is no such run."""

    def imported(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Of these runs, those that were imported, and where each came from."""

    def read(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Record]:
        """The records after a sequence, in order; all of them, or the first so many."""

    def summaries(self, query: Query) -> list[Summary]:
        """A page of runs, the last started first."""

    def overdue(self, now: int) -> list[str]:
        """The runs whose deadline has passed and that do not know it yet."""

    def at_work(self, limit: int) -> list[Summary]:
        """The runs that wait for a call of the server's own, the one that has waited longest first."""

    def left_running(self) -> list[str]:
        """The runs that are over and whose call may still be running."""

    def queue_position(self, run_id: str) -> tuple[int, int]:
        """The place of a run among those whose call has still to be begun, from 1, or 0; and how many they are."""

    def counts(self) -> dict[str, int]:
        """How many runs are in which state."""

    def tool_names(self) -> dict[tuple[str, str], str]:
        """By provider and workflow: the name of the tool that stands for it."""

    def keep_tool_names(
        self, added: Mapping[tuple[str, str], str], removed: Iterable[tuple[str, str]], at: int
    ) -> None:
        """Keep these names, and free those at this time; where somebody was faster, what is kept already stays."""

    def freed_names(self, since: int) -> dict[str, tuple[str, str]]:
        """The names that were freed since a time, each with the provider and the workflow that had it last."""

    def remembered(self) -> dict[str, tuple[str, str]]:
        """By provider: its settings and its workflows, as `remember` was given them."""

    def remember(self, provider: str, settings: str, body: str) -> None:
        """Keep what a provider has listed, in place of what was kept of it before."""

    def heads(self, since: int) -> dict[str, int]:
        """The last sequence of each run that was updated at or after a time."""

    def version(self) -> int:
        """A number that is another one when another process has written."""

    def delete(self, run_id: str) -> bool:
        """Forget a run; whether there was one."""

    def purge(self, before: int) -> int:
        """Forget the runs that are over and were last updated before a time; how many they were."""

    def close(self) -> None:
        """Give back what is held; the journal opens itself again when it is needed."""

    # ── tokens ──────────────────────────────────────────────────────────────────────────────────────────────────

    def add_token(self, token: Token, digest: str, before: Callable[[], None]) -> bool:
        """Store a token with the hash of its secret; False when one that is not revoked has its name.

        `before` is called once the journal is ready to write, before the token is stored; if it raises, nothing is.
        """

    def tokens(self) -> list[Token]:
        """All that were ever stored, the latest first."""

    def tokens_by_id(self, token_id: str) -> list[tuple[Token, str]]:
        """The tokens with this id, each with its hash."""

    def revoke_token(self, name: str, at: int) -> bool:
        """Revoke the token with this name; False when there is none that is not revoked."""

    def count_tokens(self) -> tuple[int, int]:
        """How many were ever stored, and how many of those were revoked."""

    @property
    def names(self) -> frozenset[str]:
        """What tells this journal from others, also when it is lost: its paths, or its database without a password."""

    def require_tokens(self) -> None:
        """Record durably, outside of the tables, that requests over HTTP need a token."""

    def requires_tokens(self) -> bool:
        """Whether that was recorded; also when nobody can read the record."""

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────

    def add_session(self, key: str, owner: str, opening: str, at: int) -> None:
        """Store the message that opened a session, unless the session is there already."""

    def session_opening(self, key: str, owner: str, since: int) -> str | None:
        """The message that opened a session of this owner that was used at or after a time."""

    def touch_sessions(self, keys: Iterable[str], at: int, oldest: int) -> None:
        """These sessions were used at this time; forget those that were last used before the `oldest` time."""

    def end_session(self, key: str) -> None:
        """Forget a session and its subscriptions."""

    def subscribe(self, key: str, address: str) -> None:
        """Store that a session follows a resource; nothing happens when there is no such session."""

    def unsubscribe(self, key: str, address: str) -> None: ...

    def subscriptions(self, key: str) -> frozenset[str]:
        """The resources that a session follows."""

    # ── announcements ───────────────────────────────────────────────────────────────────────────────────────────

    def announce(self, announcement: Announcement, oldest: int) -> None:
        """Store an announcement with the next number, and forget those before a time; the last one stays."""

    def announcements(self, after: int) -> list[Announcement]:
        """Those with a higher number, in order."""

    def last_announcement(self) -> int:
        """The number of the last one; 0 when there was none."""

    def await_announcement(self, seconds: float) -> bool:
        """Block until there may be a new one, at most so long; whether there may be. For a thread with its own journal.

        The first call after a connection was made returns True at once.
        """

    # ── maintenance ─────────────────────────────────────────────────────────────────────────────────────────────

    def level(self) -> Level:
        """The version of the tables; nothing is made or changed."""

    def upgrade(self) -> None:
        """Bring the tables up to date, which every other use does as well."""

    def faults(self, known: Sequence[SetAside] | None = None) -> Iterator[tuple[str, str]]:
        """What is wrong with the journal, each with a remedy: it is opened, checked, and a write is tried.

        `known`: what was set aside before the check began, if that was before this call.
        """

    def salvage(self) -> SetAside | None:
        """Set the journal aside and begin a new one with what can be read of it; None when there was no need to."""

    def set_aside(self) -> Sequence[SetAside]:
        """The damaged journals that were set aside and are still kept."""
