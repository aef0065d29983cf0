"""The contract of journals.

A journal stores the append-only records of runs, a summary of each run for lists, and the data that its servers share:
names of tools, tokens, sessions, secrets and announcements.

An append is stored whole or not at all, and is durable when it returns. Each (run, sequence) is stored once: of two
appends after the same record, one raises `Conflict`. Every other failure is a `StorageError`. The kinds of journals are
in `journal_url.JOURNALS`.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from workflowlookup.access import Access
from workflowlookup.errors import RunDamaged, StorageError
from workflowlookup.language.text import clip_line
from workflowlookup.runs.events import Record
from workflowlookup.runs.run import Run, Waiting
from workflowlookup.runs.titles import MAX_TITLE, run_title, subject_of
from workflowlookup.runs.triage import STUCK_MILLISECONDS, STUCK_REFUSALS, Triage
from workflowlookup.store.migrations import SchemaVersion
from workflowlookup.store.run_search import SearchTerm

READ_BYTES: Final = 8 << 20
"""How much of a run is read at once. The last record may exceed it."""
STOP: Final = "stop"
"""The `waiting_for` of a summary when the run is over and its call may still be running."""


def now() -> int:
    """The time of all records: UTC, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class NoRoom(StorageError):
    """The disk is full; stored runs can still be read. With `retryAfterSeconds` in its data, nothing was stored."""


class ReadOnly(StorageError):
    """The journal is read-only; stored runs can still be read."""


class Conflict(Exception):
    """The run was changed since it was read, or a run with this id exists already."""


class RunSummary(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The fields by which runs are listed and filtered without reading their records. Times are in milliseconds."""

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
    proved: int | None = None
    proofs: int | None = None
    """How many proofs passed, and of how many; None if none was taken."""
    name: str | None = None
    """The name of the workflow. None, as all fields below, if only an older version wrote the run."""
    subject: str | None = None
    """What the run is about: its main input."""
    title: str | None = None
    """The title of the current step, with its iteration."""
    who: str | None = None
    """Who started the run and who answered its questions, joined by commas."""
    since: int | None = None
    """When it began to wait for what it waits for now."""
    attempts: int | None = None
    """How many outputs of the current step were refused."""
    paused: int | None = None
    """1 while it is paused, else 0."""

    @property
    def waiting_since(self) -> int:
        return self.updated if self.since is None else self.since

    def triage(self, now: int) -> Triage:
        """What the run needs at this time."""
        match self.state:
            case "completed":
                return Triage.DONE
            case "failed" | "unknown":
                return Triage.FAILED
            case "cancelled":
                return Triage.CANCELLED
            case "queued" | "running":
                return Triage.SERVER
        if self.waiting_for == Waiting.CONFIRMATION:
            return Triage.PERSON
        is_slow = (self.attempts or 0) >= STUCK_REFUSALS or self.waiting_since < now - STUCK_MILLISECONDS
        return Triage.STUCK if is_slow and not self.paused else Triage.AGENT


def summarise(run: Run) -> RunSummary:
    return RunSummary(
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
        run.proof_counts.passed if run.proof_counts.total else None,
        run.proof_counts.total or None,
        clip_line(run.workflow.name, MAX_TITLE),
        subject_of(run.input),
        run_title(run),
        ", ".join(dict.fromkeys((run.by, *run.confirmers))),
        run.waiting_since,
        run.attempts,
        int(run.is_paused),
    )


class Revision(msgspec.Struct, frozen=True):
    """Identifies a state of a run. `started` and `hash` tell a run from an earlier one with the same id."""

    sequence: int
    started: int
    hash: str
    hashed: int = 0
    """The last event that was stored with a hash; 0 for none. An older version may have stored later ones."""
    head: str = ""
    """The hash of that event."""

    def is_of(self, run: Run) -> bool:
        """Whether a folded run is in this state."""
        return (self.sequence, self.started, self.hash) == (run.sequence, run.started, run.hash) and (
            self.hashed != self.sequence or self.head == run.head
        )


class RunOrder(StrEnum):
    """Which runs come first."""

    LAST_STARTED = "last started"
    LONGEST_WAITING = "longest waiting"
    LAST_WAITING = "last waiting"
    """The run that began to wait last."""


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects the runs that match every field that is set."""

    state: str | None = None
    workflow_id: str | None = None
    workflows: tuple[str, ...] | None = None
    """Patterns of ids, of which one must match: `*` is any text, `?` any character."""
    since: int | None = None
    until: int | None = None
    """Started at or after `since`, and before `until`."""
    terms: tuple[SearchTerm, ...] = ()
    """What to search for; all must match."""
    triage: Triage | None = None
    now: int = 0
    """The time for `triage`: whether a run is stuck depends on it."""
    updated_since: int | None = None
    order: RunOrder = RunOrder.LAST_STARTED
    after: tuple[int, str] | None = None
    """The place of the last run on the previous page (`place_of`) and its id."""
    limit: int = 50

    def place_of(self, run: RunSummary) -> tuple[int, str]:
        """Where a run is in the order of this query: the `after` for the runs behind it."""
        return (run.started if self.order is RunOrder.LAST_STARTED else run.waiting_since), run.id


class DamagedJournal(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged journal file that was set aside under another name."""

    file: str
    outcome: str = ""
    """How much of it was saved; empty when unknown."""
    details: tuple[str, ...] = ()
    """The runs that were not saved completely."""

    def __str__(self) -> str:
        return f"A damaged journal was set aside as {self.file}{self.outcome and ': '}{self.outcome}."


def run_damaged(run_id: str, problem: str, damaged_journals: Sequence[DamagedJournal]) -> RunDamaged:
    """The error for a run that cannot be read. Files are named without their directories, which callers may not see."""
    return RunDamaged(problem, run_id, [os.path.basename(journal.file) for journal in damaged_journals])


class Token(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A token as it is stored, without its hash. Times are in milliseconds."""

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
            name=f"token {self.name}",
            kind=self.kind,
            scopes=frozenset(self.scopes),
            workflows=self.workflows,
            credential=self.id,
        )


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """A message from one server to the others that share its journal."""

    number: int = 0
    """Assigned by the journal: consecutive, in the order in which announcements were stored."""
    time: int
    origin: str
    """The server that sent it."""
    topic: str
    body: str


class PendingNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice that is to be sent to a recipient. Times are in milliseconds."""

    id: str
    run: str
    kind: str
    recipient: str
    due: int
    """When it is tried next; while it is being sent, when another server may try it."""
    attempts: int = 0


class Journal(Protocol):
    """Stores runs, and the data that its servers share."""

    def append(self, run_id: str, expected: int, records: Sequence[Record], summary: RunSummary, head: str = "") -> str:
        """Store records after sequence `expected`; 0 begins a run. Raises `Conflict` if it is not the last one.

        `head` is the hash of record `expected`, empty to begin a run. Returns the hash of the last record.
        """

    def group(self) -> AbstractContextManager[None] | None:
        """A context in which all writes are one commit, stored at its end; an exception rolls all of them back.

        Inside, only `Conflict` may be caught, because nothing was written when it is raised. None for a journal that
        commits every write by itself.
        """

    def ping(self) -> None:
        """Raises `StorageError` when the journal cannot be used, or its disk is full.

        It stores nothing, because the journal may be read-only.
        """

    def head(self, run_id: str) -> int | None:
        """The sequence of the last record; None when there is no such run."""

    def revision(self, run_id: str) -> Revision | None:
        """The current revision of a run; None when there is no such run."""

    def workflow_of(self, run_id: str) -> str | None:
        """The id of a run's workflow; None when there is no such run."""

    def imported(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Those of these runs that were imported, each with its source."""

    def read(self, run_id: str, after: int = 0, limit: int | None = None, head: str = "") -> list[Record]:
        """The records after a sequence, in order; all of them, or the first `limit`.

        With a limit, reading also stops once it has `READ_BYTES`.

        From the beginning of a run, or with `head`, the hash of record `after`, every record has its hash, computed
        from what is stored, and `RunDamaged` is raised for the first one that was changed after it was written.
        Otherwise a record has the hash that is stored with it, unchecked; after a missing record it has none.
        """

    def summaries(self, query: RunQuery) -> list[RunSummary]:
        """A page of runs, the last started first."""

    def overdue(self, now: int) -> list[str]:
        """The runs whose deadline has passed, which is not stored in them yet."""

    def open_runs(self, root: str) -> list[str]:
        """The runs that are not over and were started in the project at this root, the last started first."""

    def at_work(self, limit: int) -> list[RunSummary]:
        """The runs that wait for a call or proofs by the server, the longest waiting first."""

    def waiting_for_proof(self, starter: str, limit: int) -> list[str]:
        """The runs that wait for proofs and whose starter's name begins with this, the longest waiting first."""

    def runs_to_stop(self) -> list[str]:
        """The runs that are over and whose call may still be running."""

    def queue_position(self, run_id: str) -> tuple[int, int]:
        """The position of a run in the queue of calls that are not begun yet, from 1, or 0; and the queue's length."""

    def counts(self) -> dict[str, int]:
        """The number of runs in each state."""

    def triage_counts(self, query: RunQuery) -> dict[tuple[str, Triage], int]:
        """By workflow and group: the number of runs that match, whatever the group and page of the query."""

    def tool_names(self) -> dict[tuple[str, str], str]:
        """By provider and workflow: the name of its tool."""

    def store_tool_names(
        self, added: Mapping[tuple[str, str], str], removed: Iterable[tuple[str, str]], at: int
    ) -> None:
        """Store the added names, and free the removed ones at this time. A name that is stored already stays."""

    def freed_names(self, since: int) -> dict[str, tuple[str, str]]:
        """The names that were freed since a time, each with its last provider and workflow."""

    def provider_listings(self) -> dict[str, tuple[str, str]]:
        """By provider: the `settings` and `body` that `store_provider_listing` stored last."""

    def store_provider_listing(self, provider: str, settings: str, body: str) -> None:
        """Store the workflows that a provider lists, in place of its previous listing."""

    def heads(self, since: int) -> dict[str, int]:
        """The last sequence of each run that was updated at or after a time."""

    def version(self) -> int:
        """A number that changes when another process writes."""

    def delete(self, run_id: str) -> bool:
        """Delete a run; False when there is no such run."""

    def purge(self, before: int) -> int:
        """Delete the runs that are over and were last updated before a time; returns how many."""

    def close(self) -> None:
        """Close files and connections; the next use opens them again."""

    # ── tokens ──────────────────────────────────────────────────────────────────────────────────────────────────

    def add_token(self, token: Token, digest: str, before: Callable[[], None]) -> bool:
        """Store a token with the hash of its secret; False when one that is not revoked has its name.

        `before` is called once the journal is ready to write, before the token is stored; if it raises, nothing is.
        """

    def tokens(self) -> list[Token]:
        """All tokens, also revoked ones, the latest first."""

    def tokens_by_id(self, token_id: str) -> list[tuple[Token, str]]:
        """The tokens with this id, each with its hash."""

    def revoke_token(self, name: str, at: int) -> bool:
        """Revoke the token with this name; False when there is none that is not revoked."""

    def count_tokens(self) -> tuple[int, int]:
        """How many tokens were ever stored, and how many of those were revoked."""

    @property
    def names(self) -> frozenset[str]:
        """What identifies this journal even after it is lost: its paths, or its database URL without the password."""

    def require_tokens(self) -> None:
        """Record durably, outside of the tables, that requests over HTTP need a token."""

    def requires_tokens(self) -> bool:
        """Whether `require_tokens` was recorded; also True when the record cannot be read."""

    # ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────

    def add_session(self, key: str, owner: str, opening: str, at: int) -> None:
        """Store the message that opened a session, unless the session is stored already."""

    def session_opening(self, key: str, owner: str, since: int) -> str | None:
        """The message that opened a session of this owner; None when it was not used since a time."""

    def touch_sessions(self, keys: Iterable[str], at: int, oldest: int) -> None:
        """Store that these sessions were used at this time, and delete those last used before the `oldest` time."""

    def end_session(self, key: str) -> None:
        """Delete a session and its subscriptions."""

    def subscribe(self, key: str, address: str) -> None:
        """Store that a session follows a resource; ignored when there is no such session."""

    def unsubscribe(self, key: str, address: str) -> None: ...

    def subscriptions(self, key: str) -> frozenset[str]:
        """The resources that a session follows."""

    # ── console sessions and shared secrets ─────────────────────────────────────────────────────────────────────

    def add_console_session(self, key: str, body: str, expires: int, at: int) -> None:
        """Store a session of the console, and delete those that have expired at this time."""

    def console_session(self, key: str, at: int) -> str | None:
        """The body of a session that has not expired at this time."""

    def end_console_session(self, key: str) -> None: ...

    def shared_secret(self, name: str, proposed: str) -> str:
        """The secret with this name, the same for all servers: the first that was proposed."""

    # ── announcements ───────────────────────────────────────────────────────────────────────────────────────────

    def announce(self, announcement: Announcement, oldest: int) -> None:
        """Store an announcement with the next number, and delete those older than `oldest`, except the last one."""

    def announcements(self, after: int) -> list[Announcement]:
        """The announcements with a higher number, in order."""

    def last_announcement(self) -> int:
        """The number of the last announcement; 0 when there was none."""

    def await_announcement(self, seconds: float) -> bool:
        """Block until there may be a new announcement; False after so many seconds without one.

        For a thread with a journal of its own. The first call on a connection returns True at once.
        """

    # ── notices ─────────────────────────────────────────────────────────────────────────────────────────────────

    def add_notices(self, notices: Iterable[PendingNotice]) -> None:
        """Store notices, except those whose id is stored already, also when they were sent."""

    def due_notices(self, at: int, limit: int) -> list[PendingNotice]:
        """The notices that are due at this time and were neither sent nor given up, the longest due first."""

    def claim_notice(self, notice: PendingNotice, until: int) -> bool:
        """Count an attempt, and make the notice due at `until`; False when another server was faster."""

    def postpone_notice(self, notice_id: str, due: int) -> None:
        """Make a claimed notice due at another time."""

    def end_notice(self, notice_id: str, at: int, failure: str = "") -> None:
        """Store that a notice was sent, or why it was given up, and delete those that ended long before."""

    # ── maintenance ─────────────────────────────────────────────────────────────────────────────────────────────

    def schema_version(self) -> SchemaVersion:
        """The schema version of the tables; nothing is created or changed."""

    def upgrade(self) -> None:
        """Migrate the tables now, as every other use would."""

    def faults(self, previous: Sequence[DamagedJournal] | None = None) -> Iterator[tuple[str, str]]:
        """Open the journal, check it and try a write; yields each problem with its remedy.

        `previous`: the `damaged_journals` before the caller began its checks; by default those at this call.
        """

    def salvage(self) -> DamagedJournal | None:
        """Set a damaged journal aside, and make a new one from what can be read; None when it is not damaged."""

    def damaged_journals(self) -> Sequence[DamagedJournal]:
        """The damaged journals that were set aside and still exist."""
