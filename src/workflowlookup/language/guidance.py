"""The words handed to the agent: the composed prompt, the role, the criteria as sentences, and templates.

`{{name}}` and `{{a.b}}` are replaced from the context, `{{{{` is a literal `{{`, and a variable that is not set stays
as it was written and is named in the warnings.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.language.conditions import CompiledCondition, describe
from workflowlookup.language.model import Call, Confirmation, Function, PromptStep, Requirement, Workflow, WorkflowCall
from workflowlookup.language.navigation import MAX_CONDITION_TEXT, LoopPosition, NextStep
from workflowlookup.language.patterns import Budget, TooSlow
from workflowlookup.language.rules import AllOf, AnyOf, Criterion, Malformed, Not, Rule
from workflowlookup.language.text import shorten
from workflowlookup.language.values import Context, Json, as_text, is_set, lookup

COMPLETE: Final = "Workflow complete."

MAX_TEMPLATE_TEXT: Final = 1 << 20
_TEMPLATE: Final = re.compile(r"\{\{\{\{|\{\{\s*(?P<name>(?:[^\W\d]|\$)[\w$.-]*)\s*\}\}")
_MODEL_HINTS: Final[Mapping[str, str]] = {
    "lightweight": "fast-lightweight-model",
    "mid": "general-purpose-model",
    "heavy": "model-with-strong-reasoning",
}

Fill = Callable[[str], str]
ValueOf = Callable[[Context, str], Json]
"""What stands for a variable in a template; None when it is not set."""


class Guidance(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is told about a step."""

    step: Mapping[str, Json]
    prompt: str
    model_hint: str
    requires_confirmation: bool
    criteria: tuple[str, ...]
    warnings: tuple[str, ...]
    unset: tuple[str, ...] = ()
    """The variables of templates that are not set; the warnings name them."""


def guide(workflow: Workflow, found: NextStep, budget: Budget) -> Guidance:
    """Everything the agent is told about the step that comes next."""
    step = found.step
    if step is None:
        return Guidance(
            step={}, prompt=COMPLETE, model_hint="", requires_confirmation=False, criteria=(), warnings=found.warnings
        )
    unset: dict[str, None] = {}
    fill = filler(found.context, unset)
    view = view_step(step, found, fill, budget)
    prompt = compose(workflow, step, found, view, fill)
    criteria = [
        fill(requirement.sentence)
        for requirement in step.requirements
        if requirement.condition is None or requirement.condition.may_hold(found.context, budget)
    ]
    for capture in step.captures:
        unset.pop(capture.name, None)  # rules may speak of what this very output will say
    return Guidance(
        step=view,
        prompt=prompt,
        model_hint=_model_hint(step) or _model_hint(workflow),
        requires_confirmation=view.get("requireConfirmation", False) and not (step.asks_before and found.in_run),
        criteria=tuple(criteria),
        warnings=(*found.warnings, *warn_of_unset(unset)),
        unset=tuple(unset),
    )


def warn_of_unset(names: Collection[str]) -> tuple[str, ...]:
    return (f"These variables are not set in the context: {', '.join(names)}",) if names else ()


# ── templates ───────────────────────────────────────────────────────────────────────────────────────────────────


def filler(context: Context, unset: dict[str, None], value_of: ValueOf = lookup) -> Fill:
    """A function that fills templates from the context and notes the variables that are not set.

    All that it fills in together is at most `MAX_TEMPLATE_TEXT` characters; what is beyond stays as written.
    """
    room = MAX_TEMPLATE_TEXT

    def replace(found: re.Match[str]) -> str:
        nonlocal room
        name = found["name"]
        if name is None:
            return "{{"
        value = value_of(context, name)
        if value is None:
            unset[name] = None
            return found[0]
        words = as_words(value)
        room -= len(words)
        return words if room >= 0 else found[0]

    def fill(text: str) -> str:
        return _TEMPLATE.sub(replace, text) if "{{" in text else text

    return fill


def has_template(text: str) -> bool:
    """Whether filling the text could change it."""
    return "{{" in text and _TEMPLATE.search(text) is not None


_SYNTAX: Final = re.compile(r"[\\^$.*+?()\[\]{}|/-]")


def escape_pattern(value: Json) -> str | None:
    """What stands for the value of a variable in a pattern: its words, and no syntax."""
    return None if value is None else _SYNTAX.sub(r"\\\g<0>", as_words(value))


def fill_values(value: Json, context: Context, fill: Fill) -> Json:
    """A JSON value with its texts filled; a text that is nothing but one template becomes the value of its variable."""
    if isinstance(value, str):
        found = _TEMPLATE.fullmatch(value.strip()) if "{{" in value else None
        if found is None or found["name"] is None:
            return fill(value)
        given = lookup(context, found["name"])
        if given is None and is_set(context, found["name"]):
            return None
        return value if fill(value) == value else given  # as it is written: not set, or no room for it
    if isinstance(value, Mapping):
        return {name: fill_values(part, context, fill) for name, part in value.items()}
    if isinstance(value, list):
        return [fill_values(part, context, fill) for part in value]
    return value


def as_words(value: Json) -> str:
    text = as_text(value)
    if text is not None:
        return text
    try:
        return msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, OverflowError, ValueError):
        return "…"


# ── the step and its prompt ─────────────────────────────────────────────────────────────────────────────────────


def view_step(step: PromptStep, found: NextStep, fill: Fill, budget: Budget) -> dict[str, Json]:
    """The fields of a step that the agent sees."""
    view: dict[str, Json] = {
        "id": found.instance_id,
        "title": fill(step.title),
        "prompt": prompt_text(step, found.context, fill, budget),
    }
    if step.agent_role:
        view["agentRole"] = fill(step.agent_role)
    if step.guidance:
        view["guidance"] = [fill(line) for line in step.guidance]
    if step.ask_for_files is not None:
        view["askForFiles"] = step.ask_for_files
    if step.confirmation is not None:
        view["requireConfirmation"] = requires_confirmation(step, found.context, budget)
    if step.run_condition is not None:
        view["runCondition"] = step.run_condition
    if found.loop:
        view["loop"] = found.loop
    return view


def compose(workflow: Workflow, step: PromptStep, found: NextStep, view: Mapping[str, Json], fill: Fill) -> str:
    """Role, guidance, prompt, functions and loop, as one text for a model to read."""
    parts = []
    if "agentRole" in view:
        parts.append(f"## Agent Role Instructions\n{view['agentRole']}")
    if "guidance" in view:
        parts.append("## Step Guidance\n" + _bullets(view["guidance"]))
    parts.append(view["prompt"])
    functions = list(_functions(workflow, step))
    if functions:
        parts.append(fill("## Functions\n" + "\n".join(functions)))
    if found.loop:
        parts.append("## Loop Context\n" + _bullets(_loop_lines(found.loop)))
    if step.confirmation is not None and view.get("requireConfirmation") and not found.in_run:
        parts += _confirmation(step, step.confirmation, fill)
    return "\n\n".join(parts)


def prompt_text(step: PromptStep, context: Context, fill: Fill, budget: Budget) -> str:
    """The prompt itself: text, blocks, fragments whose condition holds, and delegations."""
    parts = [fill(step.prompt)] if step.prompt else []
    if step.prompt_blocks:
        parts += _blocks(step.prompt_blocks, fill)
    parts += [
        reservation + fill(fragment.text)
        for fragment in step.prompt_fragments
        if (reservation := _reservation(fragment.when, context, budget)) is not None
    ]
    if step.parallel_delegations:
        lines = [
            reservation + fill(_delegation(item.content))
            for item in step.parallel_delegations
            if (reservation := _reservation(item.when, context, budget)) is not None
        ]
        parts.append("Hand these out in parallel, then go on when all are back:\n" + _bullets(lines))
        if step.synthesis is not None:
            parts.append("Put the results together: " + fill(_block(step.synthesis)))
    if step.call is not None:
        parts.append(_call(step.call, context, fill))
    if step.template_call and not parts:
        parts.append(f"{fill(step.title)}. (The author calls a template here: {as_words(step.template_call)})")
    return "\n\n".join(parts)


def _reservation(condition: CompiledCondition | None, context: Context, budget: Budget) -> str | None:
    """What stands before a text that counts if the condition holds: nothing, or its words where the agent must judge,
    because it takes too long here. None when the text does not count.
    """
    try:
        return "" if condition is None or condition.holds(context, budget) else None
    except TooSlow:
        words = shorten(describe(condition or {}), MAX_CONDITION_TEXT)
        return f"(The server could not judge in time whether this counts. It does if {words}.)\n"


def _call(call: Call, context: Context, fill: Fill) -> str:
    """What an agent is told where no run is there whose server would make the call."""
    save = f", and pass it in the context as `{call.save_as}`" if call.save_as else ""
    arguments = fill_values(call.arguments or {}, context, fill)
    shown = f" with these arguments:\n\n```json\n{as_words(arguments)}\n```\n\n" if arguments else ". "
    if isinstance(call, WorkflowCall):
        name = f"`{call.workflow}` of the provider `{call.provider}`"
        given = " with the input that you were given. " if call.arguments is None else shown
        return f"Run the workflow {name}{given}Use its result as the output{save}."
    return f"Call the tool `{call.tool}` of the MCP server `{call.server}`{shown}Use its answer as the output{save}."


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
    """Text; or pieces of text and references, a reference shown by its name."""
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


def _functions(workflow: Workflow, step: PromptStep) -> Iterator[str]:
    """The definitions that the step refers to or calls; the innermost scope wins."""
    if not step.function_references and not step.function_calls:
        return
    enclosing = [workflow.steps[loop_id] for loop_id in workflow.enclosing[step.id]]
    scopes: list[Any] = [workflow, *enclosing, step]
    known: dict[str, Function] = {
        function.name: function for scope in scopes for function in scope.function_definitions
    }
    calls: dict[str, list[str]] = {}
    for call in step.function_calls:
        calls.setdefault(call.name, []).append(as_words(dict(call.args)))
    names = [reference.partition("(")[0] for reference in step.function_references]
    for name in dict.fromkeys((*names, *calls)):
        if name in known:
            parameters = ", ".join(parameter.name for parameter in known[name].parameters)
            told = "".join(f" Call it with {arguments}." for arguments in calls.get(name, ()))
            yield f"- {name}({parameters}): {known[name].definition}{told}"


def _loop_lines(loop: LoopPosition) -> Iterator[str]:
    yield f"Iteration: {loop.iteration}"
    if loop.total is not msgspec.UNSET:
        yield f"Total Items: {loop.total}" if loop.index is not msgspec.UNSET else f"Total Iterations: {loop.total}"
    if loop.index is not msgspec.UNSET:
        yield f"Current Index: {loop.index}"
        yield f"Current Item: {as_words(loop.item)}"


def requires_confirmation(step: PromptStep, context: Context, budget: Budget) -> bool:
    """Whether a person must agree to this step, here and now; also where its condition takes too long to evaluate."""
    wanted = step.confirmation.condition if step.confirmation is not None else False
    return wanted if isinstance(wanted, bool) else wanted.may_hold(context, budget)


def _confirmation(step: PromptStep, wanted: Confirmation, fill: Fill) -> Iterator[str]:
    """What an agent does about a person's word where no run asks for it; nothing beyond the standard case."""
    names = ", ".join(f"`{name}`" for name in wanted.answers.get("properties", {}))
    question = f" Ask them: {fill(wanted.question)}" if wanted.question else ""
    passed = f" Pass what they answer for {names} in the context." if names else ""
    if step.asks_before:
        agree = "A person must agree before this step is done: do nothing of it until they have."
        yield f"## Confirmation\n{agree}{question}{passed}"
    elif question or passed:
        yield f"## Confirmation\nA person must agree to the output before you go on.{question}{passed}"


def _model_hint(owner: PromptStep | Workflow) -> str:
    return owner.model_hint or _MODEL_HINTS.get(owner.model_tier, "")


def _bullets(lines: Sequence[str] | Iterator[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


# ── criteria as sentences ───────────────────────────────────────────────────────────────────────────────────────


def requirements_of(criteria: Criterion | None) -> Iterator[Requirement]:
    """One sentence for each thing that the output must meet."""
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


def describe_criterion(criterion: Criterion) -> str:
    """A criterion as one sentence that a model can follow."""
    match criterion:
        case AllOf(parts=parts):
            return "All of these hold: " + _listed(parts)
        case AnyOf(parts=parts):
            return "At least one of these holds: " + _listed(parts)
        case Not(part=part):
            return "This must not hold: " + _nested(part)
        case Malformed(reason=reason):
            return f"The author's criteria are not well-formed ({reason}); the output of this step cannot be judged"
        case rule:
            return rule.describe()


def _listed(parts: Sequence[Criterion]) -> str:
    return "; ".join(f"({number}) {_nested(part)}" for number, part in enumerate(parts, 1))


def _nested(part: Criterion) -> str:
    """A part of a composition; a rule that counts only sometimes says when."""
    condition = part.condition if isinstance(part, Rule) else None
    return describe_criterion(part) + (f" (only when {describe(condition)})" if condition else "")
