"""What models see of the tools: name, description and input schema; and the words by which a tool search finds them."""

import json
import re
from pathlib import Path

import jsonschema_rs
import pytest

from support.client import Server, Start
from support.json_values import JsonObject
from support.make import document, loop, step
from workflowlookup.tools.dynamic import LEADS

MAX_BYTES, MAX_TOOL_BYTES, MAX_SCHEMA_BYTES = 8_000, 1_000, 5_000
WORDS = ("run", "step", "playbook", "checklist", "procedure", "workflow")


@pytest.fixture
def server(start: Start) -> Server:
    """A server with the bundled library alone."""
    return start()


def tools_of(server: Server) -> dict[str, JsonObject]:
    return {tool["name"]: tool for tool in server.result("tools/list")["tools"]}


def bytes_of(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def visible_bytes(tool: JsonObject) -> int:
    return bytes_of({name: tool[name] for name in ("name", "description", "inputSchema")})


def workflow_tools(server: Server) -> list[JsonObject]:
    return [tool for tool in tools_of(server).values() if "workflowlookup/workflow" in tool.get("_meta", {})]


def test_models_see_at_most_8_kb_of_all_tools_and_1_kb_of_each(server: Server) -> None:
    sizes = {name: visible_bytes(tool) for name, tool in tools_of(server).items()}

    assert len(sizes) == 21
    assert sum(sizes.values()) <= MAX_BYTES, sizes
    assert max(sizes.values()) <= MAX_TOOL_BYTES, sizes


def test_an_output_schema_has_types_and_no_descriptions(server: Server) -> None:
    schemas = {name: tool["outputSchema"] for name, tool in tools_of(server).items()}

    assert max(map(bytes_of, schemas.values())) <= MAX_SCHEMA_BYTES
    assert "description" not in json.dumps({name: schemas[name] for name in schemas if name.startswith("workflow_s")})
    for schema in schemas.values():
        jsonschema_rs.meta.validate(schema)


@pytest.mark.parametrize("era", ["handshake", "envelope"])
def test_the_tools_that_begin_and_continue_a_run_are_always_loaded(server: Server, era: str) -> None:
    reply = server.modern("tools/list") if era == "envelope" else server.request("tools/list")

    always = {
        tool["name"] for tool in reply["result"]["tools"] if tool.get("_meta", {}).get("anthropic/alwaysLoad") is True
    }
    assert always == {"workflow_start", "workflow_submit", "workflow_list"}


@pytest.mark.parametrize("word", WORDS)
def test_a_search_for_what_we_are_finds_the_start_of_a_run(server: Server, word: str) -> None:
    tool = tools_of(server)["workflow_start"]

    assert re.search(rf"\b{word}\b", f"{tool['title']} {tool['description']}".lower())


@pytest.mark.parametrize("word", WORDS)
def test_the_instructions_have_the_word_and_fit_into_what_claude_code_shows(start: Start, word: str) -> None:
    instructions = start(version=None).initialize()["result"]["instructions"]

    assert word in instructions.lower()
    assert len(instructions) <= 2_048


@pytest.mark.parametrize("word", WORDS)
def test_a_search_for_what_we_are_finds_each_workflow_tool(server: Server, word: str) -> None:
    hints = [tool["_meta"]["anthropic/searchHint"] for tool in workflow_tools(server)]

    assert len(hints) == 10
    assert all(word in hint for hint in hints)


def test_a_workflow_tool_says_that_it_leads_and_declares_its_input(server: Server) -> None:
    for tool in workflow_tools(server):
        assert tool["description"].endswith(LEADS)
        (field,) = tool["inputSchema"]["properties"].values()
        assert field["type"] == "string"
        assert field["description"]


def test_a_workflow_that_the_server_carries_out_alone_does_not_say_that_it_leads(start: Start, library: Path) -> None:
    call = {"id": "call-it", "title": "Call it", "call": {"server": "files", "tool": "read"}}
    in_a_loop = loop("twice", [{**call, "id": "call-again"}], type="for", count=2)
    for name, steps in {"alone": [call, in_a_loop], "mixed": [call, step("work")], "plain": [step("work")]}.items():
        content = document(*steps, identifier=name, name=name, description="Does it")
        (library / f"{name}.json").write_text(json.dumps(content))

    tools = tools_of(start(directory=library))

    assert tools["alone"]["description"] == "Does it"
    assert tools["mixed"]["description"] == tools["plain"]["description"] == f"Does it. {LEADS}"


def test_a_workflow_tool_answers_with_what_workflow_start_says_about_the_workflow(server: Server) -> None:
    bug = {"bug": "The March export lacks a day."}
    by_start = server.call("workflow_start", {"workflowId": "bug-investigation", "input": bug})["structuredContent"]

    by_tool = server.call("bug_investigation", bug)["structuredContent"]

    assert by_tool["workflow"] == by_start["workflow"]
    assert {"preconditions", "clarificationPrompts", "metaGuidance"} < by_tool["workflow"].keys()


def test_the_budget_counts_only_what_models_see(start: Start) -> None:
    total = sum(map(visible_bytes, tools_of(start()).values()))

    assert "refactoring" in tools_of(start(WORKFLOWLOOKUP_TOOLS_BUDGET_BYTES=str(total)))
    assert "refactoring" not in tools_of(start(WORKFLOWLOOKUP_TOOLS_BUDGET_BYTES=str(total - 1)))
