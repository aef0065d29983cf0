"""A quick yes for documents: most are sound, and decoding them into these structs proves it at the speed of decoding.

A yes here means that `document.check` finds no error; a no means nothing, and the JSON Schema decides. So the structs
may be narrower than `workflow.schema.json`, never wider; a property test holds that. They are not recursive, so that a
yes is never given to what nests deep: two levels of logic and one of loops fit, the rest takes the longer look.
"""

import operator
import re
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from workflowlookup.core.model import DEFAULT_CATEGORY, DEFAULT_VERSION
from workflowlookup.core.syntax import MAX_NESTING
from workflowlookup.core.values import deeper_than

Id = Annotated[str, Meta(min_length=3, max_length=64)]  # its characters are checked for all ids at once
Title = Annotated[str, Meta(min_length=1, max_length=128)]
Prompt = Annotated[str, Meta(min_length=1, max_length=8192)]
Role = Annotated[str, Meta(min_length=10, max_length=1024)]
Sentences = list[Annotated[str, Meta(max_length=2048)]]
Variable = Annotated[str, Meta(min_length=1, max_length=256)]
Variables = list[Variable]
Identifier = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")]
Version = Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\Z")]
Scalar = str | int | float | bool | None
Quantity = int | float | str


class _Operators(msgspec.Struct, kw_only=True):
    """What a variable can be compared with."""

    equals: Scalar | UnsetType = UNSET
    not_equals: Scalar | UnsetType = UNSET
    gt: Quantity | UnsetType = UNSET
    gte: Quantity | UnsetType = UNSET
    lt: Quantity | UnsetType = UNSET
    lte: Quantity | UnsetType = UNSET
    in_: list[Scalar] | UnsetType = field(name="in", default=UNSET)
    contains: Scalar | UnsetType = UNSET
    exists: bool | UnsetType = UNSET


class Comparison(_Operators, kw_only=True, forbid_unknown_fields=True):
    """A variable and what it is compared with; the innermost part of a condition."""

    var: Variable


class _Logic(_Operators, kw_only=True):
    """What conditions that may hold others have in common: either a variable, or logic over others."""

    var: Variable | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.var is UNSET and _operators(self) != _NO_OPERATORS:
            raise ValueError("an operator without a variable")


_operators: Final = operator.attrgetter(*_Operators.__struct_fields__)
_NO_OPERATORS: Final = (UNSET,) * len(_Operators.__struct_fields__)


class InnerCondition(_Logic, kw_only=True, forbid_unknown_fields=True):
    """A condition inside another; it must say something."""

    and_: list[Comparison] | UnsetType = field(name="and", default=UNSET)
    or_: list[Comparison] | UnsetType = field(name="or", default=UNSET)
    not_: Comparison | UnsetType = field(name="not", default=UNSET)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.var is UNSET and self.and_ is UNSET and self.or_ is UNSET and self.not_ is UNSET:
            raise ValueError("an empty condition inside another")


class Condition(_Logic, kw_only=True, forbid_unknown_fields=True):
    """A condition as a step or a rule has it."""

    and_: list[InnerCondition] | UnsetType = field(name="and", default=UNSET)
    or_: list[InnerCondition] | UnsetType = field(name="or", default=UNSET)
    not_: InnerCondition | UnsetType = field(name="not", default=UNSET)


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    """A rule, or nothing much: criteria that are not well-formed keep no document from loading."""

    type: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    value: str | UnsetType = UNSET
    pattern: str | UnsetType = UNSET
    flags: str | UnsetType = UNSET
    min: int | UnsetType = UNSET
    max: int | UnsetType = UNSET
    schema: msgspec.Raw = msgspec.Raw()
    condition: Condition | UnsetType = UNSET


class InnerCriterion(Rule, forbid_unknown_fields=True):
    """A rule, or a composition of rules."""

    and_: list[Rule | str] | UnsetType = field(name="and", default=UNSET)
    or_: list[Rule | str] | UnsetType = field(name="or", default=UNSET)
    not_: Rule | str | UnsetType = field(name="not", default=UNSET)


class Criterion(Rule, forbid_unknown_fields=True):
    """A rule, or a composition of rules and compositions."""

    and_: list[InnerCriterion | str] | UnsetType = field(name="and", default=UNSET)
    or_: list[InnerCriterion | str] | UnsetType = field(name="or", default=UNSET)
    not_: InnerCriterion | str | UnsetType = field(name="not", default=UNSET)


class Call(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A call of a tool, with arguments that do not nest."""

    server: Annotated[str, Meta(min_length=1, max_length=256)]
    tool: Annotated[str, Meta(min_length=1, max_length=256)]
    arguments: dict[str, Scalar] | UnsetType = UNSET
    save_as: Identifier | UnsetType = UNSET
    retries: Annotated[int, Meta(ge=0, le=100)] | UnsetType = UNSET
    timeout_seconds: Annotated[float, Meta(gt=0, le=86400)] | UnsetType = UNSET


class _Step(msgspec.Struct, kw_only=True, rename="camel"):
    """What every step may have."""

    id: Id
    title: Title
    agent_role: Role | UnsetType = UNSET
    guidance: list[str] | UnsetType = UNSET
    ask_for_files: bool | UnsetType = UNSET
    require_confirmation: bool | Condition | UnsetType = UNSET
    run_condition: Condition | UnsetType = UNSET
    validation_criteria: list[Criterion | str] | Criterion | UnsetType = UNSET
    has_validation: bool | UnsetType = UNSET
    output_contract: dict[str, str] | UnsetType = UNSET
    requires: Variables | UnsetType = UNSET
    produces: Variables | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    when_exhausted: Literal["fail", "ask"] | UnsetType = UNSET


class PromptStep(_Step, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A step in the body of a loop."""

    prompt: Prompt | UnsetType = UNSET
    call: Call | UnsetType = UNSET
    type: Literal["standard"] = "standard"

    def __post_init__(self) -> None:
        if self.prompt is UNSET and self.call is UNSET:
            raise ValueError("nothing to do")


class Loop(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """How often a body is repeated; each type wants its own field."""

    type: Literal["while", "until", "for", "forEach"]
    max_iterations: Annotated[int, Meta(ge=1, le=1000)]
    condition: Condition | UnsetType = UNSET
    count: Annotated[int, Meta(ge=0, le=1000)] | Variable | UnsetType = UNSET
    items: Variable | UnsetType = UNSET
    iteration_var: Identifier | UnsetType = UNSET
    item_var: Identifier | UnsetType = UNSET
    index_var: Identifier | UnsetType = UNSET

    def __post_init__(self) -> None:
        if {"for": self.count, "forEach": self.items}.get(self.type, self.condition) is UNSET:
            raise ValueError("a loop without what it loops by")


class Step(_Step, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A prompt step, or a loop whose body is written into it."""

    type: Literal["standard", "loop"] = "standard"
    prompt: Prompt | UnsetType = UNSET
    call: Call | UnsetType = UNSET
    loop: Loop | UnsetType = UNSET
    body: Annotated[list[PromptStep], Meta(min_length=1)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.type == "standard":
            has_nothing = self.prompt is UNSET and self.call is UNSET
            if has_nothing or self.loop is not UNSET or self.body is not UNSET:
                raise ValueError("no prompt step")
        elif self.loop is UNSET or self.body is UNSET or any(getattr(self, name) is not UNSET for name in _PROMPT_ONLY):
            raise ValueError("no loop")


_PROMPT_ONLY: Final = (
    "prompt",
    "call",
    "agent_role",
    "ask_for_files",
    "validation_criteria",
    "has_validation",
    "output_contract",
    "max_attempts",
    "when_exhausted",
)


class Document(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What `workflow_list` shows of a document, and proof that the rest of it is sound."""

    id: Id
    name: Annotated[str, Meta(min_length=1, max_length=128)]
    description: Annotated[str, Meta(min_length=1, max_length=512)]
    steps: Annotated[list[Step], Meta(min_length=1)]
    version: Version = DEFAULT_VERSION
    category: Annotated[str, Meta(min_length=1, max_length=64)] = DEFAULT_CATEGORY
    preconditions: Sentences | UnsetType = UNSET
    clarification_prompts: Sentences | UnsetType = UNSET
    meta_guidance: Sentences | UnsetType = UNSET
    about: Annotated[str, Meta(min_length=1, max_length=4096)] | UnsetType = UNSET
    recommended_preferences: dict[str, str] | UnsetType = UNSET
    execution_type: Literal["sync", "async"] | UnsetType = UNSET
    metadata: dict[str, Scalar] | UnsetType = UNSET


_decoder: Final = msgspec.json.Decoder(Document)
_IDS: Final = re.compile(r"[a-z0-9-][a-z0-9._-]*(\n[a-z0-9-][a-z0-9._-]*)*")


def quick_yes(text: bytes) -> Document | None:
    """The document if it is sound beyond doubt; None when it takes a longer look."""
    try:
        document = _decoder.decode(text)
        if b'"schema"' in text and deeper_than(msgspec.json.decode(text), MAX_NESTING):
            return None  # JSON Schemas are the one thing here that is not looked into
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    ids = [step.id for step in document.steps]
    for step in document.steps:
        if step.body is not UNSET:
            ids += [inner.id for inner in step.body]
    together = "\n".join((document.id, *ids))
    is_sound = len(set(ids)) == len(ids) == together.count("\n") and _IDS.fullmatch(together)
    return document if is_sound else None
