"""The built-in tools. A new tool is a module here with a `TOOL`, and one line in `BUILTIN_TOOLS`."""

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from workflowlookup.tools.contract import Tool


def module_of(name: str) -> str:
    """The module of a built-in tool."""
    return f"{__name__}.{name}"


class _LazyTools(Mapping[str, "Tool"]):
    """Tools by name; the module of a tool is imported when the tool is first used."""

    def __init__(self, *names: str) -> None:
        self._tools: dict[str, Tool | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> "Tool":
        tool = self._tools[name]
        if tool is None:
            tool = self._tools[name] = importlib.import_module(module_of(name)).TOOL
        return tool

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


BUILTIN_TOOLS: Final[Mapping[str, "Tool"]] = _LazyTools(
    "workflow_list",
    "workflow_get",
    "workflow_next",
    "workflow_validate",
    "workflow_validate_json",
    "workflow_start",
    "workflow_submit",
    "workflow_status",
    "workflow_runs",
    "workflow_cancel",
)
