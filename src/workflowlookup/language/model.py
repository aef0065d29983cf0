"""What a workflow document means, as frozen values.

`building.build` makes these from a document that has been checked; everything else in the core reads them. Conditions
and criteria are compiled with it; prompt blocks stay the JSON that the author wrote. Structs of msgspec, not
dataclasses: they are made ten times as fast and cost nothing at import.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from workflowlookup.language.conditions import CompiledCondition
from workflowlookup.language.rules import CriteriaCheck, Criterion, Issue
from workflowlookup.language.schemas import ValueSchema
from workflowlookup.language.values import Json


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """A criterion as a sentence for the agent; it counts when its condition holds."""

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
    """A text that is added to the prompt when its condition holds."""

    text: str
    when: CompiledCondition | None = None


class Delegation(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent hands on to another when its condition holds."""

    content: Mapping[str, Json]
    when: CompiledCondition | None = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """What the server itself does in a step: it calls a tool of an MCP server that the settings name."""

    server: str
    tool: str
    arguments: Mapping[str, Json] = {}
    """Texts in it may hold templates; one that is nothing but a template becomes the value itself."""
    save_as: str = ""
    """The variable that takes the result; none when empty."""
    retries: int = 0
    timeout_seconds: float | None = None

    @property
    def described(self) -> str:
        return f"tool '{self.tool}' of MCP server '{self.server}'"


class WorkflowCall(msgspec.Struct, frozen=True, kw_only=True):
    """What another system does in a step: it runs a workflow of its own."""

    provider: str
    workflow: str
    """As the provider calls it."""
    arguments: Mapping[str, Json] | None = None
    """As those of a `ToolCall`; without any, the workflow gets the input of the run."""
    save_as: str = ""
    retries: int = 0
    timeout_seconds: float | None = None

    @property
    def described(self) -> str:
        return f"workflow '{self.workflow}' of provider '{self.provider}'"


Call: TypeAlias = ToolCall | WorkflowCall


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """A variable whose value comes out of the output: by a pattern, a JSON pointer, or its name."""

    name: str
    value: ValueSchema = ValueSchema({})
    pattern: str = ""
    flags: str = ""
    pointer: str | None = None
    is_optional: bool = False


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """When a person must agree to a step, whose word counts, and what they are asked."""

    condition: bool | CompiledCondition = True
    when: Literal["after", "before"] = "after"
    """Before the output counts, or before the step is handed out."""
    by: Literal["anyone", "person"] = "anyone"
    """With `person` an agent's word for it does not count."""
    question: str = ""
    """Replaces the standard sentence; may hold templates."""
    answers: Mapping[str, Json] = {}
    """A JSON Schema of a flat object that the person fills in; its values enter the context."""


class PromptStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is handed to the agent; with `parallel_delegations`, one that it hands on to several."""

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
    """The same, compiled."""
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
    """Variables that come out of the output."""
    max_attempts: int | None = None
    when_exhausted: Literal["fail", "ask"] = "fail"
    call: Call | None = None
    """In a run the server does this step by itself."""

    @property
    def may_ask_person(self) -> bool:
        """Whether a person's word may be needed for it."""
        return self.confirmation is not None and self.confirmation.condition is not False

    @property
    def asks_before(self) -> bool:
        """Whether a person who must agree is asked before the step is done; always before a call."""
        return self.call is not None or (self.confirmation is not None and self.confirmation.when == "before")


class Loop(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How often a body is repeated."""

    type: Literal["while", "until", "for", "forEach"]
    max_iterations: int
    condition: CompiledCondition | None = None
    count: int | str | None = None
    items: str | None = None
    iteration_var: str = "currentIteration"
    item_var: str = "currentItem"
    index_var: str = "currentIndex"


class LoopStep(msgspec.Struct, frozen=True, kw_only=True):
    """A loop: never handed out itself, its body is."""

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
    """Which variables the steps of a workflow need and set, by the id of the step; what each of them must be."""

    variables: Mapping[str, ValueSchema]
    needs: Mapping[str, tuple[str, ...]]
    """Required by the step and the loops around it."""
    needed_always: tuple[str, ...]
    """Required by the schema of the context, and produced by no step."""
    sets: Mapping[str, tuple[str, ...]]
    """Set once the step is done."""


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow, ready to lead an agent.

    `flow` is what navigation walks: the top-level steps without those that a loop repeats by reference.
    `steps` finds any step by its id, bodies of loops included; `enclosing` the loops around it, outermost first.
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
    """How many steps the author wrote at the top level."""
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
    producers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By variable: the first step that produces it."""
    contract: Contract | None = None
    """None when neither the workflow nor a step says anything of variables."""
    origin: str = ""
    """The real path of the document when a repository brought it; empty for the user's own, and for other systems'."""
    weight: int = 0
    """About how many bytes it takes in memory, with its document."""

    @property
    def every_step(self) -> list[Step]:
        """All that navigation can meet, in the order of the document: a loop before its body."""
        return [self.steps[step_id] for step_id in self.enclosing]

    @property
    def has_calls(self) -> bool:
        """Whether the server, or another system, does one of the steps."""
        return any(isinstance(step, PromptStep) and step.call is not None for step in self.every_step)

    @property
    def goes_by_itself(self) -> bool:
        """Whether neither an agent nor a person has a part in it: the server, or another system, does every step."""
        steps = [step for step in self.every_step if isinstance(step, PromptStep)]
        return all(step.call is not None and not step.may_ask_person for step in steps)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What `validation.judge` says of an output."""

    issues: tuple[Issue, ...] = ()
    captured: Mapping[str, Json] = {}
    """The variables that came out of the output."""

    @property
    def valid(self) -> bool:
        return not self.issues
