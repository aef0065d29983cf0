"""`workflowlookup next ID`: shows the next step for these completed steps and this context, as agents see it."""

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workflowlookup.cli.arguments import add_context_argument
from workflowlookup.cli.output import write_hint, write_json, write_list, write_markdown
from workflowlookup.cli.services import call_tool
from workflowlookup.language.guidance import PROMPT_REFERENCE
from workflowlookup.language.text import plural
from workflowlookup.language.values import text_or_json
from workflowlookup.settings import Settings
from workflowlookup.tools.builtin import workflow_next


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="id of the workflow; `workflowlookup list` shows the ids")
    parser.add_argument(
        "--done",
        metavar="STEP,…",
        action="extend",
        type=_step_ids,
        default=[],
        help="ids of completed steps, in a loop with their iteration (review@2); may be repeated",
    )
    add_context_argument(parser)
    parser.add_argument("--json", action="store_true", help="print what the tool workflow_next answers")


def _step_ids(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def run(options: argparse.Namespace, settings: Settings) -> int:
    done = list(dict.fromkeys(options.done))
    arguments = workflow_next.NextArguments(workflow_id=options.id, completed_steps=done, context=dict(options.context))
    answer = call_tool(workflow_next.handle, settings, arguments)
    if options.json:
        write_json(answer)
        return 0
    write_markdown("\n\n".join(as_markdown(answer)))
    write_list("The output must meet", answer["guidance"]["validationCriteria"])
    write_list("In a run, the server would check", answer["guidance"].get("proofs", ()))
    write_list("Skipped", [f"{skip['stepId']}: {skip['because']}" for skip in answer.get("skipped", ())])
    write_list("Warnings", answer.get("warnings", ()))
    if answer["step"]:
        write_hint("When it is done: ", _command(options.id, [*done, answer["step"]["id"]], dict(options.context)))
    elif not answer["isComplete"]:
        example = answer["missing"][0]["example"]["context"]
        write_hint("With this variable: ", _command(options.id, done, {**dict(options.context), **example}))
    return 0


def _command(workflow_id: str, done: Sequence[str], context: Mapping[str, Any]) -> str:
    words = ["workflowlookup", "next", workflow_id, *(["--done", ",".join(done)] if done else [])]
    for name, value in context.items():
        words += ["--context", f"{name}={text_or_json(value)}"]
    return shlex.join(words)


def as_markdown(answer: Mapping[str, Any]) -> Iterator[str]:
    """The paragraphs before the criteria in an answer of `workflow_next`."""
    step, guidance, progress = answer["step"], answer["guidance"], answer["progress"]
    count, total = progress["completed"], progress.get("total")  # no total if there are loops
    done = f"{plural(count, 'step')} done" if total is None else f"{count} of {total} steps are done"
    if step:
        yield f"# {step['title']}"
        yield f"`{step['id']}` · {done}"
        if guidance["requiresConfirmation"]:
            yield "**The agent must ask for confirmation before it continues.**"
        yield guidance["prompt"].replace(PROMPT_REFERENCE, step["prompt"])
    elif answer["isComplete"]:
        yield f"# {guidance['prompt']}"
        yield done
    else:
        yield f"# A loop needs {answer['missing'][0]['variable']}"
        yield done
        yield guidance["prompt"]
    if "modelHint" in guidance:
        yield f"Suggested model: {guidance['modelHint']}"


EXAMPLES = """\
  workflowlookup next bug-investigation                          the first step
  workflowlookup next bug-investigation --done reproduce         the one after it
  workflowlookup next bug-investigation --done reproduce,triage --context bugKind=intermittent --context goal=fix"""
