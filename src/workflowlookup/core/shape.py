"""A quick yes for documents: most are sound, and decoding them into these structs proves it at the speed of decoding.

A yes here means that `document.check` finds no error; a no means nothing, and the JSON Schema decides. So the structs
may be narrower than `workflow.schema.json`, never wider; a property test holds that. They are not recursive, so that a
yes is never given to what nests deep: two levels of logic and one of loops fit, the rest takes the longer look.
"""

import operator
import string
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from workflowlookup.core.syntax import MAX_NESTING
from workflowlookup.core.values import DEFAULT_CATEGORY, DEFAULT_VERSION, deeper_than

Id = Annotated[str, Meta(min_length=3, max_length=64)]  # its characters are checked for all ids at once
Title = Annotated[str, Meta(min_length=1, max_length=128)]
Prompt = Annotated[str, Meta(min_length=1, max_length=8192)]
Role = Annotated[str, Meta(min_length=10, max_length=1024)]
Sentences = list[Annotated[str, Meta(max_length=2048)]]
Variable = Annotated[str, Meta(min_length=1, max_length=256)]
Variables = list[Variable]
Scalar = str | int | float | bool | None
Quantity = int | float | str


class _Operators(msgspec.Struct, kw_only=True, gc=False):
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


class Confirmation(Condition, kw_only=True, forbid_unknown_fields=True):
    """A condition, or the object that says when a person is asked. One with `answers` is left to the full check."""

    condition: Condition | UnsetType = UNSET
    when: Literal["after", "before"] | UnsetType = UNSET
    by: Literal["anyone", "person"] | UnsetType = UNSET
    question: Annotated[str, Meta(min_length=1, max_length=1024)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        is_object = (self.condition, self.when, self.by, self.question) != (UNSET,) * 4
        if is_object and (self.var, self.and_, self.or_, self.not_) != (UNSET,) * 4:
            raise ValueError("a condition and an object at once")


class Rule(msgspec.Struct, gc=False, forbid_unknown_fields=True):
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


class Call(msgspec.Struct, kw_only=True, gc=False, forbid_unknown_fields=True, rename="camel"):
    """A call of a tool, with arguments that do not nest."""

    server: Annotated[str, Meta(min_length=1, max_length=256)]
    tool: Annotated[str, Meta(min_length=1, max_length=256)]
    arguments: dict[str, Scalar] | UnsetType = UNSET
    save_as: str | UnsetType = UNSET
    retries: Annotated[int, Meta(ge=0, le=100)] | UnsetType = UNSET
    timeout_seconds: Annotated[float, Meta(gt=0, le=86400)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.save_as is not UNSET:
            _refuse_odd_name(self.save_as)


class Capture(msgspec.Struct, kw_only=True, gc=False, forbid_unknown_fields=True, rename="camel"):
    """Where a variable is found in an output, without a pattern and with keywords that always compile."""

    pointer: Annotated[str, Meta(pattern=r"\A(/([^~/]|~[01])*)*\Z")] | UnsetType = UNSET
    optional: bool | UnsetType = UNSET
    description: str | UnsetType = UNSET
    type: Literal["string", "number", "integer", "boolean", "array", "object", "null"] | UnsetType = UNSET
    enum: Annotated[list[str], Meta(min_length=1)] | UnsetType = UNSET
    minimum: int | UnsetType = UNSET
    min_length: Annotated[int, Meta(ge=0, le=1000)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.enum is not UNSET and len(set(self.enum)) != len(self.enum):
            raise ValueError("a value that is listed twice")


class _Step(msgspec.Struct, kw_only=True, gc=False, rename="camel"):
    """What every step may have."""

    id: Id
    title: Title
    agent_role: Role | UnsetType = UNSET
    guidance: list[str] | UnsetType = UNSET
    ask_for_files: bool | UnsetType = UNSET
    require_confirmation: bool | Confirmation | UnsetType = UNSET
    run_condition: Condition | UnsetType = UNSET
    validation_criteria: list[Criterion | str] | Criterion | UnsetType = UNSET
    has_validation: bool | UnsetType = UNSET
    output_contract: dict[str, str] | UnsetType = UNSET
    requires: Variables | UnsetType = UNSET
    produces: Variables | dict[Variable, Capture] | UnsetType = UNSET
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


class Loop(msgspec.Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    """How often a body is repeated; each type wants its own field."""

    type: Literal["while", "until", "for", "forEach"]
    max_iterations: Annotated[int, Meta(ge=1, le=1000)]
    condition: Condition | UnsetType = UNSET
    count: Annotated[int, Meta(ge=0, le=1000)] | Variable | UnsetType = UNSET
    items: Variable | UnsetType = UNSET
    iteration_var: str = "i"
    item_var: str = "i"
    index_var: str = "i"

    def __post_init__(self) -> None:
        for name in (self.iteration_var, self.item_var, self.index_var):
            _refuse_odd_name(name)
        if {"for": self.count, "forEach": self.items}.get(self.type, self.condition) is UNSET:
            raise ValueError("a loop without what it loops by")


def _refuse_odd_name(name: str) -> None:
    if not (name.isidentifier() and name.isascii()):
        raise ValueError("no name of a variable")


class Step(_Step, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A prompt step, or a loop whose body is written into it: which, is for `quick_yes` to see."""

    type: Literal["standard", "loop"] = "standard"
    prompt: Prompt | UnsetType = UNSET
    call: Call | UnsetType = UNSET
    loop: Loop | UnsetType = UNSET
    body: Annotated[list[PromptStep], Meta(min_length=1)] | UnsetType = UNSET


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


class Document(msgspec.Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    """What `workflow_list` shows of a document, and proof that the rest of it is sound."""

    id: Id
    name: Annotated[str, Meta(min_length=1, max_length=128)]
    description: Annotated[str, Meta(min_length=1, max_length=512)]
    steps: Annotated[list[Step], Meta(min_length=1)]
    version: str = DEFAULT_VERSION
    category: Annotated[str, Meta(min_length=1, max_length=64)] = DEFAULT_CATEGORY
    preconditions: Sentences | UnsetType = UNSET
    clarification_prompts: Sentences | UnsetType = UNSET
    meta_guidance: Sentences | UnsetType = UNSET
    about: Annotated[str, Meta(min_length=1, max_length=4096)] | UnsetType = UNSET
    recommended_preferences: dict[str, str] | UnsetType = UNSET
    execution_type: Literal["sync", "async"] | UnsetType = UNSET
    metadata: dict[str, Scalar] | UnsetType = UNSET


_decoder: Final = msgspec.json.Decoder(Document)
_WITHOUT_WHAT_IDS_HAVE: Final = dict.fromkeys(map(ord, f"{string.ascii_lowercase}{string.digits}-._\n"))


def quick_yes(text: bytes) -> Document | None:
    """The document if it is sound beyond doubt; None when it takes a longer look."""
    try:
        document = _decoder.decode(text)
        if b'"schema"' in text and deeper_than(msgspec.json.decode(text), MAX_NESTING):
            return None  # JSON Schemas are the one thing here that is not looked into
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    ids = []
    for step in document.steps:
        ids.append(step.id)
        if step.type == "loop":
            if (
                step.loop is UNSET
                or step.body is UNSET
                or isinstance(step.produces, dict)
                or any(getattr(step, name) is not UNSET for name in _PROMPT_ONLY)
            ):
                return None
            ids += [inner.id for inner in step.body]
        elif (step.prompt is UNSET and step.call is UNSET) or step.loop is not UNSET or step.body is not UNSET:
            return None
    is_sound = len(set(ids)) == len(ids) and _are_ids([document.id, *ids]) and _is_version(document.version)
    return document if is_sound else None


def _are_ids(texts: list[str]) -> bool:
    """Whether all have the characters of ids, and begin as ids do."""
    together = "\n" + "\n".join(texts)
    if together.count("\n") != len(texts) or "\n." in together or "\n_" in together:
        return False
    return not together.translate(_WITHOUT_WHAT_IDS_HAVE)


def _is_version(text: str) -> bool:
    """Three whole numbers, none with a zero before it."""
    parts = text.split(".")
    return (
        len(parts) == 3 and text.isascii() and all(part.isdigit() and (part == "0" or part[0] != "0") for part in parts)
    )
