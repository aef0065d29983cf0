"""What a journal promises: append-only records of runs, and a line about each run for those who list them.

An append is stored whole or not at all, and is durable when it returns. Each (run, sequence) is stored once: of two
appends that build on the same record one raises `Conflict`. What a journal cannot do raises `StorageError`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from workflowlookup.core.events import Record
from workflowlookup.core.run import Run
from workflowlookup.errors import StorageError

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


class Journal(Protocol):
    """A place where runs are kept."""

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

    def set_aside(self) -> Sequence[SetAside]:
        """The damaged journals that were set aside and are still kept."""

    def close(self) -> None:
        """Give back what is held; the journal opens itself again when it is needed."""
