"""A server that takes the tokens of an issuer: what it says of itself, whom it lets in, and when it hangs up."""

import json
import time
from collections.abc import Iterator

import httpx2
import pytest

from auth.issuer import AUDIENCE, Issuer
from auth.token_server import TokenServer
from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.web import WebClient, routing

METADATA = "/.well-known/oauth-protected-resource"


@pytest.fixture(scope="module")
def token_server(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[TokenServer]:
    flags: tuple[str, ...] = (
        "--oauth-issuer",
        issuer.name,
        "--oauth-audience",
        AUDIENCE,
        "--oauth-jwks-url",
        issuer.jwks_url,
    )
    flags += ("--oauth-workflows-claim", "flows")
    token_server = TokenServer(tmp_path_factory.mktemp("token_server"), *flags, is_open=True)
    yield token_server
    token_server.close()


def client(token_server: TokenServer, issuer: Issuer, **claims: Json) -> WebClient:
    token = issuer.token(**{"flows": "docs-*", **claims})
    token_server.secrets[token[-20:]] = token
    return token_server.client(authorization=f"Bearer {token}")


def listed(client: WebClient) -> httpx2.Response:
    params = {"name": "workflow_list", "arguments": {}, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return client.post(message, **routing(message))


def test_the_metadata_names_the_issuer(token_server: TokenServer, issuer: Issuer) -> None:
    with httpx2.Client() as anybody:
        refused = anybody.post(token_server.server.url, content=b"{}")
        places = [METADATA, f"{METADATA}/mcp"]
        documents = [anybody.get(token_server.server.base + place).json() for place in places]

    where = "https://flows.example.com/.well-known/oauth-protected-resource/mcp"
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == f'Bearer realm="workflowlookup", resource_metadata="{where}"'
    assert documents == [documents[0]] * 2
    assert documents[0]["resource"] == AUDIENCE
    assert documents[0]["authorization_servers"] == [issuer.name]
    assert documents[0]["scopes_supported"] == ["read", "run", "confirm", "witness", "admin"]


def test_a_valid_token_sees_the_workflows_of_its_patterns(token_server: TokenServer, issuer: Issuer) -> None:
    reply = listed(client(token_server, issuer))

    assert reply.status_code == 200
    assert "docs-guide" in reply.text
    assert "canary" not in reply.text


@pytest.mark.parametrize(
    "claims", [{"aud": "other"}, {"iss": "https://evil.example.com"}, {"exp": 1}, {"nbf": 9_999_999_999}], ids=str
)
def test_invalid_tokens_are_refused(token_server: TokenServer, issuer: Issuer, claims: JsonObject) -> None:
    reply = listed(client(token_server, issuer, **claims))

    assert reply.status_code == 401
    assert 'error="invalid_token"' in reply.headers["www-authenticate"]


def test_a_token_without_our_scopes_is_refused_with_the_scopes(token_server: TokenServer, issuer: Issuer) -> None:
    reply = listed(client(token_server, issuer, scope="openid profile"))

    assert reply.status_code == 403
    assert 'error="insufficient_scope", scope="read"' in reply.headers["www-authenticate"]
    assert "resource_metadata=" in reply.headers["www-authenticate"]


def test_our_own_tokens_are_accepted_as_well(token_server: TokenServer) -> None:
    token_server.let_in("mine", ["read"])

    assert listed(token_server.client("mine")).status_code == 200


def test_a_session_cannot_be_continued_with_other_scopes(token_server: TokenServer, issuer: Issuer) -> None:
    narrow, wide = client(token_server, issuer, scope="read"), client(token_server, issuer, scope="read run")
    narrow.initialize()
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}

    assert wide.post(ping, **narrow.session).status_code == 404
    assert narrow.post(ping).status_code == 200


def test_a_stream_ends_when_its_token_expires(token_server: TokenServer, issuer: Issuer) -> None:
    brief = client(token_server, issuer, exp=int(time.time()) + 3)
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {"notifications": {"resourceSubscriptions": ["runs://recent"]}, "_meta": ENVELOPE},
    }
    content, before = json.dumps(message).encode(), time.monotonic()
    with brief.http.stream("POST", token_server.server.url, content=content, headers=routing(message)) as stream:
        assert stream.status_code == 200
        for _ in stream.iter_lines():
            assert time.monotonic() - before < 10

    assert time.monotonic() - before < 6


def test_a_person_logs_in_with_a_token_of_the_issuer(token_server: TokenServer, issuer: Issuer) -> None:
    token, base = issuer.token(flows="docs-*", scope="read person", exp=int(time.time()) + 8), token_server.server.base
    token_server.secrets["jwt"] = token
    with httpx2.Client(headers={"accept": "text/html", "origin": base}) as browser:
        assert browser.post(f"{base}/login", data={"token": token}).status_code == 303
        page = browser.get(f"{base}/library")
        assert (page.status_code, "docs-guide" in page.text, "canary" in page.text) == (200, True, False)
        assert token not in str(browser.cookies)

        while browser.get(f"{base}/library").status_code == 200:  # the session ends with the token
            time.sleep(0.5)
        assert browser.get(f"{base}/library").headers["location"] == "/login?next=/library"
