"""A workflow as a short instruction: start the run with our tools, and do one step at a time."""

from collections.abc import Mapping, Sequence
from typing import Final

from workflowlookup.authoring.export.text import harmless, skill_description
from workflowlookup.language.model import Workflow
from workflowlookup.language.text import one_line
from workflowlookup.language.untrusted_text import code

MAX_FILES_LISTED: Final = 50


def thin(workflow: Workflow, files: Sequence[str]) -> str:
    """The body of a file that leads an agent to the run. `files`: the paths of what the workflow brings along."""
    return f"""\
# {one_line(harmless(workflow.name))}

{_description(workflow)}

The steps of this workflow, `{workflow.id}`, are not in this file. A run hands them out one at a time, judges each \
output, and keeps what was done.

1. {_start(workflow)}
2. Do exactly the step that it gives, and nothing of a later one.
3. Hand in your whole output with `workflow_submit`, and as `context` the variables that the prompt asked for. If the \
verdict is not valid, fix what it names and submit again.
4. Do what the answer says in `next`, and repeat until the run is complete. Never skip a step, and ask the user when \
`requiresConfirmation` is true.

If you do not have these tools, tell the user that this needs the MCP server workflowlookup, which `workflowlookup \
install` adds to a client, and stop.
{_files(files)}"""


def brief(workflow: Workflow) -> str:
    """The section of a file that many tasks share, such as AGENTS.md."""
    return f"""\
## {one_line(harmless(workflow.name))}

{_description(workflow)}

For such a task, the workflow `{workflow.id}` leads you. {_start(workflow)} Then do exactly the step that it gives, \
hand in your whole output with `workflow_submit`, and do what the answer says in `next`, until the run is complete. \
Never skip a step.
"""


def _description(workflow: Workflow) -> str:
    return skill_description(workflow.description)


def _start(workflow: Workflow) -> str:
    return (
        f"Call `workflow_start` with `workflowId` `{workflow.id}` and the whole task in {task_argument(workflow)}. Ask "
        "the user those of its `clarificationPrompts` that the task leaves open and that matter, and check its "
        "`preconditions`."
    )


def task_argument(workflow: Workflow) -> str:
    """The argument of `workflow_start` for the task: the declared input, if there is one."""
    schema = workflow.document.get("inputSchema")
    names = schema.get("properties") if isinstance(schema, Mapping) else None
    return f"`input` ({', '.join(map(code, names))})" if names else "`context`"


def _files(files: Sequence[str]) -> str:
    if not files:
        return ""
    more = len(files) - MAX_FILES_LISTED
    lines = [f"- {code(harmless(one_line(path)))}" for path in files[:MAX_FILES_LISTED]]
    if more > 0:
        lines.append(f"- and {more:,} more")
    return "\n## Files\n\nThe steps may refer to these files, which are beside this one:\n\n" + "\n".join(lines) + "\n"
