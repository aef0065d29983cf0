"""Workflows as tools: one for each that passes the filters, from the library and from every provider.

`refresh_if_changed` brings the registry up to date; it costs next to nothing when neither the library, nor a provider,
nor a setting has changed. The work behind a call is a run like any other.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from workflowlookup import extras
from workflowlookup.errors import ProviderAway, StorageError
from workflowlookup.greenlets import Lock
from workflowlookup.language.model import PromptStep, Workflow, WorkflowCall
from workflowlookup.language.values import Json, Progress
from workflowlookup.providers.config import LIBRARY, Plan, Sieve
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
from workflowlookup.tools.tool_names import KeptNames, Key

if TYPE_CHECKING:
    from workflowlookup.library.catalog import Snapshot
    from workflowlookup.library.files import Details, Loaded, Summary
    from workflowlookup.providers.discovery import Discovered
    from workflowlookup.runs.run import Run
    from workflowlookup.store.journal import Journal

log = logging.getLogger(__name__)

T = TypeVar("T")
_decode_definitions = msgspec.json.Decoder(tuple[Definition, ...]).decode

PROVIDER_SECONDS: Final = 10.0
"""How long the call of a remembered tool waits for its provider."""
REFRESH_SECONDS: Final = 30.0
"""How long the list of tools is waited for while it is made for another client."""
META: Final = "workflowlookup/workflow"
_NONE: "Final[Mapping[str, Discovered]]" = {}
OUTPUT_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "runId": {"type": "string", "description": "For workflow_status and workflow_cancel."},
        "state": {"type": "string"},
        "result": {"description": "What came of it, once it is completed."},
        "resultPart": {"type": "object", "description": "In place of a result that is too long: its first part."},
        "next": {"type": "string", "description": "What to do now."},
    },
    "required": ["runId", "state"],
}


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that is a tool, or would be if there were room."""

    tool: Tool
    definition: Definition
    workflow_id: str
    """What `workflow_start` calls it."""


def find_offer(offers: Mapping[str, Offer], wanted: str) -> Offer | None:
    """The one with this tool name or workflow id."""
    return offers.get(wanted) or next((offer for offer in offers.values() if offer.workflow_id == wanted), None)


class DynamicTools:
    """Makes tools of workflows, for one registry."""

    def __init__(
        self,
        services: ServerServices,
        plan: Plan,
        *,
        poll_settings: Callable[[], None] = lambda: None,
        discovered: "Callable[[], Mapping[str, Discovered]] | None" = None,
        on_names_stored: Callable[[], None] = lambda: None,
    ) -> None:
        """`look_at_settings` is called before each refresh, and calls `apply` when there are others. `discovered` tells
        what is known of the providers; without it the server's own work does. `tell_named` is called when
        names were kept that other servers do not know.
        """
        self.plan = plan
        self.offers: Mapping[str, Offer] = {}
        """By the name of the tool, in its order."""
        self.is_folded = False
        """Whether there are too many of them to be listed."""
        self._poll_settings = poll_settings
        self._discovered = discovered
        self._services = services
        self._registry: Registry | None = None
        self._built_in: Mapping[str, Tool] = BUILTIN_TOOLS
        self._seen: tuple[object, ...] = ()
        """What the tools were last made from."""
        self._has_waited = False
        self._refreshing = Lock()
        """Held while the names are read and stored: who asks meanwhile must not see a list that is half made."""
        self._remembered = Remembered(lambda: services.runs.journal)
        self._merged: Mapping[str, Discovered] = {}
        self._merged_from: tuple[object, object] | None = None
        """What is known of the providers with what is remembered, and what that was made from."""
        self._names = KeptNames(lambda: services.runs.journal, on_names_stored)
        self._read: dict[str, tuple[Loaded, Definition]] = {}
        """By workflow of the library: its definition, and the file that says so."""
        self._built: dict[str, tuple[Definition, Workflow]] = {}
        """By workflow of a provider: what its definition was built to."""

    def attach(self, registry: Registry) -> None:
        """Keep this registry up to date from now on."""
        self._registry, self._built_in = registry, registry.built_in
        self._seen = ()

    def apply(self, plan: Plan) -> None:
        """Other settings from now on."""
        self.plan = plan

    def forget_names(self) -> None:
        """Another server has given names, or taken some back: those that are kept count."""
        with self._refreshing.held(REFRESH_SECONDS):
            self._names.forget()
            self._seen = ()

    def discovered(self) -> Mapping[str, "Discovered"]:
        """What is known of the providers; the same object for as long as nothing of it changed."""
        if not self.plan.providers:
            return _NONE
        if self._discovered is not None:
            return self._discovered()
        found = self._services.execution.discovered()
        if self._merged_from is None or self._merged_from[0] is not found or self._merged_from[1] is not self.plan:
            self._merged = self._with_remembered(found)
            self._merged_from = (found, self.plan)
            self._remembered.keep(self.plan, found)
        return self._merged

    def _with_remembered(self, found: Mapping[str, "Discovered"]) -> Mapping[str, "Discovered"]:
        """What is known of the providers, and of those that have not answered yet what they had before."""
        from workflowlookup.providers.discovery import Discovered  # noqa: PLC0415 - where there are providers

        before = {
            name: msgspec.structs.replace(found.get(name) or Discovered(), definitions=definitions, is_remembered=True)
            for name, definitions in self._remembered.definitions(self.plan).items()
            if name not in found or not found[name].is_listed
        }
        return {**found, **before}

    def _await_first(self) -> None:
        """Before the first list: give providers a moment of which nothing is remembered."""
        self._has_waited = True
        plan = self.plan
        if self._discovered is None and plan.is_on and plan.discovery_wait_seconds:
            known = self.discovered()
            answered = {
                name for name, found in known.items() if found.is_remembered or found.is_listed or found.is_away
            }
            if new := plan.providers.keys() - answered:
                self._services.execution.await_discovered(new, plan.discovery_wait_seconds)

    def refresh_if_changed(self) -> bool:
        """Bring the registry up to date; whether what `tools/list` says has changed."""
        with self._refreshing.held(REFRESH_SECONDS):
            return self._refresh_if_changed()

    def _refresh_if_changed(self) -> bool:
        self._poll_settings()
        if not self._has_waited and self.plan.providers:
            self._await_first()
        plan, discovered = self.plan, self.discovered()
        library = self._services.catalog.snapshot() if plan.is_on else None
        seen = (plan, discovered, library)
        if len(seen) == len(self._seen) and all(a is b for a, b in zip(seen, self._seen, strict=True)):
            return False
        self._seen = seen
        tools = self._make(library, discovered)
        return self._registry is not None and self._registry.replace(tools)

    def resolve(self, wanted: str) -> Workflow | None:
        """The workflow with this tool name or id, ready to be run; None when there is none. Raises `ProviderAway`."""
        self.refresh_if_changed()
        offer = find_offer(self.offers, wanted)
        return self._workflow(offer.definition) if offer is not None else None

    def default_timeout(self, workflow: Workflow) -> float | None:
        """How many seconds a run may take when nobody says: the setting, for what goes by itself."""
        if workflow.deadline_seconds is not None or not workflow.goes_by_itself:
            return None
        calls = (step.call for step in workflow.steps.values() if isinstance(step, PromptStep))
        providers = {call.provider for call in calls if isinstance(call, WorkflowCall)} & self.plan.providers.keys()
        own = (self.plan.providers[name].options.get("timeout_seconds") for name in providers)
        return max((seconds for seconds in own if seconds), default=self.plan.timeout_seconds)

    def abilities(self, provider: str) -> frozenset[str] | None:
        """Which of "start", "status" and "cancel" a provider can; None when it is not known."""
        found = self.discovered().get(provider)
        return found.can if found is not None else None

    # ── from workflows to tools ─────────────────────────────────────────────────────────────────────────────────

    def _make(self, library: "Snapshot | None", discovered: Mapping[str, "Discovered"]) -> Sequence[Tool]:
        """The tools as they should be; `offers` are then what is behind them."""
        if library is None:
            self.offers, self.is_folded = {}, False
            return []
        sieve = Sieve(self.plan.filters)
        everything = [*self._library(library), *(d for found in discovered.values() for d in found.definitions)]
        admitted = [definition for definition in everything if sieve.admits(definition)]
        names = self._named(admitted, everything, discovered)
        made = (self._offer(names[definition.provider, definition.id], definition) for definition in admitted)
        self.offers = {offer.tool.name: offer for offer in sorted(made, key=lambda offer: offer.tool.name)}
        tools = [offer.tool for offer in self.offers.values()]
        return [workflow_refresh.TOOL, *self._within_budget(tools)]

    def _library(self, library: "Snapshot") -> Iterator[Definition]:
        read: dict[str, tuple[Loaded, Definition]] = {}
        for summary in library.summaries:
            entry = library.entries[summary.id]
            before = self._read.get(summary.id)
            known = (
                before
                if before is not None and before[0] is entry.file
                else (entry.file, _definition(summary, entry.file.details))
            )
            read[summary.id] = known
            yield known[1]
        self._read = read

    def _offer(self, name: str, definition: Definition) -> Offer:
        about: dict[str, Json] = {
            "id": definition.id,
            "provider": definition.provider,
            "category": definition.category,
            "version": definition.version,
            "executionType": definition.execution_type,
        }
        if definition.metadata:
            about["metadata"] = definition.metadata
        if self._is_remembered(definition):
            about["remembered"] = True  # until its provider has listed it again
        tool = Tool(
            name=name,
            title=definition.name,
            description=definition.description,
            arguments=SchemaArguments(definition.input_schema),
            output_schema=OUTPUT_SCHEMA,
            handler=self._handler(definition),
            read_only=False,
            idempotent=False,
            open_world=definition.provider != LIBRARY,
            can_be_task=True,
            meta={META: about},
        )
        return Offer(tool=tool, definition=definition, workflow_id=definition.workflow_id)

    def _within_budget(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """The tools, or what stands for them when the list would be too long."""
        size = len(msgspec.json.encode([tool.describe() for tool in (*self._built_in.values(), *tools)]))
        was_folded, self.is_folded = self.is_folded, size > self.plan.budget_bytes
        if self.is_folded and not was_folded:
            log.warning(
                "the list of %d workflow tools would take %s bytes of %s (tools_budget_bytes): workflow_search and "
                "workflow_start stand for them",
                *(len(tools), f"{size:,}", f"{self.plan.budget_bytes:,}"),
            )
        elif was_folded and not self.is_folded:
            log.warning("the list of workflow tools is short enough again: each workflow is a tool of its own")
        return [workflow_search.TOOL] if self.is_folded else tools

    def _named(
        self, admitted: Sequence[Definition], everything: Sequence[Definition], discovered: Mapping[str, "Discovered"]
    ) -> Mapping[Key, str]:
        reserved = {workflow_refresh.TOOL.name, workflow_search.TOOL.name, *self._built_in}
        known = {(definition.provider, definition.id) for definition in everything}
        certain = {name for name, found in discovered.items() if found.is_listed and not found.is_away}
        return self._names.assign(admitted, reserved, known=known, certain=certain)

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _handler(self, definition: Definition) -> Handler:
        def make_run(services: Services, arguments: Mapping[str, Any], caller: Caller) -> Outcome:
            from workflowlookup.tools.elicitation import start_trusted  # noqa: PLC0415 - with the first run
            from workflowlookup.tools.pending_runs import await_run  # noqa: PLC0415
            from workflowlookup.tools.run_answers import answer_with_result  # noqa: PLC0415

            workflow = self._workflow(definition)
            timeout = caller.timeout_seconds or self.default_timeout(workflow)

            def start() -> "Run":
                return services.runs.start(workflow, arguments, {}, by=caller.name, timeout=timeout)

            run = start_trusted(services, workflow, caller, start)
            if isinstance(run, Elicitation):
                return run
            return await_run(services, run, caller, lambda run: answer_with_result(services, run, caller))

        def handle(services: Services, arguments: Mapping[str, Any], caller: Caller) -> Outcome:
            if not self._is_remembered(definition) or extras.is_missing(extras.CALLS):
                return make_run(services, arguments, caller)

            def make_listed() -> Outcome:
                self._refuse_outdated(definition)
                return make_run(services, arguments, caller)

            waiter = _ProviderWaiter(lambda: not self._is_remembered(definition), make_listed)
            return Pending(run_id="", poll=waiter.poll, progress=waiter.progress, abandon=waiter.abandon)

        return handle

    def _refuse_outdated(self, definition: Definition) -> None:
        """Raises `ProviderAway` when a provider has listed what it has, and a remembered workflow is not as it was."""
        found = self.discovered().get(definition.provider)
        if found is None or not found.is_listed:
            return
        now = next((listed for listed in found.definitions if listed.id == definition.id), None)
        if now is None or now.input_schema != definition.input_schema:
            what = "no longer has it" if now is None else "wants other arguments for it now"
            raise ProviderAway(
                f"'{definition.name}' was a workflow of the provider '{definition.provider}', which {what}. "
                "Call tools/list again.",
                provider=definition.provider,
                workflowId=definition.id,
                cause=what,
            )

    def _is_remembered(self, definition: Definition) -> bool:
        """Whether a workflow is only remembered: its provider has not listed it since the server was started."""
        found = self.discovered().get(definition.provider) if definition.provider != LIBRARY else None
        return found is not None and found.is_remembered

    def _workflow(self, definition: Definition) -> Workflow:
        """What a run of it is led by.

        Raises `MissingExtra`, `ProviderAway`, or what is wrong with a document of the library.
        """
        if definition.provider == LIBRARY:
            return self._services.catalog.get(definition.id)
        extras.require(extras.CALLS)
        found = self.discovered().get(definition.provider)
        if found is None or found.is_away or found.is_remembered:
            unasked = "it has not answered since the server was started"
            cause = (found.cause or unasked) if found else "the settings no longer name it"
            raise ProviderAway(
                f"'{definition.name}' is a workflow of the provider '{definition.provider}', which does not answer: "
                f"{cause}. It is asked again and again; try later, or call workflow_refresh.",
                provider=definition.provider,
                workflowId=definition.id,
                cause=cause,
            )
        key = definition.workflow_id
        before = self._built.get(key)
        if before is None or before[0] is not definition:
            from workflowlookup.language.building import build  # noqa: PLC0415

            self._built[key] = before = (definition, build(as_document(definition)))
        return before[1]


class _ProviderWaiter:
    """A call of a tool that is only remembered: it is made once its provider has listed its workflows."""

    def __init__(self, is_known: Callable[[], bool], make_run: Callable[[], Outcome]) -> None:
        self._is_known = is_known
        self._make_run = make_run
        self._deadline = time.monotonic() + PROVIDER_SECONDS
        self._later: Pending | None = None

    def poll(self) -> Result | Elicitation | None:
        if self._later is None:
            if not self._is_known() and time.monotonic() < self._deadline:
                return None
            made = self._make_run()  # which raises when the provider is still not there
            if not isinstance(made, Pending):
                return made
            self._later = made
        return self._later.poll()

    def progress(self) -> Progress | None:
        return self._later.progress() if self._later is not None else None

    def abandon(self, reason: str) -> None:
        if self._later is not None:
            self._later.abandon(reason)


def _definition(summary: "Summary", details: "Details") -> Definition:
    """What a document of the library says of itself as a tool."""
    schema, remark = usable_schema(msgspec.json.decode(details.input_schema) if details.input_schema else None)
    if remark:
        log.warning("workflow '%s': inputSchema %s; any object is taken", summary.id, remark)
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
    )


# ── what providers had before ───────────────────────────────────────────────────────────────────────────────────


class Remembered:
    """For one server. Where the journal cannot be used, nothing is remembered."""

    def __init__(self, open_journal: "Callable[[], Journal]") -> None:
        """`open_journal` may raise `StorageError`."""
        self._open_journal = open_journal
        self._known: Mapping[str, tuple[str, str]] | None = None
        """By provider: a digest of its settings, and its workflows as JSON."""

    def definitions(self, plan: Plan) -> Mapping[str, tuple[Definition, ...]]:
        """By provider: what it had, if its settings are still the same."""
        found: dict[str, tuple[Definition, ...]] = {}
        for name, (digest, body) in self._stored().items():
            if name in plan.providers and digest == _digest(plan, name):
                try:
                    found[name] = _decode_definitions(body)
                except msgspec.MsgspecError as problem:  # of another version: it is listed again soon
                    log.debug("what is remembered of provider '%s' cannot be read: %s", name, problem)
        return found

    def keep(self, plan: Plan, discovered: "Mapping[str, Discovered]") -> None:
        """Remember what providers have just listed."""
        for name, found in discovered.items():
            if not found.is_listed or found.is_away or name not in plan.providers:
                continue
            entry = (_digest(plan, name), msgspec.json.encode(found.definitions).decode())
            if self._stored().get(name) != entry:
                self._ask(lambda journal, name=name, entry=entry: journal.remember(name, *entry))  # type: ignore[misc]
                self._known = {**self._stored(), name: entry}

    def _stored(self) -> Mapping[str, tuple[str, str]]:
        if self._known is None:
            self._known = self._ask(lambda journal: journal.remembered()) or {}
        return self._known

    def _ask(self, question: "Callable[[Journal], T]") -> T | None:
        try:
            return question(self._open_journal())
        except StorageError as problem:
            log.debug("the workflows of providers are not remembered: %s", problem)
            return None


def _digest(plan: Plan, name: str) -> str:
    """What the settings say of a provider and of its server, without saying it."""
    import hashlib  # noqa: PLC0415 - where there are providers

    config = plan.providers[name]
    server = plan.servers.get(str(config.options.get("server") or name))
    said = msgspec.json.encode([config.kind, config.options, server], order="deterministic")
    return hashlib.sha256(said).hexdigest()
