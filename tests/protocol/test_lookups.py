"""Calls of the lookup tools on one connection: they see the library as it is, and each caller sees its own values."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.make import document, step, write
from support.narrowing import not_none
from workflowlookup.app import make_connection
from workflowlookup.language.document.building import build
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.model import Workflow
from workflowlookup.language.navigation import next_step
from workflowlookup.protocol.connection import Connection
from workflowlookup.settings import read_settings
from workflowlookup.tools.builtin.workflow_next import answer

PLAIN = document(step("one", prompt="Use {{tool}}."), step("two", guidance=["{{size}}"]), identifier="plain-one")
FIRST = {"workflowId": "plain-one", "completedSteps": []}


def open_connection(*directories: Path) -> Connection:
    sources = {"bundled": "no", "user": "no", "project": "no", "directories": os.pathsep.join(map(str, directories))}
    return make_connection(read_settings(sources, {}, directory="."))


def connect(*directories: Path) -> Connection:
    connection = open_connection(*directories)
    say(connection, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    return connection


def say(connection: Connection, method: str, params: JsonObject, identifier: int = 1) -> Json:
    message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
    return json.loads(not_none(connection.handle(json.dumps(message).encode())))


def first_step(connection: Connection) -> Json:
    return say(connection, "workflow_next", FIRST)["result"]["step"]["id"]


def test_a_document_that_changed_is_seen_by_the_next_call(library: Path) -> None:
    write(library, PLAIN)
    connection = connect(library)
    assert first_step(connection) == "one"

    write(library, document(step("zero"), identifier="plain-one"))
    assert first_step(connection) == "zero"

    os.unlink(library / "plain-one.json")
    assert say(connection, "workflow_next", FIRST)["error"]["code"] == -32001


def test_a_document_that_another_source_shadows_is_seen_by_the_next_call(library: Path, tmp_path: Path) -> None:
    write(library, PLAIN)
    connection = connect(library, tmp_path / "later")
    assert first_step(connection) == "one"

    write(tmp_path / "later", document(step("shadow"), identifier="plain-one"))

    assert first_step(connection) == "shadow"


def test_a_source_that_is_replaced_as_a_whole_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "one", PLAIN)
    os.symlink(tmp_path / "one", tmp_path / "now")
    connection = connect(tmp_path / "now")
    assert first_step(connection) == "one"

    write(tmp_path / "two", document(step("zero"), identifier="plain-one"))
    os.symlink(tmp_path / "two", tmp_path / "new")
    os.rename(tmp_path / "new", tmp_path / "now")
    monkeypatch.setattr(connection._backend.services.catalog, "_next_root_check", 0.0)  # the check is due

    assert first_step(connection) == "zero"


def test_an_envelope_is_no_handshake(library: Path) -> None:
    write(library, PLAIN)
    connection = open_connection(library)
    asked = {"name": "workflow_get", "arguments": {"id": "plain-one"}}
    assert "result" in say(connection, "tools/call", {**asked, "_meta": ENVELOPE})

    assert say(connection, "workflow_get", {"id": "plain-one"})["error"]["code"] == -32000


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        (b"1e999", -32700),
        (b"[" * 2_000 + b"]" * 2_000, -32700),
        (b"nul", -32700),
        (b"\xff", -32700),
    ],
)
@pytest.mark.parametrize("place", [b'"_meta":{"x":%b}', b'"arguments":{"id":"plain-one","x":%b}', b'"x":%b'])
def test_unreadable_values_are_refused_at_any_position(library: Path, odd: bytes, code: int, place: bytes) -> None:
    write(library, PLAIN)
    params = b'"name":"workflow_get","arguments":{"id":"plain-one"},' + place % odd
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%b}}' % params

    assert json.loads(not_none(connect(library).handle(line)))["error"]["code"] == code


# ── each caller sees its own values ─────────────────────────────────────────────────────────────────────────────────

TEXTS = st.lists(
    st.sampled_from(["{{a}}", "{{ b }}", "{{a.c}}", "{{{{a}}", "{{d", "words", '"', "\\", "\n", "\ue000a\ue000"])
).map("".join)
VALUES = st.one_of(
    TEXTS, st.text(max_size=4), st.integers(), st.booleans(), st.none(), st.just({"c": "deep"}), st.just([1, "x"])
)
CONTEXTS = st.dictionaries(st.sampled_from(["a", "b", "a.c", "other"]), VALUES)
CONDITIONS = st.sampled_from([{"var": "a"}, {"var": "b", "equals": "words"}, {"not": {"var": "other"}}])


@st.composite
def documents(draw: DrawFn) -> JsonObject:
    told = step(
        "one",
        title=draw(TEXTS) or "t",
        prompt=draw(TEXTS) or "p",
        guidance=[draw(TEXTS)],
        promptFragments=[{"id": "more", "text": draw(TEXTS), "when": draw(CONDITIONS)}],
        functionReferences=["go()"],
        requireConfirmation=draw(CONDITIONS),
    )
    return document(told, functionDefinitions=[{"name": "go", "definition": draw(TEXTS)}])


@given(content=documents(), contexts=st.lists(CONTEXTS, min_size=2, max_size=6))
def test_the_answer_to_one_caller_does_not_depend_on_earlier_callers(
    content: JsonObject, contexts: list[JsonObject]
) -> None:
    shared = build(content)
    for context in contexts:
        assert told(shared, context) == told(build(content), context)


def told(workflow: Workflow, context: JsonObject) -> JsonObject:
    return answer(workflow, next_step(workflow, (), context, Budget()), (), Budget())
