"""Documents and arguments made to cost a server time or memory: each with the requests that set it off.

What an author or a caller can write is small; what it makes a server do need not be. Every bomb here took seconds, or
hundreds of megabytes, before it was bounded.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from support.json_values import Json, JsonObject
from support.make import document, loop, step

Request = tuple[str, JsonObject]


class Bomb(NamedTuple):
    """Files of a library, by name, and requests."""

    files: Mapping[str, bytes]
    requests: Sequence[Request]


BOMBS: dict[str, Callable[[], Bomb]] = {}


def bomb(make: Callable[[], Bomb]) -> Callable[[], Bomb]:
    BOMBS[make.__name__.replace("_", " ")] = make
    return make


def _text(content: Json) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _next(context: Json = None, completed: Sequence[str] = (), identifier: str = "sample-workflow") -> Request:
    return "workflow_next", {"workflowId": identifier, "completedSteps": list(completed), "context": context or {}}


def _judge(output: str, step_id: str = "first-step", context: Json = None) -> Request:
    params = {"workflowId": "sample-workflow", "stepId": step_id, "output": output, "context": context or {}}
    return "workflow_validate", params


def _everywhere(content: JsonObject, *requests: Request) -> Bomb:
    """The document as text for the author's tool, loaded from a file, listed, opened, and what else is asked."""
    text = _text(content)
    about = {"id": content["id"]}
    everywhere: list[Request] = [
        ("workflow_validate_json", {"workflowJson": text.decode()}),
        ("workflow_list", {}),
        ("workflow_get", about),
        *requests,
    ]
    return Bomb({"bomb.json": text}, everywhere)


def _of_schema(schema: Json, value: Json) -> Bomb:
    """A JSON Schema at every place where an author may write one, and a value for it."""
    rule = {"type": "schema", "schema": schema, "message": "m"}
    output = json.dumps(value)
    content = document(
        step(validationCriteria=[rule]),
        step("second-step", produces={"it": {"schema": schema}}),
        contextSchema={"properties": {"it": schema}},
        inputSchema={"properties": {"it": schema}},
    )
    if isinstance(schema, dict) and "$defs" in schema:  # references start at the top of the whole schema
        content["contextSchema"] = content["inputSchema"] = schema
    small = value if len(output) < 200_000 else None
    return _everywhere(
        content,
        _judge(output),
        _judge(output, "second-step"),
        _next({"it": small}),
        ("workflow_start", {"workflowId": "sample-workflow", "context": {"it": small}, "input": {"it": small}}),
    )


def _of_patterns(patterns: Sequence[str], text: str) -> Bomb:
    rules = [{"type": "regex", "pattern": pattern, "message": "m"} for pattern in patterns]
    captures = {f"v{number}": {"pattern": pattern} for number, pattern in enumerate(patterns)}
    content = document(
        step(validationCriteria=rules),
        step("captured", produces=captures),
        *[step(f"step-{n}", runCondition={"var": "text", "matches": pattern}) for n, pattern in enumerate(patterns)],
        step("last-step"),
    )
    done = ["first-step", "captured"]
    return _everywhere(content, _judge(text), _judge(text, "captured"), _next({"text": text}, done))


# ── patterns ────────────────────────────────────────────────────────────────────────────────────────────────────────


@bomb
def a_pattern_that_repeats_ten_million_times() -> Bomb:
    return _of_patterns(["a{10000000}", "(?:a{0,3000}){0,3000}", "a{0,10000000}", "(?=a{1000000})b"], "a" * 5_000)


@bomb
def patterns_of_one_long_text() -> Bomb:
    patterns = ["a" * 4_000, "(?=b)" + "ab" * 1_900, "x?" + ("a" * 150 + "(?:[a]){1}") * 20]
    return _of_patterns(patterns, "\u00e9" + "ab" * 5_000 + "a" * 5_000)


@bomb
def many_patterns_that_repeat_a_million_times() -> Bomb:
    patterns = [f"a{{{1_000_000 + number}}}" for number in range(20)]
    patterns += [f"(?:a|b){{0,{1_000_000 + number}}}c" for number in range(20)]
    return _of_patterns(patterns, "a" * 5_000)


@bomb
def sixty_patterns_that_are_large_once_compiled() -> Bomb:
    return _of_patterns([rf"(?:\w\W\s\S{number}){{0,250}}" for number in range(60)], "a" * 5_000 + "\u00e9")


@bomb
def sixty_patterns_of_classes_of_unicode() -> Bomb:
    return _of_patterns([rf"[^\w{number}]{{1,255}}\p{{L}}{{1,255}}" for number in range(60)], "a" * 5_000 + "\u00e9")


@bomb
def five_thousand_patterns() -> Bomb:
    steps = [step(f"step-{n}", runCondition={"var": "text", "matches": f"^a{n}[b-z]+$"}) for n in range(5_000)]
    return _everywhere(document(*steps, step("last-step")), _next({"text": "zzz\u00e9"}), _next({"text": "zzz"}))


@bomb
def patterns_in_schemas() -> Bomb:
    large = {f"p{n}": {"pattern": rf"^[\w.-]{{1,{255 - n}}}$"} for n in range(60)}
    return _of_schema({"type": "object", "properties": large}, {"p1": "a" * 100_000})


@bomb
def patterns_of_names_in_schemas() -> Bomb:
    patterns: JsonObject = {f"^(?:a|b){{0,{1_000 + n}}}c": {} for n in range(100)}
    return _of_schema({"patternProperties": patterns}, {"a" * 200 + str(n): n for n in range(500)})


@bomb
def a_pattern_in_a_schema_that_repeats_a_million_times() -> Bomb:
    return _of_schema({"anyOf": [{"pattern": "a{1000000}"}, {"pattern": "(?:a{1,1000}){1,1000}(?=b)"}]}, "a" * 5_000)


# ── JSON Schemas ────────────────────────────────────────────────────────────────────────────────────────────────────


def _nested(depth: int) -> Json:
    value: Json = 1
    for _ in range(depth):
        value = {"x": value}
    return value


@bomb
def a_schema_with_two_references_a_level() -> Bomb:
    inner = {"properties": {"x": {"$ref": "#/$defs/a"}}}
    return _of_schema({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [inner, inner]}}}, _nested(60))


@bomb
def a_schema_with_two_references_to_itself_a_level() -> Bomb:
    return _of_schema({"allOf": [{"properties": {"x": {"$ref": "#"}}}] * 2, "$defs": {}}, _nested(60))


@bomb
def a_schema_whose_references_multiply_by_anchors() -> Bomb:
    parts = {f"a{n}": {"$anchor": f"a{n}", "allOf": [{"$ref": f"#a{n + 1}"}] * 2} for n in range(40)}
    return _of_schema({"$ref": "#a0", "$defs": {**parts, "a40": {"$anchor": "a40", "type": "integer"}}}, 1)


@bomb
def a_schema_whose_references_multiply_by_ids() -> Bomb:
    parts = {f"a{n}": {"$id": f"http://x.test/a{n}", "allOf": [{"$ref": f"a{n + 1}"}] * 2} for n in range(40)}
    last = {"a40": {"$id": "http://x.test/a40", "type": "integer"}}
    return _of_schema({"$id": "http://x.test/", "$ref": "a0", "$defs": {**parts, **last}}, 1)


@bomb
def a_schema_whose_dynamic_references_multiply() -> Bomb:
    inner = {"properties": {"x": {"$dynamicRef": "#node"}}}
    return _of_schema({"$dynamicAnchor": "node", "allOf": [inner, inner], "$defs": {}}, _nested(60))


@bomb
def a_schema_whose_references_multiply_by_ids_of_draft_4() -> Bomb:
    def part(n: int) -> Json:
        return {"$id": f"http://y.test/{n}", "id": f"http://x.test/a{n}"}

    parts = {f"a{n}": {**part(n), "allOf": [{"$ref": f"http://x.test/a{n + 1}"}] * 2} for n in range(40)}
    parts["a40"] = {**part(40), "type": "integer"}
    draft_4 = "http://json-schema.org/draft-04/schema#"
    return _of_schema({"$schema": draft_4, "$ref": "http://x.test/a0", "definitions": parts, "$defs": {}}, 1)


@bomb
def a_schema_whose_references_multiply_by_other_spellings() -> Bomb:
    parts = {f"a{n}": {"$id": f"HTTP://X.test/a{n}", "allOf": [{"$ref": f"a{n + 1}"}] * 2} for n in range(40)}
    last = {"a40": {"$id": "http://x.test/b/%2e%2e/a40", "type": "integer"}}
    return _of_schema({"$id": "http://x.test/", "$ref": "a0", "$defs": {**parts, **last}}, 1)


@bomb
def a_schema_of_metaschemas() -> Bomb:
    tests = [{"$ref": "https://json-schema.org/draft/2020-12/schema", "title": f"t{n}"} for n in range(3_000)]
    return _of_schema({"allOf": tests}, {f"k{n}": {"type": "string"} for n in range(5_000)})


@bomb
def errors_that_repeat_a_large_constant() -> Bomb:
    return _of_schema({"items": {"const": list(range(35_000))}}, [0] * 1_000)


@bomb
def errors_that_repeat_a_large_value() -> Bomb:
    tests = [{"type": "string", "title": f"t{n}"} for n in range(1_000)]
    return _of_schema({"allOf": tests, "anyOf": tests}, list(range(40_000)))


@bomb
def alternatives_for_thousands_of_wrong_items() -> Bomb:
    return _of_schema({"items": {"anyOf": [{"const": f"choice {n}"} for n in range(200)]}}, [0] * 4_000)


@bomb
def large_alternatives_for_one_wrong_item() -> Bomb:
    return _of_schema({"anyOf": [{"items": {"type": "string"}, "title": f"t{n}"} for n in range(300)]}, [0] * 20_000)


@bomb
def a_long_enumeration_for_a_long_list() -> Bomb:
    return _of_schema({"items": {"enum": [f"choice {n}" for n in range(12_000)]}}, ["choice"] * 20_000)


@bomb
def multiples_of_a_tiny_fraction() -> Bomb:
    return _of_schema({"items": {"multipleOf": 1e-300}}, [1e300] * 150_000)


@bomb
def objects_that_must_be_unique() -> Bomb:
    return _of_schema({"uniqueItems": True}, [{"a": n} for n in range(20_000)])


@bomb
def unevaluated_properties_a_level() -> Bomb:
    node = {"properties": {"x": {"$ref": "#/$defs/a"}}, "unevaluatedProperties": False}
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [node], "unevaluatedProperties": False}}}
    return _of_schema(schema, _nested(60))


@bomb
def unevaluated_properties_of_many_parts() -> Bomb:
    parts = [{"properties": {f"p{n}": True}} for n in range(200)]
    schema = {"items": {"allOf": parts, "unevaluatedProperties": False}}
    return _of_schema(schema, [{f"p{n}": 1 for n in range(100)}] * 180)


@bomb
def constants_that_are_compared_part_by_part() -> Bomb:
    constants = [{"const": {"a": list(range(60)), "b": n}} for n in range(600)]
    return _of_schema({"items": {"oneOf": constants}}, [{"a": list(range(60)), "b": -1}] * 900)


@bomb
def a_schema_that_contains_and_excludes() -> Bomb:
    tests = [{"contains": {"not": {"const": n}}, "minContains": 30_000} for n in range(300)]
    return _of_schema({"allOf": tests}, list(range(20_000)))


@bomb
def thousands_of_schemas() -> Bomb:
    produced = {f"v{n}": {"type": "string", "pattern": f"^[a-z]{{1,{n % 90 + 9}}}$"} for n in range(9_000)}
    content = document(step(produces=produced), contextSchema={"properties": produced})
    return _everywhere(content, _judge("v1: x"), _next({"v1": 1}))


# ── YAML ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _yaml(text: str) -> Bomb:
    head = "id: sample-workflow\nname: N\ndescription: D\nsteps: [{id: first-step, title: T, prompt: P}]\n"
    return Bomb({"bomb.yaml": (head + text).encode()}, [("workflow_list", {}), ("workflow_get", {"id": "bomb"})])


@bomb
def yaml_merge_keys() -> Bomb:
    base = "x-base: &b {" + ", ".join(f"k{n}: 1" for n in range(5_000)) + "}\n"
    return _yaml(base + "x-all:\n" + "".join("  - {<<: *b}\n" for _ in range(10_000)))


@bomb
def yaml_merge_keys_of_lists() -> Bomb:
    base = "x-base: &b {" + ", ".join(f"k{n}: 1" for n in range(2_000)) + "}\n"
    return _yaml(base + "x-all: {<<: [" + ", ".join(["*b"] * 40_000) + "]}\n")


@bomb
def yaml_merge_keys_that_grow() -> Bomb:
    lines = ["x-all:", "  - &a0 {k: 1}"]
    lines += [f"  - &a{n} {{<<: *a{n - 1}, k{n}: 1}}" for n in range(1, 6_000)]
    return _yaml("\n".join(lines))


@bomb
def yaml_aliases_that_multiply() -> Bomb:
    lines = ["x-all:", "  - &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"  - &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    return _yaml("\n".join(lines))


@bomb
def yaml_of_a_megabyte() -> Bomb:
    return _yaml("x-all: [" + "1," * 500_000 + "]\n")


@bomb
def yaml_of_anchors() -> Bomb:
    return _yaml("x-all: [" + ",".join(f"&a{n} 1" for n in range(80_000)) + "]\n")


@bomb
def yaml_of_keys() -> Bomb:
    return _yaml("x-all: {" + ", ".join(f"k{n}: {n}" for n in range(70_000)) + "}\n")


# ── walking ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@bomb
def a_loop_over_a_condition_on_a_long_list() -> Bomb:
    condition = {"var": "words", "contains": "nowhere"}
    body = [step("inner-step", runCondition=condition)]
    content = document(loop("many", body, type="for", count=1_000, maxIterations=1_000), step("last-step"))
    return _everywhere(content, _next({"words": ["some word"] * 20_000}))


@bomb
def a_loop_over_conditions_on_a_long_text() -> Bomb:
    condition = {"or": [{"var": "text", "endsWith": f"nowhere {n}"} for n in range(20)]}
    body = [step("inner-step", runCondition=condition)]
    content = document(loop("many", body, type="for", count=1_000, maxIterations=1_000), step("last-step"))
    return _everywhere(content, _next({"text": "\u00e9x" * 80_000}))


@bomb
def a_loop_over_a_context_of_many_variables() -> Bomb:
    body = [step("inner-step", runCondition={"var": "x"})]
    content = document(loop("many", body, type="for", count=1_000, maxIterations=1_000), step("last-step"))
    return _everywhere(content, _next({f"a.{n}": n for n in range(15_000)}))


@bomb
def a_condition_on_one_of_many_choices() -> Bomb:
    condition = {"var": "x", "in": [f"choice {n}" for n in range(10_000)]}
    body = [step("inner-step", runCondition=condition)]
    content = document(loop("many", body, type="for", count=1_000, maxIterations=1_000), step("last-step"))
    return _everywhere(content, _next({"x": "none"}), _next({"x": "none"}, ["last-step"]))


@bomb
def three_thousand_loops_in_a_row() -> Bomb:
    loops = [loop(f"loop-{n}", [step(f"step-{n}")], type="for", count="n") for n in range(3_000)]
    return _everywhere(
        document(*loops, step("last-step")), _next({"n": 0}), _next({"n": 1}), _next({"n": 2}, ["step-2900@1"])
    )


@bomb
def credits_for_many_loops() -> Bomb:
    loops = [loop(f"loop-{n}", [step(f"step-{n}")], type="for", count=3) for n in range(3_000)]
    return _everywhere(document(*loops, step("last-step")), _next({}, [f"step-{n}" for n in range(3_000)]))


@bomb
def loops_in_loops() -> Bomb:
    inner: Any = [step("inner-step", runCondition={"var": "x"})]
    for depth in range(6):
        inner = [loop(f"loop-{depth}", inner, type="for", count=10)]
    return _everywhere(document(*inner, step("last-step")), _next({}), _next({}, ["last-step"]))


@bomb
def four_hundred_thousand_completed_ids() -> Bomb:
    body = [step("inner-step"), step("other-step")]
    content = document(loop("many", body, type="for", count=1_000, maxIterations=1_000), step("last-step"))
    ids = [f"inner-step@{n}" for n in range(400_000)]
    return _everywhere(content, _next({}, ids), _next({}, [f"unknown-{n}" for n in range(400_000)]))


@bomb
def four_hundred_thousand_completed_ids_and_a_contract() -> Bomb:
    body = [step("inner-step", produces=["x", "y"])]
    content = document(loop("many", body, type="for", count=1_000, maxIterations=1_000), step("last-step"))
    return _everywhere(content, _next({}, [f"inner-step@{n}" for n in range(400_000)]))


# ── judging ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@bomb
def thousands_of_texts_in_a_long_output() -> Bomb:
    rules = [{"type": "contains", "value": f"Nowhere {n}", "message": ""} for n in range(10_000)]
    return _everywhere(document(step(validationCriteria=rules)), _judge("\u00e9 word " * 100_000))


@bomb
def thousands_of_schemas_for_an_output() -> Bomb:
    rules = [{"type": "schema", "schema": {"items": {"maximum": -n}}, "message": ""} for n in range(5_000)]
    return _everywhere(document(step(validationCriteria=rules)), _judge(json.dumps([1] * 50_000)))


@bomb
def thousands_of_alternatives_in_alternatives() -> Bomb:
    group: Any = {"type": "contains", "value": "x", "message": "m"}
    for _ in range(50):
        group = {"not": {"and": [group]}}
    return _everywhere(document(step(validationCriteria=[group] * 300)), _judge("word"))


@bomb
def captures_from_an_output_of_many_lines() -> Bomb:
    produced = {f"variable{n}": {"type": "string"} for n in range(3_000)}
    return _everywhere(document(step(produces=produced)), _judge("a line: x\n" * 50_000))


@bomb
def marks_around_a_captured_value() -> Bomb:
    return _everywhere(document(step(produces={"it": {"type": "string"}})), _judge("it: " + "*" * 1_000_000 + "x"))


@bomb
def quotes_around_a_captured_value() -> Bomb:
    return _everywhere(document(step(produces={"it": {"type": "string"}})), _judge("it: " + "'" * 1_000_000))


@bomb
def templates_by_the_thousand() -> Bomb:
    texts = [f"{{{{v{n}}}}} {{{{long}}}}" for n in range(20_000)]
    rules = [{"type": "contains", "value": "{{long}} {{v1}}", "message": "{{long}}"} for _ in range(2_000)]
    content = document(step(guidance=texts), step("second-step", validationCriteria=rules))
    context = {"long": "x" * 100_000, "v1": "y"}
    return _everywhere(content, _next(context), _judge("word", "second-step", context))


# ── documents ───────────────────────────────────────────────────────────────────────────────────────────────────────


@bomb
def two_thousand_conditions_of_seven_parts() -> Bomb:
    def condition(n: int) -> JsonObject:
        return {"and": [{"var": f"v{part}", "gt": n, "lt": n + part} for part in range(7)]}

    return _everywhere(document(*[step(f"step-{n}", runCondition=condition(n)) for n in range(2_000)]))


@bomb
def conditions_with_many_constants() -> Bomb:
    def condition(n: int) -> JsonObject:
        return {"or": [{"var": f"v{part % 2}", "in": [f"c{n}.{k}" for k in range(4)]} for part in range(7)]}

    return _everywhere(document(*[step(f"step-{n}", runCondition=condition(n)) for n in range(2_000)]))


@bomb
def a_condition_of_thousands_of_parts() -> Bomb:
    condition = {"and": [{"var": "x", "not_equals": n} for n in range(15_000)]}
    steps = [step(f"step-{n}", runCondition={"or": [{"var": "y"}, {"var": "x", "gt": n}]}) for n in range(100)]
    return _everywhere(document(step(runCondition=condition), *steps, step("last-step")), _next({"x": -1}))


@bomb
def three_thousand_variables_of_a_contract() -> Bomb:
    names = [f"variable{n}" for n in range(3_000)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
    content = document(step(requires=names), step("second-step", requires=names), contextSchema=schema)
    wrong = dict.fromkeys(names, 1)
    start: Request = ("workflow_start", {"workflowId": "sample-workflow", "context": wrong})
    return _everywhere(content, _next(), _next(wrong), start)


@bomb
def thousands_of_steps_under_a_contract() -> Bomb:
    names = [f"v{n}" for n in range(3_000)]
    steps = [step(f"step-{n}", requires=[names[n]], produces=[names[n - 1]]) for n in range(3_000)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
    return _everywhere(document(*steps, contextSchema=schema), _next(), _next({}, [f"step-{n}" for n in range(2_000)]))


@bomb
def thousands_of_functions() -> Bomb:
    functions = [{"name": f"function{n}", "definition": "d"} for n in range(4_500)]
    calls = [step(f"step-{n}", functionCalls=[{"name": f"function{n}", "args": {}}]) for n in range(4_500)]
    return _everywhere(document(*calls, functionDefinitions=functions), _next())


@bomb
def thousands_of_references_to_functions() -> Bomb:
    functions = [{"name": f"function{n}", "definition": "d"} for n in range(4_500)]
    steps = [step(f"step-{n}", functionReferences=[f"unction{n}()"]) for n in range(4_500)]
    return _everywhere(document(*steps, functionDefinitions=functions), _next())


@bomb
def thousands_of_undefined_functions() -> Bomb:
    functions = [{"name": "f" * 60 + str(n), "definition": "d"} for n in range(4_500)]
    calls = [{"name": "f" * 59 + f"{n}", "args": {}} for n in range(4_500)]
    return _everywhere(document(step(functionCalls=calls), functionDefinitions=functions))


@bomb
def arguments_of_long_enumerations() -> Bomb:
    parameters = [{"name": "p", "type": "string", "enum": [f"c{n}" for n in range(20_000)]}]
    calls = [{"name": "f", "args": {"p": "none"}} for _ in range(5_000)]
    functions = [{"name": "f", "definition": "d", "parameters": parameters}]
    return _everywhere(document(step(functionCalls=calls), functionDefinitions=functions))


@bomb
def thousands_of_misfits_in_a_document() -> Bomb:
    steps = [{"id": f"step-{n}", "title": 1, "prompt": 2, "runCondition": {"or": 1}} for n in range(8_000)]
    return _everywhere(document(*steps))


@bomb
def thousands_of_criteria_that_are_malformed() -> Bomb:
    steps = [step(f"step-{n}", validationCriteria=[{"type": "regexp"}] * 200) for n in range(200)]
    return _everywhere(document(*steps), _judge("x", "step-1"), _next())


@bomb
def tens_of_thousands_of_misfits_in_a_document() -> Bomb:
    return _everywhere(document(*[{"id": n} for n in range(40_000)]))


@bomb
def misfits_deep_in_a_document() -> Bomb:
    rules = [{"type": 1, "message": 2}] * 20_000
    return _everywhere(document(loop("many", [step(validationCriteria=rules), *[{"id": 1}] * 20_000], type="for")))


@bomb
def loops_in_a_document_that_lead_nowhere() -> Bomb:
    loops = [loop(f"loop-{n}", f"{'lop' * 15}-{n}", type="for", count=1) for n in range(4_000)]
    return _everywhere(document(*loops))


@bomb
def an_example_of_a_branching_schema() -> Bomb:
    schema: Json = {"type": "string"}
    for _ in range(12):
        schema = {"anyOf": [schema, schema], "oneOf": [schema, schema], "allOf": [schema, schema]}
    schema = {"anyOf": [{"anyOf": [{"type": "object", "properties": {f"p{n}": {} for n in range(5_000)}}] * 2}] * 2}
    return _everywhere(document(step(requires=["it"]), contextSchema={"properties": {"it": schema}}), _next())


def _page(body: str) -> Bomb:
    text = "---\nid: bomb\nname: B\ndescription: D\n---\n## One {#one}\n" + body
    return Bomb({"bomb.workflow.md": text.encode()}, [("workflow_list", {}), ("workflow_get", {"id": "bomb"})])


@bomb
def lists_in_quotes_in_markdown() -> Bomb:
    return _page(("> - " * 4 + "a\n") * 9_900)


@bomb
def blanks_in_a_heading_in_markdown() -> Bomb:
    return _page("## a" + " " * 900_000 + "{#b}c")


@bomb
def a_criterion_of_many_slashes_in_markdown() -> Bomb:
    return _page("### Criteria\n- matches /" + "/i " * 300_000 + "\n  and so on" * 9_000)


@bomb
def aliases_in_step_blocks_in_markdown() -> Bomb:
    block = "```step\na: &a [1, 2, 3]\n" + "".join(f"b{n}: [*a, *a, *a, *a]\n" for n in range(40)) + "```\n"
    return _page("".join(f"## Step {{#s-{number}}}\n{block}" for number in range(200)))


def bombs() -> Iterator[tuple[str, Bomb]]:
    """Every bomb, one at a time."""
    return ((name, make()) for name, make in BOMBS.items())
