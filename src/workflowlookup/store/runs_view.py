"""The part of `store.service.Runs` that tool handlers and console pages may use, and the watch on a journal.

`Runs` has all runs, `auth.scoped.ScopedRuns` those that one caller may see. Methods that are not here are for the
server itself and for commands. The docstrings are in `Runs`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from workflowlookup.errors import RunNotFound
    from workflowlookup.language.model import Workflow
    from workflowlookup.language.values import Context
    from workflowlookup.runs.events import How, OutputAccepted, OutputRefused, Record, Signature
    from workflowlookup.runs.run import Run
    from workflowlookup.runs.triage import Triage
    from workflowlookup.store.journal import DamagedJournal, RunQuery, RunSummary
    from workflowlookup.store.service import Runs


class RunWatch(Protocol):
    """Follows runs until it is closed. Its listener is called for each change by this process."""

    def changed(self) -> Collection[str]:
        """The ids of the runs that other processes changed since the last call."""

    def close(self) -> None:
        """Stop following."""


class RunsView(Protocol):
    """The runs that one caller sees, and what that caller may do with them."""

    def start(  # noqa: PLR0913 - as `Runs.start`
        self,
        workflow: "Workflow",
        inputs: "Context",
        context: "Context",
        *,
        run_id: str | None = None,
        by: str = "",
        timeout: float | None = None,
        client_roots: Sequence[str] = (),
    ) -> "Run": ...
    def submit(self, run_id: str, /, step_id: str, output: str, changes: "Context", *, by: str = "") -> "Run": ...
    def supply(self, run_id: str, /, loop_id: str, changes: "Context", *, by: str = "") -> "Run": ...
    def confirm(  # noqa: PLR0913 - as `Runs.confirm`
        self,
        run_id: str,
        /,
        step_id: str = "",
        *,
        how: "How",
        question: str = "",
        note: str = "",
        answers: "Context" = ...,
        signature: "Signature | None" = None,
        by: str = "",
    ) -> "Run": ...
    def deny(  # noqa: PLR0913 - as `Runs.deny`
        self,
        run_id: str,
        /,
        step_id: str = "",
        *,
        how: "How",
        question: str = "",
        note: str = "",
        signature: "Signature | None" = None,
        by: str = "",
    ) -> "Run": ...
    def dismiss(self, run_id: str, /, step_id: str, *, question: str, by: str = "") -> "Run": ...
    def pause(self, run_id: str, /, reason: str = "", *, by: str = "") -> "Run": ...
    def resume(self, run_id: str, /, *, by: str = "") -> "Run": ...
    def cancel(self, run_id: str, /, reason: str = "", *, by: str = "") -> "Run": ...
    def earlier_verdict(
        self, run: "Run", step_id: str, output: str, changes: "Context"
    ) -> "OutputAccepted | OutputRefused | None": ...

    def note_answered(self, run: "Run", /) -> None: ...

    def get(self, run_id: str, /) -> "Run": ...
    def load_slice(self, run_id: str, /) -> bool: ...
    def history(self, run_id: str, /, after: int = 0, limit: int | None = None) -> "list[Record]": ...
    def records(self, run_id: str, /, after: int = 0) -> "list[Record]": ...
    def workflow_of(self, run_id: str, /) -> str | None: ...
    def queue_position(self, run_id: str, /) -> tuple[int, int]: ...
    def not_found(self, run_id: str, /) -> "RunNotFound": ...
    def imported(self, run_ids: Sequence[str], /) -> dict[str, str]: ...
    def summaries(self, query: "RunQuery", /) -> "list[RunSummary]": ...
    def recent(self, limit: int, /) -> "list[RunSummary]": ...
    def counts(self) -> dict[str, int]: ...
    def triage_counts(self, query: "RunQuery", /) -> "dict[tuple[str, Triage], int]": ...
    def damaged_journals(self) -> "Sequence[DamagedJournal]": ...
    def watch(self, listener: Callable[[str], None], /) -> RunWatch: ...


class JournalWatch:
    """Follows all runs of a journal."""

    def __init__(self, runs: "Runs", listener: Callable[[str], None]) -> None:
        self._runs = runs
        self._listener = listener
        self._heads: dict[str, int] = {}
        runs.listeners.append(self._on_change)  # first, so that no change is missed while the journal is read
        try:
            self._version = runs.journal.version()
            self._heads = {**runs.heads(), **self._heads}
        except BaseException:
            self.close()
            raise

    def _on_change(self, run_id: str, run: "Run | None") -> None:
        self._heads[run_id] = run.sequence if run else 0
        self._listener(run_id)

    def changed(self) -> Collection[str]:
        """The runs that other processes changed since the last call."""
        version = self._runs.journal.version()
        if version == self._version:
            return ()
        before, self._heads = self._heads, self._runs.heads()
        self._version = version
        return [run_id for run_id, sequence in self._heads.items() if before.get(run_id) != sequence]

    def close(self) -> None:
        """Stop following."""
        self._runs.listeners.remove(self._on_change)
