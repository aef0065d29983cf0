"""What tools and protocol share: a tool, who calls it, what it may use, and what it can answer with.

Light on purpose: a connection imports this before it has answered `initialize`. How a tool is found and called is in
`registry`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias

import msgspec

from workflowlookup.access import LOCAL, Access
from workflowlookup.core.values import Json
from workflowlookup.errors import Forbidden, StorageError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from workflowlookup.core.model import Workflow
    from workflowlookup.core.progress import Progress
    from workflowlookup.core.run import Run
    from workflowlookup.execution.service import Execution
    from workflowlookup.library.catalog import CatalogView
    from workflowlookup.providers.config import Plan
    from workflowlookup.providers.discovery import Discovered
    from workflowlookup.runs.service import Runs
    from workflowlookup.runs.view import RunsView
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
    """What handlers may ask of the server's own work."""

    def progress(self, run_id: str, /) -> "Progress | None": ...
    def settled(self, run_id: str, /) -> "Run | None": ...
    def is_at_work(self, run_id: str, /) -> bool: ...
    def refresh(self) -> "Future[None]": ...


class WorkflowTools(Protocol):
    """What makes tools of workflows; `tools.dynamic` has it."""

    @property
    def plan(self) -> "Plan":
        """What the settings say."""

    @property
    def offers(self) -> "Mapping[str, Offer]":
        """The workflows that are tools, or would be if there were room, by the name of the tool."""

    def discovered(self) -> "Mapping[str, Discovered]":
        """What is known of the providers, by name."""

    def attach(self, registry: "Registry") -> None:
        """Keep this registry up to date from now on, by `Registry.replace`."""

    def refresh_if_changed(self) -> bool:
        """Bring the registry up to date with the library, the providers and the settings; whether its list changed.

        Called often: costs next to nothing when nothing changed.
        """

    def resolve(self, wanted: str) -> "Workflow | None":
        """The workflow with this tool name or id, wherever it comes from, ready to be run; None when there is none.

        Raises `ProviderAway` when it belongs to a system that does not answer now.
        """

    def default_timeout(self, workflow: "Workflow") -> float | None:
        """How many seconds a run of it may take when nobody says; None for one that needs the agent or a person."""

    def abilities(self, provider: str) -> frozenset[str] | None:
        """Which of "start", "status" and "cancel" a provider can; None when it is not known."""


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What handlers may ask."""

    catalog: "CatalogView"
    open_runs: Callable[[], "RunsView"] = _without_journal
    """Called for every use, so that nothing of runs is loaded before there is one."""
    confirmation: str = "auto"
    """Whose word counts where a step needs a person: the setting of this name."""
    command_line: Callable[..., str] = _command_line
    """A command of ours that a person can paste into a terminal, with the journal of this server."""
    open_consent: Callable[[], "Consent"] = without_consent
    """As `open_runs`: what a repository brought and nobody trusted."""
    access: Access = LOCAL
    """Whose view of all this it is; `tools.scoped` makes them."""
    open_execution: Callable[[], ExecutionView] = _without_execution
    """As `open_runs`: nothing is started before there is something to do."""
    open_workflows: Callable[[], WorkflowTools | None] = _nothing
    """None when this server makes no tools of workflows."""
    reload: Callable[[], None] = _nothing
    """Read the settings again, now."""

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
        """Let run what a person was shown, and read the settings again. Raises `Forbidden`, see `Access.may_trust`."""
        if not self.access.may_trust:
            raise Forbidden(ONLY_A_PERSON)
        self.consent.trust(digests, by=by)
        self.reload()


class ServerServices(Services, frozen=True, kw_only=True):
    """The services of the whole server, for itself and for commands; `tools.scoped` makes those of callers."""

    open_runs: Callable[[], "Runs"] = _without_journal
    open_execution: Callable[[], "Execution"] = _without_execution
    refresh: Callable[[], None] = _nothing
    """Read the settings again and have every provider asked, now: somebody sent SIGHUP."""
    settle: Callable[[], None] = _nothing
    """Called once, after the first reply: starts what goes on behind. Must not take long itself."""
    close: Callable[[], None] = _nothing
    """Ends what goes on behind; called once, last."""

    @property
    def runs(self) -> "Runs":
        return self.open_runs()

    @property
    def execution(self) -> "Execution":
        return self.open_execution()


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls: what the client can do, what it is called, and what the person in front of it answered."""

    capabilities: Mapping[str, Json] = {}
    name: str = ""
    """As the client introduced itself; empty when it did not."""
    answers: Mapping[str, Mapping[str, Json]] = {}
    """By the key of the question: `action` ("accept", "decline", "cancel") and, with "accept", `content`."""
    timeout_seconds: float | None = None
    """How long the client gives a run that this call starts; None when it does not say."""

    @property
    def can_be_asked(self) -> bool:
        """Whether the client can show its person a form: said outright, or by naming no mode at all."""
        offered = self.capabilities.get("elicitation")
        return isinstance(offered, dict) and (not offered or "form" in offered)


NOBODY: Final = Caller()
"""The caller where there is no client: commands."""


class Elicitation(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the person: what a handler gives in place of a result when it cannot go on without an answer.

    The handler is called again with the same arguments and `caller.answers[key]`; so what it does before it asks must
    do no harm when it is done twice. Only a caller that `can_be_asked` may be asked. Who asks one thing after another
    keeps what the first answer decided: since 2026-07-28 only the answer to the latest question comes with the call.
    """

    key: str
    message: str
    schema: Mapping[str, Json]
    """A flat object of texts, numbers and booleans: the form that the client shows."""
    meta: Mapping[str, Json] | None = None
    """What the request to the client says beside it."""


Result: TypeAlias = Mapping[str, Json] | msgspec.Raw
"""A JSON object; or one that is encoded already, because it is asked for often and changes seldom."""


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is not there yet: what a handler gives in place of a result when the server works on it.

    The connection looks whenever the bell rings, and every now and then; other messages are answered meanwhile.
    """

    run_id: str
    """The run that it is about; empty when it is about none, and so cannot become a task."""
    look: Callable[[], "Result | Elicitation | None"]
    """The answer as soon as there is one. Cheap; raises what the handler would raise."""
    progress: "Callable[[], Progress | None]"
    """How far it is, which never goes back; None when nothing is known."""
    abandon: Callable[[str], None]
    """Nobody waits any more, for this reason: the client cancelled the call, or went away."""


Outcome: TypeAlias = Result | Elicitation | Pending
"""What a tool gives: its result, or what has to come first."""

Handler = Callable[[Services, Any, Caller], Outcome]
"""Called with what `Arguments.decode` gives."""


class Arguments(Protocol):
    """What a tool takes; `tools.arguments` has two kinds."""

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
    """Of results; None when nothing is promised."""
    example: tuple[Mapping[str, Json], Mapping[str, Json]] | None = None
    """Arguments and result."""
    read_only: bool = True
    idempotent: bool = True
    destructive: bool = False
    open_world: bool = False
    """Whether it reaches systems other than this server."""
    can_be_task: bool = False
    """Whether its answer may come later, so that a client may call it as a task."""
    meta: Mapping[str, Json] | None = None
    """What else a client may want to know of it, as `_meta`."""

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
    """The schema of results, or of what comes back with `isError`: some clients check that too."""
    properties = {
        **schema.get("properties", {}),
        "code": {"type": "integer", "description": "With isError: the code of the refusal."},
        "message": {"type": "string", "description": "With isError: what was refused."},
        "data": {"type": "object", "description": "With isError: the particulars."},
    }
    either = [{"required": schema.get("required", [])}, {"required": ["code", "message"]}]
    return {"type": "object", "properties": properties, "anyOf": either}
