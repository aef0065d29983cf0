"""Pages of another origin, in a real Chromium: those that the settings name may use MCP, others may not."""

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser

from support.json_values import Json
from support.web import Serve, WebServer, modern, routing
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.store.tokens import Tokens

ASK = """async ({url, token, message, headers}) => {
    const answers = {};
    const post = async (name, body, more) => {
        const options = {method: "POST", body: JSON.stringify(body), headers: {"Content-Type": "application/json",
            "Accept": "application/json, text/event-stream", ...more}};
        const response = await fetch(url, options);
        const text = await response.text();
        answers[name] = {status: response.status, text, session: response.headers.get("Mcp-Session-Id"),
            challenge: response.headers.get("WWW-Authenticate")};
        return response;
    };
    try {
        const bearer = {Authorization: `Bearer ${token}`};
        await post("without", message, headers);
        await post("modern", message, {...bearer, ...headers});
        const opening = {jsonrpc: "2.0", id: 1, method: "initialize",
            params: {protocolVersion: "2025-11-25", capabilities: {}, clientInfo: {name: "page", version: "1"}}};
        const session = (await post("initialize", opening, bearer)).headers.get("Mcp-Session-Id");
        const own = {...bearer, "Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"};
        await post("ping", {jsonrpc: "2.0", id: 2, method: "ping"}, own);
        answers.ended = (await fetch(url, {method: "DELETE", headers: own})).status;
    } catch (problem) {
        answers.problem = String(problem);
    }
    return answers;
}"""


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    """A web site of somebody else; the address of its page."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>A page</title>")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def serve_with_token(serve_http: Serve, tmp_path: Path) -> Callable[..., tuple[WebServer, str]]:
    """Starts a server that has a token, and allows these origins."""
    journal = str(tmp_path / "runs.sqlite")
    tokens = Tokens(SqliteJournal(journal))
    secret = tokens.create("page", ["read"], ["*"], seconds=600)[0]
    tokens.close()
    return lambda *flags: (serve_http("--journal", journal, *flags), secret)


def ask_from(chromium: Browser, pages: str, server: WebServer, secret: str) -> Json:
    """What a page gets that uses the server as a client does."""
    message = modern("workflow_list")
    page = chromium.new_context().new_page()
    page.goto(pages)
    about = {"url": server.url, "token": secret, "message": message, "headers": routing(message)}
    answers = page.evaluate(ASK, about)
    page.context.close()
    return answers


def test_a_page_that_is_allowed_uses_mcp_in_both_eras(
    chromium: Browser, pages: str, serve_with_token: Callable[..., tuple[WebServer, str]]
) -> None:
    server, secret = serve_with_token("--allowed-origins", pages)

    answers = ask_from(chromium, pages, server, secret)

    assert answers["without"]["status"] == 401
    assert answers["without"]["challenge"] == 'Bearer realm="workflowlookup"'
    assert answers["modern"]["status"] == 200
    assert "code-review" in answers["modern"]["text"]
    assert len(answers["initialize"]["session"]) == 32
    assert answers["ping"]["status"] == 200
    assert answers["ended"] == 200


def test_pages_of_other_origins_cannot_use_mcp(
    chromium: Browser, pages: str, serve_with_token: Callable[..., tuple[WebServer, str]]
) -> None:
    server, secret = serve_with_token("--allowed-origins", "https://tools.example")

    assert "Failed to fetch" in ask_from(chromium, pages, server, secret)["problem"]


def preflight(server: WebServer, origin: str, path: str = "/mcp", **headers: str) -> httpx2.Response:
    asked = {"origin": origin, "access-control-request-method": "POST", **headers}
    return httpx2.options(server.base + path, headers=asked)


def test_the_answers_name_the_one_origin_and_no_credentials(
    serve_with_token: Callable[..., tuple[WebServer, str]],
) -> None:
    server, secret = serve_with_token("--allowed-origins", "https://tools.example,https://other.example")
    mine = {"origin": "https://tools.example", "authorization": f"Bearer {secret}"}

    asked = preflight(
        server,
        "https://tools.example",
        **{"access-control-request-headers": "authorization,mcp-param-region,x-evil,mcp-param-a\tb"},
    )
    answer = httpx2.post(server.url, content=b"{}", headers=mine)

    assert (asked.status_code, asked.text) == (204, "")
    assert asked.headers["access-control-allow-origin"] == "https://tools.example"
    assert asked.headers["access-control-allow-methods"] == "GET, POST, DELETE"
    allowed = asked.headers["access-control-allow-headers"].lower().split(", ")
    assert {"authorization", "mcp-session-id", "mcp-protocol-version", "last-event-id", "mcp-method"} <= set(allowed)
    assert allowed[-1] == "mcp-param-region"
    for one in (asked, answer):
        assert "access-control-allow-credentials" not in one.headers
        assert "Origin" in one.headers["vary"]
    assert answer.headers["access-control-allow-origin"] == "https://tools.example"


def test_pages_of_the_console_and_other_origins_get_no_cors_headers(
    serve_with_token: Callable[..., tuple[WebServer, str]],
) -> None:
    server, _ = serve_with_token("--allowed-origins", "https://tools.example")

    answers = [
        preflight(server, "https://evil.example"),
        preflight(server, "https://tools.example", "/runs"),
        preflight(server, "https://tools.example", "/metrics"),
        httpx2.get(f"{server.base}/login", headers={"origin": "https://tools.example"}),
    ]

    assert [answer.status_code for answer in answers] == [403, 401, 401, 200]
    assert [answer for answer in answers if "access-control-allow-origin" in answer.headers] == []
