"""Builds the `Workflow` of a valid document. `checking` checks that a document is valid."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from workflowlookup.language.captures import describe_capture
from workflowlookup.language.conditions import CompiledCondition, compile_condition, construct_from_json
from workflowlookup.language.contract import contract_of
from workflowlookup.language.criteria import compile_criteria
from workflowlookup.language.document.parts import (
    capture_schema,
    is_confirmation_object,
    repeated_by_id,
    variables_set_by,
    walk_steps,
)
from workflowlookup.language.formats.schemas import ValueSchema
from workflowlookup.language.guidance import requirements_of
from workflowlookup.language.model import (
    Call,
    Capture,
    Confirmation,
    Delegation,
    Fragment,
    Function,
    FunctionCall,
    Loop,
    LoopStep,
    PromptStep,
    Requirement,
    Step,
    ToolCall,
    Workflow,
    WorkflowCall,
)
from workflowlookup.language.proof import proofs_of
from workflowlookup.language.rules import parse_criteria
from workflowlookup.language.tool_rules import ToolRules
from workflowlookup.language.values import DEFAULT_CATEGORY, DEFAULT_VERSION, Json, json_bytes


def build(document: Mapping[str, Json], origin: str = "") -> Workflow:
    """The workflow of a valid document. `origin` is its path if it came with a repository."""
    top_level = {step["id"]: step for step in document["steps"]}
    repeated = repeated_by_id(document)
    steps: dict[str, Step] = {}
    flow = tuple(_step(step, top_level, steps) for step in document["steps"] if step["id"] not in repeated)
    workflow = Workflow(
        id=document["id"],
        name=document["name"],
        description=document["description"],
        version=document.get("version", DEFAULT_VERSION),
        category=document.get("category", DEFAULT_CATEGORY),
        document=document,
        origin=origin,
        flow=flow,
        steps=steps,
        enclosing=dict(_enclosing(flow, ())),
        order=tuple(step.id for step in flow),
        ids=frozenset(steps),
        has_loops=len(flow) != len(steps),
        total_steps=len(document["steps"]),
        preconditions=tuple(document.get("preconditions", ())),
        clarification_prompts=tuple(document.get("clarificationPrompts", ())),
        meta_guidance=tuple(document.get("metaGuidance", ())),
        model_tier=document.get("modelTier", ""),
        model_hint=document.get("modelHint", ""),
        function_definitions=_functions(document),
        context_schema=_value_schema(document, "contextSchema"),
        input_schema=_value_schema(document, "inputSchema"),
        deadline_seconds=document.get("deadlineSeconds"),
        execution_type=document.get("executionType", "async"),
        when_unproved=document.get("whenUnproved", "refuse"),
        triggers=tuple(document.get("triggers", ())),
        producers=_producers(document),
        weight=json_bytes(document),
    )
    declares_variables = any(step.keys() & {"requires", "produces"} for _, step in walk_steps(document["steps"]))
    if not declares_variables and workflow.context_schema is None:
        return workflow
    return msgspec.structs.replace(workflow, contract=contract_of(workflow))


def _value_schema(document: Mapping[str, Json], field: str) -> ValueSchema | None:
    return ValueSchema(document[field]) if field in document else None


def _producers(document: Mapping[str, Any]) -> dict[str, str]:
    producers: dict[str, str] = {}
    for _, step in walk_steps(document["steps"]):
        for name in variables_set_by(step):
            producers.setdefault(name, step["id"])
    return producers


def _enclosing(steps: Sequence[Step], loops: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for step in steps:
        yield step.id, loops
        if isinstance(step, LoopStep):
            yield from _enclosing(step.body, (*loops, step.id))


def _step(data: Mapping[str, Any], top_level: Mapping[str, Any], steps: dict[str, Step]) -> Step:
    step = _loop_step(data, top_level, steps) if data.get("type") == "loop" else _prompt_step(data)
    steps[step.id] = step
    return step


def _loop_step(data: Mapping[str, Any], top_level: Mapping[str, Any], steps: dict[str, Step]) -> LoopStep:
    body = [top_level[data["body"]]] if isinstance(data["body"], str) else data["body"]
    return LoopStep(
        id=data["id"],
        title=data["title"],
        loop=loop_of(data["loop"]),
        body=tuple(_step(step, top_level, steps) for step in body),
        run_condition=compile_condition(data.get("runCondition")),
        function_definitions=_functions(data),
        requires=tuple(data.get("requires", ())),
        produces=tuple(data.get("produces", ())),
    )


def _prompt_step(data: Mapping[str, Any]) -> PromptStep:
    criteria = parse_criteria(data.get("validationCriteria"))
    captures = captures_of(data.get("produces", ()))
    capture_requirements = [Requirement(sentence=describe_capture(capture)) for capture in captures]
    return PromptStep(
        id=data["id"],
        title=data["title"],
        prompt=data.get("prompt", ""),
        prompt_blocks=data.get("promptBlocks"),
        prompt_fragments=msgspec.convert(
            data.get("promptFragments", ()), tuple[Fragment, ...], dec_hook=construct_from_json
        ),
        agent_role=data.get("agentRole", ""),
        guidance=tuple(data.get("guidance", ())),
        ask_for_files=data.get("askForFiles"),
        confirmation=confirmation_of(data),
        run_condition=compile_condition(data.get("runCondition")),
        criteria=criteria,
        check=compile_criteria(criteria) if criteria is not None else None,
        requirements=(*requirements_of(criteria), *capture_requirements),
        model_tier=data.get("modelTier", ""),
        model_hint=data.get("modelHint", ""),
        function_definitions=_functions(data),
        function_calls=msgspec.convert(data.get("functionCalls", ()), tuple[FunctionCall, ...]),
        function_references=tuple(data.get("functionReferences", ())),
        template_call=data.get("templateCall"),
        parallel_delegations=tuple(
            Delegation(content=item, when=compile_condition(item.get("runCondition")))
            for item in data.get("parallelDelegations", ())
        ),
        synthesis=data.get("synthesis"),
        requires=tuple(data.get("requires", ())),
        produces=() if captures else tuple(data.get("produces", ())),
        captures=captures,
        max_attempts=data.get("maxAttempts"),
        when_exhausted=data.get("whenExhausted", "fail"),
        call=call_of(data["call"]) if "call" in data else None,
        proofs=proofs_of(data),
        tools=tools_of(data["tools"]) if "tools" in data else None,
    )


def loop_of(data: Mapping[str, Any]) -> Loop:
    return msgspec.convert(data, Loop, strict=False, dec_hook=construct_from_json)


def confirmation_of(data: Mapping[str, Any]) -> Confirmation | None:
    """The `requireConfirmation` of a step: a boolean, a condition, or an object, which always asks unless it has a
    condition.
    """
    value: Any = data.get("requireConfirmation")
    if value is None:
        return None
    fields = value if is_confirmation_object(value) else {"condition": value}
    condition = fields.get("condition", True)
    return Confirmation(
        condition=condition if isinstance(condition, bool) else CompiledCondition(condition),
        when=fields.get("when", "after"),
        by=fields.get("by", "anyone"),
        question=fields.get("question", ""),
        answers=fields.get("answers", {}),
    )


def tools_of(declared: Mapping[str, Any]) -> ToolRules:
    """The `tools` of a step."""
    allow = tuple(declared["allow"]) if "allow" in declared else None
    return ToolRules(allow=allow, deny=tuple(declared.get("deny", ())))


def captures_of(produces: Any) -> tuple[Capture, ...]:
    """The captures of the map form of `produces`; the list form has none."""
    if not isinstance(produces, Mapping):
        return ()
    return tuple(
        Capture(
            name=name,
            value=ValueSchema(capture_schema(declared)),
            pattern=declared.get("pattern", ""),
            flags=declared.get("flags", ""),
            pointer=declared.get("pointer"),
            is_optional=declared.get("optional", False),
        )
        for name, declared in produces.items()
    )


def call_of(data: Mapping[str, Any]) -> Call:
    """The `call` of a step."""
    common = {
        "save_as": data.get("saveAs", ""),
        "retries": int(data.get("retries", 0)),
        "timeout_seconds": data.get("timeoutSeconds"),
    }
    if "workflow" in data:
        return WorkflowCall(
            provider=data["provider"], workflow=data["workflow"], arguments=data.get("arguments"), **common
        )
    return ToolCall(server=data["server"], tool=data["tool"], arguments=data.get("arguments", {}), **common)


def _functions(data: Mapping[str, Any]) -> tuple[Function, ...]:
    return msgspec.convert(data.get("functionDefinitions", ()), tuple[Function, ...])
