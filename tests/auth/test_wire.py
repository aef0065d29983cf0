"""What is sent to the door that no honest client sends: foreign pages, other names, smuggled and endless requests."""

import contextlib
import json
import socket
import time
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from auth.token_server import TokenServer
from support.json_values import Json, JsonObject

LIST = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "workflow_list",
            "arguments": {},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    }
).encode()
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "workflow_list"}
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def send(token_server: TokenServer, data: bytes, *, seconds: float = 2.0) -> bytes:
    """Everything that comes back for these bytes; what comes too late does not."""
    address = urlsplit(token_server.server.base)
    received = b""
    with socket.create_connection((address.hostname, address.port), timeout=seconds) as connection:
        with contextlib.suppress(OSError):  # it hung up while we still spoke
            connection.sendall(data)
        with contextlib.suppress(OSError):
            while chunk := connection.recv(65536):
                received += chunk
    return received


def request(
    token_server: TokenServer,
    method: str = "POST",
    path: str = "/mcp",
    body: bytes = LIST,
    who: str | None = "root",
    **changed: Json,
) -> bytes:
    """A request as bytes; `None` leaves a header out, a list has it several times."""
    host = urlsplit(token_server.server.base).netloc
    headers = {"host": host, **JSON, **MODERN, "content-length": str(len(body)), "connection": "close"}
    if who:
        headers["authorization"] = f"Bearer {token_server.secrets[who]}"
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    lines = [f"{method} {path} HTTP/1.1"]
    for name, value in headers.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                lines.append(f"{name}: {one}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def status(reply: bytes) -> int | None:
    return int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP/1.1 ") else None


def replies(data: bytes) -> int:
    return data.count(b"HTTP/1.1 ")


def test_a_valid_request_is_answered(token_server: TokenServer) -> None:
    reply = send(token_server, request(token_server))

    assert status(reply) == 200
    assert b"docs-guide" in reply


# ── pages from elsewhere ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example.com", "null", "http://127.0.0.1.evil.example.com", "http://localhost.evil.com:80", "file://",
     "http://evil.com#http://127.0.0.1", "http://127.0.0.1@evil.com"],
)  # fmt: skip
def test_a_page_of_another_origin_is_refused_even_with_a_token(token_server: TokenServer, origin: str) -> None:
    assert status(send(token_server, request(token_server, origin=origin))) == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example.com", "127.0.0.1.nip.io", "localhost.evil.com", "", None, "127.0.0.1:80@evil.com", "[::ffff:7f00:1]",
     "evil.com:8787", "127.1", "0.0.0.0", "2130706433"],
)  # fmt: skip
def test_another_host_is_refused(token_server: TokenServer, host: str | None) -> None:
    assert status(send(token_server, request(token_server, host=host))) in (400, 421)


def test_two_host_headers_are_refused(token_server: TokenServer) -> None:
    host = urlsplit(token_server.server.base).netloc
    for hosts in ([host, "evil.example.com"], ["evil.example.com", host]):
        assert status(send(token_server, request(token_server, host=hosts))) in (400, 421)
    for path in ("http://evil.example.com/mcp", f"http://{host}@evil.example.com/mcp"):
        assert status(send(token_server, request(token_server, path=path))) in (400, 404, 421)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None]
)
def test_a_form_post_of_another_site_is_refused(open_server: TokenServer, kind: str | None) -> None:
    """What a browser sends without asking first: no header of ours, and a type that forms have."""
    data = request(open_server, who=None, content_type=kind, accept="*/*", mcp_protocol_version=None)

    for more in ({}, {"origin": "https://evil.example.com", "sec-fetch-site": "cross-site"}):
        lines = b"".join(f"{name}: {value}\r\n".encode() for name, value in more.items())
        reply = send(open_server, data.replace(b"\r\n\r\n", b"\r\n" + lines + b"\r\n", 1))
        assert status(reply) in (400, 403, 406, 415)
        assert b"docs-guide" not in reply


# ── addresses ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "path",
    ["/../../../../etc/passwd", "/mcp/../metrics", "/healthz/../metrics", "/%2e%2e/%2e%2e/etc/passwd", "//metrics",
     "/metrics/", "/METRICS", "/metrics%00", "/metrics;x", "/static/../../settings.py", "/static/%2e%2e/app.py",
     "/healthz/..%2fmetrics", "/\\..\\metrics", "/mcp%2f", "*", "/.well-known/../metrics", "/?/metrics"],
)  # fmt: skip
def test_no_path_bypasses_authentication(token_server: TokenServer, path: str) -> None:
    reply = send(token_server, request(token_server, method="GET", path=path, body=b"", who=None))

    assert status(reply) in (303, 307, 400, 401, 404, None)
    for secret in (b"root:", b"workflowlookup_requests", b"import ", b"docs-guide"):
        assert secret not in reply


# ── too much, too slow ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_that_is_too_long_is_refused_before_it_is_read(token_server: TokenServer) -> None:
    reply = send(token_server, request(token_server, content_length="9000000000"))

    assert status(reply) == 413


def test_a_chunked_message_that_is_too_long_is_refused(token_server: TokenServer) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    data = (
        request(token_server, body=b"", content_length=None, transfer_encoding="chunked") + chunk * 140 + b"0\r\n\r\n"
    )

    assert status(send(token_server, data, seconds=20)) in (413, None)  # None: it hung up while we still spoke


@pytest.mark.parametrize("who", ["tampered", None])
def test_the_rest_of_a_refused_message_is_read_for_a_limited_time(token_server: TokenServer, who: str | None) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    address = urlsplit(token_server.server.base)
    sent = 0
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(request(token_server, body=b"", who=who, content_length=None, transfer_encoding="chunked"))
        with contextlib.suppress(ConnectionError):
            while sent < 1 << 30:
                connection.sendall(chunk)
                sent += len(chunk)

    assert sent < 64 << 20


def test_headers_that_are_too_long_are_refused(token_server: TokenServer) -> None:
    assert status(send(token_server, request(token_server, x_filler="x" * 200_000))) in (400, 431, None)
    many: JsonObject = {f"x-{number}": "y" * 200 for number in range(2_000)}
    assert status(send(token_server, request(token_server, **many))) in (400, 431, None)


def test_unfinished_requests_block_no_other_client(token_server: TokenServer) -> None:
    address = urlsplit(token_server.server.base)
    slow = []
    for number in range(100):
        connection = socket.create_connection((address.hostname, address.port), timeout=5)
        whole = request(token_server, who="root" if number % 2 else None)
        connection.sendall(whole[: -5 if number % 3 else 30])
        slow.append(connection)
    try:
        before = time.monotonic()
        assert status(send(token_server, request(token_server))) == 200
        assert time.monotonic() - before < 5
    finally:
        for connection in slow:
            connection.close()


# ── smuggling ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_request_smuggling_is_refused(token_server: TokenServer) -> None:
    """Each of these is one request for the server, or none; what follows is not taken for a second one."""
    hidden = request(token_server, method="GET", path="/metrics", body=b"", who=None)
    length = str(len(LIST) + len(hidden))
    both = {"transfer_encoding": "chunked", "content_length": length}
    wrong = [
        request(token_server, body=LIST, content_length=[str(len(LIST)), length]) + hidden,
        request(token_server, body=b"0\r\n\r\n" + hidden, **both),
        request(token_server, body=b"0\r\n\r\n" + hidden, content_length=None, transfer_encoding="chunked, identity"),
        request(token_server, body=b"0\r\n\r\n" + hidden, content_length=None, transfer_encoding="xchunked"),
        request(
            token_server, body=b"0\r\n\r\n" + hidden, content_length=None, transfer_encoding=["chunked", "chunked"]
        ),
        request(token_server, content_length="+5") + hidden,
        request(token_server, content_length="0x10") + hidden,
        request(token_server, content_length="5 5") + hidden,
        request(token_server, content_length="-1") + hidden,
    ]
    for data in wrong:
        reply = send(token_server, data)
        assert b"workflowlookup_requests" not in reply
        assert replies(reply) <= 1


@pytest.mark.parametrize(
    "line",
    ["authorization : Bearer {root}", "authorization\t: Bearer {root}", " authorization: Bearer {root}",
     "x: y\n authorization: Bearer {root}", "author\x00ization: Bearer {root}",
     "authorization: Bearer {root}\x00", "x: y\rauthorization: Bearer {root}"],
)  # fmt: skip
def test_other_headers_are_not_accepted_as_a_token(token_server: TokenServer, line: str) -> None:
    data = request(token_server, method="GET", path="/metrics", body=b"", who=None)
    header_line = line.format(**token_server.secrets).encode("latin-1") + b"\r\n"

    reply = send(token_server, data.replace(b"accept: ", header_line + b"accept: ", 1))

    assert status(reply) in (400, 401, None)


def test_identity_headers_of_proxies_are_ignored(token_server: TokenServer) -> None:
    for name in ("x-forwarded-user", "x-remote-user", "remote-user", "x-access", "access", "x-forwarded-access-token"):
        header: JsonObject = {name: token_server.secrets["root"]}
        reply = send(token_server, request(token_server, who=None, **header))
        assert status(reply) == 401


# ── anything at all ─────────────────────────────────────────────────────────────────────────────────────────────

HEADER = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=40)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_requests_are_answered_or_refused_and_reveal_nothing(
    token_server: TokenServer, data: st.DataObject
) -> None:
    who = data.draw(st.sampled_from([None, "tampered", "reader"]))
    body = data.draw(st.one_of(st.binary(max_size=200), st.just(LIST), st.just(LIST[:-7])))
    names = ["host", "authorization", "content-type", "accept", "origin", "mcp-session-id", "mcp-protocol-version",
             "mcp-method", "mcp-name", "last-event-id", "content-length", "transfer-encoding", "cookie"]  # fmt: skip
    changed = data.draw(st.dictionaries(st.sampled_from(names), HEADER, max_size=3))
    method = data.draw(st.sampled_from(["GET", "POST", "DELETE", "PUT", "OPTIONS", "TRACE", "CONNECT", "HEAD", "X"]))
    path = data.draw(st.sampled_from(["/mcp", "/metrics", "/", "/healthz", "/.well-known/x"]))

    reply = send(token_server, request(token_server, method, path, body, who, **{n.replace("-", "_"): v for n, v in changed.items()}),
                 seconds=2)  # fmt: skip

    assert status(reply) != 500
    for secret in (b"Traceback", b"canary", b"secret", b'File "', token_server.secrets["root"].encode()):
        assert secret not in reply
    if who != "reader":
        assert b"docs-guide" not in reply
        assert status(reply) != 200 or path in ("/healthz",)
