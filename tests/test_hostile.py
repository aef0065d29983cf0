"""Documents, names and arguments that were made to stop the server: each is answered, and so is the next request."""

import json
import os
from pathlib import Path

import pytest

from support.client import Start
from support.json_values import Json, JsonObject
from support.make import document, loop, step, write

YAML_TAGS = [
    b'x: !!int ""',
    b"x: !!bool maybe",
    b"x: !!timestamp foo",
    b"x: !!map [a]",
    b"x: !!set [a]",
    b'x: !!float ""',
]
MERGE_BOMB = b"x-a:\n  a0: &a0 {k: 1}\n" + b"".join(
    b"  a%d: &a%d {<<: [%b]}\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 10)
)
MERGE_BOMB += b"<<: [*a9, *a9]\n"


def deep_logic(depth: int) -> JsonObject:
    schemas = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(depth)}
    return {"$ref": "#/$defs/a0", "$defs": {**schemas, f"a{depth}": {"type": "integer"}}}


@pytest.mark.parametrize("text", [*YAML_TAGS, MERGE_BOMB], ids=[*[tag.decode() for tag in YAML_TAGS], "merge bomb"])
def test_a_hostile_yaml_file_hides_no_other(start: Start, library: Path, text: bytes) -> None:
    (library / "bad.yaml").write_bytes(text)
    write(library, document())
    server = start(directory=library)

    assert [one["id"] for one in server.result("workflow_list")["workflows"]] == ["sample-workflow"]
    assert server.error("workflow_get", {"id": "bad"})["code"] == -32002


def test_yaml_merges_and_what_is_written_beside_them_wins(start: Start, library: Path) -> None:
    text = (
        "id: merged\nname: N\ndescription: D\nx-base: &base {title: Base, prompt: P}\n"
        "steps:\n  - {<<: *base, id: one-step, title: Mine}\n"
    )
    (library / "merged.yaml").write_text(text)
    server = start(directory=library)

    assert server.result("workflow_get", {"id": "merged"})["firstStep"] == {
        "id": "one-step",
        "title": "Mine",
        "prompt": "P",
    }


def test_a_broken_file_whose_name_is_no_text_is_refused_by_name(start: Start, library: Path) -> None:
    (library / os.fsdecode(b"bad\xff.json")).write_text('{"id": "my-broken"}')
    server = start(directory=library)

    error = server.error("workflow_get", {"id": "my-broken"})

    assert (error["code"], error["data"]["file"].endswith("bad\ufffd.json")) == (-32002, True)
    assert server.is_silent()


def test_a_file_with_a_syntax_error_is_known_by_the_id_that_it_seems_to_have(start: Start, library: Path) -> None:
    (library / "other-name.json").write_text(json.dumps(document())[:-1])
    server = start(directory=library)

    assert server.error("workflow_get", {"id": "sample-workflow"})["code"] == -32002


@pytest.mark.parametrize(
    "content",
    [
        document(*[loop(f"loop-{n}", f"nope-{n}", type="for", count=1) for n in range(4_000)]),
        document({**step(), **{f"field{n}": 1 for n in range(30_000)}}),
        document(*[loop(f"loop-{n}", f"loop-{n + 1}", type="for", count=1) for n in range(3_000)], step("loop-3000")),
        document(loop("outer", [loop("inner", "outer", type="for", count=1)], type="for", count=1), step("last")),
        document(step("abc\ndef")),
    ],
    ids=["dangling bodies", "unknown fields", "a chain of loops", "a cycle through a body", "a newline in an id"],
)
def test_a_hostile_document_is_refused_in_reasonable_time(start: Start, library: Path, content: JsonObject) -> None:
    write(library, content, "bad.json")
    write(library, document(identifier="sound"))
    server = start(directory=library)

    assert [one["id"] for one in server.result("workflow_list")["workflows"]] == ["sound"]
    assert server.error("workflow_get", {"id": content["id"]})["code"] == -32002


SCHEMAS = {
    "references that multiply": (deep_logic(40), "1", -32002),
    "patterns that backtrack": (
        {"patternProperties": {r"(a|aa)+\1$": {}}},
        json.dumps({"a" * 40 + str(n): 1 for n in range(4_000)}),
        None,
    ),
    "a million misfits": ({"items": {"type": "string"}}, json.dumps([1] * 1_000_000), None),
    "a pattern over its limit": ({"pattern": "^(a|a|aa)+(?=b)$"}, json.dumps("a" * 60), None),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_hostile_json_schema_is_answered(start: Start, library: Path, name: str) -> None:
    schema, output, code = SCHEMAS[name]
    write(library, document(step(validationCriteria=[{"type": "schema", "schema": schema, "message": "m"}])))
    server = start(directory=library)

    reply = server.request(
        "workflow_validate", {"workflowId": "sample-workflow", "stepId": "first-step", "output": output}
    )

    assert reply["error"]["code"] == code if code else reply["result"]["valid"] in (True, False)


def test_a_recursive_schema_still_works(start: Start, library: Path) -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}},
        "additionalProperties": False,
    }
    write(library, document(step(validationCriteria=[{"type": "schema", "schema": tree, "message": "m"}])))
    server = start(directory=library)

    def judge(output: str) -> Json:
        params = {"workflowId": "sample-workflow", "stepId": "first-step", "output": output}
        return server.result("workflow_validate", params)["valid"]

    assert judge('{"left": {"right": {}}}')
    assert not judge('{"left": {"up": {}}}')


def test_arguments_that_do_not_fit_a_million_times_are_told_a_few_times(start: Start) -> None:
    error = start().error("workflow_next", {"workflowId": "code-review", "completedSteps": [1] * 200_000})

    assert error["code"] == -32602
    assert len(error["data"]["details"]) < 1_000


def test_answers_do_not_grow_without_end(start: Start, library: Path) -> None:
    long = {"and": [{"var": "x", "equals": n} for n in range(5_000)]}
    write(
        library,
        document(
            loop("many", [step("one", runCondition=long)], type="for", count=1000, maxIterations=1000), step("last")
        ),
    )
    write(library, document(step("fill", guidance=["{{a}}" * 2_000]), identifier="filling"))
    server = start(directory=library)

    skipped = server.result("workflow_next", {"workflowId": "sample-workflow", "completedSteps": ["last"]})
    filled = server.result(
        "workflow_next", {"workflowId": "filling", "completedSteps": [], "context": {"a": "x" * 250_000}}
    )

    assert len(json.dumps(skipped)) < 100_000
    assert len(json.dumps(filled)) < 5_000_000


@pytest.mark.parametrize(
    ("criteria", "output", "valid"),
    [
        ([{"type": "regex", "pattern": r"^\p{Lu}\p{L}+", "flags": "u", "message": "m"}], "Élan", True),
        ({"not": {"type": "regex", "pattern": "^(a|aa)+$|SECRET", "message": "m"}}, "a" * 60 + "! SECRET", False),
        ([{"type": "regex", "pattern": r"\{[a-z]+}+", "message": "m"}], "{ab}}", True),
        ([{"type": "schema", "schema": {"type": "object"}, "message": "m"}], '```json\n{"a": "```"}\n```', True),
    ],
    ids=["properties", "not of a slow pattern", "a brace", "a fence inside text"],
)
def test_rules_judge_rightly_at_their_edges(
    start: Start, library: Path, criteria: Json, output: str, valid: bool
) -> None:
    write(library, document(step(validationCriteria=criteria)))
    server = start(directory=library)

    params = {"workflowId": "sample-workflow", "stepId": "first-step", "output": output}

    assert server.result("workflow_validate", params)["valid"] is valid


def test_numbers_that_are_whole_or_beyond_all_bounds_are_answered(start: Start) -> None:
    server = start()

    assert len(server.result("workflow_list", {"limit": 1.0})["workflows"]) == 1
    server.write(b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}\n')
    assert server.receive()["error"]["code"] in (-32600, -32700)


def test_a_deep_directory_tree_hides_nothing_above_it(start: Start, library: Path) -> None:
    write(library, document())
    deep = library
    for _ in range(300):
        deep = deep / "d"
        os.mkdir(deep)
    server = start(directory=library)

    assert len(server.result("workflow_list")["workflows"]) == 1


def test_a_working_directory_that_was_deleted_is_no_harm(tmp_path: Path, start: Start) -> None:
    import subprocess
    import sys

    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" -m workflowlookup list --json'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)["workflows"]) >= 8


def test_call_arguments_are_filled_and_every_call_is_shown(start: Start, library: Path) -> None:
    functions = [{"name": "save", "definition": "Save it.", "parameters": [{"name": "title", "type": "string"}]}]
    calls = [{"name": "save", "args": {"title": "{{ticket}}"}}, {"name": "save", "args": {"title": "b"}}]
    write(library, document(step(functionCalls=calls), functionDefinitions=functions))
    server = start(directory=library)

    params = {"workflowId": "sample-workflow", "completedSteps": [], "context": {"ticket": "T-1"}}
    prompt = server.result("workflow_next", params)["guidance"]["prompt"]

    assert prompt.endswith('- save(title): Save it. Call it with {"title":"T-1"}. Call it with {"title":"b"}.')


@pytest.mark.parametrize(
    ("completed", "following"),
    [(["bb1"], "bb1@2"), (["aa1@1", "bb1"], "bb1@2"), (["bb1@1"], "bb1@2")],
)
def test_a_loop_stays_left_also_when_the_later_step_has_no_iteration(
    start: Start, library: Path, completed: list[str], following: str
) -> None:
    first = loop("l-a", [step("aa1")], type="while", condition={"var": "go"})
    write(library, document(first, loop("l-b", [step("bb1")], type="for", count=2), step("end")))
    server = start(directory=library)

    params = {"workflowId": "sample-workflow", "completedSteps": completed, "context": {"go": True}}

    assert server.result("workflow_next", params)["step"]["id"] == following


HOSTILE_PATTERNS = {
    "negated classes": "[^a]" * 40 + "{",
    "negated classes, as many as fit": "[^a]" * 1_000 + "{",
    "fields of a line": "^" + "[^,]*," * 24 + "(?:yes|no)+$",
    "classes that never close": "[" * 4_096,
    "a large count": "a{99999999}",
    "counts of counts": "(?:a{999}){999}",
    "counts behind a comment": "(?x)(?:a{99}#)\n){9999}",
    "catastrophic": "(a+)+$",
    "groups in groups": "(" * 2_000 + ")" * 2_000,
}


@pytest.mark.parametrize("pattern", HOSTILE_PATTERNS.values(), ids=HOSTILE_PATTERNS)
def test_no_pattern_holds_up_the_server(start: Start, library: Path, pattern: Json) -> None:
    rule = {"type": "regex", "pattern": pattern, "message": "no"}
    wanted = {"var": "text", "matches": pattern}
    write(library, document(step(validationCriteria=[rule]), step("second-step", runCondition=wanted)))
    server = start(directory=library)
    text = "a" * 5_000 + "\N{LATIN SMALL LETTER E WITH ACUTE}"

    arguments = {"workflowId": "sample-workflow", "stepId": "first-step", "output": text}
    reply = server.request("workflow_validate", arguments)
    assert "result" in reply or reply["error"]["code"] == -32004
    after = {"workflowId": "sample-workflow", "completedSteps": ["first-step"], "context": {"text": text}}
    reply = server.request("workflow_next", after)
    assert "result" in reply or "given up at step 'second-step'" in reply["error"]["data"]["details"]
    assert server.result("workflow_validate_json", {"workflowJson": json.dumps(document())})["valid"]


def test_the_end_of_input_ends_the_server_while_an_output_is_judged(start: Start, library: Path) -> None:
    rules = [{"type": "regex", "pattern": f"(a+)+{number}$", "message": "no"} for number in range(200)]
    write(library, document(step(validationCriteria=rules)))
    server = start(directory=library)
    arguments = {"workflowId": "sample-workflow", "stepId": "first-step", "output": "a" * 5_000}
    server.send({"jsonrpc": "2.0", "id": 1, "method": "workflow_validate", "params": arguments})
    server.close_input()

    assert server.wait() == 0


def test_the_patterns_of_one_document_share_their_time(start: Start, library: Path) -> None:
    costly = [f"(?i:{'[^a-z]|' * 500}{number})+" for number in range(200)]
    server = start(directory=library)
    text = json.dumps(document(step(validationCriteria=costly)))

    verdict = server.result("workflow_validate_json", {"workflowJson": text})

    assert "was not checked" in json.dumps(verdict)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("x" * 1_000_000, {}),
        ("tools/call", {"name": "x" * 1_000_000, "arguments": {}}),
        ("prompts/get", {"name": "x" * 1_000_000}),
        ("resources/read", {"uri": "x" * 1_000_000}),
    ],
    ids=["a method", "a tool", "a prompt", "a resource"],
)
def test_a_refusal_repeats_only_some_of_a_long_name(start: Start, method: str, params: JsonObject) -> None:
    reply = json.dumps(start().request(method, params))

    assert "xxx" in reply
    assert len(reply) < 20_000
