"""Questions to a person, in both eras: a tool asks, the call waits or comes again, and hostile answers get nowhere."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.memory_client import MemoryClient
from workflowlookup.access import Access
from workflowlookup.library.catalog import Catalog
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.connection import Connection
from workflowlookup.protocol.questions import signed_key
from workflowlookup.tools.arguments import SchemaArguments
from workflowlookup.tools.contract import Caller, Elicitation, Services, Tool
from workflowlookup.tools.registry import Registry

FORM = {
    "type": "object",
    "properties": {"confirmed": {"type": "boolean"}, "note": {"type": "string", "maxLength": 20}},
    "required": ["confirmed"],
}
YES = {"action": "accept", "content": {"confirmed": True}}
CAN: JsonObject = {"elicitation": {"form": {}}}
SERVICES = Services(catalog=Catalog([]))
MODERN_CAN = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": CAN}


def question(key: str, what: str = "it", **_: object) -> Elicitation:
    return Elicitation(key=key, message=f"Go on with {what}?", schema=FORM)


def ask_person(services: Services, arguments: JsonObject, caller: Caller) -> JsonObject | Elicitation:
    """Asks `times` questions if it can, and gives back every answer."""
    if not caller.supports_elicitation and not arguments.get("anyway"):
        return {"answers": "nobody can be asked"}
    for number in range(arguments.get("times", 1)):
        key = "again" if arguments.get("again") else f"question {number}"
        if key not in caller.answers or arguments.get("again"):
            return question(key, **arguments)
    if arguments.get("fail"):
        raise ZeroDivisionError
    return {"answers": dict(caller.answers), "by": caller.name}


TOOL = Tool(
    name="ask_person",
    title="Ask",
    description="Asks.",
    arguments=SchemaArguments({"type": "object"}),
    output_schema={"type": "object", "properties": {}, "required": []},
    example=({}, {}),
    handler=ask_person,
)


class AskingClient(MemoryClient):
    """One end of a connection in memory."""

    def __init__(self, version: str | None = "2025-11-25", capabilities: JsonObject = CAN) -> None:
        backend = Backend(lambda: SERVICES)
        backend.registry = Registry({TOOL.name: TOOL}, SERVICES)
        self.connection = Connection(backend)
        if version:
            hello = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "tests"}}
            self.send({"id": 0, "method": "initialize", "params": hello})

    def send(self, message: JsonObject) -> Json:
        return self.exchange(message)

    def call(self, identifier: int | str = 1, **arguments: Json) -> Json:
        params = {"name": "ask_person", "arguments": arguments}
        return self.send({"id": identifier, "method": "tools/call", "params": params})

    def modern(self, responses: Json = None, meta: JsonObject = MODERN_CAN, **arguments: Json) -> Json:
        """Call it with responses to its questions, by the keys that they have on the wire."""
        if isinstance(responses, dict):
            responses = {wire(key, **arguments): value for key, value in responses.items()}
        return self.forge(responses, meta, **arguments)

    def forge(self, responses: Json = None, meta: JsonObject = MODERN_CAN, **arguments: Json) -> Json:
        """Call it with responses by any keys."""
        params = {"name": "ask_person", "arguments": arguments, "_meta": meta}
        if responses is not None:
            params["inputResponses"] = responses
        return self.send({"id": 1, "method": "tools/call", "params": params})

    def heard(self) -> list[Json]:
        """What the server sent by itself since the last time."""
        return self.sent()

    def cancel(self, identifier: Json) -> None:
        self.send({"method": "notifications/cancelled", "params": {"requestId": identifier}})


def wire(key: str, **arguments: Json) -> str:
    """The key of a question as its client sees it."""
    return signed_key(question(key, **arguments), SERVICES)


def answers(reply: Json) -> Json:
    return reply["result"]["structuredContent"]["answers"]


# ── up to 2025-11-25 ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_a_question_is_a_request_and_the_call_is_answered_when_its_response_comes(version: str) -> None:
    client = AskingClient(version)

    assert client.call(what="step two") is None
    assert client.heard() == [
        {
            "jsonrpc": "2.0",
            "id": "wl-1",
            "method": "elicitation/create",
            "params": {"message": "Go on with step two?", "requestedSchema": FORM},
        }
    ]
    reply = client.send({"id": "wl-1", "result": YES})

    assert reply["id"] == 1
    assert reply["result"]["structuredContent"] == {"answers": {"question 0": YES}, "by": "tests"}
    assert client.heard() == []


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_declined_or_dismissed_form_has_no_content(action: str) -> None:
    client = AskingClient()
    client.call()

    reply = client.send({"id": "wl-1", "result": {"action": action, "content": {"confirmed": True}}})

    assert answers(reply) == {"question 0": {"action": action}}


@pytest.mark.parametrize(
    "response",
    [
        {"error": {"code": -32601, "message": "Method not found"}},
        {"error": 5},
        {"result": None},
        {"result": []},
        {"result": {}},
        {"result": {"action": "ACCEPT", "content": {"confirmed": True}}},
        {"result": {"action": ["accept"]}},
        {"result": {"action": {}}},
        {"result": {"action": "accept"}},
        {"result": {"action": "accept", "content": "yes"}},
        {"result": {"action": "accept", "content": {"confirmed": "true"}}},
        {"result": {"action": "accept", "content": {"confirmed": True, "note": "a" * 21}}},
        {"result": YES, "error": {"code": 1, "message": "both"}},
    ],
    ids=json.dumps,
)
def test_an_error_or_an_invalid_answer_counts_as_dismissed(response: JsonObject) -> None:
    client = AskingClient()
    client.call()

    reply = client.send({"id": "wl-1", **response})

    assert answers(reply) == {"question 0": {"action": "cancel"}}


def test_other_calls_go_on_while_questions_are_open_and_each_answer_finds_its_call() -> None:
    client = AskingClient()
    client.call("first", what="a")
    client.call("second", what="b")
    assert [message["id"] for message in client.heard()] == ["wl-1", "wl-2"]

    assert client.send({"id": 3, "method": "ping"})["result"] == {}
    second = client.send({"id": "wl-2", "result": {"action": "decline"}})
    first = client.send({"id": "wl-1", "result": YES})

    assert (second["id"], answers(second)) == ("second", {"question 0": {"action": "decline"}})
    assert (first["id"], answers(first)) == ("first", {"question 0": YES})


def test_a_tool_may_ask_one_thing_after_another() -> None:
    client = AskingClient()
    client.call(times=2)

    assert client.send({"id": "wl-1", "result": YES}) is None
    assert [message["id"] for message in client.heard()] == ["wl-1", "wl-2"]
    reply = client.send({"id": "wl-2", "result": {"action": "decline"}})

    assert answers(reply) == {"question 0": YES, "question 1": {"action": "decline"}}


def test_a_call_by_the_tools_own_name_can_ask_too() -> None:
    client = AskingClient()
    assert client.send({"id": 1, "method": "ask_person", "params": {}}) is None

    assert client.send({"id": "wl-1", "result": YES})["result"]["answers"] == {"question 0": YES}


def test_a_response_to_no_open_question_is_ignored() -> None:
    client = AskingClient()
    for identifier in ("wl-1", 1, "", -1.5):
        assert client.send({"id": identifier, "result": YES}) is None
    client.call()
    client.heard()
    for identifier in ("wl-2", 1, "WL-1"):
        assert client.send({"id": identifier, "result": YES}) is None

    assert answers(client.send({"id": "wl-1", "result": YES})) == {"question 0": YES}
    assert client.send({"id": "wl-1", "result": YES}) is None
    assert client.heard() == []


def test_cancelling_a_call_withdraws_its_question_and_it_is_never_answered() -> None:
    client = AskingClient()
    client.call(7)
    client.call(8)
    client.heard()
    for other in ("7", 7.0, None, True, "wl-1"):
        client.cancel(other)
    assert client.heard() == []

    client.cancel(7)

    (told,) = client.heard()
    assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", "wl-1")
    assert client.send({"id": "wl-1", "result": YES}) is None
    assert answers(client.send({"id": "wl-2", "result": YES})) == {"question 0": YES}


def test_the_end_of_the_connection_answers_the_call_with_an_open_question() -> None:
    client = AskingClient()
    client.call()
    client.heard()
    client.connection.close()

    (reply,) = client.heard()
    assert "The session ended before the person answered" in json.dumps(reply)
    assert client.send({"id": "wl-1", "result": YES}) is None


def test_open_questions_are_limited() -> None:
    client = AskingClient()
    for number in range(64):
        assert client.call(number) is None

    assert "at most 64" in client.call(64)["error"]["data"]["details"]
    client.cancel(3)
    assert client.call(64) is None


@pytest.mark.parametrize(
    ("version", "capabilities"),
    [
        ("2025-11-25", {}),
        ("2025-11-25", {"elicitation": {"url": {}}}),
        ("2025-03-26", CAN),
        ("2024-11-05", CAN),
    ],
)
def test_a_client_that_cannot_show_forms_is_never_asked(version: str, capabilities: JsonObject) -> None:
    client = AskingClient(version, capabilities)

    assert answers(client.call()) == "nobody can be asked"
    assert client.call(anyway=True)["error"]["code"] == -32021
    assert client.heard() == []


def test_an_internal_error_after_the_answer_is_the_reply_to_the_call(caplog: pytest.LogCaptureFixture) -> None:
    client = AskingClient()
    client.call(fail=True)

    reply = client.send({"id": "wl-1", "result": YES})

    assert reply == {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "Internal error"}}
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("era", ["handshake", "envelope"])
def test_a_tool_that_asks_the_same_question_again_ends_the_call(era: str, caplog: pytest.LogCaptureFixture) -> None:
    client = AskingClient()
    if era == "handshake":
        client.call(again=True)
        reply = client.send({"id": "wl-1", "result": YES})
    else:
        reply = client.modern({"again": YES}, again=True)

    assert reply["error"]["code"] == -32603
    assert "asked again" in caplog.text


# ── since 2026-07-28 ────────────────────────────────────────────────────────────────────────────────────────────


def test_since_2026_a_question_is_the_result_and_the_answer_comes_with_the_call_sent_again() -> None:
    client = AskingClient(version=None)

    result = client.modern(what="step two")["result"]
    again = client.modern({"question 0": YES}, what="step two")

    assert result["resultType"] == "input_required"
    assert result["inputRequests"] == {
        wire("question 0", what="step two"): {
            "method": "elicitation/create",
            "params": {"message": "Go on with step two?", "requestedSchema": FORM},
        }
    }
    assert result["_meta"].keys() == {"io.modelcontextprotocol/serverInfo"}
    assert again["result"]["resultType"] == "complete"
    assert again["result"]["structuredContent"] == {"answers": {"question 0": YES}, "by": "tests"}
    assert client.heard() == []


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_since_2026_declining_and_dismissing_come_with_the_call_too(action: str) -> None:
    assert answers(AskingClient(version=None).modern({"question 0": {"action": action}})) == {
        "question 0": {"action": action}
    }


def test_since_2026_missing_answers_are_asked_for_again_and_others_are_ignored() -> None:
    client = AskingClient(version=None)

    missing = client.modern({"question 9": YES, "x": {"role": "assistant"}, "y": 7})["result"]
    half = client.modern({"question 0": YES}, times=2)["result"]
    whole = client.modern({"question 0": YES, "question 1": YES}, times=2)

    assert missing["inputRequests"].keys() == {wire("question 0")}
    assert half["inputRequests"].keys() == {wire("question 1")}
    assert answers(whole) == {"question 0": YES, "question 1": YES}


@pytest.mark.parametrize(
    "key",
    [
        "question 0",
        "question 0.",
        wire("question 0", what="something else"),
        wire("question 1"),
        signed_key(question("question 0"), Services(catalog=Catalog([]), question_secret=lambda: "of another server")),
        signed_key(
            question("question 0"),
            Services(catalog=Catalog([]), access=Access(name="token eve", kind="agent", scopes=frozenset({"run"}))),
        ),
    ],
    ids=["unsigned", "an empty signature", "another text", "another question", "another server", "another caller"],
)
def test_since_2026_an_answer_to_a_question_of_another_caller_is_ignored(key: str) -> None:
    result = AskingClient(version=None).forge({key: YES})["result"]

    assert result["resultType"] == "input_required"
    assert result["inputRequests"].keys() == {wire("question 0")}


@pytest.mark.parametrize(
    ("responses", "words"),
    [
        ([], "inputResponses must be an object"),
        ("yes", "inputResponses must be an object"),
        (True, "inputResponses must be an object"),
        ({"question 0": "accept"}, "the answer to 'question 0' must be an object"),
        ({"question 0": [YES]}, "the answer to 'question 0' must be an object"),
        ({"question 0": {}}, "must be one of accept, decline, cancel"),
        ({"question 0": {"action": "ACCEPT"}}, "must be one of accept, decline, cancel"),
        ({"question 0": {"action": True}}, "must be one of accept, decline, cancel"),
        ({"question 0": {"action": {}}}, "must be one of accept, decline, cancel"),
        ({"question 0": {"action": "accept"}}, "confirmed is required"),
        ({"question 0": {"action": "accept", "content": []}}, "does not fit"),
        ({"question 0": {"action": "accept", "content": False}}, "does not fit"),
        ({"question 0": {"action": "accept", "content": {"confirmed": 1}}}, "confirmed must be"),
        ({"question 0": {"action": "accept", "content": {"confirmed": True, "note": "a" * 21}}}, "note must"),
    ],
    ids=json.dumps,
)
def test_since_2026_hostile_answers_are_refused_by_name(responses: Json, words: str) -> None:
    error = AskingClient(version=None).modern(responses)["error"]

    assert error["code"] == -32602
    assert words in error["data"]["details"]


def test_since_2026_answers_nest_no_deeper_than_everything_else() -> None:
    deep = json.loads("[" * 400 + "]" * 400)

    assert (
        AskingClient(version=None).modern({"question 0": {**YES, "content": {"confirmed": deep}}})["error"]["code"]
        == -32700
    )


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"url": {}}}])
def test_since_2026_each_request_has_its_own_capabilities(capabilities: JsonObject) -> None:
    client = AskingClient()
    cannot = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": capabilities}

    assert answers(client.modern(meta=cannot)) == "nobody can be asked"
    refused = client.modern(meta=cannot, anyway=True)["error"]
    assert (refused["code"], refused["data"]) == (-32021, {"requiredCapabilities": {"elicitation": {}}})
    assert client.modern()["result"]["resultType"] == "input_required"


def test_since_2026_only_tools_call_may_be_answered_with_a_question() -> None:
    client = AskingClient()

    direct = client.send({"id": 1, "method": "ask_person", "params": {"_meta": MODERN_CAN}})

    assert direct["result"]["answers"] == "nobody can be asked"


# ── whatever comes ──────────────────────────────────────────────────────────────────────────────────────────────

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["action", "content", "confirmed", "note", "question 0"]), inner, max_size=4)
    ),
    max_leaves=8,
)
ANSWER = JSON | st.fixed_dictionaries(
    {"action": st.sampled_from(["accept", "decline", "cancel"]) | JSON, "content": JSON}
)


def is_answer(answer: Json) -> bool:
    return answer["action"] in ("decline", "cancel") or type(answer["content"]["confirmed"]) is bool


@settings(deadline=None)
@given(ANSWER)
def test_any_response_answers_the_call_with_an_answer_that_fits_the_form(response: Json) -> None:
    client = AskingClient()
    client.call()

    assert is_answer(answers(client.send({"id": "wl-1", "result": response}))["question 0"])


@settings(deadline=None)
@given(JSON | st.fixed_dictionaries({"question 0": ANSWER}))
def test_since_2026_any_responses_are_refused_or_fit_the_form_or_are_asked_for_again(responses: Json) -> None:
    reply = AskingClient(version=None).modern(responses)

    if "error" in reply:
        assert reply["error"]["code"] == -32602
    elif reply["result"]["resultType"] == "complete":
        assert is_answer(answers(reply)["question 0"])
    else:
        assert reply["result"]["inputRequests"].keys() == {wire("question 0")}
