"""What can be proved of a condition before anything is known: always true, never true, or neither."""

import random
import zlib
from types import MappingProxyType

import pytest

from support.json_values import Json, JsonObject
from support.make import document, step
from workflowlookup.authoring.lint.checks import lint
from workflowlookup.language import conditions
from workflowlookup.language.conditions import OPERATORS, Operator, evaluate
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.formats.schemas import compile_schema
from workflowlookup.language.verdicts import VariableDeclaration, verdict

SIZES = {"enum": ["S", "M", "L"]}

VERDICTS = [
    # condition, schema of x, outcome
    ({"var": "x", "equals": "XL"}, SIZES, False),
    ({"var": "x", "equals": " m "}, SIZES, None),
    ({"var": "x", "not_equals": "XL"}, SIZES, True),
    ({"var": "x", "in": ["S", "M", "L"]}, SIZES, None),  # it may be missing
    ({"var": "x", "in": ["XL", "XXL"]}, SIZES, False),
    ({"var": "x", "startsWith": "X"}, SIZES, False),
    ({"var": "x", "matches": "^[sml]$"}, SIZES, None),
    ({"var": "x", "gt": 3}, SIZES, False),
    ({"var": "x", "not_equals": 4}, {"const": 3}, True),
    ({"var": "x", "equals": "3"}, {"const": 3}, None),
    ({"var": "x", "gt": 3}, {"type": "boolean"}, False),
    ({"var": "x", "gt": 3}, {"type": "array"}, False),
    ({"var": "x", "gt": 3}, {"type": "string"}, None),  # "7" reads as a number
    ({"var": "x", "equals": "yes"}, {"type": "boolean"}, None),
    ({"var": "x", "equals": "maybe"}, {"type": "boolean"}, False),
    ({"var": "x", "equals": 1}, {"type": "boolean"}, False),
    ({"var": "x", "lt": 0}, {"type": "integer", "minimum": 0}, False),
    ({"var": "x", "lte": 0}, {"type": "integer", "minimum": 0}, None),
    ({"var": "x", "lte": 0}, {"type": "integer", "exclusiveMinimum": 0}, False),
    ({"var": "x", "gt": 1, "lt": 2}, {"type": "integer"}, False),
    ({"var": "x", "gt": 1, "lt": 2}, {"type": "number"}, None),
    ({"var": "x", "gt": 1.2, "lt": 2.9}, {"type": "integer"}, None),
    ({"var": "x", "equals": 2.5}, {"type": "integer"}, False),
    ({"var": "x", "gt": 5, "lt": 3}, True, False),
    ({"var": "x", "gt": 3, "lt": 5}, True, None),
    ({"var": "x", "gt": "a"}, True, False),
    ({"var": "x", "in": []}, True, False),
    ({"var": "x", "matches": "("}, True, False),
    ({"var": "x", "contains": "a"}, True, None),
    ({"var": "x", "contains": "a", "exists": False}, True, False),
    ({"or": []}, True, False),
    ({}, True, True),
    ({"and": [{"var": "x", "equals": 1}, {"var": "x", "equals": 2}]}, True, False),
    ({"and": [{"var": "x", "equals": 1}, {"var": "x", "equals": "1.0"}]}, True, None),
    ({"and": [{"var": "x", "equals": "1"}, {"var": "x", "equals": True}]}, True, None),  # "1" is both
    ({"and": [{"var": "x", "equals": 1}, {"var": "x", "equals": True}]}, True, None),  # and "1" is these too
    ({"and": [{"var": "x", "equals": 2}, {"var": "x", "equals": True}]}, True, False),
    ({"and": [{"var": "x"}, {"var": "x", "exists": False}]}, True, False),
    ({"or": [{"var": "x", "equals": "a"}, {"var": "x", "not_equals": "a"}]}, True, True),
    ({"or": [{"var": "x", "equals": "a"}, {"var": "x", "not_equals": "b"}]}, True, None),
    ({"or": [{"var": "x", "gt": 5}, {"var": "x", "lte": 5}]}, True, None),  # neither holds for text
    ({"or": [{"var": "x", "contains": "a"}, {"not": {"var": "x", "contains": "a"}}]}, True, None),  # not worth knowing
    ({"not": {"var": "x", "equals": "XL"}}, SIZES, True),
    ({"and": [{"var": "x", "equals": "S"}, {"var": "y", "equals": 1, "gt": 2}]}, SIZES, False),
    ({"var": "x.size", "equals": "XL"}, {"properties": {"size": SIZES}}, False),
    ({"var": "x.color", "equals": "XL"}, {"properties": {"size": SIZES}}, None),
    ({"var": "x", "equals": "XL"}, {"$ref": "#/$defs/size", **SIZES}, None),  # older drafts ignore what is beside $ref
    ({"var": "x", "equals": "XL"}, {"type": "string", "pattern": "^S"}, None),  # what is not understood is not used
    ({"var": "x", "gt": 10**30, "lt": 10**30 + 1}, True, None),  # too large to be sure
]


@pytest.mark.parametrize(("condition", "schema", "outcome"), VERDICTS)
def test_a_condition_is_constant_only_when_that_can_be_proved(
    condition: JsonObject, schema: Json, outcome: bool | None
) -> None:
    assert verdict(condition, {"x": VariableDeclaration(schema)}, Budget()) is outcome


def test_a_variable_that_is_always_set_is_never_missing() -> None:
    condition = {"var": "x", "in": ["S", "M", "L"]}

    assert (
        verdict(condition, {"x": VariableDeclaration(SIZES)}, Budget()),
        verdict(condition, {"x": VariableDeclaration(SIZES, always_set=True)}, Budget()),
    ) == (
        None,
        True,
    )


SCALARS: list[Json] = [
    None,
    True,
    False,
    0,
    1,
    2,
    5,
    2.5,
    -1,
    "",
    "a",
    "A ",
    "b",
    "1",
    "01",
    "2",
    "2.50",
    "yes",
    "no",
    "0",
    [],
    ["a"],
    {},
]
SCHEMAS = [
    *(True, {"type": "integer"}, {"type": "string"}, {"type": "boolean"}, {"enum": ["a", "b", 2, None]}),
    *({"type": "number", "minimum": 1, "maximum": 2.5}, {"type": ["integer", "null"], "exclusiveMinimum": 1}),
]


def random_condition(source: random.Random, depth: int = 2) -> JsonObject:
    kind = source.choice(["var", "var", "and", "or", "not"]) if depth else "var"
    if kind == "not":
        return {"not": random_condition(source, depth - 1)}
    if kind != "var":
        return {kind: [random_condition(source, depth - 1) for _ in range(source.randint(1, 3))]}
    condition: JsonObject = {"var": source.choice("xy")}
    for operator in source.sample(sorted(conditions.OPERATORS), source.randint(0, 2)):
        values = {"in": source.sample(SCALARS, 3), "exists": source.random() < 0.5, "matches": "a"}
        condition[operator] = values.get(operator, source.choice(SCALARS[3:-3]))
    return condition


def test_no_context_proves_a_verdict_wrong() -> None:
    source = random.Random(7)
    constant = 0
    for _ in range(3000):
        condition = random_condition(source)
        schemas = {name: source.choice(SCHEMAS) for name in "xy"}
        outcome = verdict(condition, {name: VariableDeclaration(schema) for name, schema in schemas.items()}, Budget())
        constant += outcome is not None
        fitting = {
            name: [None, *(value for value in SCALARS if compile_schema(schema).is_valid(value))]
            for name, schema in schemas.items()
        }
        for _ in range(60 if outcome is not None else 0):
            context = {name: source.choice(values) for name, values in fitting.items()}
            assert evaluate(condition, context, Budget()) is outcome, (condition, schemas, context)
    assert constant > 300


def unknown(seed: int, share: int) -> conditions.Operator:
    """An operator that holds for a share of all values, and says nothing of itself that an analysis could use."""
    return Operator(
        holds=lambda actual, expected, _: zlib.crc32(repr((seed, actual, expected)).encode()) % 100 < share,
        words="is in some relation to",
    )


@pytest.fixture
def unknown_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {f"unknown{number}": unknown(number, share) for number, share in enumerate((2, 10, 50, 90, 98))}
    monkeypatch.setattr(conditions, "OPERATORS", MappingProxyType({**OPERATORS, **more}))


@pytest.mark.usefixtures("unknown_operators")
def test_no_context_proves_a_verdict_about_unknown_operators_wrong() -> None:
    source = random.Random(11)
    constant = 0
    for _ in range(3000):
        condition = random_condition(source)
        outcome = verdict(condition, {}, Budget())
        constant += outcome is not None
        for _ in range(60 if outcome is not None else 0):
            values = [source.choice(SCALARS), source.randint(-1000, 1000), str(source.random())]
            context = {name: source.choice(values) for name in "xy"}
            assert evaluate(condition, context, Budget()) is outcome, (condition, context)
    assert constant > 100


def divides(actual: Json, expected: Json, _: object) -> bool:
    return isinstance(actual, int) and actual % expected == 0


@pytest.fixture
def divisible_by(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Operator(holds=divides, words="is divisible by")
    monkeypatch.setattr(conditions, "OPERATORS", MappingProxyType({**OPERATORS, "divisibleBy": operator}))


@pytest.mark.usefixtures("divisible_by")
@pytest.mark.parametrize(
    ("condition", "schema", "outcome"),
    [
        ({"var": "x", "gt": 100, "divisibleBy": 2}, True, None),
        ({"not": {"var": "x", "gt": 10, "divisibleBy": 7}}, True, None),
        ({"var": "x", "gt": 100, "lt": 90, "divisibleBy": 2}, True, False),  # whatever it means
        ({"var": "x", "divisibleBy": 2}, {"enum": [1, 3]}, False),  # each of the values can be tried
        ({"var": "x", "divisibleBy": 2}, {"enum": [1, 4]}, None),
        ({"var": "x", "divisibleBy": 2}, {"type": "integer"}, None),
    ],
)
def test_an_unknown_operator_is_evaluated_if_that_proves_something(
    condition: JsonObject, schema: Json, outcome: bool | None
) -> None:
    assert verdict(condition, {"x": VariableDeclaration(schema)}, Budget()) is outcome


@pytest.mark.usefixtures("divisible_by")
@pytest.mark.parametrize(
    "condition", [{"var": "n", "gt": 100, "divisibleBy": 2}, {"not": {"var": "n", "gt": 10, "divisibleBy": 7}}]
)
def test_an_unknown_operator_makes_no_step_dead(condition: JsonObject) -> None:
    content = document(step("first-step", prompt="Set `n`."), step("second-step", runCondition=condition))

    assert {finding.code for finding in lint(content)} == {"WL007", "WL010"}
