"""Documents that cannot be served: malformed, unreadable or unsafe files, and the error of each."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spec.roads import Ask, Publish, failure
from support.client import Start
from support.json_values import JsonObject
from support.make import document, step, write

ID = "troubled-workflow"


@pytest.fixture
def file(shelf: Path) -> Iterator[Path]:
    """Where the troubled document lies; whatever is put there goes after the test."""
    path = shelf / f"{ID}.json"
    yield path
    path.unlink()


QUESTIONS = [
    pytest.param("workflow_get", {"id": ID}, id="workflow_get"),
    pytest.param("workflow_next", {"workflowId": ID, "completedSteps": []}, id="workflow_next"),
    pytest.param("workflow_validate", {"workflowId": ID, "stepId": "a-step", "output": "x"}, id="workflow_validate"),
]

# ── malformed ───────────────────────────────────────────────────────────────────────────────────────────────────

MALFORMED = {
    "syntax": (
        b'{"id": "troubled-workflow",\n "name": }',
        ["JSON syntax error: Expecting value at position 37 (line 2, column 10)"],
    ),
    "truncated": (b"{", ["JSON syntax error: Unexpected end of JSON input at position 1 (line 1, column 2)"]),
    "empty": (b"", ["JSON syntax error: the document is empty"]),
    "not UTF-8": (
        b'{"id": "troubled-workflow", "name": "caf\xe9"}',
        ["The text is not UTF-8: bad byte at line 1, column 41"],
    ),
    "fields missing": (
        json.dumps({"id": ID, "name": "No steps"}).encode(),
        ["Missing required property 'description'", "Missing required property 'steps'"],
    ),
    "unknown field": (
        json.dumps(document(step(promtp="P"), identifier=ID)).encode(),
        ["Unknown field 'promtp' (did you mean 'prompt'?) in step 1 ('first-step')"],
    ),
    "duplicate ids": (
        json.dumps(document(step("same-id"), step("same-id"), identifier=ID)).encode(),
        ["Duplicate step id 'same-id' in step 2 ('same-id')"],
    ),
    "no object": (b"[]", ["The document must be an object; found an empty list"]),
}


@pytest.mark.spec(
    "001/workflow_get/malformed-file",
    "001/codes/-32002",
    "004/errors/-32002",
    "004/checklist/error-context",
    "004/checklist/error-messages",
)
@pytest.mark.parametrize(("content", "issues"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_is_an_invalid_workflow_and_each_fault_is_named(
    ask: Ask, file: Path, content: bytes, issues: list[str]
) -> None:
    file.write_bytes(content)

    reply = ask("workflow_get", {"id": ID})

    assert reply == failure(-32002, "Invalid workflow", {"workflowId": ID, "file": str(file), "issues": issues})


@pytest.mark.spec("001/workflow_get/malformed-file", "001/codes/-32002", "004/errors/-32002")
@pytest.mark.parametrize(("tool", "arguments"), QUESTIONS)
def test_a_malformed_file_is_refused_by_every_tool_that_needs_it(
    ask: Ask, file: Path, tool: str, arguments: JsonObject
) -> None:
    file.write_text("{", encoding="utf-8")

    error = ask.error(tool, arguments)

    assert (error["code"], error["message"], error["data"]["workflowId"]) == (-32002, "Invalid workflow", ID)


@pytest.mark.spec("001/workflow_get/malformed-file", "004/lifecycle/recoverable-error")
def test_a_fixed_file_is_served(ask: Ask, file: Path) -> None:
    file.write_text("{", encoding="utf-8")
    refused = ask.error("workflow_get", {"id": ID})
    write(file.parent, document(identifier=ID))

    served = ask.result("workflow_get", {"id": ID})

    assert (refused["code"], served["id"]) == (-32002, ID)


# ── unreadable ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("001/codes/-32006", "004/checklist/error-context")
@pytest.mark.parametrize(("tool", "arguments"), QUESTIONS)
def test_a_named_pipe_as_a_file_is_a_storage_error_and_does_not_block(
    ask: Ask, file: Path, tool: str, arguments: JsonObject
) -> None:
    os.mkfifo(file)

    error = ask.error(tool, arguments)

    assert (error["code"], error["message"]) == (-32006, "Storage error")
    assert (error["data"]["workflowId"], error["data"]["file"]) == (ID, str(file))


@pytest.mark.spec("001/codes/-32006")
def test_a_dangling_link_is_a_storage_error(ask: Ask, file: Path) -> None:
    file.symlink_to(file.with_name("gone.json"))

    error = ask.error("workflow_get", {"id": ID})

    assert (error["code"], error["data"]["workflowId"]) == (-32006, ID)


@pytest.mark.spec("001/codes/-32006", "004/lifecycle/recoverable-error")
def test_a_directory_that_vanishes_is_a_storage_error_until_it_is_back(start: Start, library: Path) -> None:
    write(library, document(identifier=ID))
    server = start(directory=library)
    before = server.result("workflow_get", {"id": ID})

    shutil.rmtree(library)
    gone = server.error("workflow_get", {"id": ID})
    library.mkdir()
    write(library, document(identifier=ID))

    assert (gone["code"], gone["message"], gone["data"]["workflowId"]) == (-32006, "Storage error", ID)
    assert server.result("workflow_get", {"id": ID}) == before


# ── unsafe ──────────────────────────────────────────────────────────────────────────────────────────────────────


def link_out(path: Path) -> None:
    outside = path.parent.parent / "outside-the-shelf.json"
    outside.write_text(json.dumps(document(identifier=ID)), encoding="utf-8")
    path.symlink_to(outside)


def too_large(path: Path) -> None:
    path.write_text(json.dumps(document(identifier=ID, **{"x-data": "x" * (1 << 20)})), encoding="utf-8")


def too_deep(path: Path) -> None:
    deep: Any = {}
    for _ in range(64):
        deep = {"deeper": deep}
    path.write_text(json.dumps(document(identifier=ID, **{"x-data": deep})), encoding="utf-8")


@pytest.mark.spec("001/codes/-32007", "004/checklist/error-context")
@pytest.mark.parametrize(
    ("put", "details"),
    [
        (link_out, "a link that leads out of its directory"),
        (too_large, "larger than 1,048,576 bytes"),
        (too_deep, "nested deeper than 64 levels"),
    ],
    ids=["a link that leads out", "over a mebibyte", "over 64 levels"],
)
@pytest.mark.parametrize(("tool", "arguments"), QUESTIONS)
def test_a_file_that_is_unsafe_to_read_is_a_security_error(
    ask: Ask, file: Path, put: Callable[[Path], None], details: str, tool: str, arguments: JsonObject
) -> None:
    put(file)

    assert ask(tool, arguments) == failure(
        -32007, "Security error", {"workflowId": ID, "file": str(file), "details": details}
    )


@pytest.mark.spec("001/codes/-32007", "001/codes/-32006", "001/workflow_list/all")
def test_documents_that_cannot_be_served_are_left_out_and_do_not_block_others(
    ask: Ask, publish: Publish, shelf: Path, file: Path
) -> None:
    publish(identifier="sound-workflow")
    link_out(file)
    pipe = shelf / "named-pipe.json"
    os.mkfifo(pipe)

    listed = ask.result("workflow_list", {})["workflows"]
    pipe.unlink()

    assert [workflow["id"] for workflow in listed] == ["sound-workflow"]


@pytest.mark.spec("001/codes/-32007", "001/codes/-32602")
@pytest.mark.parametrize(
    "identifier", ["../outside", "/etc/passwd", "..\\outside", "a/../../b", "%2e%2e%2fx", "a\u0000b"]
)
def test_an_id_is_never_a_path(ask: Ask, identifier: str) -> None:
    assert ask.error("workflow_get", {"id": identifier})["code"] == -32602
