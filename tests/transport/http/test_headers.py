"""The headers of requests since 2026-07-28, beside what the official SDK makes of the same."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.shared.inbound import (
    InboundLadderRejection,
    classify_inbound_request,
    encode_header_value,
    find_duplicated_routing_header,
    validate_mcp_param_headers,
)
from starlette.datastructures import Headers

from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.narrowing import instance_of
from workflowlookup.errors import HeaderMismatch, InvalidParams
from workflowlookup.protocol.jsonrpc import Request
from workflowlookup.transport.http.headers import accepts, check_routing, is_json

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "x-mcp-header": "Text"},
        "number": {"type": "integer", "x-mcp-header": "Number"},
        "flag": {"type": "boolean", "x-mcp-header": "Flag"},
        "inner": {"type": "object", "properties": {"deep": {"type": "string", "x-mcp-header": "Deep"}}},
        "unmarked": {"default": {"x-mcp-header": "Text"}},
    },
}
HEADERS = ("mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-text", "mcp-param-number", "mcp-param-flag")


def call(arguments: JsonObject, name: str = "echo", method: str = "tools/call", meta: JsonObject = ENVELOPE) -> Request:
    return Request(b"1", method, {"name": name, "arguments": arguments, "_meta": meta}, 100)


def sent(**headers: str) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI has them; a list is sent several times."""
    fields = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "echo"} | headers
    each = {name: value if isinstance(value, list) else [value] for name, value in fields.items() if value is not None}
    return [(name.replace("_", "-").encode(), one.encode()) for name, values in each.items() for one in values]


def code_of(request: Request, headers: list[tuple[bytes, bytes]], schema: JsonObject | None) -> int | None:
    """What we refuse it with; None when it is taken."""
    try:
        check_routing(request, headers, lambda _: schema)
    except (InvalidParams, HeaderMismatch) as problem:
        return problem.code
    return None


def sdk_code_of(request: Request, raw: list[tuple[bytes, bytes]], schema: JsonObject) -> int | None:
    headers = Headers(raw=raw)
    if find_duplicated_routing_header(headers.items()) is not None:
        return -32020
    verdict: object = classify_inbound_request({"method": request.method, "params": request.params}, headers=headers)
    if not isinstance(verdict, InboundLadderRejection):
        verdict = validate_mcp_param_headers(schema, instance_of(dict, request.params)["arguments"], headers)
    return verdict.code if isinstance(verdict, InboundLadderRejection) else None


TEXTS = st.one_of(
    st.sampled_from(["echo", "42", "42.0", "true", "-7", "\u00e9", " x", "=?base64?eA==?=", ""]),
    st.text("ab\u00e9\u20ac =?", max_size=4),
)
VALUES = st.one_of(st.none(), TEXTS, st.booleans(), st.integers(), st.floats(allow_nan=False), st.just([]))
SENT = st.one_of(
    TEXTS.map(encode_header_value),
    st.sampled_from(["42", "42.0", "4.2e1", "True", "true", "=?base64?!?=", "=?base64?eB==?="]),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    arguments=st.dictionaries(st.sampled_from(["text", "number", "flag", "inner", "unmarked"]), VALUES),
    changed=st.dictionaries(
        st.sampled_from(HEADERS), st.one_of(st.none(), SENT, st.lists(SENT, min_size=2, max_size=2))
    ),
)
def test_the_sdk_accepts_and_refuses_the_same(arguments: JsonObject, changed: JsonObject) -> None:
    request = call(arguments)
    headers = sent(**{name.replace("-", "_"): value for name, value in changed.items()})

    assert code_of(request, headers, SCHEMA) == sdk_code_of(request, headers, SCHEMA)


@given(
    arguments=st.fixed_dictionaries({"text": TEXTS, "number": st.integers(-(10**20), 10**20), "flag": st.booleans()})
)
def test_headers_that_repeat_the_request_correctly_are_accepted(arguments: JsonObject) -> None:
    words = {"text": arguments["text"], "number": str(arguments["number"]), "flag": str(arguments["flag"]).lower()}
    headers = sent(**{f"mcp_param_{name}": encode_header_value(word) for name, word in words.items()})

    assert code_of(call(arguments), headers, SCHEMA) is None


@pytest.mark.parametrize(
    "part",
    [
        {"type": "array", "items": {"type": "string", "x-mcp-header": "Text"}},
        {"anyOf": [{"type": "string", "x-mcp-header": "Text"}]},
        {"patternProperties": {"x": {"type": "string", "x-mcp-header": "Text"}}},
        {"type": "number", "x-mcp-header": "Text"},
        {"type": ["string"], "x-mcp-header": "Text"},
        {"type": "string", "x-mcp-header": "no token"},
        {"type": "string", "x-mcp-header": 5},
        {"type": "string", "x-mcp-header": "NUMBER"},
    ],
)
def test_a_schema_with_an_invalid_mark_marks_nothing(part: JsonObject) -> None:
    """Clients ignore its tool, and send no headers for it."""
    schema = {"properties": {"text": part, "number": {"type": "integer", "x-mcp-header": "Number"}}}
    request = call({"number": 1})

    assert code_of(request, sent(), schema) is sdk_code_of(request, sent(), schema) is None
    assert code_of(request, sent(), {"properties": {"number": schema["properties"]["number"]}}) == -32020


@pytest.mark.parametrize("meta", [None, 5, {}, {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}])
def test_a_request_without_an_envelope_is_refused(meta: Json) -> None:
    assert code_of(call({}, meta=meta), sent(), None) == -32602


@pytest.mark.parametrize(
    ("accept", "taken"),
    [
        ("application/json, text/event-stream", True),
        ("text/event-stream;q=0.5 , APPLICATION/JSON", True),
        ("*/*", True),
        ("application/*, text/*", True),
        ("application/json", False),
        ("text/event-stream", False),
        ("", False),
        ("application/jsonp, text/event-stream", False),
    ],
)
def test_the_accept_header_must_name_both_media_types(accept: str, taken: bool) -> None:
    assert accepts(accept.encode(), b"application/json", b"text/event-stream") is taken


@pytest.mark.parametrize(
    ("kind", "taken"),
    [("application/json", True), ("Application/JSON; charset=utf-8", True), ("text/plain", False), ("", False)],
)
def test_the_content_type_must_be_json(kind: str, taken: bool) -> None:
    assert is_json(kind.encode()) is taken
