"""Authorization: the services as one caller sees them. Rights are checked here and nowhere else.

Handlers and pages get `Services` and check no rights. What the caller may not see is not listed, counted or suggested,
and is refused with the same error as what does not exist. What they may see but not do raises `Forbidden`. A method
that is not defined here does not exist for a caller.
"""

import collections
import contextlib
import functools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

import msgspec

from workflowlookup.access import WITNESS, Access, authenticated_name, missing_scope
from workflowlookup.cache import BoundedCache
from workflowlookup.errors import Forbidden, RunDamaged, RunNotFound, RunStateError, StorageError, WorkflowLookupError
from workflowlookup.language.model import Workflow
from workflowlookup.language.values import Context, Progress
from workflowlookup.library.catalog import CatalogEntry, CatalogView, Snapshot, Source, workflow_not_found
from workflowlookup.library.directory import Listing
from workflowlookup.logs import audit
from workflowlookup.providers.config import Plan
from workflowlookup.runs.events import OutputAccepted, OutputRefused, Record
from workflowlookup.runs.proofs.witnessing import WitnessReport, WitnessTask, is_of_other_project, witness_name
from workflowlookup.runs.run import Run
from workflowlookup.runs.triage import Triage
from workflowlookup.store.journal import DamagedJournal, RunQuery, RunSummary
from workflowlookup.store.run_cache import run_not_found
from workflowlookup.store.runs_view import RunWatch
from workflowlookup.store.service import Runs
from workflowlookup.tools.builtin import workflow_refresh, workflow_search
from workflowlookup.tools.contract import ExecutionView, ServerServices, Services, Tool, WorkflowTools, without_consent
from workflowlookup.tools.dynamic import Offer, find_offer, visible_bytes
from workflowlookup.tools.registry import Registry

if TYPE_CHECKING:
    from concurrent.futures import Future

    from workflowlookup.library.attachments import Attachment
    from workflowlookup.providers.discovery import ProviderListing

MAX_VISIBLE: Final = 10_000
"""How many visible runs a watch stores, to report when one of them is deleted."""

BeginWatch = Callable[[Callable[[str], None]], RunWatch]
P = ParamSpec("P")
R = TypeVar("R")


def scoped(
    services: ServerServices,
    access: Access,
    refresh_tools: Callable[[], None] = lambda: None,
    begin_watch: BeginWatch | None = None,
) -> Services:
    """The services as this caller sees them. Background work stays with the server.

    `refresh_tools` brings the workflow tools of the whole server up to date; `begin_watch` watches all runs, and may be
    shared by many callers.
    """
    if access.is_unrestricted:
        return services

    def open_runs() -> ScopedRuns:
        return ScopedRuns(services.runs, access, confirmation=services.confirmation, begin_watch=begin_watch)

    @functools.cache
    def open_workflows() -> ScopedWorkflows | None:
        whole = services.workflows
        return None if whole is None else ScopedWorkflows(whole, access, refresh_tools)

    def reload() -> None:
        access.require("admin")
        services.reload()

    return Services(
        catalog=ScopedCatalog(services.catalog, access),
        open_runs=open_runs,
        open_execution=lambda: ScopedExecution(services.execution, access, open_runs(), open_workflows),
        open_workflows=open_workflows,
        open_consent=services.open_consent if access.administers_all else without_consent,
        reload=reload,
        question_secret=services.question_secret,
        confirmation=services.confirmation,
        person_confirmation=services.person_confirmation,
        open_people=services.open_people,
        access=access,
    )


class ScopedCatalog:
    """The workflows that a caller may read."""

    def __init__(self, catalog: CatalogView, access: Access) -> None:
        self._catalog = catalog
        self._access = access
        self._visible: tuple[Snapshot, Snapshot] | None = None
        """The last snapshot of the library, and the part of it that the caller sees."""

    @property
    def sources(self) -> Sequence[Source]:
        """Only for administrators of everything, because a source has the path of its documents."""
        return self._catalog.sources if self._access.administers_all else ()

    def snapshot(self) -> Snapshot:
        whole = self._catalog.snapshot()
        if self._access.administers_all:
            return whole
        if self._visible is None or self._visible[0] is not whole:
            self._visible = (whole, self._part_of(whole))
        return self._visible[1]

    def _part_of(self, whole: Snapshot) -> Snapshot:
        summaries = tuple(summary for summary in whole.summaries if self._sees(summary.id))
        return Snapshot(
            summaries=summaries,
            encoded=msgspec.Raw(msgspec.json.encode(summaries)),
            entries={key: _without_path(entry) for key, entry in whole.entries.items() if self._sees(key)},
            problems=tuple(_without_path(entry) for entry in whole.problems if self._sees(entry.file.id)),
            shadowed=tuple(
                (_without_path(hidden), _without_path(by))
                for hidden, by in whole.shadowed
                if self._sees(hidden.file.id)  # both have the same id
            ),
            incomplete=whole.incomplete,
        )

    def listing(self, source: Source) -> Listing:
        """The documents of one source, for administrators of everything."""
        if not self._access.administers_all:
            raise missing_scope("admin")
        return self._catalog.listing(source)

    def get(self, workflow_id: str) -> Workflow:
        with self._visible_only(workflow_id):
            return self._catalog.get(workflow_id)

    def attachments(self, workflow_id: str) -> "Sequence[Attachment]":
        with self._visible_only(workflow_id):
            return self._catalog.attachments(workflow_id)

    def read_attachment(self, workflow_id: str, path: str) -> bytes:
        with self._visible_only(workflow_id):
            return self._catalog.read_attachment(workflow_id, path)

    @contextlib.contextmanager
    def _visible_only(self, workflow_id: str) -> Iterator[None]:
        """For a workflow that the caller sees; its errors name files, not paths. Others do not exist."""
        snapshot = self.snapshot()
        if workflow_id not in snapshot.entries:
            raise workflow_not_found(workflow_id, snapshot)
        try:
            yield
        except WorkflowLookupError as refusal:
            raise (refusal if self._access.administers_all else _naming_file(refusal)) from None

    def workflows(self) -> Iterator[Workflow]:
        return (workflow for workflow in self._catalog.workflows() if self._sees(workflow.id))

    def _sees(self, workflow_id: str) -> bool:
        return self._access.may("read", workflow_id)


def _without_path(entry: CatalogEntry) -> CatalogEntry:
    """The same document without the path of its directory, and the URL of its repository."""
    file = entry.file
    refusal = file.refusal and _naming_file(file.refusal)
    bare = msgspec.structs.replace(file, path=os.path.basename(file.path), refusal=refusal)
    return msgspec.structs.replace(entry, root="", file=bare, provenance="")


def _naming_file(refusal: WorkflowLookupError) -> WorkflowLookupError:
    """The same error, with the name of the file in place of its path."""
    path = refusal.data.get("file")
    if not isinstance(path, str):
        return refusal
    name = os.path.basename(path)
    data = {key: value.replace(path, name) if isinstance(value, str) else value for key, value in refusal.data.items()}
    return type(refusal)(refusal.remedy.replace(path, name), **data)


def _read_method(method: Callable[Concatenate[Runs, str, P], R]) -> "Callable[Concatenate[ScopedRuns, str, P], R]":
    """A method of `Runs` that reads one run, for callers who see it; others get `RunNotFound`."""

    def guarded(self: "ScopedRuns", run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._require("read", run_id)
        return method(self._runs, run_id, *args, **kwargs)

    return guarded


def _change_method(
    scope: str, method: Callable[Concatenate[Runs, str, P], Run]
) -> "Callable[Concatenate[ScopedRuns, str, P], Run]":
    """A method of `Runs` that changes one run, for callers with this scope. The change is recorded in their name."""

    def guarded(self: "ScopedRuns", run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Run:
        self._require(scope, run_id)
        kwargs["by"] = self._access.sign(str(kwargs.get("by", "")))
        return method(self._runs, run_id, *args, **kwargs)

    return guarded


class ScopedRuns:
    """The runs of the workflows that a caller may read. Changes are recorded in the name of the caller."""

    def __init__(
        self, whole: Runs, access: Access, *, confirmation: str, begin_watch: BeginWatch | None = None
    ) -> None:
        self._runs = whole
        self._begin_watch = begin_watch or whole.watch
        self._access = access
        self._confirmation = confirmation

    submit = _change_method("run", Runs.submit)
    supply = _change_method("run", Runs.supply)
    cancel = _change_method("run", Runs.cancel)
    pause = _change_method("run", Runs.pause)
    resume = _change_method("run", Runs.resume)
    confirm = _change_method("confirm", Runs.confirm)
    deny = _change_method("confirm", Runs.deny)
    dismiss = _change_method("confirm", Runs.dismiss)
    get = _read_method(Runs.get)
    history = _read_method(Runs.history)

    def start(  # noqa: PLR0913 - as `Runs.start`
        self,
        workflow: Workflow,
        inputs: Context,
        context: Context,
        *,
        run_id: str | None = None,
        by: str = "",
        timeout: float | None = None,
        client_roots: Sequence[str] = (),
    ) -> Run:
        if not self._sees(workflow.id):
            raise missing_scope("read")  # not `WorkflowNotFound`: the caller has the document already
        self._access.require("run", workflow.id)
        try:
            signed = self._access.sign(by)
            return self._runs.start(
                workflow, inputs, context, run_id=run_id, by=signed, timeout=timeout, client_roots=client_roots
            )
        except RunStateError:
            if run_id is None or self.workflow_of(run_id) is not None:
                raise
            raise RunStateError(f"The id '{run_id}' cannot be taken. Use another.", runId=run_id) from None

    def earlier_verdict(
        self, run: Run, step_id: str, output: str, changes: Context
    ) -> OutputAccepted | OutputRefused | None:
        self._require("read", run.id)
        return self._runs.earlier_verdict(run, step_id, output, changes)

    def note_answered(self, run: Run) -> None:
        self._require("read", run.id)
        self._runs.note_answered(run)

    def _require(self, scope: str, run_id: str) -> None:
        """Raises `RunNotFound` for a run that the caller does not see, `Forbidden` for what they may not do to it."""
        workflow_id = self.workflow_of(run_id)
        if workflow_id is None:
            raise self.not_found(run_id)
        self._access.require(scope, workflow_id)
        if scope == "confirm" and not self._access.may_confirm(
            self._runs.get(run_id).required_confirmer(self._confirmation)
        ):
            message = (
                "Only a person may confirm this, and your token is an agent's. Tell the user that the run waits for "
                "their answer: they give it in the console."
            )
            raise Forbidden(message, scope="confirm", runId=run_id)

    def _sees(self, workflow_id: str) -> bool:
        return self._access.may("read", workflow_id)

    def workflow_of(self, run_id: str) -> str | None:
        workflow_id = self._runs.workflow_of(run_id)
        return workflow_id if workflow_id is not None and self._sees(workflow_id) else None

    def load_slice(self, run_id: str) -> bool:
        return self.workflow_of(run_id) is None or self._runs.load_slice(run_id)

    def records(self, run_id: str, after: int = 0) -> list[Record]:
        return [] if self.workflow_of(run_id) is None else self._runs.records(run_id, after)

    def imported(self, run_ids: Sequence[str]) -> dict[str, str]:
        return self._runs.imported([run_id for run_id in run_ids if self.workflow_of(run_id) is not None])

    def queue_position(self, run_id: str) -> tuple[int, int]:
        """The position among the queued runs that the caller sees."""
        self._require("read", run_id)
        if self._access.sees_all:
            return self._runs.queue_position(run_id)
        queued = [
            summary.id
            for summary in self._runs.server_work.at_work()
            if summary.state == "queued" and self._sees(summary.workflow_id)
        ]
        return queued.index(run_id) + 1 if run_id in queued else 0, len(queued)

    def summaries(self, query: RunQuery) -> list[RunSummary]:
        return [summary for summary in self._runs.summaries(self._narrowed(query)) if self._sees(summary.workflow_id)]

    def recent(self, limit: int) -> list[RunSummary]:
        return self.summaries(RunQuery(limit=limit))

    def counts(self) -> dict[str, int]:
        if self._access.sees_all:
            return self._runs.counts()
        summaries = self._runs.all_summaries(self._narrowed(RunQuery()))
        return dict(collections.Counter(summary.state for summary in summaries if self._sees(summary.workflow_id)))

    def triage_counts(self, query: RunQuery) -> dict[tuple[str, Triage], int]:
        counts = self._runs.triage_counts(self._narrowed(query))
        return {
            (workflow_id, group): count for (workflow_id, group), count in counts.items() if self._sees(workflow_id)
        }

    def _narrowed(self, query: RunQuery) -> RunQuery:
        """The query for visible runs only, so that a page is full even if there are hidden runs in between."""
        if self._access.sees_all:
            return query
        return msgspec.structs.replace(query, workflows=self._access.workflows)

    def watch(self, listener: Callable[[str], None]) -> RunWatch:
        if self._access.sees_all:
            return self._begin_watch(listener)
        return ScopedWatch(self, listener, self._begin_watch)

    def damaged_journals(self) -> Sequence[DamagedJournal]:
        """Only administrators of everything see the path, and only callers that see all runs see the outcome."""
        whole = self._runs.damaged_journals()
        if self._access.administers_all:
            return whole
        return [
            DamagedJournal(file=os.path.basename(one.file), outcome=one.outcome if self._access.sees_all else "")
            for one in whole
        ]

    def not_found(self, run_id: str) -> RunNotFound:
        return run_not_found(run_id, self.damaged_journals())


class ScopedWitness:
    """The runs whose proofs a caller may take as a witness: those that the same person has started."""

    def __init__(self, whole: Runs, access: Access) -> None:
        self._runs = whole
        self._access = access

    def claim(
        self, process: str, seconds: float, wanted: Collection[str] = (), roots: Collection[str] = ()
    ) -> WitnessTask | None:
        """Claim something for a witness that runs of the same person wait for; None if there is nothing.

        `process`: the id of the witness; `wanted`: ids of runs, if it takes no others; otherwise `roots`: paths of the
        directory that it looks at. Raises `Forbidden`.
        """
        self._access.require(WITNESS)
        witness = witness_name(self._access.name, process)
        server_work = self._runs.server_work
        for run_id in wanted or server_work.waiting_for_proof(self._access.witnessed_name):
            with contextlib.suppress(RunNotFound, RunStateError, RunDamaged):  # another witness was faster
                run = self._runs.get(run_id)
                is_elsewhere = not wanted and is_of_other_project(run, roots)
                if self._is_own(run) and not is_elsewhere and self._access.may("read", run.workflow.id):
                    return server_work.claim_proof(run_id, witness, seconds, by=self._access.sign(""))
        return None

    def renew(self, report: WitnessReport, process: str, seconds: float) -> None:
        """A witness needs longer. Raises `RunStateError` if the run does not wait for it any more."""
        witness = self._witness_of(report, process)
        self._runs.server_work.renew_claim(report, witness, seconds, by=self._access.sign(""))

    def report(self, report: WitnessReport, process: str) -> None:
        """Store what a witness saw. Raises as `Runs.report_proof`, and `RunNotFound`, `Forbidden`."""
        witness, actor = self._witness_of(report, process), self._access.sign("")
        self._runs.server_work.report_proof(report, witness, self._access.name, by=actor)
        verdict = report.judgement.verdict if report.judgement is not None else "snapshot"
        audit("witness", by=actor, run=report.run_id, step=report.step_id, proof=report.name, verdict=verdict)

    def _witness_of(self, report: WitnessReport, process: str) -> str:
        """The name of the witness. Raises `Forbidden`, also for a run that somebody else started."""
        workflow_id = self._runs.workflow_of(report.run_id)
        if workflow_id is None or not self._access.may("read", workflow_id):
            raise run_not_found(report.run_id, ())
        self._access.require(WITNESS, workflow_id)
        if not self._is_own(self._runs.get(report.run_id)):
            message = (
                "A witness takes only the proofs of runs that the same person has started. Use a token with the name "
                "of the one that started this run, and +witness."
            )
            raise Forbidden(message, scope=WITNESS, runId=report.run_id)
        return witness_name(self._access.name, process)

    def _is_own(self, run: Run) -> bool:
        """Whether the person of this caller started the run. Callers without a name own nothing."""
        return bool(self._access.name) and authenticated_name(run.by) == self._access.witnessed_name


class ScopedWatch:
    """Follows the runs that a caller sees, until closed; `begin` follows all of them."""

    def __init__(self, runs: ScopedRuns, listener: Callable[[str], None], begin: BeginWatch) -> None:
        self._runs = runs
        self._listener = listener
        self._visible: BoundedCache[str, None] = BoundedCache(MAX_VISIBLE)
        """Runs that the caller has seen: when one is deleted, its workflow cannot be looked up any more."""
        self._watch = begin(self._on_change)

    def _on_change(self, run_id: str) -> None:
        try:
            is_visible = self._is_visible(run_id)
        except StorageError:  # the change itself is stored: it must not fail because of this
            return
        if is_visible:
            self._listener(run_id)

    def _is_visible(self, run_id: str) -> bool:
        if self._runs.workflow_of(run_id) is None:  # hidden, or deleted
            was_visible = run_id in self._visible
            self._visible.pop(run_id)
            return was_visible
        self._visible[run_id] = None
        return True

    def changed(self) -> Collection[str]:
        return [run_id for run_id in self._watch.changed() if self._is_visible(run_id)]

    def close(self) -> None:
        self._watch.close()


class ScopedWorkflows:
    """The workflow tools of a caller: those of the server that they may read, in a registry of their own."""

    def __init__(self, whole: WorkflowTools, access: Access, refresh_tools: Callable[[], None]) -> None:
        self._whole = whole
        self._access = access
        self._refresh_tools = refresh_tools
        self._registry: Registry | None = None
        self._all_offers: Mapping[str, Offer] | None = None
        """The offers of the server from which those of the caller were last chosen."""
        self._offers: Mapping[str, Offer] = {}
        self._current: tuple[object, ...] = ()
        """The offers and the settings that the registry was last made from; empty before that."""

    @property
    def plan(self) -> Plan:
        return self._whole.plan

    @property
    def offers(self) -> Mapping[str, Offer]:
        """By the name of the tool, in its order."""
        everything = self._whole.offers
        if everything is not self._all_offers:
            self._all_offers = everything
            self._offers = {name: offer for name, offer in everything.items() if self._sees(offer.workflow_id)}
        return self._offers

    def _sees(self, workflow_id: str) -> bool:
        return self._access.may("read", workflow_id)

    def attach(self, registry: Registry) -> None:
        self._registry = registry
        self._current = ()

    def refresh_if_changed(self) -> bool:
        self._refresh_tools()
        offers, plan = self.offers, self.plan
        if self._registry is None or (self._current and self._current[0] is offers and self._current[1] is plan):
            return False
        self._current = (offers, plan)
        return self._registry.replace(self._tools(self._registry, [offer.tool for offer in offers.values()]))

    def _tools(self, registry: Registry, tools: list[Tool]) -> list[Tool]:
        """The tools of the caller, or `workflow_search` in their place if the list would be too long."""
        if not self.plan.is_on:
            return []
        size = visible_bytes((*registry.built_in.values(), workflow_refresh.TOOL, *tools))
        return [workflow_refresh.TOOL, *([workflow_search.TOOL] if size > self.plan.budget_bytes else tools)]

    def resolve(self, name: str) -> Workflow | None:
        self._refresh_tools()
        offer = find_offer(self.offers, name)
        return self._whole.resolve(offer.tool.name) if offer is not None else None

    def default_timeout(self, workflow: Workflow) -> float | None:
        return self._whole.default_timeout(workflow)

    def abilities(self, provider: str) -> frozenset[str] | None:
        return self._whole.abilities(provider)

    def discovered(self) -> Mapping[str, "ProviderListing"]:
        """The providers with workflows that the caller sees, each with those workflows only."""
        everything = self._whole.discovered()
        if self._access.sees_all:
            return everything
        parts = {name: self._part_of(discovered) for name, discovered in everything.items()}
        return {name: part for name, part in parts.items() if part.definitions}

    def _part_of(self, discovered: "ProviderListing") -> "ProviderListing":
        visible = tuple(definition for definition in discovered.definitions if self._sees(definition.workflow_id))
        return msgspec.structs.replace(discovered, definitions=visible)


class ScopedExecution:
    """The server's own work on the runs that a caller sees."""

    def __init__(
        self,
        whole: ExecutionView,
        access: Access,
        runs: ScopedRuns,
        open_workflows: "Callable[[], ScopedWorkflows | None]",
    ) -> None:
        self._whole = whole
        self._access = access
        self._runs = runs
        self._open_workflows = open_workflows

    def progress(self, run_id: str) -> Progress | None:
        return self._whole.progress(run_id) if self._runs.workflow_of(run_id) is not None else None

    def cached_run(self, run_id: str) -> Run | None:
        run = self._whole.cached_run(run_id)
        return run if run is not None and self._runs.workflow_of(run_id) is not None else None

    def is_at_work(self, run_id: str) -> bool:
        return self._whole.is_at_work(run_id) and self._runs.workflow_of(run_id) is not None

    def attend(self, run: Run) -> None:
        if self._runs.workflow_of(run.id) is not None:
            self._whole.attend(run)

    def refresh(self, providers: Collection[str] | None = None) -> "Future[None]":
        """Poll the providers that the administrator may see: all, or those of workflows that they see or name."""
        self._access.require("admin")
        if self._access.administers_all:
            return self._whole.refresh(providers)
        workflows = self._open_workflows()
        visible = frozenset() if workflows is None else _providers_of(workflows, self._access)
        return self._whole.refresh(visible if providers is None else visible & frozenset(providers))


def _providers_of(workflows: ScopedWorkflows, access: Access) -> frozenset[str]:
    """The providers that have workflows which the caller sees, or of which a pattern names workflows."""
    named = {name for name in workflows.plan.providers for one in access.workflows if one.startswith(f"{name}.")}
    return frozenset(named | workflows.discovered().keys())
