"""Prompts: each workflow as a slash command. Its arguments are the clarification prompts of the workflow."""

import re
from collections.abc import Mapping
from typing import Any, Final

from workflowlookup.errors import InvalidParams, WorkflowLookupError, WorkflowNotFound
from workflowlookup.language.model import Workflow
from workflowlookup.language.values import Json
from workflowlookup.tools.contract import Services
from workflowlookup.tools.paging import page

PAGE_SIZE: Final = 100
_MAX_NAME: Final = 40


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
    return {
        "name": workflow.id,
        "title": workflow.name,
        "description": workflow.description,
        "arguments": [
            {"name": name, "description": question, "required": False}
            for name, question in argument_names(workflow).items()
        ],
    }


def argument_names(workflow: Workflow) -> dict[str, str]:
    """By short name, made of the words of the question: each clarification prompt."""
    names: dict[str, str] = {}
    for number, question in enumerate(workflow.clarification_prompts, 1):
        name = re.sub(r"[^a-z0-9]+", "_", question.lower())[:_MAX_NAME].strip("_") or f"question_{number}"
        names[name if name not in names else f"{name}_{number}"] = question
    return names


def get_prompt(services: Services, params: Mapping[str, Any]) -> Mapping[str, Json]:
    try:
        workflow = services.catalog.get(params["name"])
    except WorkflowNotFound as problem:
        remedy = f"{problem.remedy} Call prompts/list to see them."
        raise InvalidParams(remedy, name=params["name"]) from problem
    answers: Mapping[str, Json] = params.get("arguments") or {}
    names = argument_names(workflow)
    for name, value in answers.items():
        if name not in names:
            raise InvalidParams(f"arguments: '{name}' is unknown. Known: {', '.join(names) or 'none'}")
        if not isinstance(value, str):
            raise InvalidParams(f"arguments.{name} must be text")
    text = _instructions(workflow, {names[name]: value for name, value in answers.items() if value.strip()})
    return {
        "description": workflow.description,
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }


def _instructions(workflow: Workflow, answers: Mapping[str, str]) -> str:
    parts = [f'Follow the workflow "{workflow.name}" (id `{workflow.id}`): {workflow.description}']
    if answers:
        parts.append("What I can tell you already:\n" + "\n".join(f"- {q}\n  {a}" for q, a in answers.items()))
    unanswered = [question for question in workflow.clarification_prompts if question not in answers]
    if unanswered:
        questions = "\n".join(f"- {question}" for question in unanswered)
        parts.append(f"Ask me these first, if the answers matter:\n{questions}")
    if workflow.preconditions:
        parts.append(
            "These must be true before you start:\n" + "\n".join(f"- {line}" for line in workflow.preconditions)
        )
    if workflow.meta_guidance:
        parts.append("Throughout:\n" + "\n".join(f"- {line}" for line in workflow.meta_guidance))
    parts.append(
        f"Call `workflow_start` with `workflowId` `{workflow.id}`. Do exactly the step it gives, hand in your full "
        "output with `workflow_submit`, do what its answer says in `next`, and repeat until the run is complete. Never "
        "skip a step, and ask me when `requiresConfirmation` is true."
    )
    return "\n\n".join(parts)
