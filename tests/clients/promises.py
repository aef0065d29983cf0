"""What every official client must see, whatever its language and its era.

A client holds one conversation with the real server (bundled library, empty home) and writes down what it got: `seen`,
by the names of `CONVERSATION`. The tests are here, once; a module for a client binds the fixtures `seen`, `version`
(to be reached) and `missing_resource` (the code to be told). Values are plain JSON as the client library hands them
out, so that what a library drops, renames or refuses shows.
"""

import json
from importlib.resources import files
from pathlib import Path

from support.bundled import BUNDLED_DOCUMENTS, fixture_of
from support.json_values import JsonObject
from workflowlookup import __version__
from workflowlookup.language.formats.syntax import parse_yaml
from workflowlookup.tools.builtin import BUILTIN_TOOLS

MODERN = "2026-07-28"
LATEST_HANDSHAKE = "2025-11-25"

PACKAGE = Path(str(files("workflowlookup")))
WORKFLOWS = list(BUNDLED_DOCUMENTS.values())
BUG = next(workflow for workflow in WORKFLOWS if workflow["id"] == "bug-investigation")
FIXTURE = parse_yaml(fixture_of("bug-investigation"))
GOOD_OUTPUT = FIXTURE["cases"][0]["outputs"]["reproduce"]["accept"][0]

CONVERSATION: dict[str, JsonObject] = {
    "tools": {"do": "listTools"},
    "workflow_list": {"do": "callTool", "name": "workflow_list", "arguments": {}},
    "workflow_get": {"do": "callTool", "name": "workflow_get", "arguments": {"id": BUG["id"]}},
    "workflow_next": {
        "do": "callTool",
        "name": "workflow_next",
        "arguments": {"workflowId": BUG["id"], "completedSteps": ["reproduce"], "context": {}},
    },
    "workflow_next at the end": {
        "do": "callTool",
        "name": "workflow_next",
        "arguments": {"workflowId": BUG["id"], "completedSteps": [step["id"] for step in BUG["steps"]]},
    },
    "workflow_validate good": {
        "do": "callTool",
        "name": "workflow_validate",
        "arguments": {"workflowId": BUG["id"], "stepId": "reproduce", "output": GOOD_OUTPUT},
    },
    "workflow_validate bad": {
        "do": "callTool",
        "name": "workflow_validate",
        "arguments": {"workflowId": BUG["id"], "stepId": "reproduce", "output": "It crashes."},
    },
    "workflow_validate_json": {
        "do": "callTool",
        "name": "workflow_validate_json",
        "arguments": {"workflowJson": json.dumps(BUG)},
    },
    "unknown workflow": {"do": "callTool", "name": "workflow_get", "arguments": {"id": "bug-investigatoin"}},
    "unfit arguments": {"do": "callTool", "name": "workflow_get", "arguments": {"workflow": BUG["id"]}},
    "unknown tool": {"do": "callTool", "name": "workflow_lst", "arguments": {}},
    "resources": {"do": "listResources"},
    "workflow resource": {"do": "readResource", "uri": "workflow://bug-investigation"},
    "schema resource": {"do": "readResource", "uri": "workflow-schema://current"},
    "unknown resource": {"do": "readResource", "uri": "workflow://bug-investigatoin"},
    "templates": {"do": "listResourceTemplates"},
    "prompts": {"do": "listPrompts"},
    "prompt": {"do": "getPrompt", "name": BUG["id"], "arguments": {"task": "Totals are off by one since May."}},
    "completion": {"do": "complete", "uri": "workflow://{id}", "argument": {"name": "id", "value": "in"}},
}
"""What is asked, in this order, and under which name the answer is kept.

An answer is the library's result object, or `{"failure": {"code": …, "data": …}}` where the library raised.
"""


def shown(step: JsonObject) -> JsonObject:
    """A step as callers see it: its criteria are told in words, elsewhere."""
    return {name: value for name, value in step.items() if name not in ("validationCriteria", "produces")}


def structured(result: JsonObject) -> JsonObject:
    """The structured content of a good tool result, whose text says the same."""
    assert "failure" not in result, result
    assert not result.get("isError"), result
    (block,) = result["content"]
    assert block["type"] == "text"
    assert json.loads(block["text"]) == result["structuredContent"]
    content: JsonObject = result["structuredContent"]
    return content


def paragraphs(text: str) -> list[str]:
    return text.split("\n\n")


class Promises:
    """Tests over `seen`; a client's module makes a subclass whose name starts with Test."""

    def test_the_connection_has_the_version_that_the_client_should_reach(self, seen: JsonObject, version: str) -> None:
        assert seen["version"] == version

    def test_the_client_knows_whom_it_talks_to(self, seen: JsonObject) -> None:
        assert (seen["server"]["name"], seen["server"]["version"]) == ("workflowlookup", __version__)
        assert {"tools", "resources", "prompts", "completions"} <= seen["capabilities"].keys()
        assert seen["instructions"].startswith("Workflows lead you through a task one step at a time")

    def test_nothing_on_the_wire_troubled_the_client(self, seen: JsonObject) -> None:
        assert seen["troubles"] == []

    def test_all_tools_are_listed_with_their_schemas(self, seen: JsonObject) -> None:
        tools = seen["tools"]["tools"]

        names = [tool["name"] for tool in tools]
        assert {"bug_investigation", "code_review", "workflow_refresh"} <= set(names[10:])
        assert names[:10] == [
            "workflow_list",
            "workflow_get",
            "workflow_next",
            "workflow_validate",
            "workflow_validate_json",
            "workflow_start",
            "workflow_submit",
            "workflow_status",
            "workflow_runs",
            "workflow_cancel",
        ]
        described = [tool.describe() for tool in BUILTIN_TOOLS.values()]
        for name in ("title", "description", "inputSchema", "outputSchema", "annotations"):
            assert [tool[name] for tool in tools[:10]] == [tool[name] for tool in described]

    def test_workflow_list_has_every_bundled_workflow(self, seen: JsonObject) -> None:
        assert structured(seen["workflow_list"]) == {
            "workflows": [
                {name: workflow[name] for name in ("id", "name", "description", "category", "version")}
                for workflow in WORKFLOWS
            ]
        }

    def test_workflow_get_shows_the_workflow_and_its_first_step(self, seen: JsonObject) -> None:
        assert structured(seen["workflow_get"]) == {
            **{name: value for name, value in BUG.items() if name not in ("steps", "inputSchema", "whenUnproved")},
            "totalSteps": len(BUG["steps"]),
            "firstStep": shown(BUG["steps"][0]),
        }

    def test_workflow_next_gives_the_step_after_the_completed_one(self, seen: JsonObject) -> None:
        answer = structured(seen["workflow_next"])

        assert answer["step"] == shown(BUG["steps"][1])
        assert answer["guidance"]["prompt"].endswith("Do what step.prompt says.")
        count = len(BUG["steps"][1]["validationCriteria"]) + len(BUG["steps"][1]["produces"])
        assert len(answer["guidance"]["validationCriteria"]) == count
        assert answer["guidance"]["requiresConfirmation"] is False
        assert answer["isComplete"] is False
        assert answer["progress"] == {"completed": 1, "total": len(BUG["steps"])}

    def test_a_step_that_is_null_passes_the_clients_schema_check(self, seen: JsonObject) -> None:
        answer = structured(seen["workflow_next at the end"])

        assert (answer["step"], answer["isComplete"]) == (None, True)

    def test_workflow_validate_accepts_a_good_output(self, seen: JsonObject) -> None:
        assert structured(seen["workflow_validate good"]) == {"valid": True, "issues": [], "suggestions": []}

    def test_workflow_validate_says_what_a_bad_output_lacks(self, seen: JsonObject) -> None:
        verdict = structured(seen["workflow_validate bad"])

        too_short, alternatives = BUG["steps"][0]["validationCriteria"]
        assert verdict["valid"] is False
        assert verdict["issues"][0] == too_short["message"]
        assert verdict["issues"][2:] == [rule["message"] for rule in alternatives["or"]]
        assert "Add at least 89 more characters (now 11, at least 100 are needed)." in verdict["suggestions"]

    def test_workflow_validate_json_accepts_a_bundled_document(self, seen: JsonObject) -> None:
        verdict = structured(seen["workflow_validate_json"])

        assert (verdict["valid"], verdict["issues"]) == (True, [])

    def test_an_unknown_workflow_is_a_tool_error_that_says_what_to_do(self, seen: JsonObject) -> None:
        result = seen["unknown workflow"]

        assert result.get("isError") is True, result
        (block,) = result["content"]
        assert block["text"] == (
            "Workflow not found. No workflow has the id 'bug-investigatoin'. Did you mean 'bug-investigation'? "
            "Call workflow_list to see every id."
        )

    def test_arguments_that_do_not_fit_are_a_tool_error_that_names_them(self, seen: JsonObject) -> None:
        result = seen["unfit arguments"]

        assert result.get("isError") is True, result
        (block,) = result["content"]
        assert block["text"] == "Invalid params. unknown field 'workflow'; id is required"

    def test_an_unknown_tool_is_a_protocol_error(self, seen: JsonObject) -> None:
        assert seen["unknown tool"]["failure"] == {
            "code": -32602,
            "data": {
                "details": "Unknown tool 'workflow_lst' (did you mean 'workflow_list'?). "
                "Call tools/list to see every tool.",
                "name": "workflow_lst",
            },
        }

    def test_the_schema_the_recent_runs_and_every_workflow_are_resources(self, seen: JsonObject) -> None:
        resources = seen["resources"]["resources"]

        assert [(resource["uri"], resource.get("title"), resource["mimeType"]) for resource in resources] == [
            ("workflow-schema://current", "Schema of workflow documents", "application/schema+json"),
            ("runs://recent", "Recent runs", "text/markdown"),
            *(
                resource
                for workflow in WORKFLOWS
                for resource in (
                    (f"workflow://{workflow['id']}", workflow["name"], "text/markdown"),
                    (f"skill://{workflow['id']}/SKILL.md", None, "text/markdown"),
                )
            ),
        ]

    def test_a_workflow_is_read_as_markdown(self, seen: JsonObject) -> None:
        (content,) = seen["workflow resource"]["contents"]

        assert (content["uri"], content["mimeType"]) == ("workflow://bug-investigation", "text/markdown")
        assert paragraphs(content["text"])[:3] == [
            f"# {BUG['name']}",
            BUG["description"],
            f"`bug-investigation` · version {BUG['version']} · {BUG['category']}",
        ]
        assert BUG["steps"][0]["prompt"] in content["text"]

    def test_the_schema_is_read_whole(self, seen: JsonObject) -> None:
        (content,) = seen["schema resource"]["contents"]

        assert (content["uri"], content["mimeType"]) == ("workflow-schema://current", "application/schema+json")
        schema = (PACKAGE / "language" / "workflow.schema.json").read_text("utf-8")
        assert json.loads(content["text"]) == json.loads(schema)

    def test_an_unknown_resource_is_refused_by_its_address(self, seen: JsonObject, missing_resource: int) -> None:
        assert seen["unknown resource"]["failure"] == {
            "code": missing_resource,
            "data": {"uri": "workflow://bug-investigatoin"},
        }

    def test_templates_lead_to_every_workflow_and_every_run(self, seen: JsonObject) -> None:
        templates = seen["templates"]["resourceTemplates"]

        assert [(template["uriTemplate"], template["name"], template.get("mimeType")) for template in templates] == [
            ("workflow://{id}", "workflow", "text/markdown"),
            ("run://{id}", "run", "text/markdown"),
            ("run://{id}/result{?from,length,step}", "run-result", "application/json"),
            ("skill://{+path}", "skill-file", None),
            ("tool-result://{tool}{?arguments}", "tool-result", "application/json"),
        ]

    def test_every_workflow_is_a_prompt_without_arguments(self, seen: JsonObject) -> None:
        prompts = seen["prompts"]["prompts"]

        assert [prompt["name"] for prompt in prompts] == [workflow["id"] for workflow in WORKFLOWS]
        assert not any(prompt.get("arguments") for prompt in prompts)

    def test_a_prompt_carries_the_text_that_it_was_given(self, seen: JsonObject) -> None:
        (message,) = seen["prompt"]["messages"]

        assert seen["prompt"]["description"] == BUG["description"]
        assert (message["role"], message["content"]["type"]) == ("user", "text")
        assert paragraphs(message["content"]["text"])[:2] == [
            f'Follow the workflow "Bug investigation" (id `bug-investigation`): {BUG["description"]}',
            "The task: Totals are off by one since May.",
        ]

    def test_a_workflow_id_is_completed_beginnings_first(self, seen: JsonObject) -> None:
        ids = [workflow["id"] for workflow in WORKFLOWS if "in" in workflow["id"]]
        wanted = sorted(ids, key=lambda name: not name.startswith("in"))

        assert wanted[0] == "incident-review"
        assert seen["completion"]["completion"] == {"values": wanted, "total": len(wanted), "hasMore": False}
