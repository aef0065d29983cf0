"""What tools and protocol share: a tool, its caller, the services that it may use, and what it can return.

Few imports on purpose: a connection imports this before it answers `initialize`. How a tool is looked up and called is
in `registry`.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias

import msgspec

from workflowlookup.access import LOCAL, Access
from workflowlookup.errors import Forbidden, StorageError
from workflowlookup.language.values import Json, Progress
from workflowlookup.logs import audit

if TYPE_CHECKING:
    from concurrent.futures import Future

    from workflowlookup.execution.service import Execution
    from workflowlookup.language.model import Workflow
    from workflowlookup.library.catalog import CatalogView
    from workflowlookup.providers.config import Plan
    from workflowlookup.providers.discovery import Discovered
    from workflowlookup.runs.run import Run
    from workflowlookup.store.runs_view import RunsView
    from workflowlookup.store.service import Runs
    from workflowlookup.tools.dynamic import Offer
    from workflowlookup.tools.registry import Registry
    from workflowlookup.trust import Consent, Entry


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


def _command_line(*words: str) -> str:
    return " ".join(["workflowlookup", *words])


class ExecutionView(Protocol):
    """What handlers may ask of the server's own work. `execution.service.Execution` says what each method does."""

    def progress(self, run_id: str, /) -> "Progress | None": ...
    def settled(self, run_id: str, /) -> "Run | None": ...
    def is_at_work(self, run_id: str, /) -> bool: ...
    def refresh(self, providers: Collection[str] | None = None) -> "Future[None]":
        """Ask these providers now what they have, or all of them."""


class WorkflowTools(Protocol):
    """Makes tools of workflows; implemented in `tools.dynamic`."""

    @property
    def plan(self) -> "Plan":
        """What the settings say."""

    @property
    def offers(self) -> "Mapping[str, Offer]":
        """The workflows that are tools, or would be if the list were not too long, by the name of the tool."""

    def discovered(self) -> "Mapping[str, Discovered]":
        """What the providers last listed, by name of the provider."""

    def attach(self, registry: "Registry") -> None:
        """Keep this registry up to date from now on, by `Registry.replace`."""

    def refresh_if_changed(self) -> bool:
        """Bring the registry up to date with the library, the providers and the settings; whether its list changed.

        Called often, so it must be cheap when nothing changed.
        """

    def resolve(self, wanted: str) -> "Workflow | None":
        """The workflow of the library or a provider with this tool name or id, ready to run; None when there is none.

        Raises `ProviderAway` when its provider cannot be reached.
        """

    def default_timeout(self, workflow: "Workflow") -> float | None:
        """How many seconds a run may take by default; None for a workflow that needs the agent or a person."""

    def abilities(self, provider: str) -> frozenset[str] | None:
        """Which of "start", "status" and "cancel" a provider supports; None when that is unknown."""


PROCESS_SECRET: Final = os.urandom(32).hex()
"""For servers that share no journal."""


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What handlers may use, as one caller sees it."""

    catalog: "CatalogView"
    open_runs: Callable[[], "RunsView"] = _without_journal
    """Called for every use, so that runs are loaded with the first use only."""
    confirmation: str = "auto"
    """Who may confirm a step that needs a person: the setting of this name."""
    command_line: Callable[..., str] = _command_line
    """A command line of ours, with the journal of this server, that a person can paste into a terminal."""
    open_consent: Callable[[], "Consent"] = without_consent
    """As `open_runs`: what of the files in a repository the user trusts."""
    access: Access = LOCAL
    """The caller."""
    open_execution: Callable[[], ExecutionView] = _without_execution
    """As `open_runs`: the worker is started with the first use only."""
    open_workflows: Callable[[], WorkflowTools | None] = _nothing
    """None when this server makes no tools of workflows."""
    reload: Callable[[], None] = _nothing
    """Read the settings again, now."""
    question_secret: Callable[[], str] = lambda: PROCESS_SECRET
    """What the keys of questions are signed with; the same at all replicas."""

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

    def trust(self, digests: "Sequence[tuple[Entry, str]]", *, by: str) -> None:
        """Trust what a person was shown, and read the settings again. Raises `Forbidden`, see `Access.may_trust`."""
        if not self.access.may_trust:
            raise Forbidden(ONLY_A_PERSON)
        self.consent.trust(digests, by=by)
        audit("trust", by=self.access.sign(by), what=", ".join(str(entry) for entry, _ in digests))
        self.reload()


class ServerServices(Services, frozen=True, kw_only=True):
    """The services of the whole server, for itself and for commands; `tools.scoped` makes those of other callers."""

    open_runs: Callable[[], "Runs"] = _without_journal
    open_execution: Callable[[], "Execution"] = _without_execution
    refresh: Callable[[], None] = _nothing
    """Read the settings again and poll every provider now; called on SIGHUP."""
    settle: Callable[[], None] = _nothing
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
    """As the client introduced itself; empty when it did not."""
    answers: Mapping[str, Mapping[str, Json]] = {}
    """By the key of the question: `action` ("accept", "decline", "cancel") and, with "accept", `content`."""
    timeout_seconds: float | None = None
    """The client's limit for a run that this call starts; None when it sets none."""

    @property
    def can_be_asked(self) -> bool:
        """Whether the client can show a form: it names the mode `form`, or no mode at all."""
        offered = self.capabilities.get("elicitation")
        return isinstance(offered, dict) and (not offered or "form" in offered)


NOBODY: Final = Caller()
"""The caller where there is no client: commands."""


class Elicitation(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the person, which a handler returns in place of a result when it cannot go on without an answer.

    The handler is called again with the same arguments and `caller.answers[key]`, so what it does before it asks must
    be idempotent. Ask only a caller that `can_be_asked`. A handler with several questions must store what each answer
    decided: since 2026-07-28 only the answer to the latest question comes with the call.
    """

    key: str
    message: str
    schema: Mapping[str, Json]
    """A flat object of texts, numbers and booleans: the form that the client shows."""
    meta: Mapping[str, Json] | None = None
    """`_meta` of the request to the client."""


Result: TypeAlias = Mapping[str, Json] | msgspec.Raw
"""A JSON object, or one that is encoded already because it is needed often and rarely changes."""


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A result that comes later, which a handler returns in its place while the server works on it.

    The connection polls `look` when the bell rings, and every now and then; other messages are answered meanwhile.
    """

    run_id: str
    """The run that it is about; empty when there is none, and then the call cannot become a task."""
    look: Callable[[], "Result | Elicitation | None"]
    """The result, or a question; None while there is neither. Cheap; raises what the handler would raise."""
    progress: "Callable[[], Progress | None]"
    """Its progress, which never decreases; None when that is unknown."""
    abandon: Callable[[str], None]
    """Called with the reason when nobody waits any more: the client cancelled the call, or disconnected."""


Outcome: TypeAlias = Result | Elicitation | Pending
"""What a handler returns: its result, or what has to come first."""

Handler = Callable[[Services, Any, Caller], Outcome]
"""The second argument is what `Arguments.decode` returns."""


class Arguments(Protocol):
    """The arguments that a tool takes; `tools.arguments` has two implementations."""

    @property
    def schema(self) -> Mapping[str, Json]:
        """The JSON Schema that clients see."""

    def decode(self, value: Json) -> Any:
        """The arguments as the handler gets them. Raises `InvalidParams` naming each one that does not fit."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as clients see it, and the function behind it."""

    name: str
    title: str
    description: str
    arguments: Arguments
    handler: Handler
    output_schema: Mapping[str, Json] | None = None
    """The JSON Schema of results; None when nothing is promised."""
    example: tuple[Mapping[str, Json], Mapping[str, Json]] | None = None
    """Arguments and result."""
    read_only: bool = True
    idempotent: bool = True
    destructive: bool = False
    open_world: bool = False
    """Whether it reaches systems other than this server."""
    can_be_task: bool = False
    """Whether it may return `Pending`, so that a client may call it as a task."""
    meta: Mapping[str, Json] | None = None
    """Sent as `_meta`."""

    def describe(self) -> dict[str, Json]:
        """The tool as `tools/list` shows it."""
        described: dict[str, Json] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.arguments.schema,
        }
        if self.output_schema is not None:
            described["outputSchema"] = _or_refusal(self.output_schema)
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


def _or_refusal(schema: Mapping[str, Json]) -> dict[str, Json]:
    """The schema of results and of refusals: some clients check the content of a result with `isError`, too."""
    properties = {
        **schema.get("properties", {}),
        "code": {"type": "integer", "description": "With isError: the code of the refusal."},
        "message": {"type": "string", "description": "With isError: what was refused."},
        "data": {"type": "object", "description": "With isError: the particulars."},
    }
    either = [{"required": schema.get("required", [])}, {"required": ["code", "message"]}]
    return {"type": "object", "properties": properties, "anyOf": either}
