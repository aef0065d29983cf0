"""The console over HTTP, by every page and every form: for nobody, for the wrong one, and for whom it is."""

import contextlib
import hashlib
import re
import time
from collections.abc import Iterator

import httpx2
import pytest

from auth.token_server import TokenServer
from support.json_values import Json, JsonObject
from support.narrowing import not_none
from support.web import WebServer
from workflowlookup.console.app import ACTIONS, PAGES
from workflowlookup.console.request import form_token

HTML = {"accept": "text/html"}


def paths(workflow: str, run: str) -> Iterator[str]:
    for path, _ in PAGES:
        yield re.sub(r"\{(\w+)\}", lambda found: {"workflow": workflow, "run": run}.get(found[1], "2"), path)


def posts(run: str) -> list[str]:
    return [path.replace("{run}", run) for path, _ in ACTIONS]


@pytest.fixture(scope="module")
def token_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    token_server = TokenServer(tmp_path_factory.mktemp("token_server"), "--confirmation", "person")
    token_server.let_in("ada", ["run", "confirm"], is_person=True)
    token_server.let_in("bot", ["run", "confirm"])
    yield token_server
    token_server.close()


class Browser:
    """One who has signed in by the form."""

    def __init__(self, token_server: TokenServer, who: str) -> None:
        self.base = token_server.server.base
        self.http = token_server.client().http
        self.http.headers.pop("content-type")
        self.http.headers.update({**HTML, "origin": self.base, "sec-fetch-site": "same-origin"})
        done = self.http.post(f"{self.base}/login", data={"token": token_server.secrets[who], "next": "/runs"})
        assert (done.status_code, done.headers["location"]) == (303, "/runs")
        ((self.cookie, self.session),) = self.http.cookies.items()

    def get(self, path: str) -> httpx2.Response:
        return self.http.get(self.base + path)

    def post(self, path: str, **fields: Json) -> httpx2.Response:
        return self.http.post(self.base + path, data=fields)

    def form(self, run: str) -> JsonObject:
        """What the page of a run has in its forms."""
        page = self.get(f"/runs/{run}").text
        return dict(re.findall(r'name="(token|question|step)" value="([^"]*)"', page))


@pytest.mark.parametrize("who", [None, "tampered", "gone", "late"])
def test_every_page_needs_authentication(token_server: TokenServer, who: str | None) -> None:
    http = token_server.client(who).http
    for path in paths("docs-guide", "of-docs-guide"):
        reply = http.get(token_server.server.base + path)
        assert reply.status_code == 401, path
        assert "docs" not in reply.text
    for path in posts("held-docs-guide"):
        assert http.post(token_server.server.base + path, data={"note": "x"}).status_code == 401
    if who is None:
        led = http.get(f"{token_server.server.base}/runs", headers=HTML)
        assert (led.status_code, led.headers["location"]) == (303, "/login?next=/runs")
        form = http.get(f"{token_server.server.base}/login")
        style = not_none(re.search(r'href="(/static/[^"]+)"', form.text))[1]
        assert http.get(token_server.server.base + style).status_code == 200


@pytest.mark.parametrize("who", ["reader", "other", "ada"])
def test_hidden_workflows_are_on_no_page(token_server: TokenServer, who: str) -> None:
    browser = Browser(token_server, who)
    for path in paths("secret-plan", "of-secret-plan"):
        if path == "/events":
            continue
        reply = browser.get(path)
        never = browser.get(path.replace("secret-plan", "never-there"))
        assert reply.status_code == never.status_code, path
        assert "canary" not in reply.text, path
        assert "secret" not in reply.text.replace(path, ""), path
        if "secret" in path:
            assert reply.status_code == 404, path
            assert reply.text == never.text
    assert browser.get("/events?run=of-secret-plan").status_code == 404


def test_an_administrator_of_some_workflows_sees_nothing_of_the_rest_of_the_server(token_server: TokenServer) -> None:
    pages = {who: Browser(token_server, who).get("/health").text for who in ("root", "other")}

    assert [token_server.deployment.journal.path in pages[who] for who in ("root", "other")] == [True, False]
    assert ["Open pages" in pages[who] for who in ("root", "other")] == [True, False]
    assert Browser(token_server, "other").get("/trust").status_code == 404


def test_hidden_runs_cannot_be_changed(token_server: TokenServer) -> None:
    before = token_server.deployment.runs.get("held-secret-plan").sequence
    browser = Browser(token_server, "ada")
    fields = browser.form("held-docs-guide")
    for path in posts("held-secret-plan"):
        if path.startswith("/people"):  # which belongs to no run
            continue
        assert browser.post(path, **fields, new="0" * 12).status_code == 404
    assert token_server.deployment.runs.get("held-secret-plan").sequence == before


def test_a_caller_that_may_only_read_can_change_nothing(token_server: TokenServer) -> None:
    browser = Browser(token_server, "reader")
    assert "token" not in browser.form("held-docs-guide")  # there is no form for them; they make one up
    session = hashlib.sha256(f"session\0{browser.session}".encode()).hexdigest()
    fields = {"token": form_token(session, "token reader"), "step": "write", "question": "99"}
    for path in posts("held-docs-guide"):
        reply = browser.post(path, **fields, new="0" * 12)
        if path.startswith(("/trust", "/people")):  # pages that are not there for those who may not use them
            assert reply.status_code == 404
            continue
        if path.startswith("/library"):  # there is no such workflow; trying one changes nothing
            assert reply.status_code == 404
            continue
        if path.endswith("/again"):  # which nobody may while the run goes on
            assert reply.status_code == 409
            continue
        assert reply.status_code == 403
        assert "This needs the scope" in reply.text


def test_an_agent_cannot_confirm_if_a_person_must(token_server: TokenServer) -> None:
    bot, ada = Browser(token_server, "bot"), Browser(token_server, "ada")
    run = token_server.deployment.runs.get("held-docs-guide")
    fields = {"step": run.current, "question": run.question_id}
    token = bot.form("held-docs-guide").get("token", "")
    assert token
    for action in ("confirm", "deny"):
        reply = bot.post(f"/runs/held-docs-guide/{action}", token=token, **fields)
        assert reply.status_code == 403
    assert token_server.deployment.runs.get("held-docs-guide").waiting_for == "confirmation"

    done = ada.post("/runs/held-docs-guide/confirm", **ada.form("held-docs-guide"), note="go")

    assert done.status_code == 303
    assert token_server.deployment.runs.get("held-docs-guide").waiting_for == "output"
    who = [record.by for record in token_server.deployment.runs.history("held-docs-guide")]
    assert "token ada (person) via console" in who
    assert not any("bot" in one for one in who)


def test_forms_of_other_sessions_are_refused(token_server: TokenServer) -> None:
    ada, bot = Browser(token_server, "ada"), Browser(token_server, "bot")
    fields = ada.form("held-docs-notes")
    stolen = bot.form("held-docs-notes").get("token", "x")
    wrong = [
        (fields | {"token": stolen}, {}),
        ({name: value for name, value in fields.items() if name != "token"}, {}),
        (fields, {"origin": "https://evil.example.com"}),
        (fields, {"origin": "null"}),
        (fields, {"sec-fetch-site": "cross-site"}),
    ]

    for form, headers in wrong:
        reply = ada.http.post(f"{ada.base}/runs/held-docs-notes/confirm", data=form, headers=headers)
        assert reply.status_code == 403
    assert token_server.deployment.runs.get("held-docs-notes").waiting_for == "confirmation"


def test_mcp_and_metrics_accept_no_console_session(token_server: TokenServer) -> None:
    root = Browser(token_server, "root")
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    bearer = {"authorization": f"Bearer {root.session}"}

    assert root.get("/runs").status_code == 200
    assert root.http.post(token_server.server.url, content=b"{}", headers=headers).status_code == 401
    assert root.http.post(token_server.server.url, content=b"{}", headers={**headers, **bearer}).status_code == 401
    assert root.get("/metrics").status_code == 401
    assert root.http.get(f"{root.base}/metrics", headers=bearer).status_code == 401


def test_the_cookie_that_another_port_receives_is_no_token(token_server: TokenServer) -> None:
    """Browsers send a cookie to every port of its host."""
    root = Browser(token_server, "root")
    port = root.base.rpartition(":")[2]

    assert root.cookie == f"workflowlookup-{port}"
    assert token_server.secrets["root"] not in str(root.http.cookies)
    assert root.session not in str(token_server.server.logged)


def test_a_session_is_valid_at_other_replicas_and_after_a_restart(token_server: TokenServer) -> None:
    ada = Browser(token_server, "ada")
    journal = token_server.deployment.journal.path
    with contextlib.ExitStack() as ended:
        other = WebServer(token_server.deployment.library.parent, "--journal", journal)
        ended.callback(other.stop)
        headers = {**HTML, "host": ada.base.removeprefix("http://"), "cookie": f"{ada.cookie}={ada.session}"}
        page = httpx2.get(f"{other.base}/runs", headers=headers)
        elsewhere = httpx2.get(f"{other.base}/runs", headers={**headers, "host": other.base.removeprefix("http://")})

    assert page.status_code == 200
    assert elsewhere.status_code == 303  # a session counts where it was begun


@pytest.mark.parametrize("ending", ["revoked", "logged out"])
def test_open_pages_end_with_the_session(token_server: TokenServer, ending: str) -> None:
    name = f"brief-{ending.replace(' ', '-')}"
    token_server.let_in(name, ["read"])
    browser, before = Browser(token_server, name), time.monotonic()
    with browser.http.stream("GET", f"{browser.base}/events") as stream:
        assert stream.status_code == 200
        if ending == "revoked":
            token_server.tokens.revoke(name)
        else:
            cookie = {"cookie": f"{browser.cookie}={browser.session}", "origin": browser.base}
            assert httpx2.post(f"{browser.base}/logout", headers=cookie).status_code == 303
        for _ in stream.iter_lines():
            assert time.monotonic() - before < 10
    assert browser.get("/runs").status_code == 303


def test_event_streams_end_with_the_token(token_server: TokenServer) -> None:
    token_server.let_in("brief", ["read"], seconds=4)
    brief = Browser(token_server, "brief")
    before = time.monotonic()
    with brief.http.stream("GET", f"{brief.base}/events") as stream:
        assert stream.status_code == 200
        for _ in stream.iter_lines():
            assert time.monotonic() - before < 10
    assert brief.get("/runs").status_code == 303


def test_every_page_of_a_session_can_sign_out(token_server: TokenServer) -> None:
    browser = Browser(token_server, "ada")
    form = '<form method="post" action="/logout"><button class="link">Sign out</button></form>'

    pages = [browser.get(path).text for path in ("/runs", "/library", "/no-such-page")]

    assert [form in page for page in pages] == [True, True, True]
