"""Problems of a valid document: `lint(document)` and the table `CHECKS`.

`checking.check` finds what keeps a document from loading; lint finds what its author cannot have intended. A check is a
generator over a `LintSubject` and a line in `CHECKS`. It reports only what it can prove or what is obvious, because
people switch off a linter with false alarms. Authors switch off a code for a step, a loop or the whole workflow with
`"x-lint": {"off": ["WL003"]}`; with `respect_off=False` these findings are reported, too.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.authoring.lint.contradictions import contradictions
from workflowlookup.authoring.lint.injection import suspicions
from workflowlookup.authoring.lint.proofs import PROOF_CHECKS
from workflowlookup.authoring.lint.subject import (
    Findings,
    JsonObject,
    LintCheck,
    LintSubject,
    LocatedStep,
    Prose,
    counter,
    head_of,
    loop_variables,
    numbered,
    texts_in,
    variables_in,
    variables_in_templates,
    whole_number,
)
from workflowlookup.authoring.lint.tools import TOOL_CHECKS
from workflowlookup.language.conditions import Compares, Condition, describe, walk
from workflowlookup.language.document.findings import Finding, Severity
from workflowlookup.language.document.parts import answer_schemas, conditions_in, variables_set_by
from workflowlookup.language.document.proof_checks import all_criteria
from workflowlookup.language.formats.patterns import Budget, TooSlow
from workflowlookup.language.formats.schemas import PathTo, nearest, show, suggest
from workflowlookup.language.guidance import compose, view_step
from workflowlookup.language.model import PromptStep
from workflowlookup.language.navigation import NextStep
from workflowlookup.language.proof import PROOFS
from workflowlookup.language.rules import RULES, flaws_in, misfits_in, rules_in
from workflowlookup.language.templates import filler
from workflowlookup.language.values import Json, is_number
from workflowlookup.language.verdicts import Scope, constants_of, declaration, possible_values, verdict
from workflowlookup.runs.questions import fields_in

MAX_PROMPT_TOKENS: Final = 1500
CHARACTERS_PER_TOKEN: Final = 4
MAX_SECONDS: Final = 3.0
"""Processor time for the conditions, patterns and names of one document."""
SWITCH: Final = "x-lint"


class LintFinding(Finding, frozen=True, kw_only=True):
    """A finding of a check."""

    code: str
    name: str


def lint(
    document: JsonObject, *, max_prompt_tokens: int = MAX_PROMPT_TOKENS, respect_off: bool = True
) -> list[LintFinding]:
    """All findings in a valid document, in the order of their codes."""
    subject = LintSubject(document=document, max_prompt_tokens=max_prompt_tokens, budget=Budget(MAX_SECONDS))
    return [
        LintFinding(
            code=code, name=check.name, severity=check.severity, path=path, message=message, suggestion=suggestion
        )
        for code, check in CHECKS.items()
        for path, message, suggestion in _run_check(check, subject)
        if not (respect_off and any(_is_off(code, check.name, node) for node in subject.enclosing(path)))
    ]


def _run_check(check: LintCheck, subject: LintSubject) -> Findings:
    """What a check finds until the time is over; `WL012` reports that the time was not enough."""
    try:
        yield from check.find(subject)
    except TooSlow:
        return


def _is_off(code: str, name: str, node: Json) -> bool:
    """Whether an object of the document switches off the code or its name."""
    switch = node.get(SWITCH) if isinstance(node, Mapping) else None
    off = switch.get("off") if isinstance(switch, Mapping) else switch
    return isinstance(off, list) and (code in off or name in off)


def _dead_steps(subject: LintSubject) -> Findings:
    for located in subject.steps:
        noun = "Loop" if "loop" in located.step else "Step"
        if "runCondition" in located.step:
            condition = located.step["runCondition"]
            if verdict(condition, subject.scope(located.loops), subject.budget) is False:
                yield (
                    (*located.path, "runCondition"),
                    f"{noun} '{located.id}' is never reached: its condition can never hold ({describe(condition)})"
                    + _mistyped(condition, subject.scope(located.loops)),
                    "Fix the condition or the contract that excludes it, or remove the step",
                )
        if "loop" in located.step and (why := _never_entered(located.step["loop"], subject, located)):
            yield (
                (*located.path, "loop"),
                f"The body of loop '{located.id}' is never reached: {why}",
                "Fix the loop, or remove it with its body",
            )


def _mistyped(condition: Condition, scope: Scope) -> str:
    """The values that the author probably meant, for variables whose values the contract lists."""
    suggestions: dict[str, str | None] = {}
    for part in walk(condition):
        values = possible_values(declaration(part["var"], scope), ()) if "var" in part else None
        listed = [value for value, is_exact in values or () if is_exact and isinstance(value, str)]
        written = [value for value in constants_of(part, [Compares.EQUALITY]) if isinstance(value, str)]
        suggestions |= {value: nearest(value, listed) for value in written if value not in listed}
    pairs = ", ".join(f"'{right}' for '{wrong}'" for wrong, right in suggestions.items() if right)
    return f"; did you mean {pairs}?" if pairs else ""


def _never_entered(loop: JsonObject, subject: LintSubject, located: LocatedStep) -> str:
    scope = subject.scope(located.loops)
    match loop["type"]:
        case "while" if "condition" in loop:
            never = verdict(loop["condition"], _scope_of_condition(loop, scope), subject.budget) is False
            return f"its condition can never hold ({describe(loop['condition'])})" if never else ""
        case "for" if loop["count"] == 0:
            return "its count is 0"
        case "for" if isinstance(loop["count"], str):
            can = _can_be(loop["count"], scope, lambda value: is_number(value) and value >= 1 and value == int(value))
            return "" if can else f"by the contract '{loop['count']}' is never a whole number above 0"
        case "forEach":
            can = _can_be(loop["items"], scope, lambda value: isinstance(value, list) and value != [])
            return "" if can else f"by the contract '{loop['items']}' is never a list"
    return ""


def _can_be(name: str, scope: Scope, is_suitable: Callable[[Json], bool]) -> bool:
    values = possible_values(declaration(name, scope), ())
    return values is None or any(is_suitable(value) for value, _ in values)


def _scope_of_condition(loop: JsonObject, scope: Scope) -> Scope:
    """The variables of the condition of a loop, which is also evaluated for the iteration after the limit."""
    return {**scope, counter(loop): whole_number(1, loop["maxIterations"] + 1)}


def _constant_conditions(subject: LintSubject) -> Findings:
    for located in subject.steps:
        scope = subject.scope(located.loops)
        for path, condition in conditions_in(located.step, located.path):
            for at, part, truth in _constants(condition, path, scope, subject.budget):
                if truth or at != (*located.path, "runCondition"):  # else _dead_steps reports it
                    yield _constant(at, part, truth, located, scope)
        loop = located.step.get("loop", {})
        if "condition" in loop:
            inner = _scope_of_condition(loop, scope)
            path = (*located.path, "loop", "condition")
            for at, part, truth in _constants(loop["condition"], path, inner, subject.budget):
                runs_once = truth and loop["type"] == "until"
                if part is not loop["condition"] or runs_once:  # else _dead_steps or _endless_loops reports it
                    yield _constant(at, part, truth, located, inner)


def _constants(
    condition: Condition, path: PathTo, scope: Scope, budget: Budget
) -> Iterator[tuple[PathTo, Condition, bool]]:
    """The condition if it is constant, else its constant parts."""
    truth = verdict(condition, scope, budget)
    if truth is not None:
        yield path, condition, truth
        return
    for key in ("and", "or"):
        for at, part in numbered((*path, key), condition.get(key, ())):
            yield from _constants(part, at, scope, budget)
    if "not" in condition:
        yield from _constants(condition["not"], (*path, "not"), scope, budget)


def _constant(
    path: PathTo,
    condition: Condition,
    truth: bool,  # noqa: FBT001
    located: LocatedStep,
    scope: Scope,
) -> tuple[PathTo, str, str]:
    return (
        path,
        f"The condition {'always' if truth else 'never'} holds ({describe(condition)}) in step '{located.id}'"
        + _mistyped(condition, scope),
        "Compare with values that the variable can have, or remove the constant part",
    )


def _unproduced_variables(subject: LintSubject) -> Findings:
    declared = {*subject.contract, *subject.produced}
    declared_heads = declared | {head_of(name) for name in declared}
    reported: set[str] = set()
    for located in subject.steps:
        for path, name in _uses(located):
            head = head_of(name)
            is_repeated = path[len(located.path) :][:2] == (
                "loop",
                "condition",
            )  # `items` and `count` are evaluated before the loop
            loops = (*located.loops, located.step) if is_repeated else located.loops
            scope = subject.scope(loops)
            if name.startswith("proof."):  # WL021 knows what proofs measure
                continue
            if head in reported or {name, head} & declared_heads or {name, head} & scope.keys():
                continue
            if subject.prose.mentions(head, quoted=subject.has_contract):
                continue
            reported.add(head)
            names = sorted({*declared_heads, *scope}) + sorted(subject.prose.quoted_words)
            subject.budget.charge(len(names))
            similar = nearest(head, names)
            yield (
                path,
                f"Variable {suggest(head, names)} is used in step '{located.id}' and nothing produces it",
                (f"Write '{similar}' if that is the variable; else name" if similar else "Name")
                + " it in 'produces' of the step that sets it or in 'contextSchema', "
                + f"or have a prompt set `{head}`",
            )


def _uses(located: LocatedStep) -> Iterator[tuple[PathTo, str]]:
    """The variables that a step uses, each with the path where it does."""
    step = located.step
    for path, condition in conditions_in(step, located.path):
        for name in variables_in(condition):
            yield path, name
    loop = step.get("loop", {})
    for name in variables_in(loop.get("condition", {})):
        yield (*located.path, "loop", "condition"), name
    for key in ("items", "count"):
        if isinstance(loop.get(key), str):
            yield (*located.path, "loop", key), loop[key]
    for index, name in enumerate(step.get("requires", ())):
        yield (*located.path, "requires", index), name
    templates = {key: step[key] for key in _WITH_TEMPLATES if key in step}
    arguments = texts_in(step.get("call", {}).get("arguments", {}), (*located.path, "call", "arguments"))
    texts = (*texts_in(templates, located.path), *arguments, *_texts_of_rules(located), *_texts_of_proofs(located))
    for path, text in texts:
        for name in variables_in_templates(text):
            yield path, name


def _texts_of_rules(located: LocatedStep) -> Iterator[tuple[PathTo, str]]:
    """The texts of criteria that may have templates."""
    for within, criteria in all_criteria(located.step):
        for at, rule in rules_in(criteria, (*located.path, *within)):
            if isinstance(rule, str):
                yield at, rule
            else:
                kind = RULES[rule["type"]]
                yield from (((*at, key), rule[key]) for key in (*kind.texts, *kind.patterns, "message") if key in rule)


def _texts_of_proofs(located: LocatedStep) -> Iterator[tuple[PathTo, str]]:
    """The texts of proofs, beside criteria and conditions, which may have templates."""
    for index, entry in enumerate(located.step.get("proof", ())):
        fields = {name for name in entry if name not in (*PROOFS[entry["kind"]].criteria, "condition")}
        yield from texts_in({name: entry[name] for name in entry if name in fields}, (*located.path, "proof", index))


_WITH_TEMPLATES: Final = (
    *("title", "prompt", "promptBlocks", "promptFragments", "agentRole", "guidance"),
    *("functionCalls", "parallelDelegations", "synthesis"),
)


def _forgettable_variables(subject: LintSubject) -> Findings:
    """Variables that conditions depend on, and that are set only if the agent remembers to send them."""
    deciding = _deciding_variables(subject)
    for name in [*_inputs(subject), *(name for located in subject.steps for name in _set_by_server(located.step))]:
        deciding.pop(head_of(name), None)
    for located in subject.steps:
        subject.budget.charge(len(deciding))
        prose = Prose(located.step.get("prompt"), located.step.get("promptBlocks"), located.step.get("guidance"))
        produces = located.step.get("produces", ())
        paths = {head_of(name): (*located.path, "produces", index) for index, name in enumerate(produces)}
        for name in [name for name in deciding if name in paths or prose.mentions(name, quoted=True)]:
            message = f"Step '{deciding.pop(name)}' depends on '{name}', which the agent must remember to send"
            remedy = f"Write 'produces' as a map, and the value comes out of the output: {{{name}: {{enum: […]}}}}"
            yield paths.get(name, located.path), f"{message} after step '{located.id}'", remedy


def _deciding_variables(subject: LintSubject) -> dict[str, str]:
    """By context variable that a condition or a loop depends on: the first step that does."""
    deciding: dict[str, str] = {}
    for located in subject.steps:
        loop = located.step.get("loop", {})
        loops = [step for step in (*located.loops, located.step) if "loop" in step]
        loop_names = {name for step in loops for name in loop_variables(step)}
        conditions = [located.step.get("runCondition", {}), loop.get("condition", {})]
        names = [name for condition in conditions for name in variables_in(condition)]
        names += [loop[key] for key in ("items", "count") if isinstance(loop.get(key), str)]
        for name in names:
            if head_of(name) not in loop_names:
                deciding.setdefault(head_of(name), located.id)
    return deciding


def _set_by_server(step: JsonObject) -> Iterator[str]:
    """The variables that the server sets after a step, without the agent."""
    yield from step["produces"] if isinstance(step.get("produces"), Mapping) else ()
    if saved := step.get("call", {}).get("saveAs"):
        yield saved
    yield from answer_schemas(step)


def _inputs(subject: LintSubject) -> Iterator[str]:
    schema = subject.document.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    yield from properties if isinstance(properties, Mapping) else ()


def _endless_loops(subject: LintSubject) -> Findings:
    general = Prose(*(subject.document.get(key) for key in ("metaGuidance", "functionDefinitions")))
    for index, located in enumerate(subject.steps):
        loop = located.step.get("loop", {})
        if loop.get("type") not in ("while", "until") or "condition" not in loop:
            continue
        names = variables_in(loop["condition"]) | variables_in(located.step.get("runCondition", {}))
        body = _body(subject.steps, index)
        prose = Prose(*body, *(step.get("functionDefinitions") for step in (*located.loops, located.step)))
        mentioned = {
            name for name in (located.id, *map(head_of, names)) if prose.mentions(name) or general.mentions(name)
        }
        if located.id in mentioned:  # the agent may end the loop itself
            continue
        changing = {counter(loop), *mentioned, *(name for step in body for name in variables_set_by(step))}
        stuck = verdict(loop["condition"], _scope_of_condition(loop, subject.scope(located.loops)), subject.budget)
        if stuck is (loop["type"] == "while"):
            why = f"its condition {'always' if stuck else 'never'} holds ({describe(loop['condition'])})"
        elif not any({name, head_of(name)} & changing for name in names):
            why = f"no step of its body sets {' or '.join(map(show, names))}"
        else:
            continue
        yield (
            (*located.path, "loop", "condition"),
            f"Loop '{located.id}' can only end by its limit of {loop['maxIterations']} iterations: {why}",
            "Let a step of the body produce a variable of the condition, or write a 'for' loop",
        )


def _body(steps: Sequence[LocatedStep], index: int) -> list[JsonObject]:
    """The steps in a loop, which follow it in the list."""
    depth = len(steps[index].loops)
    following = itertools.islice(steps, index + 1, None)
    return [located.step for located in itertools.takewhile(lambda located: len(located.loops) > depth, following)]


def _unmeetable_criteria(subject: LintSubject) -> Findings:
    for located in subject.steps:
        for within, criteria in all_criteria(located.step):
            what = "output" if within[0] == "validationCriteria" else f"'{within[-1]}' of a proof"
            for path, reason in contradictions(criteria, subject.budget):
                yield (
                    (*located.path, *within, *path),
                    f"No {what} of step '{located.id}' can meet its criteria: {reason}",
                    "Change or remove one of the rules that exclude each other",
                )


def _long_prompts(subject: LintSubject) -> Findings:
    for located in subject.steps:
        step = subject.workflow.steps[located.id]
        if not isinstance(step, PromptStep):
            continue
        tokens = _max_characters(subject, step) // CHARACTERS_PER_TOKEN
        if tokens > subject.max_prompt_tokens:
            yield (
                (*located.path, "prompt") if "prompt" in located.step else located.path,
                f"The prompt of step '{located.id}' takes about {tokens:,} tokens of {subject.max_prompt_tokens:,}",
                "Split the step, or move what does not always apply into fragments or functions",
            )


def _max_characters(subject: LintSubject, step: PromptStep) -> int:
    """The length of the prompt with its longest conditional fragment; two of them may exclude each other."""
    always = tuple(fragment for fragment in step.prompt_fragments if fragment.when is None)
    longest = max((f for f in step.prompt_fragments if f.when is not None), key=lambda f: len(f.text), default=None)
    chosen = (*always, msgspec.structs.replace(longest, when=None)) if longest else always
    longest_step = msgspec.structs.replace(step, prompt_fragments=chosen)
    following = NextStep(
        step=longest_step, instance_id=step.id, context={}, loop=None, skipped=(), warnings=(), completed=0
    )
    fill = filler({}, {})
    view = view_step(longest_step, following, fill, subject.budget)
    return len(compose(subject.workflow, longest_step, following, view, fill))


def _steps_without_criterion(subject: LintSubject) -> Findings:
    for located in subject.steps:
        step = located.step
        is_judged = step.get("validationCriteria") or step.get("proof") or _requires_a_variable(step)
        if not located.step.keys() & {"loop", "call"} and not is_judged:
            yield (
                located.path,
                f"Step '{located.id}' has no criterion: any output that is not blank passes",
                "Add 'validationCriteria' that tell a finished step from an unfinished one",
            )


def _requires_a_variable(step: JsonObject) -> bool:
    """Whether an output passes only if a variable can be captured from it."""
    produced = step.get("produces")
    return isinstance(produced, Mapping) and any(not variable.get("optional") for variable in produced.values())


def _injections(subject: LintSubject) -> Findings:
    searched = {field for kind in RULES.values() for field in (*kind.texts, *kind.patterns)}
    for path, text in texts_in(subject.document):
        if path[-1] == "pattern" or ({"validationCriteria", "proof"} & {*path} and path[-1] in searched):
            continue  # a pattern or text that outputs are searched for
        for excerpt, reason in suspicions(text, is_role=path[-1] == "agentRole"):
            yield (
                path,
                f"The text tries to instruct the client outside the workflow: {reason} ({show(_visible(excerpt))})",
                "Remove it; do not use a workflow of somebody else before you know why it is there",
            )


def _visible(text: str) -> str:
    return "".join(char if char.isprintable() else f"<U+{ord(char):04X}>" for char in text)


def _broken_rules(subject: LintSubject) -> Findings:
    remedy = "Fix the rule: until then this step cannot be judged"
    for located in subject.steps:
        for within, criteria in all_criteria(located.step):
            path = (*located.path, *within)
            for misfit in misfits_in(criteria):
                why = f"The criteria of step '{located.id}' are not well-formed: {misfit.sentence()}"
                yield (*path, *misfit.path, *misfit.unknown[:1]), why, remedy
            for at, flaw in flaws_in(criteria, path, subject.budget):
                yield at, f"{flaw} in step '{located.id}'", remedy


def _odd_questions(subject: LintSubject) -> Findings:
    for located in subject.steps:
        confirmation = located.step.get("requireConfirmation")
        if not isinstance(confirmation, Mapping):
            continue
        path = (*located.path, "requireConfirmation")
        for field in fields_in(confirmation.get("answers", {})):
            if not field.is_flat:
                kinds = "a text, a number, a boolean, or one of several texts"
                message = f"The form of step '{located.id}' cannot ask for '{field.name}': forms have only {kinds}"
                at = (*path, "answers", "properties", field.name)
                yield at, message, "Make it one of these, or ask for its parts one by one"
        if "call" in located.step and confirmation.get("when") == "after":
            yield (
                (*path, "when"),
                f"Step '{located.id}' is a call, about which a person is always asked before it is made",
                "Remove 'when', or ask in the step that follows",
            )


def _unchecked(subject: LintSubject) -> Findings:
    if subject.budget.is_spent:
        yield (
            (),
            f"Not everything was checked: the conditions and patterns take longer than {MAX_SECONDS:g} s",
            "Simplify its conditions and patterns, or split the workflow",
        )


CHECKS: Final[Mapping[str, LintCheck]] = {
    "WL001": LintCheck(
        name="dead-step", find=_dead_steps, description="A step or the body of a loop is never reached."
    ),
    "WL002": LintCheck(
        name="constant-condition",
        find=_constant_conditions,
        description="A condition, or a part of one, always or never holds, given the contract.",
    ),
    "WL003": LintCheck(
        name="unproduced-variable",
        find=_unproduced_variables,
        description="A variable is used, and nothing declares, produces or mentions it.",
    ),
    "WL004": LintCheck(name="endless-loop", find=_endless_loops, description="A loop can end only by its limit."),
    "WL005": LintCheck(
        name="unmeetable-criteria",
        find=_unmeetable_criteria,
        description="No output can meet the criteria: rules exclude each other.",
    ),
    "WL006": LintCheck(name="long-prompt", find=_long_prompts, description="A prompt is over the token budget."),
    "WL007": LintCheck(
        name="no-criterion",
        find=_steps_without_criterion,
        description="A step has no criterion, so any output passes.",
        severity=Severity.NOTE,
    ),
    "WL008": LintCheck(
        name="injection",
        find=_injections,
        description="A text tries to instruct the client outside the workflow.",
    ),
    "WL009": LintCheck(
        name="broken-rule", find=_broken_rules, description="A pattern or a JSON Schema does not compile."
    ),
    "WL010": LintCheck(
        name="forgettable-variable",
        find=_forgettable_variables,
        description="A condition or a loop depends on a variable that the agent must remember to send.",
        severity=Severity.NOTE,
    ),
    "WL011": LintCheck(
        name="odd-question",
        find=_odd_questions,
        description="A question to a person that a form cannot show, or that is asked at another time than declared.",
    ),
    "WL012": LintCheck(
        name="slow-document", find=_unchecked, description="The document takes too long to be checked whole."
    ),
    **PROOF_CHECKS,
    **TOOL_CHECKS,
}
