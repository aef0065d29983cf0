"""Tools: what each one is, and the one road by which they are called.

A tool called by its own name and the same tool through `tools/call` meet in `Registry.call`, which checks the arguments
against the input schema. A handler gets plain JSON values and gives plain JSON values.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import msgspec

from workflowlookup.access import LOCAL, Access
from workflowlookup.core.patterns import start_budget
from workflowlookup.core.progress import Progress
from workflowlookup.core.schemas import Misfit, compile_schema, first_misfit, misfits, suggest
from workflowlookup.core.values import MAX_CONTEXT_BYTES, Json
from workflowlookup.errors import InvalidParams, MissingClientCapability, StorageError, WorkflowNotFound
from workflowlookup.library.catalog import Catalog

if TYPE_CHECKING:
    import jsonschema_rs

    from workflowlookup.core.model import Workflow
    from workflowlookup.execution.service import Execution
    from workflowlookup.providers.config import Plan
    from workflowlookup.providers.discovery import Discovered
    from workflowlookup.runs.service import Runs
    from workflowlookup.tools.dynamic import Offer
    from workflowlookup.trust import Consent

LONG_MESSAGE: Final = 2048
MOST_KNOWN_IDS: Final = 100_000
MAX_MISFITS: Final = 5
LONG_LIST: Final = 1_000


def _without_journal() -> NoReturn:
    raise StorageError("This server keeps no journal of runs.")


def _without_execution() -> NoReturn:
    raise StorageError("This server carries out no calls of its own.")


def _without_consent() -> "Consent":
    from workflowlookup.trust import NO_CONSENT  # noqa: PLC0415 - with the first run

    return NO_CONSENT


def _nothing() -> None:
    """Nothing to do."""


def _command_line(*words: str) -> str:
    return " ".join(["workflowlookup", *words])


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

    def folded(self, name: str) -> "Tool | None":
        """The tool of this name that is not listed because there are too many; who knows it can call it."""

    def default_timeout(self, workflow: "Workflow") -> float | None:
        """How many seconds a run of it may take when nobody says; None for one that needs the agent or a person."""

    def abilities(self, provider: str) -> frozenset[str] | None:
        """Which of "start", "status" and "cancel" a provider can; None when it is not known."""


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What handlers may ask."""

    catalog: Catalog
    open_runs: Callable[[], "Runs"] = _without_journal
    """Called for every use, so that nothing of runs is loaded before there is one."""
    confirmation: str = "auto"
    """Whose word counts where a step needs a person: the setting of this name."""
    command_line: Callable[..., str] = _command_line
    """A command of ours that a person can paste into a terminal, with the journal of this server."""
    open_consent: Callable[[], "Consent"] = _without_consent
    """As `open_runs`: what a repository brought and nobody trusted."""
    access: Access = LOCAL
    """Whose view of all this it is; `tools.scoped` makes them."""
    is_private: bool = False
    """Whether only the client that started the server can reach it: over pipes, not over HTTP."""
    open_execution: Callable[[], "Execution"] = _without_execution
    """As `open_runs`: nothing is started before there is something to do."""
    open_workflows: Callable[[], WorkflowTools | None] = _nothing
    """None when this server makes no tools of workflows."""
    reload: Callable[[], None] = _nothing
    """Read the settings again, now."""
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

    @property
    def consent(self) -> "Consent":
        return self.open_consent()

    @property
    def workflows(self) -> WorkflowTools | None:
        return self.open_workflows()


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


class Ask(msgspec.Struct, frozen=True, kw_only=True):
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


Result = Mapping[str, Json] | msgspec.Raw
"""A JSON object; or one that is encoded already, because it is asked for often and changes seldom."""


class Later(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is not there yet: what a handler gives in place of a result when the server works on it.

    The connection looks whenever the bell rings, and every now and then; other messages are answered meanwhile.
    """

    run_id: str
    """The run that it is about; empty when it is about none, and so cannot become a task."""
    look: Callable[[], "Result | Ask | None"]
    """The answer as soon as there is one. Cheap; raises what the handler would raise."""
    progress: Callable[[], Progress | None]
    """How far it is, which never goes back; None when nothing is known."""
    abandon: Callable[[str], None]
    """Nobody waits any more, for this reason: the client cancelled the call, or went away."""


Handler = Callable[[Services, Mapping[str, Any], Caller], Result | Ask | Later]


class Short(msgspec.Struct, frozen=True):
    """How a tool is answered when its arguments come in their usual form."""

    decode: Callable[[msgspec.Raw], Any]
    """The arguments out of JSON. Raises when they have another form."""
    answer: Callable[[Services, Any], Result | None]
    """What the handler would give; None, or any exception, to leave it to the handler. Must change nothing."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as clients see it, and the function behind it."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, Json]
    handler: Handler
    output_schema: Mapping[str, Json] | None = None
    """Of results; None when nothing is promised."""
    example: tuple[Mapping[str, Json], Mapping[str, Json]] | None = None
    """Arguments and result."""
    read_only: bool = True
    idempotent: bool = True
    destructive: bool = False
    client_capabilities: frozenset[str] = frozenset()
    """What the client must be able to do for this tool to work, such as `elicitation`."""
    open_world: bool = False
    """Whether it reaches systems other than this server."""
    can_be_task: bool = False
    """Whether its answer may come later, so that a client may call it as a task."""
    meta: Mapping[str, Json] | None = None
    """What else a client may want to know of it, as `_meta`."""
    short: Short | None = None

    def describe(self) -> dict[str, Json]:
        """The tool as `tools/list` shows it."""
        described: dict[str, Json] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
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


class Registry:
    """The tools that can be called now: those that are built in, and those that come and go."""

    def __init__(self, tools: Mapping[str, Tool], services: Services) -> None:
        self.built_in = tools
        self.short: dict[str, Short] = {}
        """The short ways to those that were called."""
        self.tools = tools
        self.listeners: list[Callable[[], None]] = []
        """Hear of each change of what `tools/list` says."""
        self.services = services
        self._validators: dict[str, jsonschema_rs.Validator] = {}
        self._known_ids: set[str] = set()
        self._listed: msgspec.Raw | None = None
        self._described = b"[]"
        self._is_attached = False

    def replace(self, dynamic: Sequence[Tool]) -> bool:
        """Have these beside the built-in tools, in place of those before; whether what `tools/list` says changed."""
        ordered = sorted(dynamic, key=lambda tool: tool.name)
        for tool in ordered:
            before = self.tools.get(tool.name)
            if before is not None and before.input_schema != tool.input_schema:
                self._validators.pop(tool.name, None)
        self.tools = {**self.built_in, **{tool.name: tool for tool in ordered if tool.name not in self.built_in}}
        for name in self._validators.keys() - self.tools.keys():
            del self._validators[name]
        described = msgspec.json.encode([tool.describe() for tool in ordered])
        if described == self._described:
            return False
        self._described, self._listed = described, None
        for listener in tuple(self.listeners):
            listener()
        return True

    def refresh(self) -> None:
        """Bring the tools that are workflows up to date."""
        workflows = self.services.workflows
        if workflows is None:
            return
        if not self._is_attached:
            self._is_attached = True
            workflows.attach(self)
        workflows.refresh_if_changed()

    def find(self, name: str) -> Tool | None:
        """The tool of this name, as of now: a workflow may have come, changed or gone since anybody looked."""
        tool = self.built_in.get(name)
        if tool is None:
            self.refresh()
            workflows = self.services.workflows
            tool = self.tools.get(name) or (workflows.folded(name) if workflows is not None else None)
        return tool

    def listed(self) -> msgspec.Raw:
        """All tools as JSON, in a fixed order: the built-in ones, then the others by name."""
        if self._listed is None:
            self._listed = msgspec.Raw(msgspec.json.encode([tool.describe() for tool in self.tools.values()]))
        return self._listed

    def unknown(self, name: str) -> InvalidParams:
        """The refusal of a tool that is not there."""
        return InvalidParams(
            f"Unknown tool {suggest(name, list(self.tools))}. Call tools/list to see every tool.", name=name
        )

    def call(self, tool: Tool, params: Json, caller: Caller, size: int) -> Result | Ask | Later:
        """The tool's answer to a message of so many bytes.

        Raises `InvalidParams` naming each argument that does not fit, or what the tool raises.
        """
        arguments = self._checked(tool, {} if params is None else params, size)
        if tool.client_capabilities and (missing := tool.client_capabilities - caller.capabilities.keys()):
            raise MissingClientCapability(
                f"The tool '{tool.name}' needs a client that offers {', '.join(sorted(missing))}.",
                requiredCapabilities={name: {} for name in sorted(missing)},
            )
        if tool.short is not None and not tool.client_capabilities:
            self.short[tool.name] = tool.short
        start_budget()
        return tool.handler(self.services, arguments, caller)

    def _checked(self, tool: Tool, arguments: Json, size: int) -> Mapping[str, Any]:
        """Arguments by name, checked against the input schema."""
        if isinstance(arguments, list):
            arguments = _by_position(tool, arguments)
        if not arguments and not tool.input_schema.get("required", True):
            return {}  # nothing to check; the first workflow_list need not wait for a validator
        validator = self._validators.get(tool.name)
        if validator is None:
            validator = self._validators[tool.name] = compile_schema(tool.input_schema)
        if size > LONG_MESSAGE:
            return self._checked_long(tool, validator, arguments)
        if not validator.is_valid(arguments):
            raise _misfit(validator, arguments, tool)
        return arguments  # type: ignore[no-any-return]

    def _checked_long(self, tool: Tool, validator: "jsonschema_rs.Validator", arguments: Json) -> Mapping[str, Any]:
        """As above; ids that fitted before, and come with every step, are not looked at again.

        They are given on as a set; but those of iterations in their order, in which loops are walked.
        """
        completed = arguments.get("completedSteps")
        ids = _distinct(completed) if isinstance(completed, list) else None
        is_known = ids is not None and ids <= self._known_ids
        if not validator.is_valid({**arguments, "completedSteps": []} if is_known else arguments):
            raise _misfit(validator, arguments, tool)
        for name in ("context", "input"):
            _check_size(arguments, name)
        if ids is None:
            return arguments  # type: ignore[no-any-return]
        if not is_known:
            if len(self._known_ids) > MOST_KNOWN_IDS:
                self._known_ids.clear()
            self._known_ids |= ids
        return arguments if completed and "@" in completed[-1] else {**arguments, "completedSteps": ids}


def _distinct(values: list[Json]) -> set[Json] | None:
    """The values as a set; None when one comes twice, or is a list or an object."""
    try:
        found = set(values)
    except TypeError:
        return None
    return found if len(found) == len(values) else None


def _misfit(validator: "jsonschema_rs.Validator", arguments: Json, tool: Tool) -> InvalidParams:
    return InvalidParams("; ".join(misfit.sentence() for misfit in _misfits(validator, arguments, tool)))


def _misfits(validator: "jsonschema_rs.Validator", arguments: Json, tool: Tool) -> Iterable[Misfit]:
    """What does not fit: a few of all, or of a very long list the first."""
    values = arguments.values() if isinstance(arguments, dict) else ()
    if any(isinstance(value, list) and len(value) > LONG_LIST for value in values):
        first = first_misfit(validator, arguments, tool.input_schema)
        return [first] if first else []
    return itertools.islice(misfits(validator, arguments, tool.input_schema), MAX_MISFITS)


def find_workflow(services: Services, wanted: str) -> "Workflow":
    """The workflow of this id; a caller that asked for one that is not there is told how to see them all."""
    try:
        return services.catalog.get(wanted)
    except WorkflowNotFound as problem:
        raise WorkflowNotFound(f"{problem.remedy} Call workflow_list to see every id.", **problem.data) from problem


def _by_position(tool: Tool, values: Sequence[Json]) -> dict[str, Json]:
    names = list(tool.input_schema.get("properties", {}))
    if len(values) > len(names):
        raise InvalidParams(f"at most {len(names)} parameters ({', '.join(names)}); found {len(values)}")
    return dict(zip(names, values, strict=False))


def _check_size(arguments: Mapping[str, Any], name: str) -> None:
    context = arguments.get(name)
    if context and len(msgspec.json.encode(context)) > MAX_CONTEXT_BYTES:
        raise InvalidParams(
            f"{name} must be at most 256KB ({MAX_CONTEXT_BYTES:,} bytes) as JSON; leave out what no step needs"
        )


# ── schemas that several tools share ────────────────────────────────────────────────────────────────────────────

_ID_PATTERN: Final = "^[a-z0-9-][a-z0-9._-]*$"
_INSTANCE_PATTERN: Final = r"^[a-z0-9-][a-z0-9._-]*(@[0-9]+(\.[0-9]+)*)?$"


def workflow_id(description: str) -> dict[str, Json]:
    return {"type": "string", "description": description, "pattern": _ID_PATTERN, "minLength": 3, "maxLength": 64}


def step_id(description: str) -> dict[str, Json]:
    form = {"pattern": _INSTANCE_PATTERN, "minLength": 3, "maxLength": 256}
    return {"type": "string", "description": description, **form}


def run_id(description: str) -> dict[str, Json]:
    form = {"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$", "maxLength": 64}
    return {"type": "string", "description": description, **form}


def completed_steps(description: str) -> dict[str, Json]:
    return {
        "type": "array",
        "description": description,
        "items": {"type": "string", "pattern": _INSTANCE_PATTERN, "maxLength": 256},
        "uniqueItems": True,
    }


def context(description: str) -> dict[str, Json]:
    return {"type": ["object", "null"], "description": description, "additionalProperties": True}


def arguments_schema(properties: Mapping[str, Json], *required: str) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


TEXTS: Final[Mapping[str, Json]] = {"type": "array", "items": {"type": "string"}}

VERDICT_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "valid": {"type": "boolean"},
        "issues": {**TEXTS, "description": "What is wrong; empty when valid."},
        "suggestions": {**TEXTS, "description": "What to do about it."},
        "warnings": {**TEXTS, "description": "What is worth knowing and does not make it invalid."},
    },
    "required": ["valid", "issues", "suggestions"],
}

GUIDANCE_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "What to do now: role, advice and prompt in one text."},
        "modelHint": {"type": "string", "description": "The kind of model that suits the step."},
        "requiresConfirmation": {"type": "boolean", "description": "Ask the user before you go on."},
        "validationCriteria": {**TEXTS, "description": "What the output must meet."},
    },
    "required": ["prompt", "requiresConfirmation", "validationCriteria"],
}

STEP_SCHEMA: Final[Mapping[str, Json]] = {
    "type": ["object", "null"],
    "properties": {
        "id": {"type": "string", "description": "Add this id to completedSteps when the step is done."},
        "title": {"type": "string"},
        "prompt": {"type": "string"},
        "agentRole": {"type": "string"},
        "guidance": TEXTS,
        "askForFiles": {"type": "boolean"},
        "requireConfirmation": {"type": "boolean"},
        "runCondition": {"type": "object"},
        "loop": {
            "type": "object",
            "description": "Inside a loop: its id, the iteration, the item, the index, the total.",
        },
    },
    "required": ["id", "title", "prompt"],
}
