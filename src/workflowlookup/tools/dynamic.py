"""Workflow tools: a tool for each workflow of the library and of every provider that passes the filters.

`refresh_if_changed` brings the registry up to date; it costs almost nothing if neither the library, nor a provider, nor
a setting has changed. A call of such a tool starts a run. What providers listed is stored with the journal, so that the
first list after a start has their tools at once.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from workflowlookup import extras
from workflowlookup.errors import ProviderUnavailable, StorageError
from workflowlookup.greenlets import Lock
from workflowlookup.language.model import PromptStep, Workflow, WorkflowCall
from workflowlookup.language.values import Json, Progress
from workflowlookup.providers.config import LIBRARY, Plan, WorkflowFilter
from workflowlookup.providers.definition import Definition, as_document, usable_schema
from workflowlookup.tools.arguments import SchemaArguments
from workflowlookup.tools.builtin import BUILTIN_TOOLS, workflow_refresh, workflow_search
from workflowlookup.tools.contract import (
    Caller,
    Elicitation,
    Handler,
    Outcome,
    Pending,
    Result,
    ServerServices,
    Services,
    Tool,
)
from workflowlookup.tools.registry import Registry
from workflowlookup.tools.tool_names import Key, StoredNames

if TYPE_CHECKING:
    from workflowlookup.library.catalog import Snapshot
    from workflowlookup.library.files import LoadedFile, WorkflowSummary
    from workflowlookup.providers.discovery import ProviderListing
    from workflowlookup.runs.run import Run
    from workflowlookup.store.journal import Journal

log = logging.getLogger(__name__)

T = TypeVar("T")
_decode_definitions = msgspec.json.Decoder(tuple[Definition, ...]).decode

PROVIDER_SECONDS: Final = 10.0
"""How long a call of a remembered tool waits for its provider to answer."""
REFRESH_SECONDS: Final = 30.0
"""How long a request waits while another one refreshes the list of tools."""
META: Final = "workflowlookup/workflow"
LEADS: Final = "Leads you step by step."
"""Ends the description of a workflow that the agent carries out: a call of its tool does not do the work."""
SEARCH_HINT: Final[Mapping[str, Json]] = {"anthropic/searchHint": "workflow playbook checklist procedure run steps"}
"""`_meta` with words by which the tool search of Claude Code finds a deferred tool."""
_NO_PROVIDERS: "Final[Mapping[str, ProviderListing]]" = {}
OUTPUT_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "runId": {"type": "string", "description": "For workflow_status and workflow_cancel."},
        "state": {"type": "string"},
        "workflow": {"type": "object", "description": "As in the answer of workflow_start."},
        "result": {"description": "The result, once the run is completed."},
        "resultPart": {"type": "object", "description": "The first part of a result that is too long."},
        "next": {"type": "string", "description": "What to do now."},
    },
    "required": ["runId", "state"],
}


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that is a tool, or would be if the list of tools were not too long."""

    tool: Tool
    definition: Definition
    workflow_id: str
    """Its id for `workflow_start`."""


def visible_bytes(tools: Iterable[Tool]) -> int:
    """How much of `tools/list` a model reads: what counts against `tools_budget_bytes`."""
    return sum(len(msgspec.json.encode(tool.model_view())) for tool in tools)


def find_offer(offers: Mapping[str, Offer], name: str) -> Offer | None:
    """The offer with this tool name or workflow id."""
    return offers.get(name) or next((offer for offer in offers.values() if offer.workflow_id == name), None)


class DynamicTools:
    """Makes tools of workflows, for one registry."""

    def __init__(
        self,
        services: ServerServices,
        plan: Plan,
        *,
        poll_settings: Callable[[], None] = lambda: None,
        discovered: "Callable[[], Mapping[str, ProviderListing]] | None" = None,
        on_names_stored: Callable[[], None] = lambda: None,
    ) -> None:
        """`poll_settings` is called before each refresh, and calls `apply` if the settings changed. `discovered`
        returns what the providers listed; the default is `execution.discovered`. `on_names_stored` is called after
        names were stored that other replicas do not have yet.
        """
        self.plan = plan
        self.offers: Mapping[str, Offer] = {}
        """By tool name, in alphabetical order."""
        self.is_over_budget = False
        """Whether the list of all workflow tools would be too long, so that `workflow_search` replaces them."""
        self._poll_settings = poll_settings
        self._discovered = discovered
        self._services = services
        self._registry: Registry | None = None
        self._built_in: Mapping[str, Tool] = BUILTIN_TOOLS
        self._inputs: tuple[object, ...] = ()
        """What the tools were last made from."""
        self._has_waited = False
        self._refreshing = Lock()
        """Held while names are read and stored, so that no other request sees an incomplete list."""
        self._stored_definitions = StoredDefinitions(lambda: services.runs.journal)
        self._merged: Mapping[str, ProviderListing] = {}
        self._merged_from: tuple[object, object] | None = None
        """What the providers listed, now or before, and the objects that this was made from."""
        self._names = StoredNames(lambda: services.runs.journal, on_names_stored)
        self._read: dict[str, tuple[LoadedFile, Definition]] = {}
        """By workflow of the library: its file and its definition."""
        self._built: dict[str, tuple[Definition, Workflow]] = {}
        """By workflow of a provider: its definition, and the workflow built from it."""

    def attach(self, registry: Registry) -> None:
        """From now on, keep this registry up to date."""
        self._registry, self._built_in = registry, registry.built_in
        self._inputs = ()

    def apply(self, plan: Plan) -> None:
        """From now on, use these settings."""
        self.plan = plan

    def forget_names(self) -> None:
        """Read the names again, because another server has stored or freed names."""
        with self._refreshing.hold(REFRESH_SECONDS):
            self._names.forget()
            self._inputs = ()

    def discovered(self) -> Mapping[str, "ProviderListing"]:
        """What the providers listed; the same object until something changes."""
        if not self.plan.providers:
            return _NO_PROVIDERS
        if self._discovered is not None:
            return self._discovered()
        live = self._services.execution.discovered()
        if self._merged_from is None or self._merged_from[0] is not live or self._merged_from[1] is not self.plan:
            self._merged = self._with_remembered(live)
            self._merged_from = (live, self.plan)
            self._stored_definitions.save(self.plan, live)
        return self._merged

    def _with_remembered(self, live: Mapping[str, "ProviderListing"]) -> Mapping[str, "ProviderListing"]:
        """What the providers listed; for those that have not answered yet, what is stored."""
        from workflowlookup.providers.discovery import ProviderListing  # noqa: PLC0415 - where there are providers

        remembered = {
            name: msgspec.structs.replace(
                live.get(name) or ProviderListing(), definitions=definitions, is_remembered=True
            )
            for name, definitions in self._stored_definitions.load(self.plan).items()
            if name not in live or not live[name].is_listed
        }
        return {**live, **remembered}

    def _await_new_providers(self) -> None:
        """Before the first list, wait a moment for providers of which nothing is stored."""
        self._has_waited = True
        plan = self.plan
        if self._discovered is None and plan.is_on and plan.discovery_wait_seconds:
            answered = {
                name
                for name, provider in self.discovered().items()
                if provider.is_remembered or provider.is_listed or provider.is_away
            }
            if new := plan.providers.keys() - answered:
                self._services.execution.await_discovered(new, plan.discovery_wait_seconds)

    def refresh_if_changed(self) -> bool:
        """Bring the registry up to date; whether the list of tools changed."""
        with self._refreshing.hold(REFRESH_SECONDS):
            return self._refresh_if_changed()

    def _refresh_if_changed(self) -> bool:
        self._poll_settings()
        if not self._has_waited and self.plan.providers:
            self._await_new_providers()
        plan, discovered = self.plan, self.discovered()
        library = self._services.catalog.snapshot() if plan.is_on else None
        inputs = (plan, discovered, library)
        if len(inputs) == len(self._inputs) and all(a is b for a, b in zip(inputs, self._inputs, strict=True)):
            return False
        self._inputs = inputs
        tools = self._make(library, discovered)
        return self._registry is not None and self._registry.replace(tools)

    def resolve(self, name: str) -> Workflow | None:
        """The workflow with this tool name or id, ready to run; None if there is none. Raises `ProviderUnavailable`."""
        self.refresh_if_changed()
        offer = find_offer(self.offers, name)
        return self._workflow(offer.definition) if offer is not None else None

    def default_timeout(self, workflow: Workflow) -> float | None:
        """The time limit in the settings, for a workflow that needs neither the agent nor a person; else None."""
        if workflow.deadline_seconds is not None or not workflow.goes_by_itself:
            return None
        calls = (step.call for step in workflow.steps.values() if isinstance(step, PromptStep))
        providers = {call.provider for call in calls if isinstance(call, WorkflowCall)} & self.plan.providers.keys()
        limits = (self.plan.providers[name].options.get("timeout_seconds") for name in providers)
        return max((seconds for seconds in limits if seconds), default=self.plan.timeout_seconds)

    def abilities(self, provider: str) -> frozenset[str] | None:
        """Which of "start", "status" and "cancel" a provider supports; None if that is unknown."""
        discovered = self.discovered().get(provider)
        return discovered.can if discovered is not None else None

    # ── from workflows to tools ─────────────────────────────────────────────────────────────────────────────────

    def _make(self, library: "Snapshot | None", discovered: Mapping[str, "ProviderListing"]) -> Sequence[Tool]:
        """Make the tools; sets `offers`."""
        if library is None:
            self.offers, self.is_over_budget = {}, False
            return []
        sieve = WorkflowFilter(self.plan.filters)
        everything = [*self._library(library), *(d for provider in discovered.values() for d in provider.definitions)]
        admitted = [definition for definition in everything if sieve.admits(definition)]
        names = self._tool_names(admitted, everything, discovered)
        offers = (self._offer(names[definition.provider, definition.id], definition) for definition in admitted)
        self.offers = {offer.tool.name: offer for offer in sorted(offers, key=lambda offer: offer.tool.name)}
        tools = [offer.tool for offer in self.offers.values()]
        return [workflow_refresh.TOOL, *self._within_budget(tools)]

    def _library(self, library: "Snapshot") -> Iterator[Definition]:
        read: dict[str, tuple[LoadedFile, Definition]] = {}
        for summary in library.summaries:
            file = library.entries[summary.id].file
            cached = self._read.get(summary.id)
            if cached is None or cached[0] is not file:
                cached = (file, _definition(summary, file))
            read[summary.id] = cached
            yield cached[1]
        self._read = read

    def _offer(self, name: str, definition: Definition) -> Offer:
        meta: dict[str, Json] = {
            "id": definition.id,
            "provider": definition.provider,
            "category": definition.category,
            "version": definition.version,
            "executionType": definition.execution_type,
        }
        if definition.metadata:
            meta["metadata"] = definition.metadata
        if self._is_remembered(definition):
            meta["remembered"] = True  # until its provider lists it again
        tool = Tool(
            name=name,
            title=definition.name,
            description=_description(definition),
            arguments=SchemaArguments(definition.input_schema),
            output_schema=OUTPUT_SCHEMA,
            handler=self._handler(definition),
            read_only=False,
            idempotent=False,
            open_world=definition.provider != LIBRARY,
            can_be_task=True,
            starts_run=True,
            meta={META: meta, **SEARCH_HINT},
        )
        return Offer(tool=tool, definition=definition, workflow_id=definition.workflow_id)

    def _within_budget(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """The tools, or `workflow_search` in their place if the list would be too long."""
        size = visible_bytes((*self._built_in.values(), workflow_refresh.TOOL, *tools))
        was_over_budget, self.is_over_budget = self.is_over_budget, size > self.plan.budget_bytes
        if self.is_over_budget and not was_over_budget:
            log.warning(
                "the list of %d workflow tools would take %s bytes of %s (tools_budget_bytes): workflow_search and "
                "workflow_start replace them",
                *(len(tools), f"{size:,}", f"{self.plan.budget_bytes:,}"),
            )
        elif was_over_budget and not self.is_over_budget:
            log.warning("the list of workflow tools is short enough again: each workflow is a tool of its own")
        return [workflow_search.TOOL] if self.is_over_budget else tools

    def _tool_names(
        self,
        admitted: Sequence[Definition],
        everything: Sequence[Definition],
        discovered: Mapping[str, "ProviderListing"],
    ) -> Mapping[Key, str]:
        reserved = {workflow_refresh.TOOL.name, workflow_search.TOOL.name, *self._built_in}
        existing = {(definition.provider, definition.id) for definition in everything}
        listed = {name for name, provider in discovered.items() if provider.is_listed and not provider.is_away}
        return self._names.assign(admitted, reserved, existing=existing, listed=listed)

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _handler(self, definition: Definition) -> Handler:
        def start_run(services: Services, arguments: Mapping[str, Any], caller: Caller) -> Outcome:
            from workflowlookup.tools.builtin.workflow_start import view_workflow  # noqa: PLC0415 - with the first run
            from workflowlookup.tools.elicitation import start_trusted  # noqa: PLC0415
            from workflowlookup.tools.pending_runs import await_run  # noqa: PLC0415
            from workflowlookup.tools.run_answers import answer_with_result  # noqa: PLC0415

            workflow = self._workflow(definition)
            timeout = caller.timeout_seconds or self.default_timeout(workflow)

            def start() -> "Run":
                return services.runs.start(
                    workflow, arguments, {}, by=caller.name, timeout=timeout, client_roots=caller.roots
                )

            run = start_trusted(services, workflow, caller, start)
            if isinstance(run, Elicitation):
                return run
            about = {"workflow": view_workflow(services, workflow)} if definition.needs_agent else {}
            return await_run(services, run, caller, lambda run: {**answer_with_result(services, run, caller), **about})

        def handle(services: Services, arguments: Mapping[str, Any], caller: Caller) -> Outcome:
            if not self._is_remembered(definition) or extras.is_missing(extras.CALLS):
                return start_run(services, arguments, caller)

            def start_if_current() -> Outcome:
                self._refuse_outdated(definition)
                return start_run(services, arguments, caller)

            waiter = _ProviderWaiter(lambda: not self._is_remembered(definition), start_if_current)
            return Pending(run_id="", poll=waiter.poll, progress=waiter.progress, abandon=waiter.abandon)

        return handle

    def _refuse_outdated(self, definition: Definition) -> None:
        """Raises `ProviderUnavailable` if the provider answered, and its workflow is gone or takes other arguments."""
        provider = self.discovered().get(definition.provider)
        if provider is None or not provider.is_listed:
            return
        current = next((listed for listed in provider.definitions if listed.id == definition.id), None)
        if current is None or current.input_schema != definition.input_schema:
            cause = "no longer has it" if current is None else "wants other arguments for it now"
            raise ProviderUnavailable(
                f"'{definition.name}' was a workflow of the provider '{definition.provider}', which {cause}. "
                "Call tools/list again.",
                provider=definition.provider,
                workflowId=definition.id,
                cause=cause,
            )

    def _is_remembered(self, definition: Definition) -> bool:
        """Whether a workflow is only remembered: its provider has not answered since the server was started."""
        provider = self.discovered().get(definition.provider) if definition.provider != LIBRARY else None
        return provider is not None and provider.is_remembered

    def _workflow(self, definition: Definition) -> Workflow:
        """The workflow that a definition describes, for a run.

        Raises `MissingExtra`, `ProviderUnavailable`, or the error of a document of the library.
        """
        if definition.provider == LIBRARY:
            return self._services.catalog.get(definition.id)
        extras.require(extras.CALLS)
        provider = self.discovered().get(definition.provider)
        if provider is None or provider.is_away or provider.is_remembered:
            no_answer = "it has not answered since the server was started"
            cause = (provider.cause or no_answer) if provider else "the settings no longer name it"
            raise ProviderUnavailable(
                f"'{definition.name}' is a workflow of the provider '{definition.provider}', which does not answer: "
                f"{cause}. The server keeps trying; try later, or call workflow_refresh.",
                provider=definition.provider,
                workflowId=definition.id,
                cause=cause,
            )
        key = definition.workflow_id
        cached = self._built.get(key)
        if cached is None or cached[0] is not definition:
            from workflowlookup.language.document.building import build  # noqa: PLC0415

            self._built[key] = cached = (definition, build(as_document(definition)))
        return cached[1]


class _ProviderWaiter:
    """A call of a remembered tool: it starts its run once the provider has answered."""

    def __init__(self, is_ready: Callable[[], bool], start_run: Callable[[], Outcome]) -> None:
        self._is_ready = is_ready
        self._start_run = start_run
        self._deadline = time.monotonic() + PROVIDER_SECONDS
        self._pending: Pending | None = None

    def poll(self) -> Result | Elicitation | None:
        if self._pending is None:
            if not self._is_ready() and time.monotonic() < self._deadline:
                return None
            outcome = self._start_run()  # raises if the provider still does not answer
            if not isinstance(outcome, Pending):
                return outcome
            self._pending = outcome
        return self._pending.poll()

    def progress(self) -> Progress | None:
        return self._pending.progress() if self._pending is not None else None

    def abandon(self, reason: str) -> None:
        if self._pending is not None:
            self._pending.abandon(reason)


def _description(definition: Definition) -> str:
    text = definition.description.rstrip()
    if not definition.needs_agent:
        return text
    return f"{text} {LEADS}" if text.endswith((".", "!", "?")) else f"{text}. {LEADS}"


def _definition(summary: "WorkflowSummary", file: "LoadedFile") -> Definition:
    """The definition of a workflow of the library."""
    details = file.details
    schema, remark = usable_schema(msgspec.json.decode(details.input_schema) if details.input_schema else None)
    if remark:
        log.warning("workflow '%s': inputSchema %s; any object is accepted", summary.id, remark)
    return Definition(
        id=summary.id,
        name=summary.name,
        description=summary.description,
        provider=LIBRARY,
        category=summary.category,
        version=summary.version,
        input_schema=schema,
        execution_type=details.execution_type,
        metadata=msgspec.json.decode(details.metadata) if details.metadata else {},
        needs_agent=file.needs_agent,
    )


# ── stored definitions ──────────────────────────────────────────────────────────────────────────────────────────


class StoredDefinitions:
    """The workflows that providers last listed, in the journal; without a journal nothing is stored.

    They count only under the settings under which they were listed, and until the provider answers again.
    """

    def __init__(self, open_journal: "Callable[[], Journal]") -> None:
        """`open_journal` may raise `StorageError`."""
        self._open_journal = open_journal
        self._rows: Mapping[str, tuple[str, str]] | None = None
        """By provider: a digest of its settings, and its workflows as JSON."""

    def load(self, plan: Plan) -> Mapping[str, tuple[Definition, ...]]:
        """By provider: its workflows, if its settings are still the same."""
        definitions: dict[str, tuple[Definition, ...]] = {}
        for name, (digest, body) in self._read().items():
            if name in plan.providers and digest == _digest(plan, name):
                try:
                    definitions[name] = _decode_definitions(body)
                except msgspec.MsgspecError as error:  # stored by another version; the provider lists them again soon
                    log.debug("the stored workflows of provider '%s' cannot be read: %s", name, error)
        return definitions

    def save(self, plan: Plan, discovered: "Mapping[str, ProviderListing]") -> None:
        """Store what providers have just listed."""
        for name, provider in discovered.items():
            if not provider.is_listed or provider.is_away or name not in plan.providers:
                continue
            row = (_digest(plan, name), msgspec.json.encode(provider.definitions).decode())
            if self._read().get(name) != row:
                self._use_journal(lambda journal, name=name, row=row: journal.store_provider_listing(name, *row))  # type: ignore[misc]
                self._rows = {**self._read(), name: row}

    def _read(self) -> Mapping[str, tuple[str, str]]:
        if self._rows is None:
            self._rows = self._use_journal(lambda journal: journal.provider_listings()) or {}
        return self._rows

    def _use_journal(self, operation: "Callable[[Journal], T]") -> T | None:
        try:
            return operation(self._open_journal())
        except StorageError as error:
            log.debug("the workflows of providers are not stored: %s", error)
            return None


def _digest(plan: Plan, name: str) -> str:
    """A digest of the settings of a provider and of its server; it reveals no secret in them."""
    import hashlib  # noqa: PLC0415 - where there are providers

    config = plan.providers[name]
    server = plan.servers.get(str(config.options.get("server") or name))
    settings = msgspec.json.encode([config.kind, config.options, server], order="deterministic")
    return hashlib.sha256(settings).hexdigest()
