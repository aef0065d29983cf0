"""The tools that can be called, and the one path by which they are.

A tool called by its own name and the same tool through `tools/call` meet in `Registry.call`, which has the arguments
decoded and calls the handler.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.errors import InvalidParams, WorkflowNotFound
from workflowlookup.language.schemas import suggest
from workflowlookup.language.values import MAX_CONTEXT_BYTES, Json
from workflowlookup.tools.contract import Caller, Outcome, Services, Tool

if TYPE_CHECKING:
    from workflowlookup.language.model import Workflow

LONG_MESSAGE: Final = MAX_CONTEXT_BYTES // 8
"""No context in a shorter message can be too large, however its numbers are written."""


class Registry:
    """The tools that can be called now: those that are built in, and those that come and go."""

    def __init__(self, tools: Mapping[str, Tool], services: Services) -> None:
        self.built_in = tools
        self.tools = tools
        self.listeners: list[Callable[[], None]] = []
        """Hear of each change of what `tools/list` says."""
        self.services = services
        self._listed: msgspec.Raw | None = None
        self._described = b"[]"
        self._is_attached = False

    def replace(self, dynamic: Sequence[Tool]) -> bool:
        """Have these beside the built-in tools, in place of those before; whether what `tools/list` says changed."""
        ordered = sorted(dynamic, key=lambda tool: tool.name)
        self.tools = {**self.built_in, **{tool.name: tool for tool in ordered if tool.name not in self.built_in}}
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
            tool = self.tools.get(name)
            if tool is None and workflows is not None and name in workflows.offers:
                tool = workflows.offers[name].tool  # not listed because there are too many
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
        given = {} if params is None else _by_position(tool, params) if isinstance(params, list) else params
        arguments = tool.arguments.decode(given)
        if size > LONG_MESSAGE:
            _check_sizes(given)
        return tool.handler(self.services, arguments, caller)


def find_workflow(services: Services, wanted: str) -> "Workflow":
    """The workflow of this id; a caller that asked for one that is not there is told how to see them all."""
    try:
        return services.catalog.get(wanted)
    except WorkflowNotFound as problem:
        raise WorkflowNotFound(f"{problem.remedy} Call workflow_list to see every id.", **problem.data) from problem


def _by_position(tool: Tool, values: Sequence[Json]) -> dict[str, Json]:
    names = list(tool.arguments.schema.get("properties", {}))
    if len(values) > len(names):
        raise InvalidParams(f"at most {len(names)} parameters ({', '.join(names)}); found {len(values)}")
    return dict(zip(names, values, strict=False))


def _check_sizes(arguments: Mapping[str, Json]) -> None:
    for name in ("context", "input"):
        value = arguments.get(name)
        if value and len(msgspec.json.encode(value)) > MAX_CONTEXT_BYTES:
            raise InvalidParams(
                f"{name} must be at most 256KB ({MAX_CONTEXT_BYTES:,} bytes) as JSON; leave out what no step needs"
            )
