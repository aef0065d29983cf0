"""The tools that can be called now, and the one path of a call.

`Registry.call` serves both forms of a call, by the tool's own name as method and through `tools/call`: it decodes the
arguments and calls the handler.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.errors import InvalidParams, WorkflowNotFound
from workflowlookup.language.formats.schemas import suggest
from workflowlookup.language.values import MAX_CONTEXT_BYTES, Json
from workflowlookup.tools.contract import Caller, Outcome, Services, Tool

if TYPE_CHECKING:
    from workflowlookup.language.model import Workflow

LONG_MESSAGE: Final = MAX_CONTEXT_BYTES // 8
"""A context in a shorter message cannot exceed `MAX_CONTEXT_BYTES`, however its numbers are written."""


class Registry:
    """The built-in tools, and the tools of workflows, which come and go."""

    def __init__(self, tools: Mapping[str, Tool], services: Services) -> None:
        self.built_in = tools
        self.tools = tools
        self.listeners: list[Callable[[], None]] = []
        """Called after each change of the list of tools."""
        self.services = services
        self._tools_json: msgspec.Raw | None = None
        self._dynamic_json = b"[]"
        self._is_attached = False

    def replace(self, dynamic: Sequence[Tool]) -> bool:
        """Replace the tools of workflows; whether the list of tools changed."""
        ordered = sorted(dynamic, key=lambda tool: tool.name)
        self.tools = {**self.built_in, **{tool.name: tool for tool in ordered if tool.name not in self.built_in}}
        dynamic_json = msgspec.json.encode([tool.describe() for tool in ordered])
        if dynamic_json == self._dynamic_json:
            return False
        self._dynamic_json, self._tools_json = dynamic_json, None
        for listener in tuple(self.listeners):
            listener()
        return True

    def refresh(self) -> None:
        """Bring the tools of workflows up to date."""
        workflows = self.services.workflows
        if workflows is None:
            return
        if not self._is_attached:
            self._is_attached = True
            workflows.attach(self)
        workflows.refresh_if_changed()

    def find(self, name: str) -> Tool | None:
        """The tool of this name; the tools of workflows are brought up to date first."""
        tool = self.built_in.get(name)
        if tool is None:
            self.refresh()
            workflows = self.services.workflows
            tool = self.tools.get(name)
            if tool is None and workflows is not None and name in workflows.offers:
                tool = workflows.offers[name].tool  # not in the list, which would be too long
        return tool

    def tools_json(self) -> msgspec.Raw:
        """The list of tools as JSON, in a fixed order: the built-in tools, then the tools of workflows by name."""
        if self._tools_json is None:
            self._tools_json = msgspec.Raw(msgspec.json.encode([tool.describe() for tool in self.tools.values()]))
        return self._tools_json

    def unknown_tool(self, name: str) -> InvalidParams:
        """The error for the name of a tool that does not exist."""
        return InvalidParams(
            f"Unknown tool {suggest(name, list(self.tools))}. Call tools/list to see every tool.", name=name
        )

    def call(self, tool: Tool, params: Json, caller: Caller, size: int) -> Outcome:
        """Call a tool; `size` is the length of the message in bytes.

        Raises `InvalidParams` naming each argument that is invalid, or what the tool raises.
        """
        values = {} if params is None else _by_position(tool, params) if isinstance(params, list) else params
        arguments = tool.arguments.decode(values)
        if size > LONG_MESSAGE:
            _check_sizes(values)
        return tool.handler(self.services, arguments, caller)


def find_workflow(services: Services, workflow_id: str) -> "Workflow":
    """The workflow of this id. The `WorkflowNotFound` that it raises names the tool that lists all ids."""
    try:
        return services.catalog.get(workflow_id)
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
