"""workflow_validate_json: the text of a document, judged without any storage."""

import json
from pathlib import Path
from typing import Any

import pytest

from spec.roads import Ask, invalid_params, success
from support.client import Server, Start
from support.json_values import Json, JsonObject
from support.make import document, loop, step

VALID = {"valid": True, "issues": [], "suggestions": []}


def judge(ask: Ask, content: Json) -> JsonObject:
    text = content if isinstance(content, str) else json.dumps(content)
    result: JsonObject = ask.result("workflow_validate_json", {"workflowJson": text})
    return result


def without(name: str) -> JsonObject:
    return {key: value for key, value in document().items() if key != name}


# ── parameters ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/workflow_validate_json/missing", "001/workflow_validate_json/workflow-json", "001/codes/-32602")
def test_workflow_json_is_required(ask: Ask) -> None:
    assert ask("workflow_validate_json", {}) == invalid_params("workflowJson is required")


@pytest.mark.spec("001/workflow_validate_json/empty", "001/codes/-32602")
@pytest.mark.parametrize("text", ["", " ", "\n\t\r\n"], ids=repr)
def test_an_empty_or_blank_text_is_refused(ask: Ask, text: str) -> None:
    error = ask.error("workflow_validate_json", {"workflowJson": text})

    assert (error["code"], error["message"]) == (-32602, "Invalid params")
    assert error["data"]["details"].startswith("workflowJson must ")


@pytest.mark.spec("001/workflow_validate_json/no-storage")
def test_no_storage_is_needed(start: Start, tmp_path: Path) -> None:
    server = start(directory=tmp_path / "no-such-directory")

    reply = server.request("workflow_validate_json", {"workflowJson": json.dumps(document())})

    assert reply == success(VALID)


# ── the verdict ─────────────────────────────────────────────────────────────────────────────────────────────────

WITH_EVERYTHING = document(
    step(
        "first-step",
        agentRole="You are a careful reviewer.",
        guidance=["Be brief."],
        askForFiles=True,
        requireConfirmation={"var": "risk", "equals": "high"},
        runCondition={"or": [{"var": "size", "gte": 3}, {"not": {"var": "size"}}]},
        validationCriteria={"and": [{"type": "regex", "pattern": "a+", "flags": "i", "message": "Say a."}, "b+"]},
    ),
    loop("the-loop", [step("inner-step")], type="while", condition={"var": "more"}),
    preconditions=["A"],
    clarificationPrompts=["B"],
    metaGuidance=["C"],
    category="development",
)


@pytest.mark.spec(
    "001/workflow_validate_json/valid",
    "001/workflow_validate_json/issues",
    "001/workflow_validate_json/suggestions",
    "001/workflow_validate_json/use-development",
)
@pytest.mark.parametrize(
    "content",
    [document(), without("version"), WITH_EVERYTHING, {**document(), "x-note": {"anything": [1]}}],
    ids=["short", "without version", "with everything", "with data of the author's own"],
)
def test_a_good_document_is_valid_without_issues_and_suggestions(ask: Ask, content: JsonObject) -> None:
    assert judge(ask, content) == VALID


SYNTAX = [
    ("{", "Unexpected end of JSON input", 1, 2, "Check for missing closing braces, brackets, or quotes"),
    ('{"id": "a",\n "name"', "", 2, 8, "Check for missing closing braces, brackets, or quotes"),
    ('{\n  "id": "a",\n}', "", 3, 1, "comma"),
    ("{'id': 'a'}", "", 1, 2, "double quotes"),
    ('{"id": "a"\n "name": "b"}', "", 2, 2, "','"),
    ('{"id": "ä",\n\n "ü" 1}', "", 3, 6, "':'"),
    ('{"a": 1} {"b": 2}', "", 1, 10, "Remove"),
    ('{"a": 1 // why\n}', "", 1, 9, "comment"),
    ('{"a": True}', "", 1, 7, "lower case"),
    ("not json at all", "", 1, 1, "Check"),
]


@pytest.mark.spec(
    "001/workflow_validate_json/syntax",
    "001/workflow_validate_json/order",
    "001/workflow_validate_json/findings-are-results",
    "001/workflow_validate_json/suggestions",
)
@pytest.mark.parametrize(("text", "reason", "line", "column", "fix"), SYNTAX)
def test_a_syntax_error_is_the_only_finding_with_line_column_and_fix(
    ask: Ask, text: str, reason: str, line: int, column: int, fix: str
) -> None:
    verdict = judge(ask, text)

    (issue,) = verdict["issues"]
    position = len("".join(text.splitlines(keepends=True)[: line - 1])) + column - 1
    assert issue.startswith(f"JSON syntax error: {reason}")
    assert issue.endswith(f" at position {position} (line {line}, column {column})")
    first, last = verdict["suggestions"]
    assert fix in first
    assert last == "Validate JSON syntax using a JSON validator or formatter"
    assert verdict["valid"] is False


STEP = step()
SCHEMA_ERRORS = [
    (without("id"), "Missing required property 'id'"),
    (without("name"), "Missing required property 'name'"),
    (without("description"), "Missing required property 'description'"),
    (without("steps"), "Missing required property 'steps'"),
    ({**document(), "steps": []}, "steps"),
    ({**document(), "steps": {}}, "steps"),
    (document(identifier="A-B"), "id"),
    (document(version="one"), "version"),
    (document(name=""), "name"),
    (document(category=5), "category"),
    (document({"title": "T", "prompt": "P"}), "Missing required property 'id' in step 1"),
    (document({"id": "a-step", "prompt": "P"}), "Missing required property 'title' in step 1"),
    (document({"id": "a-step", "title": "T"}), "Missing required property 'prompt' in step 1"),
    (document(step(), step("second-step", promt="P")), "'promt' (did you mean 'prompt'?) in step 2 ('second-step')"),
    (document(step(agentRole="short")), "agentRole"),
    (document(step(guidance="text")), "guidance"),
    (document(step(askForFiles="yes")), "askForFiles"),
    (document(step(runCondition={"var": "x", "equal": 1})), "'equal' (did you mean 'equals'?)"),
    (document(step(runCondition={"equals": 1})), "Missing required property 'var'"),
    (document(step("same-id"), step("same-id")), "Duplicate step id 'same-id'"),
    (document(loop("a-loop", "no-such-step", type="for", count=1)), "no-such-step"),
    (document(step(validationCriteria=[{"type": "contains", "message": "m"}])), "value"),
    (document(step(validationCriteria=[{"type": "regex", "pattern": "(", "message": "m"}])), "'('"),
    (document(step(validationCriteria=[{"type": "schema", "schema": {"type": "x"}, "message": "m"}])), "JSON Schema"),
    (document(step(validationCriteria=[{"type": "length", "message": "m", "condition": {"and": 5}}])), "and"),
    ([], "must be an object"),
    ('"text"', "must be an object"),
    ("null", "must be an object"),
]


@pytest.mark.spec(
    "001/workflow_validate_json/schema",
    "001/workflow_validate_json/enhancement",
    "001/workflow_validate_json/findings-are-results",
    "001/workflow_validate_json/issues",
    "001/workflow_validate_json/use-llm",
)
@pytest.mark.parametrize(("content", "named"), SCHEMA_ERRORS, ids=[named for _, named in SCHEMA_ERRORS])
def test_a_schema_violation_is_reported_with_its_position_and_a_fix(ask: Ask, content: Json, named: str) -> None:
    verdict = judge(ask, content)

    (issue,) = verdict["issues"]
    (suggestion,) = verdict["suggestions"]
    assert named in issue
    assert len(suggestion) > 10
    assert verdict["valid"] is False


@pytest.mark.spec("001/workflow_validate_json/syntax")
@pytest.mark.parametrize(
    ("text", "is_yaml"),
    [
        ("id: abc\nname: N\n", True),
        ("# mine\n\n---\nid: abc\n", True),
        ('{"id": "abc", name: 5}', False),
        ("[1, 2", False),
    ],
)
def test_yaml_is_distinguished_from_json_with_a_mistake(ask: Ask, text: str, is_yaml: bool) -> None:
    verdict = judge(ask, text)

    assert not verdict["valid"]
    assert any("takes only JSON" in line for line in verdict["suggestions"]) is is_yaml


@pytest.mark.spec("001/workflow_validate_json/issues", "001/workflow_validate_json/suggestions")
def test_all_problems_are_reported_at_once(ask: Ask) -> None:
    verdict = judge(ask, {"id": "test-workflow", "name": "", "steps": [{"id": "x"}], "unknown": 1})

    issues = " | ".join(verdict["issues"])
    assert [name in issues for name in ("description", "name", "'id'", "title", "prompt", "unknown")] == [True] * 6
    assert len(verdict["issues"]) >= 6


@pytest.mark.spec("001/workflow_validate_json/no-storage", "001/workflow_validate_json/schema")
def test_a_document_that_is_too_large_or_too_deep_is_refused(ask: Ask) -> None:
    deep: Any = 1
    for _ in range(70):
        deep = [deep]

    issues = [judge(ask, {**document(), "x-data": data})["issues"] for data in ("x" * (1 << 20), deep)]

    assert [len(group) for group in issues] == [1, 1]
    assert "1,048,576 bytes" in issues[0][0]
    assert "64 levels" in issues[1][0]


# ── use cases ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/workflow_validate_json/use-real-time", "001/workflow_validate_json/use-development")
def test_every_keystroke_is_judged(ask: Ask) -> None:
    text = json.dumps(document(step(prompt="Größe →")), ensure_ascii=False)

    verdicts = [judge(ask, text[:length])["valid"] for length in range(1, len(text) + 1)]

    assert verdicts == [False] * (len(text) - 1) + [True]


@pytest.mark.spec("001/workflow_validate_json/use-ci")
def test_a_pipeline_pipes_its_documents_in_and_gets_the_verdicts_out(start: Start) -> None:
    server = start(version=None)
    texts = [json.dumps(document()), "{", json.dumps(document())]
    messages = [
        {"id": 0, "method": "initialize", "params": {"protocolVersion": "2024-11-05", "capabilities": {}}},
        *(
            {"id": number, "method": "workflow_validate_json", "params": {"workflowJson": text}}
            for number, text in enumerate(texts, 1)
        ),
    ]

    output, log = server.process.communicate(
        b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages), timeout=20
    )

    replies = [json.loads(line) for line in output.splitlines()]
    assert [reply["result"]["valid"] for reply in replies[1:]] == [True, False, True]
    assert (server.wait(), log) == (0, b"")


@pytest.mark.spec("001/workflow_validate_json/use-troubleshooting", "001/workflow_validate_json/schema")
@pytest.mark.parametrize(
    "text",
    [
        '{"id": "broken-one",',
        '{"id": "broken-one", "name": "No steps"}',
        json.dumps(document(step("same-id"), step("same-id"), identifier="broken-one")),
        json.dumps(document(step(runCondition={"var": 5}), identifier="broken-one")),
    ],
    ids=["syntax", "schema", "duplicate ids", "condition"],
)
def test_the_reason_why_a_workflow_does_not_load_has_the_same_words(server: Server, shelf: Path, text: str) -> None:
    path = shelf / "broken-one.json"
    path.write_text(text, encoding="utf-8")

    refused = server.error("workflow_get", {"id": "broken-one"})
    verdict = server.result("workflow_validate_json", {"workflowJson": text})
    path.unlink()

    assert refused["code"] == -32002
    assert refused["data"]["issues"] == verdict["issues"]


@pytest.mark.spec("001/workflow_validate_json/use-llm", "001/workflow_validate_json/enhancement")
def test_an_agent_that_follows_the_steps_ends_with_a_valid_document(ask: Ask) -> None:
    content: JsonObject = {}
    fixes: JsonObject = {
        "id": "my-workflow",
        "name": "My workflow",
        "description": "Does something useful",
        "steps": [step()],
    }

    verdict = judge(ask, content)
    for name, value in fixes.items():
        assert any(f"'{name}'" in suggestion for suggestion in verdict["suggestions"])
        content[name] = value

    assert judge(ask, content) == VALID
