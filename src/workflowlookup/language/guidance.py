"""What the agent reads about a step: the composed prompt, the role, the criteria as sentences.

`templates` fills in the variables; a warning names those that are not set.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.language.conditions import MAX_CONDITION_TEXT, CompiledCondition, describe
from workflowlookup.language.criteria import describe_criterion
from workflowlookup.language.formats.patterns import Budget, TooSlow
from workflowlookup.language.model import Call, Confirmation, Function, PromptStep, Requirement, Workflow, WorkflowCall
from workflowlookup.language.navigation import LoopPosition, NextStep
from workflowlookup.language.proof import CommandProof
from workflowlookup.language.rules import AllOf, Criterion, Rule
from workflowlookup.language.templates import Fill, as_words, fill_values, filler
from workflowlookup.language.text import shorten
from workflowlookup.language.values import Context, Json

COMPLETE: Final = "Workflow complete."
MAX_REPEATED_PROMPT: Final = 300
"""A longer prompt stands only once in an answer that shows the step beside the guidance."""
PROMPT_REFERENCE: Final = "Do what step.prompt says."
"""In place of a longer prompt."""

_MODEL_HINTS: Final[Mapping[str, str]] = {
    "lightweight": "fast-lightweight-model",
    "mid": "general-purpose-model",
    "heavy": "model-with-strong-reasoning",
}


class Guidance(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent gets with a step."""

    step: Mapping[str, Json]
    prompt: str
    model_hint: str
    requires_confirmation: bool
    criteria: tuple[str, ...]
    proofs: tuple[str, ...] = ()
    """What the server checks itself in a run, once the output meets the criteria."""
    warnings: tuple[str, ...]
    unset: tuple[str, ...] = ()
    """The template variables that are not set; the warnings name them."""


def guide(workflow: Workflow, upcoming: NextStep, budget: Budget, *, beside_step: bool = False) -> Guidance:
    """The guidance for the step that comes next. `beside_step`: its reader sees the prompt in `step`, too."""
    step = upcoming.step
    if step is None:
        return Guidance(
            step={},
            prompt=COMPLETE,
            model_hint="",
            requires_confirmation=False,
            criteria=(),
            warnings=upcoming.warnings,
        )
    unset: dict[str, None] = {}
    fill = filler(upcoming.context, unset)
    view = view_step(step, upcoming, fill, budget)
    is_reference = beside_step and len(view["prompt"]) > MAX_REPEATED_PROMPT
    shown = {**view, "prompt": PROMPT_REFERENCE} if is_reference else view
    prompt = compose(workflow, step, upcoming, shown, fill)
    criteria = [
        fill(requirement.sentence)
        for requirement in step.requirements
        if requirement.condition is None or requirement.condition.may_hold(upcoming.context, budget)
    ]
    proofs = describe_proofs(step, upcoming.context, budget, unset, in_run=upcoming.in_run)
    for capture in step.captures:
        unset.pop(capture.name, None)  # rules may refer to variables that this output will set
    return Guidance(
        step=view,
        prompt=prompt,
        model_hint=_model_hint(step) or _model_hint(workflow),
        requires_confirmation=view.get("requireConfirmation", False) and not (step.asks_before and upcoming.in_run),
        criteria=tuple(criteria),
        proofs=proofs,
        warnings=(*upcoming.warnings, *warn_of_unset(unset)),
        unset=tuple(unset),
    )


def warn_of_unset(names: Collection[str]) -> tuple[str, ...]:
    return (f"These variables are not set in the context: {', '.join(names)}",) if names else ()


# ── the step and its prompt ─────────────────────────────────────────────────────────────────────────────────────


def view_step(step: PromptStep, upcoming: NextStep, fill: Fill, budget: Budget) -> dict[str, Json]:
    """The fields of a step that the agent sees."""
    view: dict[str, Json] = {
        "id": upcoming.instance_id,
        "title": fill(step.title),
        "prompt": prompt_text(step, upcoming.context, fill, budget),
    }
    if step.agent_role:
        view["agentRole"] = fill(step.agent_role)
    if step.guidance:
        view["guidance"] = [fill(line) for line in step.guidance]
    if step.tools is not None and (sentence := step.tools.describe()):
        view["tools"] = sentence
    if step.ask_for_files is not None:
        view["askForFiles"] = step.ask_for_files
    if step.confirmation is not None:
        view["requireConfirmation"] = requires_confirmation(step, upcoming.context, budget)
    if step.run_condition is not None:
        view["runCondition"] = step.run_condition
    if upcoming.loop:
        view["loop"] = upcoming.loop
    return view


def compose(workflow: Workflow, step: PromptStep, upcoming: NextStep, view: Mapping[str, Json], fill: Fill) -> str:
    """Role, guidance, prompt, functions and loop, as one text for a model to read."""
    parts = []
    if "agentRole" in view:
        parts.append(f"## Agent Role Instructions\n{view['agentRole']}")
    if "guidance" in view:
        parts.append("## Step Guidance\n" + _bullets(view["guidance"]))
    parts.append(view["prompt"])
    if "tools" in view:
        parts.append(view["tools"])
    functions = list(function_lines(workflow, step))
    if functions:
        parts.append(fill("## Functions\n" + "\n".join(functions)))
    if upcoming.loop:
        parts.append("## Loop Context\n" + _bullets(_loop_lines(upcoming.loop)))
    if step.confirmation is not None and view.get("requireConfirmation") and not upcoming.in_run:
        parts += _confirmation(step, step.confirmation, fill)
    return "\n\n".join(parts)


def prompt_text(step: PromptStep, context: Context, fill: Fill, budget: Budget) -> str:
    """The prompt itself: text, blocks, fragments whose condition holds, and delegations."""
    parts = [fill(step.prompt)] if step.prompt else []
    if step.prompt_blocks:
        parts += _blocks(step.prompt_blocks, fill)
    parts += [
        note + fill(fragment.text)
        for fragment in step.prompt_fragments
        if (note := _note_if_unjudged(fragment.when, context, budget)) is not None
    ]
    if step.parallel_delegations:
        lines = [
            note + fill(_delegation(item.content))
            for item in step.parallel_delegations
            if (note := _note_if_unjudged(item.when, context, budget)) is not None
        ]
        parts.append("Delegate these in parallel, and continue when all results are back:\n" + _bullets(lines))
        if step.synthesis is not None:
            parts.append("Combine the results: " + fill(_block(step.synthesis)))
    if step.call is not None:
        parts.append(_call(step.call, context, fill))
    if step.template_call and not parts:
        parts.append(f"{fill(step.title)}. (The author calls a template here: {as_words(step.template_call)})")
    return "\n\n".join(parts)


def _note_if_unjudged(condition: CompiledCondition | None, context: Context, budget: Budget) -> str | None:
    """A note before a text that applies only if the condition holds: empty if it holds, or the condition in words if
    evaluating it takes too long, so that the agent judges it. None if the text does not apply.
    """
    try:
        return "" if condition is None or condition.holds(context, budget) else None
    except TooSlow:
        words = shorten(describe(condition or {}), MAX_CONDITION_TEXT)
        return f"(The server could not judge in time whether this applies. It applies if {words}.)\n"


def _call(call: Call, context: Context, fill: Fill) -> str:
    """Instructions to make the call, for an agent that works without a run."""
    save = f", and pass it in the context as `{call.save_as}`" if call.save_as else ""
    arguments = fill_values(call.arguments or {}, context, fill)
    with_arguments = f" with these arguments:\n\n```json\n{as_words(arguments)}\n```\n\n" if arguments else ". "
    if isinstance(call, WorkflowCall):
        name = f"`{call.workflow}` of the provider `{call.provider}`"
        with_input = " with the input that you were given. " if call.arguments is None else with_arguments
        return f"Run the workflow {name}{with_input}Use its result as the output{save}."
    name = f"`{call.tool}` of the MCP server `{call.server}`"
    return f"Call the tool {name}{with_arguments}Use its answer as the output{save}."


_BLOCK_TITLES: Final = (
    ("goal", "Goal"),
    ("constraints", "Constraints"),
    ("procedure", "Procedure"),
    ("outputRequired", "Required output"),
    ("verify", "Verification"),
)


def _blocks(blocks: Mapping[str, Json], fill: Fill) -> Iterator[str]:
    for key, title in _BLOCK_TITLES:
        value = blocks.get(key)
        if not value:
            continue
        if isinstance(value, Mapping):
            lines = [f"**{name}**: {_block(text)}" for name, text in value.items()]
        else:
            lines = [_block(value)] if key == "goal" else [_block(item) for item in value]
        numbered = [f"{number}. {line}" for number, line in enumerate(lines, 1)]
        body = lines[0] if key == "goal" else "\n".join(numbered) if key == "procedure" else _bullets(lines)
        yield fill(f"## {title}\n{body}")


def _block(value: Json) -> str:
    """A text, or pieces of text and references; a reference is shown by its name."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_block(piece) for piece in value)
    if isinstance(value, Mapping):
        for key in ("text", "refId", "prompt"):
            if isinstance(value.get(key), str):
                return str(value[key])
    return as_words(value)


def _delegation(item: Mapping[str, Any]) -> str:
    name = item.get("workflowId") or item.get("title") or item.get("id") or "delegate"
    rest = {key: value for key, value in item.items() if key not in ("workflowId", "title", "id", "runCondition")}
    return f"{name}: {as_words(rest)}" if rest else str(name)


def function_lines(workflow: Workflow, step: PromptStep) -> Iterator[str]:
    """The function definitions that the step refers to or calls; inner scopes win."""
    if not step.function_references and not step.function_calls:
        return
    enclosing = [workflow.steps[loop_id] for loop_id in workflow.enclosing[step.id]]
    scopes: list[Any] = [workflow, *enclosing, step]
    definitions: dict[str, Function] = {
        function.name: function for scope in scopes for function in scope.function_definitions
    }
    calls: dict[str, list[str]] = {}
    for call in step.function_calls:
        calls.setdefault(call.name, []).append(as_words(dict(call.args)))
    names = [reference.partition("(")[0] for reference in step.function_references]
    for name in dict.fromkeys((*names, *calls)):
        if name in definitions:
            parameters = ", ".join(parameter.name for parameter in definitions[name].parameters)
            instructions = "".join(f" Call it with {arguments}." for arguments in calls.get(name, ()))
            yield f"- {name}({parameters}): {definitions[name].definition}{instructions}"


def _loop_lines(loop: LoopPosition) -> Iterator[str]:
    yield f"Iteration: {loop.iteration}"
    if loop.total is not msgspec.UNSET:
        yield f"Total Items: {loop.total}" if loop.index is not msgspec.UNSET else f"Total Iterations: {loop.total}"
    if loop.index is not msgspec.UNSET:
        yield f"Current Index: {loop.index}"
        yield f"Current Item: {as_words(loop.item)}"


def requires_confirmation(step: PromptStep, context: Context, budget: Budget) -> bool:
    """Whether a person must confirm this step now; also true if its condition takes too long to evaluate."""
    condition = step.confirmation.condition if step.confirmation is not None else False
    return condition if isinstance(condition, bool) else condition.may_hold(context, budget)


def _confirmation(step: PromptStep, confirmation: Confirmation, fill: Fill) -> Iterator[str]:
    """Instructions to ask a person, for an agent without a run; none for a plain confirmation after the step."""
    names = ", ".join(f"`{name}`" for name in confirmation.answers.get("properties", {}))
    question = f" Ask them: {fill(confirmation.question)}" if confirmation.question else ""
    passed = f" Pass what they answer for {names} in the context." if names else ""
    if step.asks_before:
        agree = "A person must agree before you do this step. Do nothing of it until they have agreed."
        yield f"## Confirmation\n{agree}{question}{passed}"
    elif question or passed:
        yield f"## Confirmation\nA person must agree to the output before you go on.{question}{passed}"


def _model_hint(owner: PromptStep | Workflow) -> str:
    return owner.model_hint or _MODEL_HINTS.get(owner.model_tier, "")


def _bullets(lines: Sequence[str] | Iterator[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


# ── criteria and proofs as sentences ────────────────────────────────────────────────────────────────────────────────


def describe_proofs(
    step: PromptStep,
    context: Context,
    budget: Budget,
    unset: dict[str, None] | None = None,
    *,
    in_run: bool = False,
) -> tuple[str, ...]:
    """The proofs that may be needed in a context, as sentences. Variables that are not set are added to `unset`.

    `in_run`: without what the server measures before it hands out the step.
    """
    if not step.proofs:
        return ()
    names: dict[str, None] = {}
    fill = filler(context, names)
    sentences = tuple(
        fill(proof.describe())
        for proof in step.proofs
        if not (in_run and isinstance(proof, CommandProof) and proof.at_start)
        and (proof.condition is None or proof.condition.may_hold(context, budget))
    )
    if unset is not None:
        unset |= {name: None for name in names if not name.startswith("proof.")}  # measures are taken later
    return sentences


def requirements_of(criteria: Criterion | None) -> Iterator[Requirement]:
    """One sentence for each requirement of the output."""
    match criteria:
        case None:
            return
        case AllOf(parts=parts):
            for part in parts:
                yield from requirements_of(part)
        case Rule():
            yield Requirement(sentence=criteria.describe(), condition=criteria.condition)
        case _:
            yield Requirement(sentence=describe_criterion(criteria))
