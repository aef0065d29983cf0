"""`workflow_next`: the next step for a caller who tells what is completed and what is known."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.core.contract import Need, forgotten, how_to_send, need_of_loop, unmet
from workflowlookup.core.guidance import Guidance, ValueOf, as_words, guide, warn_of_unset
from workflowlookup.core.model import Workflow
from workflowlookup.core.navigation import MAX_SKIPPED, Next, explain_skip, find_step, next_step
from workflowlookup.core.schemas import suggest
from workflowlookup.core.values import Context, Json, lookup
from workflowlookup.errors import StepNotFound
from workflowlookup.tools.registry import (
    GUIDANCE_SCHEMA,
    STEP_SCHEMA,
    TEXTS,
    Caller,
    Result,
    Services,
    Short,
    Tool,
    arguments_schema,
    completed_steps,
    context,
    find_workflow,
    step_id,
    workflow_id,
)

_encode: Final = msgspec.json.Encoder().encode


def handle(services: Services, arguments: Mapping[str, Any], _: Caller) -> Result:
    workflow = find_workflow(services, arguments["workflowId"])
    current = arguments.get("currentStep")
    if current is not None and find_step(workflow, current) is None:
        raise step_not_found(workflow, current)
    completed: Collection[str] = arguments["completedSteps"]
    found = next_step(workflow, completed, arguments.get("context") or {})
    return _ready(workflow, found) or answer(workflow, found, completed)


class _Usual(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    workflow_id: str
    completed_steps: list[str]
    current_step: str | None = None
    context: dict[str, Any] | None = None


def _answer_usual(services: Services, asked: _Usual) -> Result | None:
    """The same, where every id is that of a step, without an iteration."""
    workflow = services.catalog.ready(asked.workflow_id)
    if workflow is None or (asked.current_step is not None and asked.current_step not in workflow.ids):
        return None
    completed: Collection[str] = [*workflow.order[: len(asked.completed_steps)]]
    if asked.completed_steps != completed:
        completed = set(asked.completed_steps)
        if len(completed) < len(asked.completed_steps) or not completed <= workflow.ids:
            return None
    found = next_step(workflow, completed, asked.context or {})
    return _ready(workflow, found) or answer(workflow, found, asked.completed_steps)


# ── answers that are kept ready ─────────────────────────────────────────────────────────────────────────────────

MOST_KEPT: Final = 1 << 20
"""Bytes, for one workflow."""
LONGEST_KEPT: Final = 1 << 16
MOST_VARIABLES: Final = 20
MOST_VALUES: Final = 1 << 16
"""How many characters are written into an answer that is kept; longer values are filled in the usual way."""
_MARK: Final = "\ue000"
"""On both sides of the name of a variable, where its value belongs."""


class _Words(msgspec.Struct, frozen=True):
    """An answer that is kept."""

    pieces: tuple[bytes, ...]
    """The answer up to its progress, as JSON; every other piece is the name of a variable, where its value belongs.
    None at all when it cannot be cut like this."""
    variables: tuple[str, ...]
    """Of all templates in it, whether they are set or not: others may be set another time."""


class _Kept(msgspec.Struct):
    """The answers of one workflow, by step, by the conditions that hold, and by the variables that are set."""

    words: dict[Hashable, _Words]
    size: int


def _ready(workflow: Workflow, found: Next) -> msgspec.Raw | None:
    """The answer with a step, where all that it says is known before, but for values that are written into it.

    Which conditions hold, and which variables are set, decides the words; they are made and encoded once.
    """
    step = found.step
    if step is None or step.told_by is None or found.loop or found.warnings or workflow.has_contract:
        return None
    truths = [holds(found.context) for holds in step.told_by] if step.told_by else ()
    kept: _Kept = workflow.memo.get(_Kept) or workflow.memo.setdefault(_Kept, _Kept({}, 0))
    key = (step.id, *truths)
    words = kept.words.get(key) or _keep(kept, key, workflow, found)
    if not words.pieces:
        return None
    head = _with_values(kept, key, words.variables, workflow, found) if words.variables else words.pieces[0]
    if head is None:
        return None
    if workflow.has_loops:
        return msgspec.Raw(head + b'{"completed":%d}}' % found.completed)
    total = workflow.total_steps - len(found.skipped)
    return msgspec.Raw(head + b'{"completed":%d,"total":%d}}' % (found.completed, total))


def _with_values(kept: _Kept, key: Hashable, variables: Sequence[str], workflow: Workflow, found: Next) -> bytes | None:
    """The answer up to its progress, with the values of the caller; None when it is not kept."""
    values: dict[str, str] = {}
    for name in variables:
        value = lookup(found.context, name)
        if value is not None:
            values[name] = as_words(value)
    key = (key, *values)
    pieces = (kept.words.get(key) or _keep(kept, key, workflow, found)).pieces
    names = pieces[1::2]
    if not pieces or sum([len(values[name.decode()]) for name in names]) > MOST_VALUES:
        return None
    return _join(pieces, values)


def _keep(kept: _Kept, key: Hashable, workflow: Workflow, found: Next) -> _Words:
    """Cut the answer where values belong, and keep it if it is not too long.

    Whether it can be cut is seen by what takes the place of the values, so that it does not depend on the caller's.
    """
    variables: dict[str, None] = {}

    def told_with(write: Callable[[str], str]) -> bytes:
        def value_of(context: Context, name: str) -> str | None:
            variables[name] = None
            return None if lookup(context, name) is None else write(name)

        told = tell(workflow, found, value_of)
        return _encode({**told, "isComplete": False, "progress": 0}).removesuffix(b"0}")

    pieces = tuple(told_with(lambda name: f"{_MARK}{name}{_MARK}").split(_MARK.encode()))
    size = 256 + sum(map(len, pieces)) + 64 * (len(pieces) + len(variables))
    is_cut = (
        len(variables) <= MOST_VARIABLES
        and size <= LONGEST_KEPT
        and _join(pieces, {name: f"<{name}>" for name in variables}) == told_with(lambda name: f"<{name}>")
    )
    words = _Words(pieces, tuple(variables)) if is_cut else _Words((), ())
    kept.size += size if is_cut else 256
    if kept.size > MOST_KEPT:
        kept.words.clear()
        kept.size = 256
    kept.words[key] = words
    return words


def _join(pieces: Sequence[bytes], values: Mapping[str, str]) -> bytes:
    written = list(pieces)
    for place in range(1, len(pieces), 2):
        written[place] = _encode(values.get(pieces[place].decode(), ""))[1:-1]
    return b"".join(written)


# ── what is said ────────────────────────────────────────────────────────────────────────────────────────────────


def answer(workflow: Workflow, found: Next, completed: Iterable[str]) -> dict[str, Json]:
    is_complete = found.is_complete
    reply = {**tell(workflow, found), "isComplete": is_complete, "progress": _progress(workflow, found)}
    if is_complete and found.skipped:
        reply["skipped"] = [explain_skip(skip) for skip in found.skipped[:MAX_SKIPPED]]
    if workflow.has_contract:
        told = {need.variable for need in reply.get("missing", ())}
        unset = forgotten(workflow, completed, found.context)
        warnings = [*reply.get("warnings", ()), *(unset[name] for name in unset if name not in told)]
        if warnings:
            reply["warnings"] = warnings
    return reply


def tell(workflow: Workflow, found: Next, value_of: ValueOf = lookup) -> dict[str, Json]:
    """The step and its guidance, what the context lacks for it, and warnings."""
    if found.need is not None:
        return tell_need(workflow, found.instance_id, need_of_loop(workflow, found.need), found.warnings)
    step = found.step
    told = guide(workflow, found, value_of)
    warnings = told.warnings
    reply: dict[str, Json] = {"step": told.step or None, "guidance": _guidance(told)}
    needs = unmet(workflow, step, found.context) if step is not None else ()
    if needs:
        reply["missing"] = needs
        needed = {need.variable for need in needs}
        others = [name for name in told.unset if name.partition(".")[0] not in needed]
        warnings = (
            *found.warnings,
            *warn_of_unset(others),
            "The step needs more context: " + "; ".join(need.sentence() for need in needs),
        )
    if warnings:
        reply["warnings"] = warnings
    return reply


def tell_need(workflow: Workflow, loop_id: str, need: Need, warnings: Sequence[str]) -> dict[str, Json]:
    """That no step can be handed out before a loop has its list or count, and how to send it."""
    guidance = Guidance(
        step={},
        prompt=how_to_send(workflow, loop_id, need),
        model_hint="",
        requires_confirmation=False,
        criteria=(),
        warnings=(),
    )
    reply: dict[str, Json] = {"step": None, "guidance": _guidance(guidance), "missing": (need,)}
    return {**reply, "warnings": warnings} if warnings else reply


def _progress(workflow: Workflow, found: Next) -> dict[str, Json]:
    """How many steps are done, and of how many as far as that is known: loops and conditions decide it on the way."""
    if found.is_complete:
        return {"completed": found.completed, "total": found.completed}
    if workflow.has_loops:
        return {"completed": found.completed}
    return {"completed": found.completed, "total": workflow.total_steps - len(found.skipped)}


def _guidance(told: Guidance) -> dict[str, Json]:
    hint = {"modelHint": told.model_hint} if told.model_hint else {}
    return {
        "prompt": told.prompt,
        **hint,
        "requiresConfirmation": told.requires_confirmation,
        "validationCriteria": told.criteria,
    }


def step_not_found(workflow: Workflow, wanted: str) -> StepNotFound:
    return StepNotFound(
        f"The workflow '{workflow.id}' has no step {suggest(wanted, list(workflow.steps))}. "
        "Use the ids that workflow_next gave you.",
        stepId=wanted,
    )


TOOL = Tool(
    name="workflow_next",
    title="Next step",
    description=(
        "Gets the next step guidance based on workflow state. Do what guidance.prompt says, check the output with "
        "workflow_validate, add step.id to completedSteps, and call again with the context variables that the prompts "
        "asked you to set, until isComplete is true. When step is null and isComplete false, send what missing names."
    ),
    input_schema=arguments_schema(
        {
            "workflowId": workflow_id("The workflow ID"),
            "currentStep": {**step_id("Current step ID (optional)"), "type": ["string", "null"]},
            "completedSteps": completed_steps(
                "Array of completed step IDs; in a loop they carry the iteration, as in review@2"
            ),
            "context": context('Variables for conditions and templates, such as {"taskSize": "large"}'),
        },
        "workflowId",
        "completedSteps",
    ),
    output_schema={
        "type": "object",
        "properties": {
            "step": STEP_SCHEMA,
            "guidance": GUIDANCE_SCHEMA,
            "isComplete": {"type": "boolean"},
            "progress": {
                "type": "object",
                "properties": {"completed": {"type": "integer"}, "total": {"type": "integer"}},
            },
            "skipped": {
                "type": "array",
                "items": {"type": "object"},
                "description": "At the end: steps that were passed over, and why.",
            },
            "missing": {
                "type": "array",
                "items": {"type": "object"},
                "description": "Variables that the step, or with step null the loop that comes next, needs and the "
                "context lacks or has of the wrong type; each with an example to send.",
            },
            "warnings": TEXTS,
        },
        "required": ["step", "guidance", "isComplete"],
    },
    example=(
        {"workflowId": "bug-investigation", "completedSteps": [], "context": {}},
        {
            "step": {
                "id": "reproduce",
                "title": "Reproduce the failure",
                "prompt": "Make the failure happen…",
            },
            "guidance": {
                "prompt": "Make the failure happen…",
                "requiresConfirmation": False,
                "validationCriteria": [
                    "The output is at least 150 characters long: The reproduction is too thin to repeat."
                ],
            },
            "isComplete": False,
        },
    ),
    handler=handle,
    short=Short(msgspec.json.Decoder(_Usual).decode, _answer_usual),
)
