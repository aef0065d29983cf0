"""What one caller sees of the library and of the runs: views that stand in the place of the things themselves.

A handler is given a view and cannot tell. What the caller may not see is not there: it is not found, not listed, not
counted and not suggested, in the very words used for what never was. What they see and may not do raises `Forbidden`.
A method that `Catalog` or `Runs` gains must be given its rule here; `tests/security/test_views.py` holds that.
"""

import collections
import functools
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NoReturn, Protocol

import msgspec

from workflowlookup.access import Access, missing
from workflowlookup.core.advance import NOTHING
from workflowlookup.core.events import How, OutputAccepted, OutputRefused, Record
from workflowlookup.core.model import Workflow
from workflowlookup.core.run import Run
from workflowlookup.core.values import Context
from workflowlookup.errors import Forbidden, RunNotFound, RunStateError, StorageError, WorkflowLookupError
from workflowlookup.library.catalog import Catalog, Entry, Snapshot, Source
from workflowlookup.library.directory import Listing
from workflowlookup.runs.journal import Query, SetAside, Summary
from workflowlookup.runs.service import Runs, Watch
from workflowlookup.tools.contract import Services, WorkflowTools

MOST_REMEMBERED: Final = 10_000
"""How many runs a watch remembers, to tell of their end."""


def scoped(services: Services, access: Access, bring_up_to_date: Callable[[], None] = lambda: None) -> Services:
    """The same services as this caller sees them; what goes on behind stays with those whom they belong to.

    `bring_up_to_date` has the tools of the whole server refreshed, when anything has changed.
    """
    if access.is_unbound:
        return services

    def open_runs() -> ScopedRuns:
        return ScopedRuns(services.runs, access, confirmation=services.confirmation)

    @functools.cache
    def open_workflows() -> WorkflowTools | None:
        from workflowlookup.tools.scoped_workflows import ScopedWorkflows  # noqa: PLC0415 - with the first list of tools

        whole: Any = services.workflows
        return None if whole is None else ScopedWorkflows(whole, access, bring_up_to_date)

    def open_execution() -> Any:
        from workflowlookup.tools.scoped_workflows import ScopedExecution  # noqa: PLC0415 - with the first call

        return ScopedExecution(services.execution, access, lambda run_id: open_runs().workflow_of(run_id) is not None)

    def reload() -> None:
        access.need("admin")
        services.reload()

    return Services(
        catalog=ScopedCatalog(services.catalog, access),
        open_runs=open_runs,
        open_execution=open_execution,
        open_workflows=open_workflows,
        open_consent=services.open_consent,
        reload=reload,
        confirmation=services.confirmation,
        access=access,
    )


class ScopedCatalog(Catalog):
    """The workflows that a caller may read."""

    def __init__(self, catalog: Catalog, access: Access) -> None:
        self._catalog = catalog
        self._access = access
        self._seen: tuple[Snapshot, Snapshot] | None = None

    @property
    def sources(self) -> tuple[Source, ...]:  # type: ignore[override]
        """Where documents lie is for administrators of everything."""
        return self._catalog.sources if self._access.administers_all else ()

    def snapshot(self) -> Snapshot:
        whole = self._catalog.snapshot()
        if self._access.sees_all:
            return whole
        if self._seen is None or self._seen[0] is not whole:
            self._seen = (whole, self._part_of(whole))
        return self._seen[1]

    def _part_of(self, whole: Snapshot) -> Snapshot:
        summaries = tuple(summary for summary in whole.summaries if self._sees(summary.id))
        return Snapshot(
            summaries=summaries,
            encoded=msgspec.Raw(msgspec.json.encode(summaries)),
            entries={key: entry for key, entry in whole.entries.items() if self._sees(key)},
            problems=tuple(entry for entry in whole.problems if self._sees_entry(entry)),
            shadowed=tuple(pair for pair in whole.shadowed if all(self._sees_entry(entry) for entry in pair)),
        )

    def listing(self, source: Source) -> Listing:
        """What one source holds, for administrators of everything."""
        self._access.need_everything()
        return self._catalog.listing(source)

    def get(self, workflow_id: str) -> Workflow:
        if workflow_id not in self.snapshot().entries:
            raise self._not_found(workflow_id)  # which suggests from the view
        try:
            return self._catalog.get(workflow_id)
        except WorkflowLookupError as refusal:
            raise self._without_place(refusal) from None

    def _without_place(self, refusal: WorkflowLookupError) -> WorkflowLookupError:
        """What is wrong with a document, for those who are not to know where it lies."""
        path = refusal.data.get("file")
        if not isinstance(path, str) or self.sources:
            return refusal
        name = os.path.basename(path)
        return type(refusal)(refusal.remedy.replace(path, name), **{**refusal.data, "file": name})

    def _sees(self, workflow_id: str) -> bool:
        return self._access.may("read", workflow_id)

    def _sees_entry(self, entry: Entry) -> bool:
        return self._sees(entry.file.id)


class ScopedRuns(Runs):
    """The runs of the workflows that a caller may read, and what they may do to them, in their name."""

    def __init__(self, runs: Runs, access: Access, *, confirmation: str) -> None:
        self._runs = runs
        self._access = access
        self._confirmation = confirmation

    def _seen(self, run_id: str) -> str:
        """The id of the workflow of a run. Raises `RunNotFound` when there is none for them."""
        workflow_id = self._runs.workflow_of(run_id)
        if workflow_id is None or not self._access.may("read", workflow_id):
            raise self.not_found(run_id)
        return workflow_id

    def _allowed(self, run_id: str, scope: str) -> None:
        self._access.need(scope, self._seen(run_id))

    def _allowed_to_confirm(self, run_id: str, by: str) -> str:
        """Who confirms, as the journal names them."""
        self._allowed(run_id, "confirm")
        if not self._access.may_confirm(self._runs.get(run_id).who_confirms(self._confirmation)):
            told = (
                "Only a person may confirm this, and your token is an agent's. Tell the user that the run waits for "
                "their answer: they give it in the console."
            )
            raise Forbidden(told, scope="confirm", runId=run_id)
        return self._access.sign(by)

    def _sees(self, workflow_id: str | None) -> bool:
        return workflow_id is not None and self._access.may("read", workflow_id)

    # ── what moves a run ────────────────────────────────────────────────────────────────────────────────────────

    def start(  # noqa: PLR0913 - as the one that it stands for
        self,
        workflow: Workflow,
        given: Context,
        context: Context,
        *,
        run_id: str | None = None,
        by: str = "",
        timeout: float | None = None,
    ) -> Run:
        if not self._sees(workflow.id):
            raise missing("read")  # whoever has the document in hand got it elsewhere
        self._access.need("run", workflow.id)
        try:
            signed = self._access.sign(by)
            return self._runs.start(workflow, given, context, run_id=run_id, by=signed, timeout=timeout)
        except RunStateError:
            if run_id is None or self._sees(self._runs.workflow_of(run_id)):
                raise
            raise RunStateError(f"The id '{run_id}' cannot be taken. Use another.", runId=run_id) from None

    def submit(self, run_id: str, step_id: str, output: str, changes: Context, *, by: str = "") -> Run:
        self._allowed(run_id, "run")
        return self._runs.submit(run_id, step_id, output, changes, by=self._access.sign(by))

    def earlier_verdict(
        self, run: Run, step_id: str, output: str, changes: Context
    ) -> OutputAccepted | OutputRefused | None:
        self._seen(run.id)
        return self._runs.earlier_verdict(run, step_id, output, changes)

    def supply(self, run_id: str, loop_id: str, changes: Context, *, by: str = "") -> Run:
        self._allowed(run_id, "run")
        return self._runs.supply(run_id, loop_id, changes, by=self._access.sign(by))

    def confirm(  # noqa: PLR0913 - as the one that it stands for
        self,
        run_id: str,
        step_id: str = "",
        *,
        how: How,
        question: str = "",
        note: str = "",
        answers: Context = NOTHING,
        by: str = "",
    ) -> Run:
        signed = self._allowed_to_confirm(run_id, by)
        return self._runs.confirm(run_id, step_id, how=how, question=question, note=note, answers=answers, by=signed)

    def deny(  # noqa: PLR0913 - as the one that it stands for
        self, run_id: str, step_id: str = "", *, how: How, question: str = "", note: str = "", by: str = ""
    ) -> Run:
        signed = self._allowed_to_confirm(run_id, by)
        return self._runs.deny(run_id, step_id, how=how, question=question, note=note, by=signed)

    def dismiss(self, run_id: str, step_id: str, *, question: str, by: str = "") -> Run:
        return self._runs.dismiss(run_id, step_id, question=question, by=self._allowed_to_confirm(run_id, by))

    def cancel(self, run_id: str, reason: str = "", *, by: str = "") -> Run:
        self._allowed(run_id, "run")
        return self._runs.cancel(run_id, reason, by=self._access.sign(by))

    # ── what the server does by itself is nobody's to do for it ─────────────────────────────────────────────────

    def _server_only(self, *_: Any, **__: Any) -> NoReturn:
        raise Forbidden("Only the server itself does this.")

    begin_call = _server_only
    acknowledge_call = _server_only
    report_call = _server_only
    finish_call = _server_only
    fail_call = _server_only
    lose_call = _server_only
    stop_call = _server_only

    def at_work(self, limit: int = 1_000) -> list[Summary]:
        return [summary for summary in self._runs.at_work(limit) if self._sees(summary.workflow_id)]

    def left_running(self) -> list[str]:
        return [run_id for run_id in self._runs.left_running() if self._sees(self._runs.workflow_of(run_id))]

    def queue_position(self, run_id: str) -> tuple[int, int]:
        """Among those that the caller sees."""
        self._seen(run_id)
        if self._access.sees_all:
            return self._runs.queue_position(run_id)
        queued = [summary.id for summary in self.at_work() if summary.state == "queued"]
        return queued.index(run_id) + 1 if run_id in queued else 0, len(queued)

    # ── what only looks ─────────────────────────────────────────────────────────────────────────────────────────

    def get(self, run_id: str) -> Run:
        self._seen(run_id)
        return self._runs.get(run_id)

    def load(self, run_id: str) -> bool:
        return not self._sees(self._runs.workflow_of(run_id)) or self._runs.load(run_id)

    def at(self, run_id: str, sequence: int) -> Run:
        self._seen(run_id)
        return self._runs.at(run_id, sequence)

    def after(self, run: Run) -> Run:
        self._seen(run.id)
        return self._runs.after(run)

    def workflow_of(self, run_id: str) -> str | None:
        workflow_id = self._runs.workflow_of(run_id)
        return workflow_id if self._sees(workflow_id) else None

    def imported(self, run_ids: Sequence[str]) -> dict[str, str]:
        return self._runs.imported([run_id for run_id in run_ids if self.workflow_of(run_id) is not None])

    def history(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Record]:
        self._seen(run_id)
        return self._runs.history(run_id, after, limit)

    def records(self, run_id: str) -> list[Record]:
        return self._runs.records(run_id) if self._sees(self._runs.workflow_of(run_id)) else []

    def summaries(self, query: Query) -> list[Summary]:
        if not self._access.may("read"):
            return []
        if not self._access.sees_all:
            query = msgspec.structs.replace(query, workflows=self._access.workflows)
        return [summary for summary in self._runs.summaries(query) if self._sees(summary.workflow_id)]

    def counts(self) -> dict[str, int]:
        if self._access.sees_all:
            return self._runs.counts()
        return dict(collections.Counter(summary.state for summary in self.every()))

    def heads(self) -> dict[str, int]:
        return {key: head for key, head in self._runs.heads().items() if self._sees(self._runs.workflow_of(key))}

    def watch(self, listener: Callable[[str], None]) -> Watch:
        return ScopedWatch(self._runs, self._access, listener, self._runs.watch)

    # ── whole journals ──────────────────────────────────────────────────────────────────────────────────────────

    def set_aside(self) -> Sequence[SetAside]:
        return self._runs.set_aside()

    def not_found(self, run_id: str) -> RunNotFound:
        return self._runs.not_found(run_id)

    def take_in(self, run_id: str, records: Sequence[Record], source: str) -> bool:
        self._access.need_everything()
        return self._runs.take_in(run_id, records, source)

    def adopt(self, run_id: str, records: Sequence[Record]) -> Run:
        self._access.need_everything()
        return self._runs.adopt(run_id, records)

    def delete(self, run_id: str) -> None:
        self._allowed(run_id, "admin")
        self._runs.delete(run_id)

    def purge(self, before: int) -> int:
        self._access.need_everything()
        return self._runs.purge(before)

    def close(self) -> None:
        """Nothing: the journal is not the caller's."""


class Following(Protocol):
    """One who follows the runs, until closed."""

    def changed(self) -> Collection[str]: ...
    def close(self) -> None: ...


class ScopedWatch(Watch):
    """Follows the runs that a caller sees, until closed; `begin` follows all of them."""

    def __init__(
        self,
        runs: Runs,
        access: Access,
        listener: Callable[[str], None],
        begin: Callable[[Callable[[str], None]], Following],
    ) -> None:
        self._runs = runs
        self._access = access
        self._listener = listener
        self._shown: dict[str, None] = {}
        """Runs that the caller has heard of: they hear that one is gone, when nobody can tell any more whose it was."""
        self._watch = begin(self._hear)

    def _hear(self, run_id: str) -> None:
        try:
            is_shown = self._shows(run_id)
        except StorageError:  # the change itself is stored, and must not look as if it were not
            return
        if is_shown:
            self._listener(run_id)

    def _shows(self, run_id: str) -> bool:
        workflow_id = self._runs.workflow_of(run_id)
        if workflow_id is None:
            was_shown = run_id in self._shown
            self._shown.pop(run_id, None)
            return was_shown
        if not self._access.may("read", workflow_id):
            return False
        self._shown[run_id] = None
        if len(self._shown) > MOST_REMEMBERED:
            del self._shown[next(iter(self._shown))]
        return True

    def changed(self) -> Collection[str]:
        return [run_id for run_id in self._watch.changed() if self._shows(run_id)]

    def close(self) -> None:
        self._watch.close()
