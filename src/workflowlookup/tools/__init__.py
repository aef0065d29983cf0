"""What a client can call: the tools, and what else of the library is offered (resources, prompts, completions).

A new tool is a module here with a `TOOL`, and one line in `BUILTIN_TOOLS`.
"""

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from workflowlookup.tools.contract import Tool


class _Shelf(Mapping[str, "Tool"]):
    """Tools by name, each imported when it is first asked for: who wants one need not wait for all."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._taken: dict[str, Tool] = {}

    def __getitem__(self, name: str) -> "Tool":
        tool = self._taken.get(name)
        if tool is None:
            if name not in self._names:
                raise KeyError(name)
            tool = self._taken[name] = importlib.import_module(f"{__name__}.{name}").TOOL
        return tool

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


BUILTIN_TOOLS: Final[Mapping[str, "Tool"]] = _Shelf(
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
