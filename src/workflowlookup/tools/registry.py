"""Tools: what each one is, and the one road by which they are called.

A tool called by its own name and the same tool through `tools/call` meet in `Registry.call`, which checks the arguments
against the input schema. A handler gets plain JSON values and gives plain JSON values.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.core.schemas import Misfit, compile_schema, first_misfit, misfits, suggest
from workflowlookup.core.values import MAX_CONTEXT_BYTES, Json
from workflowlookup.errors import InvalidParams, MissingClientCapability, WorkflowNotFound
from workflowlookup.tools.contract import Caller, Outcome, Services, Tool

if TYPE_CHECKING:
    import jsonschema_rs

    from workflowlookup.core.model import Workflow

LONG_MESSAGE: Final = MAX_CONTEXT_BYTES // 8
"""No context in a shorter message can be too large, however its numbers are written."""
MAX_MISFITS: Final = 5
LONG_LIST: Final = 1_000


class Registry:
    """The tools that can be called now: those that are built in, and those that come and go."""

    def __init__(self, tools: Mapping[str, Tool], services: Services) -> None:
        self.built_in = tools
        self.tools = tools
        self.listeners: list[Callable[[], None]] = []
        """Hear of each change of what `tools/list` says."""
        self.services = services
        self._validators: dict[str, jsonschema_rs.Validator] = {}
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

    def call(self, tool: Tool, params: Json, caller: Caller, size: int) -> Outcome:
        """The tool's answer to a message of so many bytes.

        Raises `InvalidParams` naming each argument that does not fit, or what the tool raises.
        """
        arguments = self._checked(tool, {} if params is None else params, size)
        if tool.client_capabilities and (missing := tool.client_capabilities - caller.capabilities.keys()):
            raise MissingClientCapability(
                f"The tool '{tool.name}' needs a client that offers {', '.join(sorted(missing))}.",
                requiredCapabilities={name: {} for name in sorted(missing)},
            )
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
        if not validator.is_valid(arguments):
            raise _misfit(validator, arguments, tool)
        if size > LONG_MESSAGE:
            for name in ("context", "input"):
                _check_size(arguments, name)
        return arguments  # type: ignore[no-any-return]


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
