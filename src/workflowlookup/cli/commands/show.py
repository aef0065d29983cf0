"""`workflowlookup show ID`: shows a workflow as Markdown."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.cli.output import write_hint, write_json, write_markdown
from workflowlookup.cli.services import call_tool, provenances
from workflowlookup.language.proof import proofs_of
from workflowlookup.settings import Settings
from workflowlookup.tools.builtin import workflow_get

MODES: Final = ("metadata", "preview", "full")
_LISTS: Final = (
    ("preconditions", "Before you start"),
    ("clarificationPrompts", "Questions to ask first"),
    ("metaGuidance", "Throughout"),
)
_RENDERED: Final = {"id", "title", "prompt", "agentRole", "guidance", "body"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="id of the workflow; `workflowlookup list` shows the ids")
    parser.add_argument(
        "--mode", choices=MODES, default="preview", help="without steps, with the first one (default), or with all"
    )
    parser.add_argument("--json", action="store_true", help="print what the tool workflow_get answers")


def run(options: argparse.Namespace, settings: Settings) -> int:
    answer = call_tool(workflow_get.handle, settings, workflow_get.GetArguments(id=options.id, mode=options.mode))
    if options.json:
        write_json(answer)
        return 0
    source = provenances(settings).get(options.id)
    write_markdown("\n\n".join([*as_markdown(answer), *([f"From <{source}>."] if source else [])]))
    write_hint(
        f"`workflowlookup graph {options.id}` outlines every step; "
        f"`workflowlookup next {options.id}` shows its first step as agents see it."
    )
    return 0


def as_markdown(workflow: Mapping[str, Any]) -> Iterator[str]:
    """The paragraphs of a workflow, in any mode."""
    steps = workflow.get("steps", ())
    count = workflow["totalSteps"] if "totalSteps" in workflow else len(steps)
    yield f"# {workflow['name']}"
    yield workflow["description"]
    yield f"`{workflow['id']}` · version {workflow['version']} · {workflow['category']} · steps: {count}"
    for field, title in _LISTS:
        if workflow.get(field):
            yield f"## {title}"
            yield _bullets(workflow[field])
    if "firstStep" in workflow:
        yield "## First step"
        yield from _step(workflow["firstStep"]) if workflow["firstStep"] else ["All steps depend on the context."]
    if steps:
        yield "## Steps"
        yield from _steps(steps, "")


def _steps(steps: Sequence[Mapping[str, Any]], prefix: str) -> Iterator[str]:
    for number, step in enumerate(steps, 1):
        yield from _step(step, f"{prefix}{number}. ")
        if isinstance(step.get("body"), list):
            yield from _steps(step["body"], f"{prefix}{number}.")
        elif "body" in step:
            yield f"Repeats the step `{step['body']}`."


def _step(step: Mapping[str, Any], number: str = "") -> Iterator[str]:
    yield f"### {number}{step['title']} (`{step['id']}`)"
    if "agentRole" in step:
        yield f"*Role: {step['agentRole'].strip()}*"
    if "prompt" in step:
        yield step["prompt"]
    if "guidance" in step:
        yield _bullets(step["guidance"])
    if "proof" in step:
        yield "In a run, the server checks:"
        yield _bullets([proof.describe() for proof in proofs_of(step)])
    others = {field: value for field, value in step.items() if field not in _RENDERED}
    if others:  # conditions, criteria and the like as JSON, so that nothing is hidden
        yield f"```json\n{msgspec.json.format(msgspec.json.encode(others), indent=2).decode()}\n```"


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


EXAMPLES = """\
  workflowlookup show bug-investigation                  what it is about, and its first step
  workflowlookup show bug-investigation --mode full      every step, for authors
  workflowlookup show bug-investigation --mode full --json > my-workflow.json"""
