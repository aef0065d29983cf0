"""Prompts: each workflow as a slash command.

A prompt declares no arguments. Claude Code splits the text after a command at spaces over the declared ones and drops
the rest; without any it shows the model the whole text beside the prompt. What the workflow wants to know besides,
`workflow_start` answers as `clarificationPrompts`.
"""

from collections.abc import Mapping
from typing import Any, Final

from workflowlookup.authoring.export.thin import task_argument
from workflowlookup.errors import InvalidParams, WorkflowLookupError, WorkflowNotFound
from workflowlookup.language.model import Workflow
from workflowlookup.language.values import Json
from workflowlookup.tools.contract import Services
from workflowlookup.tools.paging import page

PAGE_SIZE: Final = 100


def list_prompts(services: Services, params: Mapping[str, Any]) -> Mapping[str, Json]:
    summaries = services.catalog.snapshot().summaries
    page_summaries, next_cursor = page(summaries, lambda summary: summary.id, params.get("cursor"), PAGE_SIZE)
    prompts = []
    for summary in page_summaries:
        try:
            prompts.append(_describe(services.catalog.get(summary.id)))
        except WorkflowLookupError:
            continue  # changed or deleted since the snapshot; the next list is right
    return {"prompts": prompts, **({"nextCursor": next_cursor} if next_cursor else {})}


def _describe(workflow: Workflow) -> Mapping[str, Json]:
    return {"name": workflow.id, "title": workflow.name, "description": workflow.description}


def get_prompt(services: Services, params: Mapping[str, Any]) -> Mapping[str, Json]:
    try:
        workflow = services.catalog.get(params["name"])
    except WorkflowNotFound as problem:
        remedy = f"{problem.remedy} Call prompts/list to see them."
        raise InvalidParams(remedy, name=params["name"]) from problem
    text = _instructions(workflow, _task(params.get("arguments") or {}))
    return {
        "description": workflow.description,
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }


def _task(arguments: Mapping[str, Json]) -> str:
    """The values of all arguments in their order, as one text. None is declared, but a client may send some, such as
    the words of a text that it split.
    """
    for name, value in arguments.items():
        if not isinstance(value, str):
            raise InvalidParams(f"arguments.{name} must be text")
    return " ".join(words for value in arguments.values() if (words := value.strip()))


def _instructions(workflow: Workflow, task: str) -> str:
    source = "The task is what I wrote after the command; if I wrote nothing, what we spoke about."
    return (
        f'Follow the workflow "{workflow.name}" (id `{workflow.id}`): {workflow.description}\n\n'
        f"{f'The task: {task}' if task else source}\n\n"
        f"Call `workflow_start` with `workflowId` `{workflow.id}` and the whole task in {task_argument(workflow)}. Ask "
        "me those of its `clarificationPrompts` that the task leaves open and that matter, and check its "
        "`preconditions`. Then do exactly the step it gives, hand in your full output with `workflow_submit`, do what "
        "its answer says in `next`, and repeat until the run is complete. Never skip a step, and ask me when "
        "`requiresConfirmation` is true."
    )
