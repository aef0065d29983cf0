"""What is sound and still not what its author can have meant: `lint(document)` and the table `CHECKS`.

`document.check` says what keeps a document from loading; this says what makes it lead an agent nowhere. A check is a
generator over a `Subject` and a line in `CHECKS`. It tells only what it can prove or what stands in plain sight: a
linter that cries wolf is switched off. Authors switch off a code for a step, a loop or the whole workflow with
`"x-lint": {"off": ["WL003"]}`; what a stranger switched off is told with `heed_off=False`.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.authoring.contradictions import contradictions
from workflowlookup.authoring.injection import suspicions
from workflowlookup.authoring.lint_subject import (
    LintSubject,
    LocatedStep,
    Object,
    Prose,
    counter,
    head_of,
    loop_variables,
    numbered,
    texts_in,
    variables_in,
    whole_number,
)
from workflowlookup.language.conditions import Compares, Condition, describe, walk
from workflowlookup.language.document import Finding, Severity, answer_schemas, conditions_in, variables_set_by
from workflowlookup.language.guidance import compose, filler, view_step
from workflowlookup.language.model import PromptStep
from workflowlookup.language.navigation import NextStep
from workflowlookup.language.patterns import Budget, TooSlow
from workflowlookup.language.rules import RULES, flaws_in, misfits_in, rules_in
from workflowlookup.language.schemas import PathTo, nearest, show, suggest
from workflowlookup.language.values import Json, is_number
from workflowlookup.language.verdicts import Scope, constants_of, declaration, possible_values, verdict
from workflowlookup.runs.questions import fields_in

MAX_PROMPT_TOKENS: Final = 1500
CHARACTERS_PER_TOKEN: Final = 4
MAX_SECONDS: Final = 3.0
"""Processor time for the conditions, patterns and names of one document."""
SWITCH: Final = "x-lint"

Found = Iterator[tuple[PathTo, str, str]]
"""A place, what is wrong there, and what to do about it."""


class LintFinding(Finding, frozen=True, kw_only=True):
    """A finding of a check."""

    code: str
    name: str


def lint(
    document: Object, *, max_prompt_tokens: int = MAX_PROMPT_TOKENS, respect_off: bool = True
) -> list[LintFinding]:
    """Everything that the checks find in a sound document, by code."""
    subject = LintSubject(document=document, max_prompt_tokens=max_prompt_tokens, budget=Budget(MAX_SECONDS))
    return [
        LintFinding(
            code=code, name=check.name, severity=check.severity, path=path, message=message, suggestion=suggestion
        )
        for code, check in CHECKS.items()
        for path, message, suggestion in _found_by(check, subject)
        if not (respect_off and any(_is_off(code, check.name, node) for node in subject.around(path)))
    ]


def _found_by(check: "LintCheck", subject: LintSubject) -> Found:
    """What a check finds for as long as there is time; `WL012` tells when there was not enough."""
    try:
        yield from check.find(subject)
    except TooSlow:
        return


def _is_off(code: str, name: str, node: Json) -> bool:
    """Whether an object of the document has the code, or its name, switched off."""
    switch = node.get(SWITCH) if isinstance(node, Mapping) else None
    off = switch.get("off") if isinstance(switch, Mapping) else switch
    return isinstance(off, list) and (code in off or name in off)


def _dead_steps(subject: LintSubject) -> Found:
    for place in subject.places:
        what = "Loop" if "loop" in place.step else "Step"
        if "runCondition" in place.step:
            condition = place.step["runCondition"]
            if verdict(condition, subject.scope(place.loops), subject.budget) is False:
                yield (
                    (*place.path, "runCondition"),
                    f"{what} '{place.id}' is never reached: its condition can never hold ({describe(condition)})"
                    + _mistyped(condition, subject.scope(place.loops)),
                    "Fix the condition or the contract that rules it out, or remove the step",
                )
        if "loop" in place.step and (why := _never_entered(place.step["loop"], subject, place)):
            yield (
                (*place.path, "loop"),
                f"The body of loop '{place.id}' is never reached: {why}",
                "Fix the loop, or remove it with its body",
            )


def _mistyped(condition: Condition, scope: Scope) -> str:
    """The values that the author probably meant, of variables that the contract lists values for."""
    meant: dict[str, str | None] = {}
    for part in walk(condition):
        values = possible_values(declaration(part["var"], scope), ()) if "var" in part else None
        listed = [value for value, is_exact in values or () if is_exact and isinstance(value, str)]
        written = [value for value in constants_of(part, [Compares.EQUALITY]) if isinstance(value, str)]
        meant |= {value: nearest(value, listed) for value in written if value not in listed}
    pairs = ", ".join(f"'{right}' for '{wrong}'" for wrong, right in meant.items() if right)
    return f"; did you mean {pairs}?" if pairs else ""


def _never_entered(loop: Object, subject: LintSubject, place: LocatedStep) -> str:
    scope = subject.scope(place.loops)
    match loop["type"]:
        case "while" if "condition" in loop:
            never = verdict(loop["condition"], _at_the_end(loop, scope), subject.budget) is False
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


def _can_be(name: str, scope: Scope, wanted: Callable[[Json], bool]) -> bool:
    values = possible_values(declaration(name, scope), ())
    return values is None or any(wanted(value) for value, _ in values)


def _at_the_end(loop: Object, scope: Scope) -> Scope:
    """What the loop's own condition sees: also the iteration that would come after the limit."""
    return {**scope, counter(loop): whole_number(1, loop["maxIterations"] + 1)}


def _constant_conditions(subject: LintSubject) -> Found:
    for place in subject.places:
        scope = subject.scope(place.loops)
        for path, condition in conditions_in(place.step, place.path):
            for at, part, truth in _constants(condition, path, scope, subject.budget):
                if truth or at != (*place.path, "runCondition"):  # the other case is a dead step
                    yield _constant(at, part, truth, place, scope)
        loop = place.step.get("loop", {})
        if "condition" in loop:
            inner = _at_the_end(loop, scope)
            path = (*place.path, "loop", "condition")
            for at, part, truth in _constants(loop["condition"], path, inner, subject.budget):
                runs_once = truth and loop["type"] == "until"
                if part is not loop["condition"] or runs_once:  # else it never starts or never ends
                    yield _constant(at, part, truth, place, inner)


def _constants(
    condition: Condition, path: PathTo, scope: Scope, budget: Budget
) -> Iterator[tuple[PathTo, Condition, bool]]:
    """The condition if it is constant, else its parts that are."""
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
    place: LocatedStep,
    scope: Scope,
) -> tuple[PathTo, str, str]:
    return (
        path,
        f"The condition {'always' if truth else 'never'} holds ({describe(condition)}) in step '{place.id}'"
        + _mistyped(condition, scope),
        "Compare with values that the variable can have, or remove what does not decide anything",
    )


def _unproduced_variables(subject: LintSubject) -> Found:
    declared = {*subject.contract, *subject.produced}
    known = declared | {head_of(name) for name in declared}
    told: set[str] = set()
    for place in subject.places:
        for path, name in _uses(place):
            head = head_of(name)
            is_repeated = path[len(place.path) :][:2] == ("loop", "condition")  # `items` and `count` are read before
            loops = (*place.loops, place.step) if is_repeated else place.loops
            scope = subject.scope(loops)
            if head in told or {name, head} & known or {name, head} & scope.keys():
                continue
            if subject.prose.mentions(head, quoted=subject.has_contract):
                continue
            told.add(head)
            names = sorted({*known, *scope}) + sorted(subject.prose.quoted_words)
            subject.budget.charge(len(names))
            meant = nearest(head, names)
            yield (
                path,
                f"Variable {suggest(head, names)} is used in step '{place.id}' and nothing produces it",
                (f"Write '{meant}' if that is the variable; else name" if meant else "Name")
                + " it in 'produces' of the step that sets it or in 'contextSchema', "
                + f"or have a prompt set `{head}`",
            )


def _uses(place: LocatedStep) -> Iterator[tuple[PathTo, str]]:
    """The variables that a step needs, each with the place that asks for it."""
    step = place.step
    for path, condition in conditions_in(step, place.path):
        for name in variables_in(condition):
            yield path, name
    loop = step.get("loop", {})
    for name in variables_in(loop.get("condition", {})):
        yield (*place.path, "loop", "condition"), name
    for key in ("items", "count"):
        if isinstance(loop.get(key), str):
            yield (*place.path, "loop", key), loop[key]
    for index, name in enumerate(step.get("requires", ())):
        yield (*place.path, "requires", index), name
    templates = {key: step[key] for key in _WITH_TEMPLATES if key in step}
    arguments = texts_in(step.get("call", {}).get("arguments", {}), (*place.path, "call", "arguments"))
    for path, text in (*texts_in(templates, place.path), *arguments, *_texts_of_rules(place)):
        unset: dict[str, None] = {}
        filler({}, unset)(text)
        for name in unset:
            yield path, name


def _texts_of_rules(place: LocatedStep) -> Iterator[tuple[PathTo, str]]:
    """What of the criteria is filled from the context."""
    for at, rule in rules_in(place.step.get("validationCriteria"), (*place.path, "validationCriteria")):
        if isinstance(rule, str):
            yield at, rule
        else:
            kind = RULES[rule["type"]]
            yield from (((*at, key), rule[key]) for key in (*kind.texts, *kind.patterns, "message") if key in rule)


_WITH_TEMPLATES: Final = (
    *("title", "prompt", "promptBlocks", "promptFragments", "agentRole", "guidance"),
    *("functionCalls", "parallelDelegations", "synthesis"),
)


def _forgettable_variables(subject: LintSubject) -> Found:
    """What decides over steps, and comes only if the agent remembers to send it."""
    decides = _deciding_variables(subject)
    for name in [*_inputs(subject), *(name for place in subject.places for name in _found_by_the_server(place.step))]:
        decides.pop(head_of(name), None)
    for place in subject.places:
        subject.budget.charge(len(decides))
        prose = Prose(place.step.get("prompt"), place.step.get("promptBlocks"), place.step.get("guidance"))
        produces = place.step.get("produces", ())
        named = {head_of(name): (*place.path, "produces", index) for index, name in enumerate(produces)}
        for name in [name for name in decides if name in named or prose.mentions(name, quoted=True)]:
            message = f"Step '{decides.pop(name)}' depends on '{name}', which the agent must remember to send"
            remedy = f"Write 'produces' as a map, and the value comes out of the output: {{{name}: {{enum: […]}}}}"
            yield named.get(name, place.path), f"{message} after step '{place.id}'", remedy


def _deciding_variables(subject: LintSubject) -> dict[str, str]:
    """By variable that the context has, and that decides over a step or a loop: the first such step."""
    decides: dict[str, str] = {}
    for place in subject.places:
        loop = place.step.get("loop", {})
        own = {name for around in (*place.loops, place.step) if "loop" in around for name in loop_variables(around)}
        conditions = [place.step.get("runCondition", {}), loop.get("condition", {})]
        names = [name for condition in conditions for name in variables_in(condition)]
        names += [loop[key] for key in ("items", "count") if isinstance(loop.get(key), str)]
        for name in names:
            if head_of(name) not in own:
                decides.setdefault(head_of(name), place.id)
    return decides


def _found_by_the_server(step: Object) -> Iterator[str]:
    """The variables that a step sets without the help of an agent's memory."""
    yield from step["produces"] if isinstance(step.get("produces"), Mapping) else ()
    if saved := step.get("call", {}).get("saveAs"):
        yield saved
    yield from answer_schemas(step)


def _inputs(subject: LintSubject) -> Iterator[str]:
    schema = subject.document.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    yield from properties if isinstance(properties, Mapping) else ()


def _endless_loops(subject: LintSubject) -> Found:
    for_all = Prose(*(subject.document.get(key) for key in ("metaGuidance", "functionDefinitions")))
    for index, place in enumerate(subject.places):
        loop = place.step.get("loop", {})
        if loop.get("type") not in ("while", "until") or "condition" not in loop:
            continue
        names = variables_in(loop["condition"]) | variables_in(place.step.get("runCondition", {}))
        body = _body(subject.places, index)
        here = Prose(*body, *(step.get("functionDefinitions") for step in (*place.loops, place.step)))
        told = {name for name in (place.id, *map(head_of, names)) if here.mentions(name) or for_all.mentions(name)}
        if place.id in told:  # that it may complete the loop itself
            continue
        moving = {counter(loop), *told, *(name for step in body for name in variables_set_by(step))}
        stuck = verdict(loop["condition"], _at_the_end(loop, subject.scope(place.loops)), subject.budget)
        if stuck is (loop["type"] == "while"):
            why = f"its condition {'always' if stuck else 'never'} holds ({describe(loop['condition'])})"
        elif not any({name, head_of(name)} & moving for name in names):
            why = f"no step of its body sets {' or '.join(map(show, names))}"
        else:
            continue
        yield (
            (*place.path, "loop", "condition"),
            f"Loop '{place.id}' can only end by its limit of {loop['maxIterations']} iterations: {why}",
            "Let a step of the body produce a variable of the condition, or write a 'for' loop",
        )


def _body(places: Sequence[LocatedStep], index: int) -> list[Object]:
    """The steps in a loop, which follow it in the order of the walk."""
    depth = len(places[index].loops)
    later = itertools.islice(places, index + 1, None)
    return [place.step for place in itertools.takewhile(lambda place: len(place.loops) > depth, later)]


def _unmeetable_criteria(subject: LintSubject) -> Found:
    for place in subject.places:
        for path, reason in contradictions(place.step.get("validationCriteria"), subject.budget):
            yield (
                (*place.path, "validationCriteria", *path),
                f"No output of step '{place.id}' can meet its criteria: {reason}",
                "Change or remove one of the rules that exclude each other",
            )


def _long_prompts(subject: LintSubject) -> Found:
    for place in subject.places:
        step = subject.workflow.steps[place.id]
        if not isinstance(step, PromptStep):
            continue
        tokens = _most_characters(subject, step) // CHARACTERS_PER_TOKEN
        if tokens > subject.max_prompt_tokens:
            yield (
                (*place.path, "prompt") if "prompt" in place.step else place.path,
                f"The prompt of step '{place.id}' takes about {tokens:,} tokens of {subject.max_prompt_tokens:,}",
                "Split the step, or move what does not always apply into fragments or functions",
            )


def _most_characters(subject: LintSubject, step: PromptStep) -> int:
    """The length of the prompt with the longest of its fragments; two of them may exclude each other."""
    always = tuple(fragment for fragment in step.prompt_fragments if fragment.when is None)
    longest = max((f for f in step.prompt_fragments if f.when is not None), key=lambda f: len(f.text), default=None)
    chosen = (*always, msgspec.structs.replace(longest, when=None)) if longest else always
    shown = msgspec.structs.replace(step, prompt_fragments=chosen)
    found = NextStep(step=shown, instance_id=step.id, context={}, loop=None, skipped=(), warnings=(), completed=0)
    fill = filler({}, {})
    view = view_step(shown, found, fill, subject.budget)
    return len(compose(subject.workflow, shown, found, view, fill))


def _steps_without_criterion(subject: LintSubject) -> Found:
    for place in subject.places:
        is_judged = place.step.get("validationCriteria") or _requires_a_variable(place.step)
        if not place.step.keys() & {"loop", "call"} and not is_judged:
            yield (
                place.path,
                f"Step '{place.id}' has no criterion: any output that is not blank passes",
                "Add 'validationCriteria' that tell a finished step from an unfinished one",
            )


def _requires_a_variable(step: Object) -> bool:
    """Whether an output passes only if a variable can be taken out of it."""
    produced = step.get("produces")
    return isinstance(produced, Mapping) and any(not wanted.get("optional") for wanted in produced.values())


def _injections(subject: LintSubject) -> Found:
    searched = {field for kind in RULES.values() for field in (*kind.texts, *kind.patterns)}
    for path, text in texts_in(subject.document):
        if path[-1] == "pattern" or ("validationCriteria" in path and path[-1] in searched):
            continue  # what the output is searched for
        for excerpt, reason in suspicions(text, is_role=path[-1] == "agentRole"):
            yield (
                path,
                f"The text tries to instruct the client outside the workflow: {reason} ({show(_visible(excerpt))})",
                "Remove it; do not use a workflow that you did not write before you know what it is for",
            )


def _visible(text: str) -> str:
    return "".join(char if char.isprintable() else f"<U+{ord(char):04X}>" for char in text)


def _broken_rules(subject: LintSubject) -> Found:
    remedy = "Fix the rule: until then the output of this step cannot be judged"
    for place in subject.places:
        criteria, path = place.step.get("validationCriteria") or [], (*place.path, "validationCriteria")
        for misfit in misfits_in(criteria):
            why = f"The criteria of step '{place.id}' are not well-formed: {misfit.sentence()}"
            yield (*path, *misfit.path, *misfit.unknown[:1]), why, remedy
        for at, flaw in flaws_in(criteria, path, subject.budget):
            yield at, f"{flaw} in step '{place.id}'", remedy


def _odd_questions(subject: LintSubject) -> Found:
    for place in subject.places:
        wanted = place.step.get("requireConfirmation")
        if not isinstance(wanted, Mapping):
            continue
        path = (*place.path, "requireConfirmation")
        for field in fields_in(wanted.get("answers", {})):
            if not field.is_flat:
                kinds = "a text, a number, a boolean, or one of several texts"
                message = f"The form of step '{place.id}' cannot ask for '{field.name}': forms have only {kinds}"
                at = (*path, "answers", "properties", field.name)
                yield at, message, "Make it one of these, or ask for its parts one by one"
        if "call" in place.step and wanted.get("when") == "after":
            yield (
                (*path, "when"),
                f"Step '{place.id}' is a call, about which a person is always asked before it is made",
                "Remove 'when', or ask in the step that follows",
            )


def _unchecked(subject: LintSubject) -> Found:
    if subject.budget.is_spent:
        yield (
            (),
            f"Not all of it was checked: its conditions and patterns take longer than {MAX_SECONDS:g} s",
            "Simplify its conditions and patterns, or split the workflow",
        )


class LintCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the table."""

    name: str
    find: Callable[[LintSubject], Found]
    description: str
    severity: Severity = Severity.WARNING


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
    "WL004": LintCheck(
        name="endless-loop", find=_endless_loops, description="A loop can end in no other way than by its limit."
    ),
    "WL005": LintCheck(
        name="unmeetable-criteria",
        find=_unmeetable_criteria,
        description="No output can meet the criteria: rules exclude each other.",
    ),
    "WL006": LintCheck(name="long-prompt", find=_long_prompts, description="A prompt is over the token budget."),
    "WL007": LintCheck(
        name="no-criterion",
        find=_steps_without_criterion,
        description="A step has no criterion, so that any output passes.",
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
        description="A question to a person that a form cannot show, or that is asked at another time than it says.",
    ),
    "WL012": LintCheck(
        name="slow-document", find=_unchecked, description="The document takes too long to be checked whole."
    ),
}
