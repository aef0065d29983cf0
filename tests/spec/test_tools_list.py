"""tools/list: names, descriptions, schemas and examples, compared with the spec.

`SHOWN` is the spec's own list, as it stands there. `OURS` has the places where a decision of ours changes a schema.
"""

import json
from pathlib import Path

import jsonschema_rs
import pytest

from spec.roads import TOOLS, Ask, Publish, invalid_params
from support.client import Server
from support.json_values import Json, JsonObject
from support.make import loop, step

SHOWN: dict[str, JsonObject] = {
    tool["name"]: tool for tool in json.loads(Path(__file__).with_name("examples.json").read_text("utf-8"))["tools"]
}
SHOWN_ID, SHOWN_INSTANCE = "^[a-z0-9._-]+$", "^[a-z0-9._@-]+$"
"""As models see them; the server checks by the next two."""
ID = "^[a-z0-9-][a-z0-9._-]*$"
INSTANCE = r"^[a-z0-9-][a-z0-9._-]*(@[0-9]+(\.[0-9]+)*)?$"
OURS: dict[tuple[str, str], JsonObject] = {
    ("workflow_get", "id"): {"pattern": SHOWN_ID},
    ("workflow_next", "workflowId"): {"pattern": SHOWN_ID},
    ("workflow_next", "currentStep"): {"pattern": SHOWN_INSTANCE, "maxLength": 256},
    ("workflow_next", "completedSteps"): {"items": {"type": "string", "pattern": SHOWN_INSTANCE}},
    ("workflow_validate", "workflowId"): {"pattern": SHOWN_ID},
    ("workflow_validate", "stepId"): {"pattern": SHOWN_INSTANCE, "maxLength": 256},
}
ADDED = {
    "workflow_list": {"category", "query", "limit", "cursor"},
    "workflow_get": {"mode"},
    "workflow_next": set(),
    "workflow_validate": {"context"},
}


@pytest.fixture(scope="module")
def tools(server: Server) -> dict[str, JsonObject]:
    return {tool["name"]: tool for tool in server.result("tools/list", {})["tools"]}


def without_descriptions(schema: Json) -> Json:
    if isinstance(schema, dict):
        return {
            key: without_descriptions(value)
            for key, value in schema.items()
            if key != "description" or not isinstance(value, str)
        }
    return [without_descriptions(item) for item in schema] if isinstance(schema, list) else schema


def of_results(tool: JsonObject) -> JsonObject:
    """The output schema as it is for results, without what it says of refusals, which fit it too."""
    schema = without_descriptions(tool["outputSchema"])
    refusal = {"code": {"type": "integer"}, "message": {"type": "string"}, "data": {"type": "object"}}
    assert {name: schema["properties"].pop(name) for name in refusal} == refusal
    result, refused = schema.pop("anyOf")
    assert (result.keys(), refused) == ({"required"}, {"required": ["code", "message"]})
    return {**schema, **result}


# ── the list ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec(
    "001/tools/exposed",
    "001/compliance/tools-list",
    "004/tools-list/all",
    "004/tools-list/name",
    "004/tools-list/after-initialize",
    "004/tools-list/params",
    "004/checklist/tools-list",
)
@pytest.mark.parametrize("params", [{}, None], ids=["empty", "null"])
def test_the_five_tools_of_the_spec_are_listed_first_and_in_its_order(server: Server, params: Json) -> None:
    result = server.result("tools/list", params)

    assert result.keys() == {"tools"}
    assert [tool["name"] for tool in result["tools"]][: len(TOOLS)] == TOOLS


@pytest.mark.spec("004/tools-list/all", "001/compliance/tools-list")
def test_the_list_is_the_same_in_the_envelope(server: Server, tools: dict[str, JsonObject]) -> None:
    assert server.modern("tools/list")["result"]["tools"] == list(tools.values())


@pytest.mark.spec("004/tools-list/description")
@pytest.mark.parametrize("tool", SHOWN)
def test_the_description_begins_with_the_sentence_of_the_spec(tools: dict[str, JsonObject], tool: str) -> None:
    assert tools[tool]["description"].startswith(SHOWN[tool]["description"])


@pytest.mark.spec("004/tools-list/input-schema", "001/compliance/tools-list", "004/checklist/schemas")
@pytest.mark.parametrize("tool", TOOLS)
def test_the_input_schema_is_complete_and_allows_nothing_else(tools: dict[str, JsonObject], tool: str) -> None:
    schema = tools[tool]["inputSchema"]

    jsonschema_rs.meta.validate(schema)
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    assert all(field["description"] for field in schema["properties"].values())


@pytest.mark.spec("004/tools-list/output-schema", "001/compliance/tools-list", "004/checklist/schemas")
@pytest.mark.parametrize("tool", TOOLS)
def test_the_output_schema_is_complete_and_refers_to_no_file(tools: dict[str, JsonObject], tool: str) -> None:
    schema = tools[tool]["outputSchema"]

    jsonschema_rs.meta.validate(schema)
    assert schema["type"] == "object"
    assert "$ref" not in json.dumps(schema)


# ── what goes in ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec(
    "004/tools-list/workflow_list-input",
    "004/tools-list/workflow_get-input",
    "004/tools-list/workflow_next-input",
    "004/tools-list/workflow_validate-input",
)
@pytest.mark.parametrize("tool", SHOWN)
def test_the_input_schema_is_that_of_the_spec_except_for_our_decisions(tools: dict[str, JsonObject], tool: str) -> None:
    schema, shown = tools[tool]["inputSchema"], SHOWN[tool]["inputSchema"]

    assert schema["required"] == shown["required"]
    assert schema["properties"].keys() - shown["properties"].keys() == ADDED[tool]
    for name, field in shown["properties"].items():
        expected = without_descriptions({**field, **OURS.get((tool, name), {})})
        assert without_descriptions(schema["properties"][name]) == expected


@pytest.mark.spec("004/tools-list/workflow_validate_json", "001/workflow_validate_json/workflow-json")
def test_workflow_validate_json_takes_one_text(tools: dict[str, JsonObject]) -> None:
    assert without_descriptions(tools["workflow_validate_json"]["inputSchema"]) == {
        "type": "object",
        "properties": {"workflowJson": {"type": "string", "minLength": 1}},
        "required": ["workflowJson"],
        "additionalProperties": False,
    }


@pytest.mark.spec("004/tools-list/workflow_get-input", "001/workflow_get/mode")
def test_the_mode_of_workflow_get_is_in_its_schema(tools: dict[str, JsonObject]) -> None:
    mode = tools["workflow_get"]["inputSchema"]["properties"]["mode"]

    assert (mode["enum"], mode["default"]) == (["metadata", "preview", "full"], "preview")


GET, NEXT, VALIDATE = (
    {"id": "some-workflow"},
    {"workflowId": "some-workflow", "completedSteps": []},
    {"workflowId": "some-workflow", "stepId": "some-step", "output": "Done."},
)
LONG = "x" * 257


@pytest.mark.spec("004/checklist/input-validation", "001/codes/-32602", "004/tools-list/input-schema")
@pytest.mark.parametrize(
    ("tool", "arguments", "details"),
    [
        ("workflow_list", {"unknown": 1}, "unknown field 'unknown'"),
        ("workflow_list", {"limit": 0}, "limit must be at least 1; found 0"),
        ("workflow_get", {**GET, "id": 5}, "id must be text ('string'); found 5"),
        ("workflow_get", {**GET, "id": None}, "id must be text ('string'); found null"),
        ("workflow_get", {**GET, "id": "ab"}, "id must be at least 3 characters long; found 'ab'"),
        ("workflow_get", {**GET, "id": "x" * 65}, f"id must be at most 64 characters long; found '{'x' * 60}…'"),
        ("workflow_get", {**GET, "id": "../etc"}, f"id must be text that matches {ID}; found '../etc'"),
        ("workflow_get", {**GET, "id": "Upper"}, f"id must be text that matches {ID}; found 'Upper'"),
        ("workflow_get", {**GET, "extra": 1}, "unknown field 'extra'"),
        ("workflow_next", {**NEXT, "workflowId": "a b c"}, f"workflowId must be text that matches {ID}; found 'a b c'"),
        ("workflow_next", {**NEXT, "currentStep": "x"}, "currentStep must be at least 3 characters long; found 'x'"),
        (
            "workflow_next",
            {**NEXT, "currentStep": LONG},
            f"currentStep must be at most 256 characters long; found '{'x' * 60}…'",
        ),
        ("workflow_next", {**NEXT, "completedSteps": None}, "completedSteps must be a list ('array'); found null"),
        ("workflow_next", {**NEXT, "completedSteps": [5]}, "completedSteps[0] must be text ('string'); found 5"),
        (
            "workflow_next",
            {**NEXT, "completedSteps": ["A B"]},
            f"completedSteps[0] must be text that matches {INSTANCE}; found 'A B'",
        ),
        (
            "workflow_next",
            {**NEXT, "completedSteps": ["one-step", "one-step"]},
            "completedSteps must be a list without repeats; found a list",
        ),
        ("workflow_next", {**NEXT, "context": "x"}, "context must be null or an object; found 'x'"),
        ("workflow_next", {**NEXT, "extra": 1}, "unknown field 'extra'"),
        ("workflow_validate", {**VALIDATE, "stepId": 5}, "stepId must be text ('string'); found 5"),
        ("workflow_validate", {**VALIDATE, "output": ""}, "output must be at least 1 character long; found ''"),
        ("workflow_validate", {**VALIDATE, "output": {}}, "output must be text ('string'); found an empty object"),
        ("workflow_validate", {**VALIDATE, "context": []}, "context must be null or an object; found an empty list"),
        ("workflow_validate", {**VALIDATE, "extra": 1}, "unknown field 'extra'"),
        ("workflow_validate_json", {"workflowJson": {}}, "workflowJson must be text ('string'); found an empty object"),
        ("workflow_validate_json", {"workflowJson": "{}", "extra": 1}, "unknown field 'extra'"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused_by_its_name(
    ask: Ask, tool: str, arguments: JsonObject, details: str
) -> None:
    assert ask(tool, arguments) == invalid_params(details)


@pytest.mark.spec("004/tools-list/workflow_next-input", "004/tools-list/workflow_validate-input")
@pytest.mark.parametrize("tool", ["workflow_next", "workflow_validate"])
def test_null_means_that_an_optional_argument_is_left_out(ask: Ask, publish: Publish, tool: str) -> None:
    workflow = publish()
    arguments = (
        {"workflowId": workflow, "completedSteps": []}
        if tool == "workflow_next"
        else {"workflowId": workflow, "stepId": "first-step", "output": "Done."}
    )
    nulls = {"currentStep": None, "context": None} if tool == "workflow_next" else {"context": None}

    assert ask(tool, {**arguments, **nulls}) == ask(tool, arguments)


@pytest.mark.spec("004/tools-list/workflow_get-input", "001/workflow_list/id")
def test_an_id_with_dots_and_underscores_is_an_id(ask: Ask, publish: Publish) -> None:
    workflow = publish(identifier="team_a.review-2")

    assert ask.result("workflow_get", {"id": workflow})["id"] == "team_a.review-2"


# ── what comes out ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("004/tools-list/workflow_list-output")
def test_the_output_schema_of_workflow_list_is_that_of_the_spec_with_a_cursor_and_warnings(
    tools: dict[str, JsonObject],
) -> None:
    schema = of_results(tools["workflow_list"])

    assert schema["properties"].pop("nextCursor") == {"type": "string"}
    assert schema["properties"].pop("warnings") == {"type": "array", "items": {"type": "string"}}
    assert schema == SHOWN["workflow_list"]["outputSchema"]


@pytest.mark.spec("004/tools-list/workflow_get-output")
def test_the_output_schema_of_workflow_get_is_written_out(tools: dict[str, JsonObject]) -> None:
    schema = of_results(tools["workflow_get"])

    texts = {"type": "array", "items": {"type": "string"}}
    assert {name: field["type"] for name, field in schema["properties"].items()} == {
        "id": "string",
        "name": "string",
        "description": "string",
        "version": "string",
        "category": "string",
        "preconditions": "array",
        "clarificationPrompts": "array",
        "metaGuidance": "array",
        "totalSteps": "integer",
        "firstStep": ["object", "null"],
        "steps": "array",
    }
    assert schema["properties"]["preconditions"] == texts
    assert schema["required"] == ["id", "name", "description", "version"]


@pytest.mark.spec("004/tools-list/workflow_next-output")
def test_the_output_schema_of_workflow_next_is_that_of_the_spec_with_more_in_it(tools: dict[str, JsonObject]) -> None:
    schema, shown = of_results(tools["workflow_next"]), SHOWN["workflow_next"]["outputSchema"]

    types = {name: schema["properties"][name]["type"] for name in shown["properties"]}
    assert types == {"step": ["object", "null"], "guidance": "object", "isComplete": "boolean"}
    assert schema["required"] == shown["required"]


@pytest.mark.spec("004/tools-list/workflow_validate-output", "004/tools-list/workflow_validate_json")
@pytest.mark.parametrize("tool", ["workflow_validate", "workflow_validate_json"])
def test_the_output_schema_of_a_verdict_is_that_of_the_spec(tools: dict[str, JsonObject], tool: str) -> None:
    schema, shown = of_results(tools[tool]), SHOWN["workflow_validate"]["outputSchema"]

    assert schema["properties"].items() >= shown["properties"].items()
    assert schema["required"] == ["valid", "issues", "suggestions"]


EVERY_FIELD = step(
    "first-step",
    agentRole="You are a careful reviewer.",
    guidance=["Be brief."],
    askForFiles=True,
    requireConfirmation=True,
    runCondition={"var": "skipped", "not_equals": True},
    validationCriteria=[{"type": "contains", "value": "x", "message": "Say x."}],
    modelTier="heavy",
)
CONTEXT = {"items": ["a", "b"]}
IN_A_LOOP = loop("each-item", [step("loop-step")], type="forEach", items="items")


@pytest.mark.spec("004/tools-list/output-schema", "004/testing/schemas")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("workflow_list", {}),
        ("workflow_list", {"limit": 1}),
        ("workflow_get", {"id": "of-each-kind"}),
        ("workflow_get", {"id": "of-each-kind", "mode": "metadata"}),
        ("workflow_get", {"id": "of-each-kind", "mode": "full"}),
        ("workflow_get", {"id": "never-eligible"}),
        ("workflow_next", {"workflowId": "of-each-kind", "completedSteps": []}),
        ("workflow_next", {"workflowId": "of-each-kind", "completedSteps": ["first-step"], "context": CONTEXT}),
        ("workflow_next", {"workflowId": "of-each-kind", "completedSteps": ["first-step", "each-item", "unknown"]}),
        ("workflow_next", {"workflowId": "never-eligible", "completedSteps": []}),
        ("workflow_validate", {"workflowId": "of-each-kind", "stepId": "first-step", "output": "x"}),
        ("workflow_validate", {"workflowId": "of-each-kind", "stepId": "first-step", "output": "y"}),
        ("workflow_validate_json", {"workflowJson": "{"}),
        ("workflow_validate_json", {"workflowJson": "{}"}),
    ],
)
def test_a_result_fits_the_output_schema_of_its_tool(
    ask: Ask, publish: Publish, tools: dict[str, JsonObject], tool: str, arguments: JsonObject
) -> None:
    publish(EVERY_FIELD, IN_A_LOOP, identifier="of-each-kind", preconditions=["a"], clarificationPrompts=["b"])
    publish(step(runCondition={"var": "never", "equals": True}), identifier="never-eligible")

    result = ask.result(tool, arguments)

    jsonschema_rs.validate(tools[tool]["outputSchema"], result)
    jsonschema_rs.validate(of_results(tools[tool]), result)


@pytest.mark.spec("004/tools-list/output-schema")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("workflow_get", {"id": "no-such-workflow"}), ("workflow_next", {}), ("workflow_list", {"x": 1})],
)
def test_a_refusal_fits_the_output_schema_of_its_tool(
    ask: Ask, tools: dict[str, JsonObject], tool: str, arguments: JsonObject
) -> None:
    jsonschema_rs.validate(tools[tool]["outputSchema"], ask.error(tool, arguments))


# ── examples ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("004/tools-list/examples", "004/testing/schemas")
@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool_has_an_example_whose_request_and_response_fit_its_schemas(
    tools: dict[str, JsonObject], tool: str
) -> None:
    described = tools[tool]
    request, response = described["examples"]["request"], described["examples"]["response"]

    assert request.keys() == {"method", "params"}
    assert request["method"] == tool
    jsonschema_rs.validate(described["inputSchema"], request["params"])
    jsonschema_rs.validate(described["outputSchema"], response)
