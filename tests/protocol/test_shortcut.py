"""The short way of a call: quicker than the long one, and never different."""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client import ENVELOPE
from make import document, loop, step, write
from workflowlookup.app import make_connection
from workflowlookup.library import catalog
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.connection import Connection
from workflowlookup.settings import read_settings
from workflowlookup.tools.registry import Short

LINE = document(
    step("one", prompt="Use {{tool}}.", validationCriteria=[{"type": "length", "min": 5, "message": "short"}]),
    step("two", runCondition={"var": "size", "equals": "large"}, validationCriteria={"not": "TODO"}),
    step("three", requires=["size"], validationCriteria=[{"type": "regex", "pattern": "(", "message": "odd"}]),
    identifier="in-line",
    contextSchema={"type": "object", "properties": {"size": {"type": "string"}}},
)
PLAIN = document(step("one", prompt="Use {{tool}}."), step("two", guidance=["{{size}}"]), identifier="plain-one")
ROUND = document(loop("each", [step("leaf")], type="for", count=2), step("one"), identifier="in-loops")


def mostly(usual, *odd):
    return st.sampled_from([*usual * (1 + 8 * len(odd) // len(usual)), *odd])


IDS = mostly(["in-line", "plain-one", "in-loops"], "broken", "unknown", "No Id", "x", "", 7, None)
STEPS = mostly(["one", "two", "three"], "each", "leaf", "leaf@1", "Nö", "o", "", 1, None, ["one"])
CONTEXTS = st.one_of(
    st.dictionaries(
        st.sampled_from(["size", "tool", "other"]), st.sampled_from(["large", 'a "b" \\ é', 4, None, [1], {"a": 1}])
    ),
    mostly([{"size": "large"}], None, [], "text", 1),
)
ARGUMENTS = {
    "workflow_get": {"id": IDS, "mode": mostly(["full", "preview", "metadata"], "odd", None, 1)},
    "workflow_next": {
        "workflowId": IDS,
        "completedSteps": st.one_of(st.lists(STEPS, max_size=3), mostly([["one"], ["one", "two"]], None, "one")),
        "currentStep": STEPS,
        "context": CONTEXTS,
    },
    "workflow_validate": {
        "workflowId": IDS,
        "stepId": STEPS,
        "output": mostly(["abc", "abcdef", "TODO later"], "", " ", None, 3),
        "context": CONTEXTS,
    },
}
RARELY = mostly([False], True)
METAS = st.sampled_from(
    [{}, {"progressToken": 1}, {"progressToken": True}, {"workflowlookup/timeoutSeconds": -1}, ENVELOPE, 4, {"x": {}}]
)


@st.composite
def calls(draw):
    tool = draw(st.sampled_from(sorted(ARGUMENTS)))
    params = {name: draw(values) for name, values in ARGUMENTS[tool].items() if not draw(RARELY)}
    if draw(RARELY):
        params["extra"] = 1
    is_through = draw(st.booleans())
    if is_through:
        params = {"name": tool, "arguments": params}
    if draw(RARELY):
        params["_meta"] = draw(METAS)
    if draw(RARELY):
        params["task"] = {}
    identifier = draw(mostly([1, 7], "a", 1.5))
    return {"jsonrpc": "2.0", "id": identifier, "method": "tools/call" if is_through else tool, "params": params}


def connect(directory) -> Connection:
    sources = {"bundled": "no", "user": "no", "project": "no", "directories": str(directory)}
    connection = make_connection(read_settings(sources, {}, directory="."))
    say(connection, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    for content in (LINE, PLAIN, ROUND):  # the short way is for what was asked before
        say(connection, "workflow_get", {"id": content["id"]})
    say(connection, "workflow_next", {"workflowId": "plain-one", "completedSteps": []})
    for judged in ("one", "two"):
        say(connection, "workflow_validate", {"workflowId": "in-line", "stepId": judged, "output": "done"})
    return connection


def say(connection, method, params, identifier=1):
    message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
    return json.loads(connection.handle(json.dumps(message).encode()))


@pytest.fixture
def both(library, monkeypatch):
    """A connection that has the short way, and one that has not."""
    for content in (LINE, PLAIN, ROUND, {"id": "broken", "name": "N"}):
        write(library, content)
    monkeypatch.setattr(catalog, "SECONDS_BETWEEN_LOOKS", 3600)
    short, long = connect(library), connect(library)
    long.handle = lambda line: long.answer(jsonrpc.decode(line))
    return short, long


@given(call=calls())
@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_says_what_the_long_way_says(both, call):
    short, long = both

    for ascii_only in (True, False):
        line = json.dumps(call, ensure_ascii=ascii_only).encode()
        assert short.handle(line) == long.handle(line)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("workflow_get", {"id": "plain-one"}),
        ("workflow_get", {"id": "plain-one", "mode": "full"}),
        ("workflow_next", {"workflowId": "plain-one", "completedSteps": []}),
        ("workflow_next", {"workflowId": "plain-one", "completedSteps": ["one"], "currentStep": "two", "context": {}}),
        ("workflow_next", {"workflowId": "plain-one", "completedSteps": ["two", "one"], "context": {"tool": "x"}}),
        ("workflow_validate", {"workflowId": "in-line", "stepId": "one", "output": "abc", "context": None}),
    ],
)
@pytest.mark.parametrize("meta", [{}, {"_meta": {"progressToken": 3, "client/own": {"x": 1}}}])
def test_it_is_taken_by_usual_calls(both, monkeypatch, tool, arguments, meta):
    short, long = both
    monkeypatch.setattr(Connection, "answer", lambda *_: pytest.fail("the long way was taken"))

    assert "result" in say(short, "tools/call", {"name": tool, "arguments": arguments, **meta})
    assert "result" in say(short, tool, arguments)
    with pytest.raises(pytest.fail.Exception):
        say(long, tool, arguments)


NEXT = {"workflowId": "plain-one", "completedSteps": []}
JUDGED = {"workflowId": "in-line", "stepId": "one", "output": "abcdef"}


@pytest.mark.parametrize(
    ("tool", "arguments", "beside"),
    [
        ("workflow_get", {"id": "plain-one", "mode": "odd"}, {}),
        ("workflow_get", {"id": "plain-one", "extra": 1}, {}),
        ("workflow_get", {"id": "unknown"}, {}),
        ("workflow_get", {"id": "broken"}, {}),
        ("workflow_next", {**NEXT, "completedSteps": ["one", "one"]}, {}),
        ("workflow_next", {**NEXT, "completedSteps": ["No Id"]}, {}),
        ("workflow_next", {**NEXT, "completedSteps": ["unknown"]}, {}),
        ("workflow_next", {**NEXT, "currentStep": ""}, {}),
        ("workflow_next", {**NEXT, "currentStep": "unknown"}, {}),
        ("workflow_next", {**NEXT, "context": []}, {}),
        ("workflow_next", {**NEXT, "completedSteps": ["one", "two"]}, {}),
        ("workflow_next", {"workflowId": "in-loops", "completedSteps": ["one"]}, {}),
        ("workflow_next", {"workflowId": "in-loops", "completedSteps": ["leaf@1"]}, {}),
        ("workflow_next", {"workflowId": "in-line", "completedSteps": ["one"]}, {}),
        ("workflow_next", {"workflowId": "in-line", "completedSteps": ["one"], "context": {"size": 1}}, {}),
        ("workflow_validate", {**JUDGED, "output": ""}, {}),
        ("workflow_validate", {**JUDGED, "stepId": "three"}, {}),
        ("workflow_validate", {**JUDGED, "stepId": "unknown"}, {}),
        ("workflow_validate", {**JUDGED, "workflowId": "in-loops", "stepId": "each"}, {}),
        ("workflow_validate", {**JUDGED, "workflowId": "in-loops", "stepId": "leaf@1"}, {}),
        ("workflow_validate", JUDGED, {"_meta": {"workflowlookup/timeoutSeconds": -1}}),
        ("workflow_validate", JUDGED, {"_meta": {"progressToken": True}}),
        ("workflow_validate", JUDGED, {"_meta": ENVELOPE}),
        ("workflow_validate", JUDGED, {"task": {}}),
        ("workflow_validate", {**JUDGED, "output": "x" * 4_000, "context": {"x": "y" * (1 << 18)}}, {}),
    ],
)
def test_what_is_not_usual_is_answered_the_same(both, tool, arguments, beside):
    answers = [say(one, "tools/call", {"name": tool, "arguments": arguments, **beside}) for one in both]
    assert answers[0] == answers[1]

    answers = [say(one, tool, {**arguments, **beside}) for one in both]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("odd", [b"1e999", b'"\\ud800"', b"[" * 2_000 + b"]" * 2_000, b"nul", b"\xff"])
@pytest.mark.parametrize("place", [b'"_meta":{"x":%b}', b'"arguments":{"id":"plain-one","x":%b}', b'"x":%b'])
def test_what_cannot_be_read_is_told_wherever_it_stands(both, odd, place):
    params = b'"name":"workflow_get","arguments":{"id":"plain-one"},' + place % odd
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%b}}' % params

    short, long = both
    assert short.handle(line) == long.handle(line)


def test_a_document_that_changed_is_seen_by_the_next_call(both, library):
    short, _ = both
    first = {"workflowId": "plain-one", "completedSteps": []}
    assert say(short, "workflow_next", first)["result"]["step"]["id"] == "one"

    write(library, document(step("zero"), identifier="plain-one"))
    assert say(short, "workflow_next", first)["result"]["step"]["id"] == "zero"

    os.unlink(library / "plain-one.json")
    assert say(short, "workflow_next", first)["error"]["code"] == -32001


def test_a_document_that_is_replaced_by_another_source_is_not_answered_from_memory(both, library, tmp_path):
    first = {"workflowId": "plain-one", "completedSteps": []}
    sources = {"bundled": "no", "user": "no", "project": "no", "directories": f"{library}{os.pathsep}{tmp_path}/later"}
    connection = make_connection(read_settings(sources, {}, directory="."))
    say(connection, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    assert [say(connection, "workflow_next", first)["result"]["step"]["id"] for _ in range(2)] == ["one", "one"]

    write(tmp_path / "later", document(step("shadow"), identifier="plain-one"))

    assert say(connection, "workflow_next", first)["result"]["step"]["id"] == "shadow"


def test_there_is_none_before_the_handshake(library):
    write(library, PLAIN)
    sources = {"bundled": "no", "user": "no", "project": "no", "directories": str(library)}
    connection = make_connection(read_settings(sources, {}, directory="."))
    asked = {"name": "workflow_get", "arguments": {"id": "plain-one"}}
    assert "result" in say(connection, "tools/call", {**asked, "_meta": ENVELOPE})

    assert [say(connection, "workflow_get", {"id": "plain-one"})["error"]["code"] for _ in range(2)] == [-32000, -32000]
    assert connection._shortcut is None


def test_what_goes_wrong_on_it_is_left_to_the_long_way(both):
    short, long = both
    known = short._surface.registry.short
    known["workflow_get"] = Short(known["workflow_get"].decode, lambda *_: 1 / 0)

    assert say(short, "workflow_get", {"id": "plain-one"}) == say(long, "workflow_get", {"id": "plain-one"})


def test_a_source_that_is_replaced_as_a_whole_is_seen(library, tmp_path, monkeypatch):
    write(tmp_path / "one", PLAIN)
    os.symlink(tmp_path / "one", tmp_path / "now")
    connection = connect(tmp_path / "now")
    asked = {"workflowId": "plain-one", "completedSteps": []}
    assert say(connection, "workflow_next", asked)["result"]["step"]["id"] == "one"

    write(tmp_path / "two", document(step("zero"), identifier="plain-one"))
    os.symlink(tmp_path / "two", tmp_path / "new")
    os.rename(tmp_path / "new", tmp_path / "now")
    monkeypatch.setattr(connection._surface.services.catalog, "_next_look", 0.0)  # it is time to look

    assert say(connection, "workflow_next", asked)["result"]["step"]["id"] == "zero"
