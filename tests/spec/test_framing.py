"""Bytes in, bytes out: UTF-8, one message a line, in order, and nothing else on standard output."""

import json
from typing import Any

import pytest

from spec.roads import Publish
from support.client import ENVELOPE, Server, Start
from support.json_values import Json
from support.make import document, step, write

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": "initialize",
    "method": "initialize",
    "params": {"protocolVersion": "2024-11-05", "capabilities": {}},
}


def request(identifier: Json, method: str, params: Json = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}).encode()


def replies_to(server: Server, data: bytes) -> list[bytes]:
    """Everything on standard output after the handshake, once `data` was sent and the input has ended, cut at newlines."""
    output, _ = server.process.communicate(json.dumps(INITIALIZE).encode() + b"\n" + data, timeout=20)
    assert output.endswith(b"\n")
    first, *lines = output.removesuffix(b"\n").split(b"\n")
    assert json.loads(first)["id"] == "initialize"
    return lines


TEXTS = ["Prüfung → 检查 → проверка", "🚀 astral", "e\u0301 combining", "\u2028 line separator"]


@pytest.mark.spec("004/communication/encoding", "004/overview/encoding")
@pytest.mark.parametrize("text", TEXTS)
def test_text_of_every_script_is_read_and_written_as_utf_8(start: Start, library: Any, text: str) -> None:
    write(library, document(step(prompt="Handle {{task}}."), identifier="any-script", name=text))
    ask = {"workflowId": "any-script", "completedSteps": [], "context": {"task": text}}
    raw = json.dumps({"jsonrpc": "2.0", "id": text, "method": "workflow_next", "params": ask}, ensure_ascii=False)
    server = start(directory=library, version=None)

    listed, refusal_reply = replies_to(server, request(1, "workflow_list") + b"\n" + raw.encode() + b"\n")

    assert text.encode() in listed
    reply = json.loads(refusal_reply.decode("utf-8"))
    assert (reply["id"], reply["result"]["step"]["prompt"]) == (text, f"Handle {text}.")


@pytest.mark.spec("004/communication/encoding", "001/codes/-32700")
def test_bytes_that_are_not_utf_8_are_a_parse_error(server: Server) -> None:
    server.write(b'{"jsonrpc": "2.0", "id": 1, "method": "caf\xe9"}\n')

    reply = server.receive()

    assert (reply["id"], reply["error"]["code"]) == (None, -32700)
    assert "UTF-8" in reply["error"]["data"]["details"]


@pytest.mark.spec("004/communication/framing", "004/overview/framing", "001/compliance/stdio", "004/checklist/stdio")
def test_several_messages_in_one_piece_are_answered_one_a_line(start: Start) -> None:
    data = b"".join(request(number, "ping") + b"\n" for number in range(3))

    lines = replies_to(start(version=None), data)

    assert [json.loads(line) for line in lines] == [
        {"jsonrpc": "2.0", "id": number, "result": {}} for number in range(3)
    ]


@pytest.mark.spec("004/communication/framing", "004/overview/transport")
def test_a_message_in_several_pieces_is_one_message(server: Server) -> None:
    message = '{"jsonrpc": "2.0", "id": "→", "method": "ping"}\n'.encode()

    for byte in message:
        server.write(bytes([byte]))

    assert server.receive() == {"jsonrpc": "2.0", "id": "→", "result": {}}


@pytest.mark.spec("004/communication/framing")
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b" \t\n", b"\n\n\r\n   \n"])
def test_blanks_around_a_message_and_blank_lines_do_not_count(server: Server, end: bytes) -> None:
    server.write(b"  " + request(1, "ping") + end)

    assert server.receive() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert server.is_silent()


@pytest.mark.spec("004/communication/framing")
def test_the_last_message_needs_no_newline_when_the_input_ends(start: Start) -> None:
    lines = replies_to(start(version=None), request(1, "ping"))

    assert lines == [b'{"jsonrpc":"2.0","id":1,"result":{}}']


@pytest.mark.spec("004/communication/single-line")
def test_a_message_on_several_lines_is_invalid(start: Start) -> None:
    pretty = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}, indent=1).encode() + b"\n"

    lines = replies_to(start(version=None), pretty)

    assert [json.loads(line)["error"]["code"] for line in lines] == [-32700] * pretty.count(b"\n")


@pytest.mark.spec("004/communication/single-line")
def test_newlines_inside_texts_are_escaped_in_replies(start: Start, library: Any) -> None:
    prompt = "First line\nsecond line\r\nthird line"
    write(library, document(step(prompt=prompt), identifier="many-lines"))
    ask = {"workflowId": "many-lines", "completedSteps": []}

    (line,) = replies_to(start(directory=library, version=None), request(1, "workflow_next", ask))

    assert json.loads(line)["result"]["step"]["prompt"] == prompt


@pytest.mark.spec("004/communication/order")
def test_messages_are_answered_in_the_order_in_which_they_came(start: Start) -> None:
    """Slow and fast, good and bad, of both eras, all at once."""
    kinds = [
        lambda number: request(number, "workflow_list"),
        lambda number: request(number, "ping"),
        lambda number: request(number, "workflow_get", {"id": "no-such-workflow"}),
        lambda number: request(number, "tools/list", {}),
        lambda number: request(number, "tools/call", {"name": "workflow_list", "_meta": ENVELOPE}),
        lambda number: request(number, "no/such/method"),
        lambda number: request(number, "workflow_validate_json", {"workflowJson": "{" * 50_000}),
    ]
    data = b"".join(kinds[number % len(kinds)](number) + b"\n" for number in range(70))

    lines = replies_to(start(version=None), data)

    assert [json.loads(line)["id"] for line in lines] == list(range(70))


@pytest.mark.spec("004/communication/transport", "001/compliance/stdio", "004/checklist/stdio")
def test_logs_go_to_standard_error_and_not_between_replies(start: Start, library: Any) -> None:
    (library / "broken-file.json").write_text("{", encoding="utf-8")
    server = start(directory=library, version=None, WORKFLOWLOOKUP_LOG_LEVEL="debug")
    data = json.dumps(INITIALIZE).encode() + b"\n" + request(1, "workflow_list") + b"\nnonsense\n"

    output, log = server.process.communicate(data, timeout=20)

    assert [json.loads(line)["jsonrpc"] for line in output.splitlines()] == ["2.0"] * 3
    assert b"broken-file.json" in log


@pytest.mark.spec("004/communication/transport", "004/lifecycle/recoverable-error")
def test_a_client_that_never_reads_standard_error_still_gets_its_answers(start: Start, library: Any) -> None:
    for number in range(400):
        (library / f"{'long-' * 40}{number}.json").write_text("{}", encoding="utf-8")
    server = start(directory=library)

    server.send({"jsonrpc": "2.0", "id": "list", "method": "workflow_list"})

    assert server.receive(timeout=5) == {"jsonrpc": "2.0", "id": "list", "result": {"workflows": []}}


@pytest.mark.spec("004/communication/framing", "004/lifecycle/recoverable-error", "001/codes/-32700")
def test_a_message_over_the_limit_is_a_parse_error_and_the_next_one_is_answered(start: Start) -> None:
    server = start(version=None, WORKFLOWLOOKUP_MAX_MESSAGE_BYTES="2048")
    long = request(1, "ping", {"padding": "x" * 5000})

    lines = replies_to(server, long + b"\n" + request(2, "ping") + b"\n")

    assert [(reply["id"], reply.get("error", {}).get("code")) for reply in map(json.loads, lines)] == [
        (1, -32700),
        (2, None),
    ]


@pytest.mark.spec("004/communication/framing", "004/overview/framing")
def test_a_message_of_a_mebibyte_is_answered(server: Server, publish: Publish) -> None:
    workflow = publish(step("only-step", validationCriteria=[{"type": "length", "min": 1 << 20, "message": "More."}]))

    reply = server.request(
        "workflow_validate", {"workflowId": workflow, "stepId": "only-step", "output": "→" * (1 << 20)}
    )

    assert reply == {"result": {"valid": True, "issues": [], "suggestions": []}}
