"""Properties: whatever comes in, the answer is designed and the next question is answered.

`make soak` runs the same with many more examples.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from support.client import Server
from support.json_values import Json, JsonObject
from support.make import check_of, document, step, write
from workflowlookup.errors import InvalidCriteria, InvalidWorkflow
from workflowlookup.language.conditions import evaluate
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import check, is_valid_document
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.guidance import guide
from workflowlookup.language.navigation import next_step
from workflowlookup.language.validation import judge
from workflowlookup.language.workflow_schema import workflow_schema

EXAMPLES = 2_000 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 60
settings.register_profile(
    "here",
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES < 1_000,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("here")

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def words_of(schema: JsonObject) -> Iterator[str]:
    """Every word that the schema of documents knows, so that fuzzing gets past the first check."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        yield from (word for word in schema.get("enum", ()) if isinstance(word, str))
        for value in schema.values():
            yield from words_of(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from words_of(value)


WORDS = sorted({*words_of(workflow_schema()), "first-step", "x", "1", "true"})
NEAR = st.recursive(
    SCALARS | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=25,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("fuzz")
    one = Server(home, directory=home / "library")
    (home / "library").mkdir()
    write(home / "library", document(step(validationCriteria=["x"]), step("second-step", runCondition={"var": "a"})))
    one.initialize()
    yield one
    one.stop()


def ping(server: Server) -> list[Json]:
    """Whatever was said before, the next ping is answered; what came in between is returned."""
    server.send({"jsonrpc": "2.0", "id": "the-next-ping", "method": "ping"})
    between = []
    while (reply := server.receive()) != {"jsonrpc": "2.0", "id": "the-next-ping", "result": {}}:
        between.append(reply)
    return between


def is_designed(reply: Json) -> bool:
    return "result" in reply or reply["error"]["code"] in {*range(-32007, -31999), -32700, -32600, -32601, -32602}


@given(st.binary(max_size=200))
def test_any_bytes_get_an_answer_or_are_ignored_and_the_next_ping_is_answered(server: Server, data: bytes) -> None:
    server.write(data.replace(b"shutdown", b"") + b"\n")

    assert all(is_designed(reply) for reply in ping(server))


@given(JSON)
def test_any_json_value_as_a_message_gets_a_designed_answer(server: Server, value: Json) -> None:
    server.send(value)

    assert all(is_designed(reply) for reply in ping(server))


METHODS = ["initialize", "ping", "tools/list", "tools/call", "resources/list", "resources/read", "prompts/list"]
METHODS += ["resources/templates/list", "prompts/get", "completion/complete", "server/discover", "subscriptions/listen"]
TOOLS = ["workflow_list", "workflow_get", "workflow_next", "workflow_validate", "workflow_validate_json"]
PARAM_NAMES = [
    "id",
    "mode",
    "workflowId",
    "completedSteps",
    "context",
    "stepId",
    "output",
    "workflowJson",
    "currentStep",
]
PARAM_NAMES += [
    "name",
    "arguments",
    "uri",
    "cursor",
    "ref",
    "argument",
    "protocolVersion",
    "capabilities",
    "_meta",
    "query",
]
VALUES = SCALARS | st.sampled_from(["sample-workflow", "first-step", "workflow://sample-workflow", *TOOLS]) | JSON
PARAMS = st.dictionaries(st.sampled_from(PARAM_NAMES), VALUES, max_size=5) | st.lists(VALUES, max_size=5) | st.none()


@given(st.sampled_from(METHODS + TOOLS), PARAMS)
def test_any_parameters_of_any_method_get_a_designed_answer(server: Server, method: str, params: Json) -> None:
    server.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

    assert all(is_designed(reply) for reply in ping(server))


@given(st.sampled_from(TOOLS), PARAMS)
def test_any_arguments_of_any_tool_get_a_designed_answer(server: Server, tool: str, arguments: Json) -> None:
    server.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})

    (reply,) = ping(server)

    assert is_designed(reply)
    if reply.get("result", {}).get("isError"):
        assert reply["result"]["structuredContent"]["code"] in range(-32602, -31999)


@given(NEAR)
def test_any_document_is_judged_and_a_sound_one_leads_somewhere(value: Json) -> None:
    findings = check(value)

    assert all(finding.message and finding.suggestion for finding in findings)
    if is_valid_document(value):
        workflow = build(value)
        guide(workflow, next_step(workflow, (), {}, Budget()), Budget())


@given(NEAR, st.text())
def test_any_document_is_judged_through_the_process_too(server: Server, value: Json, text: str) -> None:
    for content in (json.dumps(value), text):
        reply = server.request("workflow_validate_json", {"workflowJson": content})
        assert reply["result"]["issues"] or reply["result"]["valid"] if "result" in reply else not content.strip()


@given(NEAR, JSON)
def test_any_condition_that_a_document_may_have_is_true_or_false(condition: Json, value: Json) -> None:
    if is_valid_document(document(step(runCondition=condition))):
        context = dict.fromkeys(WORDS, value)
        assert evaluate(condition, context, Budget()) in (True, False)


@given(NEAR, st.text(), JSON)
def test_any_criteria_give_a_verdict_or_a_designed_error(criteria: Json, output: str, value: Json) -> None:
    try:
        verdict = judge(check_of(criteria), output, {"x": value}, Budget())
    except (InvalidCriteria, InvalidWorkflow) as refusal:
        assert refusal.data["details"]
    else:
        assert all(issue.message for issue in verdict.issues)


@given(st.text(), st.dictionaries(st.sampled_from(["a", "b", "c.d"]), JSON))
def test_templates_never_raise(text: str, context: JsonObject) -> None:
    workflow = build(document(step(prompt="x" + text + "{{a}} {{b.c}} {{c.d}} {{{{")))

    assert guide(workflow, next_step(workflow, (), context, Budget()), Budget()).prompt.startswith("x")


RAW = (
    st.sampled_from(
        [
            *(digit * count for digit in ("1", "-9") for count in (25, 400, 4_300, 4_301, 20_000)),
            *(
                "1e400",
                "1e999999",
                "-1e-999999",
                "NaN",
                "Infinity",
                "0x10",
                "1_000",
                "2026-11-17",
                "12:30:00",
                "~",
                "@",
                "`",
            ),
            *(r'"\ud800"', r'"\udc00\ud800"', r'"\u0000"', '"\x7f"', '"\ufeff"', r'"\u202e"', '"' + "k" * 70_000 + '"'),
            *("[" * depth + "1" + "]" * depth for depth in (30, 65, 500, 20_000)),
            *('{"a":' * depth + "1" + "}" * depth for depth in (30, 65, 500, 20_000)),
            *(
                '{"a":1,"a":2}',
                '{"":{"":1}}',
                '{"<<":3}',
                "{<<: [1]}",
                "&a [*a]",
                "!!binary aGk=",
                "!!binary ?",
                "!!set {a}",
            ),
            *(
                "!!python/name:os.system",
                "!!timestamp 2026-99-99",
                "!!int x",
                "!!float x",
                "!<x> 1",
                "*nothing",
                "? [a]",
            ),
            *(
                '"([^a])*{"',
                '"a{99999999}"',
                '{"type":"regex","pattern":"' + "[^a]" * 40 + '{"}',
                '{"var":"a","gt":' + "9" * 400 + "}",
            ),
        ]
    )
    | JSON.map(json.dumps)
    | NEAR.map(json.dumps)
)


@st.composite
def files(draw: DrawFn) -> bytes:
    """The text of a file: a document with something in it that does not belong there, or nothing like a document."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    value = document(step(), step("second-step"))
    target = draw(st.sampled_from([value, value["steps"][0], value["steps"][1]]))
    target[draw(st.sampled_from(WORDS))] = "@@@"
    value["id"] = value["id"] if value["id"] == "@@@" else "bad-workflow"
    return json.dumps(value).replace('"@@@"', draw(RAW)).encode(errors="surrogatepass")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server that lists what is in a directory, and the directory."""
    home = tmp_path_factory.mktemp("shelf")
    library = home / "library"
    library.mkdir()
    write(library, document())
    one = Server(home, directory=library)
    one.initialize()
    yield one, library
    one.stop()


def with_number(digits: int) -> bytes:
    return json.dumps({**document(), "id": "bad-workflow", "x-number": "@"}).replace('"@"', "7" * digits).encode()


@given(files(), st.sampled_from([".json", ".yaml", ".test.yaml"]))
@example(with_number(4_301), ".json")
@example(with_number(4_301), ".yaml")
@example(with_number(4_300), ".json")
def test_whatever_one_file_contains_the_others_are_listed(shelf: tuple[Server, Path], data: bytes, suffix: str) -> None:
    server, library = shelf
    bad = library / f"bad-workflow{suffix}"
    bad.write_bytes(data)
    try:
        assert "sample-workflow" in {one["id"] for one in server.result("workflow_list")["workflows"]}
        assert "workflow_list" in {tool["name"] for tool in server.result("tools/list")["tools"]}
        assert server.result("resources/list")["resources"]
        assert server.result("prompts/list")["prompts"]
        assert is_designed(server.request("workflow_get", {"id": "bad-workflow"}))
        assert is_designed(server.request("workflow_next", {"workflowId": "bad-workflow", "completedSteps": []}))
    finally:
        bad.unlink()
