"""A workflow as frozen values.

`building.build` creates them from a valid document, and compiles conditions and criteria; prompt blocks stay the JSON
that the author wrote. They are msgspec structs rather than dataclasses: ten times as fast to create, and free at
import.
"""

import functools
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from workflowlookup.language.conditions import CompiledCondition
from workflowlookup.language.formats.schemas import ValueSchema
from workflowlookup.language.proof import AnyProof, WhenUnproved
from workflowlookup.language.rules import CriteriaCheck, Criterion, Issue
from workflowlookup.language.tool_rules import ToolRules
from workflowlookup.language.values import Json


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """A criterion as a sentence for the agent. It applies if its condition holds."""

    sentence: str
    condition: CompiledCondition | None = None


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a function."""

    name: str
    type: str
    required: bool = False
    description: str = ""
    enum: tuple[Json, ...] | None = None


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A named piece of text that steps refer to."""

    name: str
    definition: str
    parameters: tuple[Parameter, ...] = ()


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the agent carries out in a step."""

    name: str
    args: Mapping[str, Json]


class Fragment(msgspec.Struct, frozen=True, kw_only=True):
    """A text that is added to the prompt if its condition holds."""

    text: str
    when: CompiledCondition | None = None


class Delegation(msgspec.Struct, frozen=True, kw_only=True):
    """A task that an agent delegates to another if its condition holds."""

    content: Mapping[str, Json]
    when: CompiledCondition | None = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A step that the server carries out itself: it calls a tool of an MCP server that the settings name."""

    server: str
    tool: str
    arguments: Mapping[str, Json] = {}
    """Texts may contain templates. A text that is only one template becomes the value of its variable."""
    save_as: str = ""
    """The variable that takes the result; empty for none."""
    retries: int = 0
    timeout_seconds: float | None = None

    @property
    def described(self) -> str:
        return f"tool '{self.tool}' of MCP server '{self.server}'"


class WorkflowCall(msgspec.Struct, frozen=True, kw_only=True):
    """A step that another system carries out: it runs one of its workflows."""

    provider: str
    workflow: str
    """Its id at the provider."""
    arguments: Mapping[str, Json] | None = None
    """As in a `ToolCall`; if None, the workflow gets the input of the run."""
    save_as: str = ""
    retries: int = 0
    timeout_seconds: float | None = None

    @property
    def described(self) -> str:
        return f"workflow '{self.workflow}' of provider '{self.provider}'"


Call: TypeAlias = ToolCall | WorkflowCall


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """A variable that is read from the output: by a pattern, a JSON pointer, or its name."""

    name: str
    value: ValueSchema = ValueSchema({})
    pattern: str = ""
    flags: str = ""
    pointer: str | None = None
    is_optional: bool = False


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """When a person must confirm a step, who may answer, and what the question is."""

    condition: bool | CompiledCondition = True
    when: Literal["after", "before"] = "after"
    """After the output is accepted, or before the step is handed out."""
    by: Literal["anyone", "person"] = "anyone"
    """With `person`, an agent cannot relay the answer."""
    question: str = ""
    """Replaces the standard question; may contain templates."""
    answers: Mapping[str, Json] = {}
    """A JSON Schema of a flat object that the person fills in; its values enter the context."""


class PromptStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is handed to the agent; with `parallel_delegations`, the agent delegates parts of it."""

    id: str
    title: str
    prompt: str = ""
    prompt_blocks: Mapping[str, Json] | None = None
    prompt_fragments: tuple[Fragment, ...] = ()
    agent_role: str = ""
    guidance: tuple[str, ...] = ()
    ask_for_files: bool | None = None
    confirmation: Confirmation | None = None
    run_condition: CompiledCondition | None = None
    criteria: Criterion | None = None
    check: CriteriaCheck | None = None
    """The compiled criteria."""
    requirements: tuple[Requirement, ...] = ()
    model_tier: str = ""
    model_hint: str = ""
    function_definitions: tuple[Function, ...] = ()
    function_calls: tuple[FunctionCall, ...] = ()
    function_references: tuple[str, ...] = ()
    template_call: Mapping[str, Json] | None = None
    parallel_delegations: tuple[Delegation, ...] = ()
    synthesis: Json = None
    requires: tuple[str, ...] = ()
    produces: tuple[str, ...] = ()
    """Variables that the agent sends beside the output."""
    captures: tuple[Capture, ...] = ()
    """Variables that are read from the output."""
    max_attempts: int | None = None
    when_exhausted: Literal["fail", "ask"] = "fail"
    call: Call | None = None
    """In a run, the server carries out this step itself."""
    proofs: tuple[AnyProof, ...] = ()
    """In a run, what the server checks after the criteria are met."""
    tools: ToolRules | None = None
    """What the agent may use in this step."""

    @property
    def may_ask_person(self) -> bool:
        """Whether a person may have to confirm it."""
        return self.confirmation is not None and self.confirmation.condition is not False

    @property
    def asks_before(self) -> bool:
        """Whether a person is asked before the step is done, not after; always so before a call."""
        return self.call is not None or (self.confirmation is not None and self.confirmation.when == "before")


class Loop(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a body is repeated."""

    type: Literal["while", "until", "for", "forEach"]
    max_iterations: int
    condition: CompiledCondition | None = None
    count: int | str | None = None
    items: str | None = None
    iteration_var: str = "currentIteration"
    item_var: str = "currentItem"
    index_var: str = "currentIndex"


class LoopStep(msgspec.Struct, frozen=True, kw_only=True):
    """A loop. It is never handed out itself, only the steps of its body are."""

    id: str
    title: str
    loop: Loop
    body: tuple["Step", ...]
    run_condition: CompiledCondition | None = None
    function_definitions: tuple[Function, ...] = ()
    requires: tuple[str, ...] = ()
    produces: tuple[str, ...] = ()


Step: TypeAlias = PromptStep | LoopStep


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """Which variables each step needs and sets, by step id, and the JSON Schema of each variable."""

    variables: Mapping[str, ValueSchema]
    needs: Mapping[str, tuple[str, ...]]
    """Required by the step and the loops around it, or by `contextSchema` and produced by no step."""
    sets: Mapping[str, tuple[str, ...]]
    """Set once the step is done."""


class Workflow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A workflow, ready to guide an agent.

    `flow` are the top-level steps without those that a loop refers to as its body; navigation walks through them.
    `steps` maps each id to its step, including the bodies of loops; `enclosing` maps it to the loops around it,
    outermost first.
    """

    id: str
    name: str
    description: str
    version: str
    category: str
    document: Mapping[str, Json]
    flow: tuple[Step, ...]
    steps: Mapping[str, Step]
    enclosing: Mapping[str, tuple[str, ...]]
    order: tuple[str, ...]
    """The ids in `flow`."""
    ids: frozenset[str]
    has_loops: bool
    total_steps: int
    """The number of steps at the top level of the document."""
    preconditions: tuple[str, ...] = ()
    clarification_prompts: tuple[str, ...] = ()
    meta_guidance: tuple[str, ...] = ()
    model_tier: str = ""
    model_hint: str = ""
    function_definitions: tuple[Function, ...] = ()
    context_schema: ValueSchema | None = None
    input_schema: ValueSchema | None = None
    deadline_seconds: float | None = None
    execution_type: str = "async"
    when_unproved: WhenUnproved = "refuse"
    triggers: tuple[str, ...] = ()
    """Words or patterns by which a hook recognises a prompt that this workflow is for."""
    producers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By variable: the first step that produces it."""
    contract: Contract | None = None
    """None if neither the workflow nor a step declares variables."""
    origin: str = ""
    """The real path of a document that came with a repository; empty for the user's own and for other systems."""
    weight: int = 0
    """Estimated bytes in memory, including the document."""

    @functools.cached_property
    def text(self) -> bytes:
        """The document as JSON, as each run of it stores it."""
        return msgspec.json.encode(self.document)

    @property
    def every_step(self) -> list[Step]:
        """All steps and loops in the order of the document, a loop before its body."""
        return [self.steps[step_id] for step_id in self.enclosing]

    @functools.cached_property
    def has_calls(self) -> bool:
        """Whether the server or another system carries out one of the steps."""
        return any(isinstance(step, PromptStep) and step.call is not None for step in self.every_step)

    @functools.cached_property
    def has_proofs(self) -> bool:
        """Whether the server proves something about one of the steps."""
        return any(isinstance(step, PromptStep) and step.proofs for step in self.steps.values())

    @functools.cached_property
    def goes_by_itself(self) -> bool:
        """Whether the server or another system carries out every step, and no agent or person is needed."""
        steps = [step for step in self.every_step if isinstance(step, PromptStep)]
        return all(step.call is not None and not step.may_ask_person for step in steps)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `validation.judge` for an output."""

    issues: tuple[Issue, ...] = ()
    captured: Mapping[str, Json] = {}
    """The variables that were read from the output."""

    @property
    def valid(self) -> bool:
        return not self.issues
