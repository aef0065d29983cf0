"""A browser comes in by a form, and forms of other pages do not."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from support.json_values import Json, JsonObject
from support.narrowing import not_none
from workflowlookup.auth.authentication import Authenticator
from workflowlookup.store.journal import now
from workflowlookup.store.sessions import CONSOLE_SESSION_SECONDS, ConsoleSessions
from workflowlookup.store.tokens import Tokens
from workflowlookup.transport.http.login import Login, access_of, session_of

BASE = "http://127.0.0.1:8787"
OURS = {"origin": BASE, "sec-fetch-site": "same-origin"}
HTML = {"accept": "text/html"}


class Browser:
    """Asks the pages, in the thread of the test: the journal is of one thread."""

    def __init__(self, runner: asyncio.Runner, app: Starlette) -> None:
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 5))
        self._client = httpx2.AsyncClient(transport=transport, base_url=BASE)
        self._run = runner.run

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self._run(self._client.get(path, **options))

    def post(self, path: str, **options: Any) -> httpx2.Response:
        return self._run(self._client.post(path, **options))

    def forget(self) -> None:
        self._client.cookies.clear()

    def close(self) -> None:
        self._run(self._client.aclose())


@pytest.fixture
def secret(tokens: Tokens) -> str:
    return tokens.create("ada", ["confirm"], ["docs-*"], seconds=60, is_person=True)[0]


@pytest.fixture
def browser(tokens: Tokens, secret: str, sessions: ConsoleSessions) -> Iterator[Browser]:
    async def page(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"{not_none(access_of(request)).name} {session_of(request)}")

    login = Login(Authenticator(tokens, None, is_open=True, sessions=sessions), sessions)
    pages = Starlette(routes=[Route("/{path:path}", page, methods=["GET", "POST"])])
    app = Starlette(routes=[*login.routes(), Mount("/", app=login.authenticated(pages))])
    with asyncio.Runner() as runner:
        browser = Browser(runner, app)
        yield browser
        browser.close()


def sign_in(browser: Browser, token: str, headers: JsonObject = OURS, **fields: Json) -> httpx2.Response:
    return browser.post("/login", data={"token": token, "next": "/runs/x?a=1", **fields}, headers=headers)


def test_an_unauthenticated_browser_is_redirected_to_the_form_and_back(browser: Browser, secret: str) -> None:
    led = browser.get("/runs/x?a=1", headers=HTML)
    form = browser.get(led.headers["location"])
    done = sign_in(browser, secret)
    page = browser.get(done.headers["location"], headers=HTML)

    assert (led.status_code, led.headers["location"]) == (303, "/login?next=/runs/x%3Fa%3D1")
    assert 'name="next" value="/runs/x?a=1"' in form.text
    assert (done.status_code, done.headers["location"]) == (303, "/runs/x?a=1")
    assert page.text.startswith("token ada ")
    assert secret not in page.text + form.text + done.text


def test_the_cookie_is_hidden_from_scripts_other_sites_and_other_ports(browser: Browser, secret: str) -> None:
    cookie = sign_in(browser, secret).headers["set-cookie"]

    name, _, rest = cookie.partition("=")
    assert name == "workflowlookup-8787"
    assert "; HttpOnly; Max-Age=43200; Path=/; SameSite=strict" in rest
    assert "Secure" not in rest
    assert secret not in cookie


def test_over_https_the_cookie_is_bound_to_the_host(browser: Browser, secret: str) -> None:
    cookie = sign_in(browser, secret, headers={"origin": "https://127.0.0.1:8787"}).headers["set-cookie"]

    assert cookie.startswith("__Host-workflowlookup=")
    assert cookie.endswith("; HttpOnly; Max-Age=43200; Path=/; SameSite=strict; Secure")
    session = cookie.partition("=")[2].partition(";")[0]
    assert browser.get("/", headers={**HTML, "cookie": f"__Host-workflowlookup={session}"}).status_code == 200


def test_a_session_is_valid_only_where_it_was_begun_and_only_as_a_cookie(browser: Browser, secret: str) -> None:
    session = sign_in(browser, secret).cookies["workflowlookup-8787"]
    browser.forget()

    def status(**headers: str) -> int:
        return browser.get("/", headers={**HTML, **headers}).status_code

    assert status(cookie=f"workflowlookup-8787={session}") == 200
    assert status(cookie=f"workflowlookup-8788={session}") == 303
    assert status(cookie=f"workflowlookup-8788={session}", host="127.0.0.1:8788") == 303
    assert status(cookie=f"workflowlookup-8787={session}", host="localhost:8787") == 303
    assert status(authorization=f"Bearer {session}") == 401
    for cookie in ("workflowlookup", "workflowlookup-8787", "__Host-workflowlookup"):
        assert status(cookie=f"{cookie}={secret}") == 303


def test_the_stored_session_reveals_neither_its_id_nor_the_token(browser: Browser, secret: str, tmp_path: Path) -> None:
    session = sign_in(browser, secret).cookies["workflowlookup-8787"]

    stored = b"".join(path.read_bytes() for path in tmp_path.glob("runs.sqlite*"))

    assert session.encode() not in stored
    assert secret.encode() not in stored


def test_a_link_on_another_site_leads_to_the_page(browser: Browser) -> None:
    """Browsers send no strict cookie with it: the page that they get asks once more, as one of ours."""
    linked = browser.get("/runs/x?a=1&b=<", headers={**HTML, "sec-fetch-site": "cross-site"})

    assert linked.status_code == 200
    assert '<meta http-equiv="refresh" content="0;url=/runs/x?a=1&amp;b=%3C">' in linked.text
    assert browser.get("/runs/x", headers={**HTML, "sec-fetch-site": "same-origin"}).status_code == 303


def test_the_token_that_was_a_cookie_of_earlier_versions_is_deleted(browser: Browser, secret: str) -> None:
    reply = sign_in(browser, secret, headers={**OURS, "cookie": "workflowlookup=wl_x"})

    assert any(
        line.startswith('workflowlookup=""; ') and "Max-Age=0" in line for line in reply.headers.get_list("set-cookie")
    )


def test_a_form_of_another_site_signs_nobody_in(browser: Browser, secret: str) -> None:
    for headers in (
        {"origin": "https://evil.example.com"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": BASE},
        {},
    ):
        reply = sign_in(browser, secret, headers=headers)
        assert reply.status_code == 403
        assert "set-cookie" not in reply.headers


@pytest.mark.parametrize("token", ["", "wl_x", "wl_" + "A" * 43, "é" * 40, "a b", "x" * 30_000, "a\r\nset-cookie: x=y"])
def test_an_invalid_token_is_refused(browser: Browser, token: str) -> None:
    reply = sign_in(browser, token)

    assert reply.status_code in (400, 401)
    assert "set-cookie" not in reply.headers
    assert token == "" or token not in reply.text


@pytest.mark.parametrize(
    "following",
    ["//evil.example.com", "https://evil.example.com", "/\\evil.example.com", "javascript:x", "/a\r\nb: c", ""],
)
def test_the_form_redirects_only_to_local_paths(browser: Browser, secret: str, following: str) -> None:
    assert sign_in(browser, secret, next=following).headers["location"] == "/"


def test_the_requested_path_is_escaped(browser: Browser) -> None:
    page = browser.get("/login", params={"next": '/"><script>alert(1)</script>'})

    assert "<script" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")


def test_a_session_ends_with_its_token_and_by_logging_out(browser: Browser, secret: str, tokens: Tokens) -> None:
    session = sign_in(browser, secret).cookies["workflowlookup-8787"]
    headers = {**HTML, "cookie": f"workflowlookup-8787={session}"}
    assert browser.get("/", headers=HTML).status_code == 200
    browser.post("/logout", headers={"origin": "https://evil.example.com"})
    assert browser.get("/", headers=HTML).status_code == 200

    browser.post("/logout", headers=OURS)
    assert browser.get("/", headers=HTML).status_code == 303
    assert browser.get("/", headers=headers).status_code == 303  # also where the cookie was copied
    browser.forget()
    sign_in(browser, secret)
    assert browser.get("/", headers=HTML).status_code == 200
    tokens.revoke("ada")
    assert browser.get("/", headers=HTML).status_code == 303
    assert browser.post("/", headers=OURS).status_code == 401


def test_logging_in_again_ends_the_earlier_session(browser: Browser, secret: str) -> None:
    first = sign_in(browser, secret).cookies["workflowlookup-8787"]
    second = sign_in(browser, secret).cookies["workflowlookup-8787"]
    browser.forget()

    pages = [browser.get("/", headers={**HTML, "cookie": f"workflowlookup-8787={one}"}) for one in (first, second)]

    assert [one.status_code for one in pages] == [303, 200]


def test_a_session_expires(
    tokens: Tokens, secret: str, sessions: ConsoleSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = sessions.open(secret, "127.0.0.1:8787")
    later = ConsoleSessions(sessions._journal, clock=lambda: now() + CONSOLE_SESSION_SECONDS * 1000)

    assert sessions.token_of(session, "127.0.0.1:8787") == secret
    assert later.token_of(session, "127.0.0.1:8787") is None


def test_programs_get_401_and_no_redirect(browser: Browser) -> None:
    assert browser.get("/").status_code == 401
    assert browser.get("/", headers={**HTML, "authorization": "Bearer wl_x"}).status_code == 401


def test_session_ids_differ_and_do_not_reveal_the_token(browser: Browser, secret: str, tokens: Tokens) -> None:
    other = tokens.create("bob", ["read"], ["*"], seconds=60)[0]
    names = [browser.get("/", headers={"authorization": f"Bearer {one}"}).text.split()[-1] for one in (secret, other)]

    assert names[0] != names[1]
    assert len(names[0]) == 64
