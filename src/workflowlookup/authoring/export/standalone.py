"""A workflow as one text that needs no server: steps as headings, everything that a run would check in words.

What a server would do is left to the reader: conditions and loops are sentences, criteria and proofs are check-lists.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from workflowlookup.authoring.export.text import harmless, skill_description
from workflowlookup.authoring.graph import describe_confirmation, describe_loop
from workflowlookup.language.conditions import Condition, in_words
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.guidance import function_lines, prompt_text
from workflowlookup.language.model import Capture, Delegation, LoopStep, PromptStep, Step, Workflow
from workflowlookup.language.proof import CommandProof, is_at_start
from workflowlookup.language.templates import filler, has_template
from workflowlookup.language.text import one_line, plural
from workflowlookup.language.untrusted_text import code

MAX_HEADING: Final = 6
"""The deepest level of a heading in Markdown."""
_TEMPLATES: Final = (
    "A name in double braces, such as `{{name}}`, stands for a value that you noted in an earlier step or were given."
)


def standalone(workflow: Workflow, _: Sequence[str] = ()) -> str:
    """The body of a file with the whole workflow."""
    head = [f"# {one_line(workflow.name)}", skill_description(workflow.description)]
    head.append(
        f"Do the {plural(len(workflow.flow), 'step')} below in order, one at a time. A step is done when everything in "
        "its check-lists is true; until then, improve its output. Do not skip a step, and do not begin the next one "
        "before this one is done."
    )
    for label, lines in (
        ("Before you start, check", workflow.preconditions),
        ("Ask the user first, if it matters and the task leaves it open", workflow.clarification_prompts),
        ("Throughout", workflow.meta_guidance),
    ):
        if lines:
            head.append(f"**{label}:**\n\n{_texts(lines)}")
    steps = list(_steps(workflow, workflow.flow, "", 2))
    if any(map(has_template, steps)):
        head.append(_TEMPLATES)
    return harmless("\n\n".join([*head, *steps]) + "\n")


def _steps(workflow: Workflow, steps: Sequence[Step], prefix: str, level: int) -> Iterator[str]:
    """The paragraphs of steps, numbered as in `graph`: 2, 2.1, 3."""
    for count, step in enumerate(steps, 1):
        number = f"{prefix}{count}"
        yield f"{_heading(level)} {number}. {one_line(filler({}, {})(step.title))}"
        if step.run_condition:
            yield f"**Only if** {_condition(step.run_condition)}. Otherwise skip this step."
        if step.requires:
            yield f"**You need:** {', '.join(map(code, step.requires))}"
        if isinstance(step, LoopStep):
            which = f"step {number}.1" if len(step.body) == 1 else f"steps {number}.1 to {number}.{len(step.body)}"
            yield f"**Repeat** {which} {one_line(describe_loop(step.loop))}."
            yield from _steps(workflow, step.body, f"{number}.", level + 1)
        else:
            yield from _step(workflow, step, level)


def _step(workflow: Workflow, step: PromptStep, level: int) -> Iterator[str]:
    if step.asks_before:
        yield from _confirmation(step)
    measures = [proof for proof in step.proofs if isinstance(proof, CommandProof) and proof.at_start]
    if measures:
        yield "**Before you begin:**\n\n" + _check_list([_measure(proof) for proof in measures])
    if step.agent_role:
        yield f"**Your role:** {step.agent_role.strip()}"
    if prompt := _prompt(step):
        yield prompt
    if step.guidance:
        yield f"**Advice:**\n\n{_bullets(step.guidance)}"
    if step.tools is not None and (sentence := step.tools.describe()):
        yield sentence
    if functions := list(function_lines(workflow, step)):
        yield "**Functions:**\n\n" + "\n".join(functions)
    if noted := [*(f"- {code(name)}" for name in step.produces), *map(_captured, step.captures)]:
        yield "**Note these values for later steps:**\n\n" + "\n".join(noted)
    if step.requirements:
        sentences = [_if(requirement.condition, requirement.sentence) for requirement in step.requirements]
        yield f"{_heading(level + 1)} Criteria"
        yield _check_list(sentences)
    if proofs := [_if(proof.condition, proof.describe()) for proof in step.proofs if not is_at_start(proof)]:
        yield f"{_heading(level + 1)} Proof"
        yield "Run the commands and look at the results yourself:"
        yield _check_list(proofs)
    if not step.asks_before:
        yield from _confirmation(step)


def _prompt(step: PromptStep) -> str:
    """The prompt with all its parts; those with a condition say it."""
    delegations = tuple(
        Delegation(content={**item.content, **({"onlyIf": _condition(item.when)} if item.when else {})})
        for item in step.parallel_delegations
    )
    whole = replace(step, prompt_fragments=(), parallel_delegations=delegations)
    parts = [prompt_text(whole, {}, filler({}, {}), Budget())]
    parts += [_if(fragment.when, fragment.text) for fragment in step.prompt_fragments]
    return "\n\n".join(part for part in parts if part)


def _captured(capture: Capture) -> str:
    optional = " (optional)" if capture.is_optional else ""
    return f"- {code(capture.name)}: {one_line(capture.value.expected)}{optional}"


def _measure(proof: CommandProof) -> str:
    names = f", and note {', '.join(map(code, proof.measures))}" if proof.measures else ""
    return _if(proof.condition, f"Run {proof.command_words}{names}")


def _confirmation(step: PromptStep) -> Iterator[str]:
    """Who is asked before or after the step."""
    words = describe_confirmation(step.confirmation)
    if not words or step.confirmation is None:
        return
    question = f" Ask: {one_line(step.confirmation.question)}" if step.confirmation.question else ""
    names = ", ".join(map(code, step.confirmation.answers.get("properties", {})))
    noted = f" Note the answers: {names}." if names else ""
    yield f"**Stop:** this step {words}. Ask the user, and go on only when they have agreed.{question}{noted}"


def _if(condition: Condition | None, text: str) -> str:
    return f"If {_condition(condition)}: {text}" if condition else text


def _condition(condition: Condition) -> str:
    return one_line(in_words(condition))


def _heading(level: int) -> str:
    return "#" * min(level, MAX_HEADING)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {one_line(line)}" for line in lines)


def _texts(lines: Sequence[str]) -> str:
    """Sentences as a list; texts of several lines as they are."""
    return "\n\n".join(line.strip() for line in lines) if any("\n" in line for line in lines) else _bullets(lines)


def _check_list(lines: Sequence[str]) -> str:
    return "\n".join(f"- [ ] {one_line(line)}" for line in lines)
