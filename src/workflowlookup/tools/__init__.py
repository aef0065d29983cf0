"""What a client can call: the tools, and what else of the library is offered (resources, prompts, completions).

A new tool is a module here with a `TOOL`, and one line in `BUILTIN_TOOLS`.
"""

from typing import Final

from workflowlookup.tools import (
    workflow_cancel,
    workflow_get,
    workflow_list,
    workflow_next,
    workflow_runs,
    workflow_start,
    workflow_status,
    workflow_submit,
    workflow_validate,
    workflow_validate_json,
)
from workflowlookup.tools.registry import Tool

BUILTIN_TOOLS: Final[tuple[Tool, ...]] = (
    workflow_list.TOOL,
    workflow_get.TOOL,
    workflow_next.TOOL,
    workflow_validate.TOOL,
    workflow_validate_json.TOOL,
    workflow_start.TOOL,
    workflow_submit.TOOL,
    workflow_status.TOOL,
    workflow_runs.TOOL,
    workflow_cancel.TOOL,
)
