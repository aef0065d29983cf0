"""The door over HTTP: who is refused, in which words, and that nothing else is told."""

import itertools
import json
import time

import httpx2
import pytest

from auth.token_server import TokenServer
from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.web import WebClient, routing
from workflowlookup.auth.authentication import TOKEN_POLL_SECONDS
from workflowlookup.tools.builtin import BUILTIN_TOOLS

NOBODY = [None, "tampered", "gone", "late"]
WRONG = {
    "no scheme": "{root}",
    "another scheme": "Basic {root}",
    "two words": "Bearer {root} {root}",
    "quoted": 'Bearer "{root}"',
    "a list": "Bearer {reader}, Bearer {root}",
    "nothing": "Bearer",
    "short": "Bearer wl_x",
    "a JWT": "Bearer a.b.c",
    "long": "Bearer " + "x" * 20_000,
    "SQL": "Bearer wl_'OR'1'='1",
}
CALLS: dict[str, JsonObject] = {
    "workflow_list": {},
    "workflow_get": {"id": "docs-guide"},
    "workflow_next": {"workflowId": "docs-guide", "completedSteps": []},
    "workflow_validate": {"workflowId": "docs-guide", "stepId": "write", "output": "x"},
    "workflow_validate_json": {"workflowJson": "{}"},
    "workflow_start": {"workflowId": "docs-guide"},
    "workflow_submit": {"runId": "of-docs-guide", "stepId": "write", "output": "x"},
    "workflow_status": {"runId": "of-docs-guide"},
    "workflow_runs": {},
    "workflow_cancel": {"runId": "of-docs-notes"},
}
OTHERS: dict[str, JsonObject] = {
    "server/discover": {},
    "tools/list": {},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "runs://recent"},
    "resources/directory/read": {"uri": "skill://docs-guide"},
    "skills/list": {},
    "skills/get": {"uri": "skill://docs-guide/SKILL.md"},
    "prompts/list": {},
    "prompts/get": {"name": "docs-guide"},
    "completion/complete": {
        "ref": {"type": "ref/resource", "uri": "run://{id}"},
        "argument": {"name": "id", "value": ""},
    },
    "subscriptions/listen": {"notifications": {}},
}


def modern(method: str, params: JsonObject) -> JsonObject:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": ENVELOPE}}


def call(name: str, arguments: JsonObject) -> JsonObject:
    return modern("tools/call", {"name": name, "arguments": arguments})


def ask(client: WebClient, message: JsonObject) -> httpx2.Response:
    return client.post(message, **routing(message))


def test_every_tool_is_called_here() -> None:
    assert CALLS.keys() == set(BUILTIN_TOOLS)


@pytest.mark.parametrize("who", NOBODY)
def test_without_a_valid_token_every_method_is_401(token_server: TokenServer, who: str | None) -> None:
    client = token_server.client(who)
    before = {one.id: one.sequence for one in token_server.deployment.runs.all_summaries()}
    messages = [
        *(call(name, arguments) for name, arguments in CALLS.items()),
        *(modern(method, params) for method, params in OTHERS.items()),
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        b"{",
        b"",
    ]

    replies = [ask(client, message) if isinstance(message, dict) else client.post(message) for message in messages]
    replies += [
        client.http.request(method, token_server.server.base + path)
        for method, path in itertools.product(
            ("GET", "PUT", "DELETE", "PATCH", "HEAD", "POST"), ("/mcp", "/metrics", "/mcp?access_token=x")
        )
        if (method, path) not in (("POST", "/mcp"), ("POST", "/mcp?access_token=x"))
    ]

    for reply in replies:
        assert reply.status_code == 401
        error = ', error="invalid_token"' if who else ""
        assert reply.headers["www-authenticate"] == f'Bearer realm="workflowlookup"{error}'
        assert reply.headers["cache-control"] == "no-store"
        assert "docs" not in reply.text
    assert {one.id: one.sequence for one in token_server.deployment.runs.all_summaries()} == before


def test_a_token_sees_only_the_skills_of_its_workflows(token_server: TokenServer) -> None:
    reader, other = token_server.client("reader"), token_server.client("other")

    def skills(client: WebClient) -> list[str]:
        listed = ask(client, modern("skills/list", {})).json()["result"]["skills"]
        return [resource["uri"] for skill in listed for resource in skill["resources"]]

    def error(uri: str) -> Json:
        return ask(reader, modern("resources/read", {"uri": uri})).json()["error"]

    assert skills(reader) == ["skill://docs-guide/SKILL.md", "skill://docs-guide/note.txt"]
    assert skills(other) == []
    hidden, missing = error("skill://secret-plan/note.txt"), error("skill://no-such/note.txt")
    assert (hidden["code"], hidden["message"]) == (-32602, missing["message"])
    assert json.dumps(hidden).replace("secret-plan", "no-such") == json.dumps(missing)


@pytest.mark.parametrize("header", WRONG.values(), ids=WRONG.keys())
def test_an_invalid_token_is_refused(token_server: TokenServer, header: Json) -> None:
    with httpx2.Client() as client:
        header_value = header.format(**token_server.secrets)
        reply = client.get(f"{token_server.server.base}/metrics", headers={"authorization": header_value})

    assert reply.status_code == 401
    assert token_server.secrets["root"] not in reply.text + str(reply.headers)


def test_a_token_in_the_url_is_ignored(token_server: TokenServer) -> None:
    with httpx2.Client() as client:
        for name in ("access_token", "token", "authorization"):
            reply = client.get(f"{token_server.server.base}/metrics", params={name: token_server.secrets["root"]})
            assert reply.status_code == 401
        reply = client.get(
            f"{token_server.server.base}/metrics", headers={"cookie": f"workflowlookup={token_server.secrets['root']}"}
        )
        assert reply.status_code == 401


def test_two_authorization_headers_are_refused(token_server: TokenServer) -> None:
    headers = [("authorization", f"Bearer {token_server.secrets[name]}") for name in ("reader", "root")]
    with httpx2.Client() as client:
        reply = client.get(f"{token_server.server.base}/metrics", headers=headers)

    assert reply.status_code in (400, 401)


def test_health_needs_no_token_and_reveals_nothing(token_server: TokenServer) -> None:
    with httpx2.Client() as client:
        assert client.get(f"{token_server.server.base}/healthz").text == "ok\n"
        assert client.get(f"{token_server.server.base}/readyz").text == "ready\n"
        for name in ("oauth-protected-resource", "oauth-protected-resource/mcp", "oauth-authorization-server"):
            assert client.get(f"{token_server.server.base}/.well-known/{name}").status_code == 404


@pytest.mark.parametrize(("who", "status"), [("reader", 403), ("ci-bot", 403), ("other", 403), ("root", 200)])
def test_metrics_need_a_token_for_all_workflows(token_server: TokenServer, who: str, status: int) -> None:
    assert token_server.client(who).http.get(f"{token_server.server.base}/metrics").status_code == status


# ── scopes and patterns ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", CALLS)
def test_scopes_hold_for_every_tool(token_server: TokenServer, name: str) -> None:
    reply = token_server.client("reader").request("tools/call", call(name, CALLS[name])["params"])

    is_refused = name in ("workflow_start", "workflow_submit", "workflow_cancel")
    assert reply["result"].get("isError", False) == is_refused
    if is_refused:
        assert reply["result"]["structuredContent"]["code"] == -32011


@pytest.mark.parametrize("name", [name for name in CALLS if name != "workflow_validate_json"])
def test_patterns_hold_for_every_tool(token_server: TokenServer, name: str) -> None:
    reply = token_server.client("other").request("tools/call", call(name, CALLS[name])["params"])

    text = json.dumps(reply)
    assert "docs-guide" not in text.replace(json.dumps(CALLS[name]), "").replace("'docs-guide'", "").replace(
        '"docs-guide"', ""
    ).replace("of-docs-guide", "")
    assert "The docs" not in text


@pytest.mark.parametrize("who", ["reader", "ci-bot", "other"])
def test_nothing_hidden_is_in_any_answer(token_server: TokenServer, who: str) -> None:
    client = token_server.client(who)
    replies = [client.request(method, {**params, "_meta": ENVELOPE}) for method, params in OTHERS.items()
            if method != "subscriptions/listen"]  # fmt: skip
    replies += [client.request("tools/call", call(name, arguments)["params"]) for name, arguments in CALLS.items()]

    assert "canary" not in json.dumps(replies)
    assert "secret" not in json.dumps(replies)


def test_the_journal_has_the_name_of_the_caller(token_server: TokenServer) -> None:
    params = call("workflow_start", {"workflowId": "docs-guide", "runId": "by-ci-bot"})["params"]
    token_server.client("ci-bot").request("tools/call", params)

    assert {record.by for record in token_server.deployment.runs.history("by-ci-bot")} == {"token ci-bot via tests"}


def test_the_journal_has_the_name_of_loopback_callers_too(open_server: TokenServer) -> None:
    params = call("workflow_start", {"workflowId": "docs-guide", "runId": "by-nobody"})["params"]
    for number, name in enumerate(["curl", "token root"]):
        about = {**ENVELOPE, "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"}}
        arguments = {**params["arguments"], "runId": f"by-{number}"}
        open_server.client().request("tools/call", {**params, "arguments": arguments, "_meta": about})

    who = [record.by for number in (0, 1) for record in open_server.deployment.runs.history(f"by-{number}")[:1]]
    assert who == ["loopback via curl", "loopback via token root"]


# ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_belongs_to_the_caller_that_began_it(token_server: TokenServer) -> None:
    owner, thief = token_server.client("root"), token_server.client("reader")
    owner.initialize()
    ping = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
    unknown = thief.post(ping, **{**owner.session, "mcp-session-id": "0" * 32})

    stolen = [
        thief.post(ping, **owner.session),
        thief.http.get(token_server.server.url, headers=owner.session),
        thief.http.delete(token_server.server.url, headers=owner.session),
    ]

    assert [reply.status_code for reply in stolen] == [404] * 3
    assert stolen[0].text == unknown.text
    assert owner.post(ping).status_code == 200


def test_a_question_to_one_caller_cannot_be_answered_by_another(token_server: TokenServer) -> None:
    owner, thief = token_server.client("ci-bot"), token_server.client("reader")
    owner.initialize(capabilities={"elicitation": {}})
    answer = {"jsonrpc": "2.0", "id": "wl-1", "result": {"action": "accept", "content": {}}}

    assert thief.post(answer, **owner.session).status_code == 404


# ── while it lasts ──────────────────────────────────────────────────────────────────────────────────────────────


def closed_within(seconds: float, response: httpx2.Response) -> bool:
    """Whether a stream came to its end."""
    end = time.monotonic() + seconds
    try:
        for _ in response.iter_lines():
            if time.monotonic() > end:
                return False
    except httpx2.HTTPError:
        pass
    return time.monotonic() <= end


def test_a_stream_ends_with_its_token(own_token_server: TokenServer) -> None:
    client = own_token_server.client("reader")
    client.initialize()
    with client.http.stream("GET", own_token_server.server.url, headers=client.session) as stream:
        assert stream.status_code == 200
        own_token_server.tokens.revoke("reader")
        assert closed_within(3, stream)
    assert client.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}).status_code == 401


def test_a_listen_request_ends_with_its_token(own_token_server: TokenServer) -> None:
    own_token_server.let_in("brief", ["read"], seconds=3)
    client = own_token_server.client("brief")
    message = modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["runs://recent"]}})
    with client.http.stream(
        "POST", own_token_server.server.url, content=json.dumps(message).encode(), headers=routing(message)
    ) as stream:
        assert stream.status_code == 200
        assert closed_within(6, stream)


def test_a_revoked_token_is_refused_within_a_second(own_token_server: TokenServer) -> None:
    client = own_token_server.client("root")
    metrics = f"{own_token_server.server.base}/metrics"
    assert client.http.get(metrics).status_code == 200

    own_token_server.tokens.revoke("root")

    assert client.http.get(metrics).status_code == 401


# ── without tokens ──────────────────────────────────────────────────────────────────────────────────────────────


def test_on_loopback_without_tokens_every_caller_is_the_local_person(open_server: TokenServer) -> None:
    client = open_server.client()

    reply = client.request("tools/call", call("workflow_list", {})["params"])

    assert len(reply["result"]["structuredContent"]["workflows"]) == 5


def test_a_request_through_a_proxy_is_not_the_local_person(open_server: TokenServer) -> None:
    for header in ("x-forwarded-for", "forwarded", "x-real-ip", "via", "x-forwarded-host"):
        client = open_server.client(**{header: "203.0.113.7"})

        assert ask(client, call("workflow_list", {})).status_code == 401


def test_after_the_first_token_tokens_are_always_required(open_server: TokenServer) -> None:
    client = open_server.client()
    client.initialize()
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert client.post(ping).status_code == 200

    open_server.let_in("first", ["read"])
    time.sleep(2 * TOKEN_POLL_SECONDS)
    assert client.post(ping).status_code == 401
    assert ask(open_server.client("first"), call("workflow_list", {})).status_code == 200
    assert open_server.client("first").post(ping, **client.session).status_code == 404
    open_server.tokens.revoke("first")
    assert ask(open_server.client(), call("workflow_list", {})).status_code == 401


def test_a_cookie_of_another_server_on_this_machine_is_ignored(open_server: TokenServer) -> None:
    runs = f"{open_server.server.base}/runs"
    port = open_server.server.base.rpartition(":")[2]
    http = open_server.client(cookie=f"workflowlookup-{port}=x", accept="text/html").http
    assert http.get(runs).status_code == 200

    open_server.let_in("first", ["read"])
    time.sleep(2 * TOKEN_POLL_SECONDS)

    assert http.get(runs).status_code == 303  # to the form


def test_a_wrong_token_is_refused_even_if_none_is_required(open_server: TokenServer) -> None:
    client = open_server.client(authorization="Bearer wl_" + "A" * 43)

    assert ask(client, call("workflow_list", {})).status_code == 401
