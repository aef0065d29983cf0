"""What tools and protocol share: a tool, its caller, the services that it may use, and what it can return.

Has few imports, because a connection imports it before it answers `initialize`. `registry` finds and calls tools.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias

import msgspec

from workflowlookup.access import LOCAL, SIGNED_KINDS, Access
from workflowlookup.errors import Forbidden, StorageError
from workflowlookup.language.values import Json, Progress
from workflowlookup.logs import audit

if TYPE_CHECKING:
    from concurrent.futures import Future

    from workflowlookup.execution.service import Execution
    from workflowlookup.language.model import Workflow
    from workflowlookup.library.catalog import Catalog, CatalogView
    from workflowlookup.people.store import PeopleStore
    from workflowlookup.providers.config import Plan
    from workflowlookup.providers.discovery import ProviderListing
    from workflowlookup.runs.run import Run
    from workflowlookup.store.runs_view import RunsView
    from workflowlookup.store.service import Runs
    from workflowlookup.tools.dynamic import Offer
    from workflowlookup.tools.registry import Registry
    from workflowlookup.trust import Consent, TrustEntry


ONLY_A_PERSON: Final = (
    "Only a person may decide this, and this page cannot know that you are one. Open it with `workflowlookup console`, "
    "sign in with a token of a person, or run `workflowlookup trust` in a terminal."
)


def _without_journal() -> NoReturn:
    raise StorageError("This server keeps no journal of runs.")


def _without_execution() -> NoReturn:
    raise StorageError("This server carries out no calls of its own.")


def without_consent() -> "Consent":
    from workflowlookup.trust import NO_CONSENT  # noqa: PLC0415 - with the first run

    return NO_CONSENT


def _nothing() -> None:
    """Nothing to do."""


def _without_people() -> "PeopleStore":
    from workflowlookup.people.store import PeopleStore  # noqa: PLC0415 - with the first run

    return PeopleStore("", problem="This server has no file of people.")


class ExecutionView(Protocol):
    """The part of the server's own work that handlers may use; `execution.service.Execution` documents the methods."""

    def progress(self, run_id: str, /) -> "Progress | None": ...
    def cached_run(self, run_id: str, /) -> "Run | None": ...
    def is_at_work(self, run_id: str, /) -> bool: ...
    def attend(self, run: "Run", /) -> None: ...
    def refresh(self, providers: Collection[str] | None = None) -> "Future[None]":
        """Poll these providers now, or all of them."""


class WorkflowTools(Protocol):
    """Makes tools of workflows; `tools.dynamic` implements it."""

    @property
    def plan(self) -> "Plan":
        """What the settings say."""

    @property
    def offers(self) -> "Mapping[str, Offer]":
        """By tool name: the workflows that are tools, or would be if the list were not too long."""

    def discovered(self) -> "Mapping[str, ProviderListing]":
        """By provider: what it last listed."""

    def attach(self, registry: "Registry") -> None:
        """From now on, keep this registry up to date by `Registry.replace`."""

    def refresh_if_changed(self) -> bool:
        """Bring the registry up to date with the library, the providers and the settings; whether its list changed.

        Called often, so it must be cheap when nothing changed.
        """

    def resolve(self, name: str) -> "Workflow | None":
        """The workflow of the library or a provider with this tool name or id, ready to run; None if there is none.

        Raises `ProviderUnavailable` when its provider cannot be reached.
        """

    def default_timeout(self, workflow: "Workflow") -> float | None:
        """The default time limit of a run in seconds; None for a workflow that needs the agent or a person."""

    def abilities(self, provider: str) -> frozenset[str] | None:
        """Which of "start", "status" and "cancel" a provider supports; None if that is unknown."""


PROCESS_SECRET: Final = os.urandom(32).hex()
"""For servers that share no journal."""


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What handlers may use, as one caller sees it."""

    catalog: "CatalogView"
    open_runs: Callable[[], "RunsView"] = _without_journal
    """Called for every use, so that the code of runs is not loaded before the first."""
    confirmation: str = "auto"
    """The setting of this name: who may confirm a step that needs a person."""
    person_confirmation: tuple[str, ...] = SIGNED_KINDS
    """The setting of this name: the kinds of answers that are enough for a step with `by: person`."""
    open_people: Callable[[], "PeopleStore"] = _without_people
    """As `open_runs`: the people who can sign answers."""
    open_consent: Callable[[], "Consent"] = without_consent
    """As `open_runs`: which files of a repository the user trusts."""
    access: Access = LOCAL
    """The caller."""
    open_execution: Callable[[], ExecutionView] = _without_execution
    """As `open_runs`: the worker starts with the first use."""
    open_workflows: Callable[[], WorkflowTools | None] = _nothing
    """None when this server makes no tools of workflows."""
    reload: Callable[[], None] = _nothing
    """Read the settings again, now."""
    question_secret: Callable[[], str] = lambda: PROCESS_SECRET
    """The secret that signs the keys of questions; all replicas share it."""

    @property
    def runs(self) -> "RunsView":
        return self.open_runs()

    @property
    def execution(self) -> ExecutionView:
        return self.open_execution()

    @property
    def consent(self) -> "Consent":
        return self.open_consent()

    @property
    def workflows(self) -> WorkflowTools | None:
        return self.open_workflows()

    @property
    def people(self) -> "PeopleStore":
        return self.open_people()

    def trust(self, digests: "Sequence[tuple[TrustEntry, str]]", *, by: str) -> None:
        """Trust entries that a person has seen, and read the settings again. Raises `Forbidden`."""
        if not self.access.may_trust:
            raise Forbidden(ONLY_A_PERSON)
        self.consent.trust(digests, by=by)
        audit("trust", by=self.access.sign(by), what=", ".join(str(entry) for entry, _ in digests))
        self.reload()


class ServerServices(Services, frozen=True, kw_only=True):
    """The services of the whole server, for itself and for commands; `auth.scoped` makes those of one caller."""

    catalog: "Catalog"
    open_runs: Callable[[], "Runs"] = _without_journal
    open_execution: Callable[[], "Execution"] = _without_execution
    refresh: Callable[[], None] = _nothing
    """Read the settings again and poll every provider now; called on SIGHUP."""
    start_background: Callable[[], None] = _nothing
    """Starts background work; called once, after the first reply. Must return quickly."""
    close: Callable[[], None] = _nothing
    """Ends background work; called once, last."""

    @property
    def runs(self) -> "Runs":
        return self.open_runs()

    @property
    def execution(self) -> "Execution":
        return self.open_execution()


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A client that calls a tool: its capabilities, its name, and what the person in front of it answered."""

    capabilities: Mapping[str, Json] = {}
    name: str = ""
    """The name that the client gave; empty if it gave none."""
    answers: Mapping[str, Mapping[str, Json]] = {}
    """By the key of the question: `action` ("accept", "decline", "cancel") and, with "accept", `content`."""
    timeout_seconds: float | None = None
    """The client's time limit for a run that this call starts; None if it sets none."""
    roots: tuple[str, ...] = ()
    """The directories in which the client works, if the server cannot see them and the client named them."""

    @property
    def supports_elicitation(self) -> bool:
        """Whether the client can show a form: it names the mode `form`, or no mode at all."""
        modes = self.capabilities.get("elicitation")
        return isinstance(modes, dict) and (not modes or "form" in modes)


NO_CLIENT: Final = Caller()
"""The caller when a command calls a tool."""


class Elicitation(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the person at the client. A handler returns it instead of a result.

    The handler is called again with the same arguments and `caller.answers[key]`, so what it does before it asks must
    be idempotent. Ask only a caller that `supports_elicitation`. A handler with several questions must store the effect
    of each answer: since 2026-07-28 the call brings only the answer to the latest question.
    """

    key: str
    message: str
    schema: Mapping[str, Json]
    """A flat object of texts, numbers and booleans: the form that the client shows."""
    meta: Mapping[str, Json] | None = None
    """`_meta` of the request to the client."""


Result: TypeAlias = Mapping[str, Json] | msgspec.Raw
"""A JSON object; already encoded if it is needed often and rarely changes."""


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A result that comes later. A handler returns it while the server works on a run.

    The connection calls `poll` when the waker is woken, and from time to time; it answers other messages meanwhile.
    """

    run_id: str
    """The run that the call waits for; empty if there is none, and then the call cannot become a task."""
    poll: Callable[[], "Result | Elicitation | None"]
    """The result or a question; None while there is neither. Must be cheap. Raises what the handler would raise."""
    progress: "Callable[[], Progress | None]"
    """Its progress, which never decreases; None if it is unknown."""
    abandon: Callable[[str], None]
    """Called with the reason when the client cancels the call or disconnects."""


Outcome: TypeAlias = Result | Elicitation | Pending
"""What a handler returns: a result, a question, or a result that comes later."""

Handler = Callable[[Services, Any, Caller], Outcome]
"""The second argument is what `Arguments.decode` returns."""


class Arguments(Protocol):
    """The arguments of a tool; `tools.arguments` has two implementations."""

    @property
    def schema(self) -> Mapping[str, Json]:
        """The JSON Schema that clients see."""

    def decode(self, value: Json) -> Any:
        """The arguments as the handler gets them. Raises `InvalidParams` naming each invalid one."""


ALWAYS_LOADED: Final[Mapping[str, Json]] = {"anthropic/alwaysLoad": True}
"""`_meta` of the tools that a client should not defer behind a tool search: Claude Code does so when there are many."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as clients see it, and the function behind it."""

    name: str
    title: str
    description: str
    arguments: Arguments
    handler: Handler
    output_schema: Mapping[str, Json] | None = None
    """The JSON Schema of results, if the tool has one. Clients see it without its descriptions, which the docs have."""
    example: tuple[Mapping[str, Json], Mapping[str, Json]] | None = None
    """Arguments and result."""
    read_only: bool = True
    idempotent: bool = True
    destructive: bool = False
    open_world: bool = False
    """Whether it reaches systems other than this server."""
    can_be_task: bool = False
    """Whether it may return `Pending`, so that a client may call it as a task."""
    starts_run: bool = False
    meta: Mapping[str, Json] | None = None
    """Sent as `_meta`."""

    def model_view(self) -> dict[str, Json]:
        """The part of `describe` that clients hand to a model; its size is what the tool costs."""
        return {"name": self.name, "description": self.description, "inputSchema": self.arguments.schema}

    def describe(self) -> dict[str, Json]:
        """The tool as `tools/list` shows it."""
        described: dict[str, Json] = {"title": self.title, **self.model_view()}
        if self.output_schema is not None:
            described["outputSchema"] = _with_error_fields(self.output_schema)
        described["annotations"] = {
            "title": self.title,
            "readOnlyHint": self.read_only,
            **({} if self.read_only else {"destructiveHint": self.destructive}),
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }
        if self.can_be_task:
            described["execution"] = {"taskSupport": "optional"}
        if self.meta:
            described["_meta"] = self.meta
        if self.example is not None:
            arguments, result = self.example
            described["examples"] = {"request": {"method": self.name, "params": arguments}, "response": result}
        return described


def _with_error_fields(schema: Mapping[str, Json]) -> dict[str, Json]:
    """The schema without descriptions, extended by the fields of an error: some clients also validate results that have
    `isError`.
    """
    properties = {
        **{name: _without_descriptions(field) for name, field in schema.get("properties", {}).items()},
        "code": {"type": "integer"},
        "message": {"type": "string"},
        "data": {"type": "object"},
    }
    either = [{"required": schema.get("required", [])}, {"required": ["code", "message"]}]
    return {"type": "object", "properties": properties, "anyOf": either}


def _without_descriptions(schema: Mapping[str, Json]) -> dict[str, Json]:
    """The schema of a field as clients see it: models do not, and programs need only types."""
    brief = {name: value for name, value in schema.items() if name != "description"}
    if "properties" in brief:
        brief["properties"] = {name: _without_descriptions(field) for name, field in schema["properties"].items()}
    if "items" in brief:
        brief["items"] = _without_descriptions(brief["items"])
    return brief
