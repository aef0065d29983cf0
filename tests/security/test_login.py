"""A browser comes in by a form, and forms of other pages do not."""

import asyncio

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from workflowlookup.transport.guard import Guard
from workflowlookup.transport.login import Login, access_of, session_of

BASE = "http://127.0.0.1:8787"
OURS = {"origin": BASE, "sec-fetch-site": "same-origin"}
HTML = {"accept": "text/html"}


class Browser:
    """Asks the pages, in the thread of the test: the journal is of one thread."""

    def __init__(self, runner, app):
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 5))
        self._client = httpx2.AsyncClient(transport=transport, base_url=BASE)
        self._run = runner.run

    def get(self, path, **options):
        return self._run(self._client.get(path, **options))

    def post(self, path, **options):
        return self._run(self._client.post(path, **options))

    def close(self):
        self._run(self._client.aclose())


@pytest.fixture
def secret(tokens):
    return tokens.create("ada", ["confirm"], ["docs-*"], seconds=60, is_person=True)[0]


@pytest.fixture
def browser(tokens, secret):
    async def page(request):
        return PlainTextResponse(f"{access_of(request).name} {session_of(request)}")

    login = Login(Guard(tokens, None, is_loopback=True))
    pages = Starlette(routes=[Route("/{path:path}", page, methods=["GET", "POST"])])
    app = Starlette(routes=[*login.routes(), Mount("/", app=login.guarded(pages))])
    with asyncio.Runner() as runner:
        browser = Browser(runner, app)
        yield browser
        browser.close()


def sign_in(browser, token, headers=OURS, **fields):
    return browser.post("/login", data={"token": token, "next": "/runs/x?a=1", **fields}, headers=headers)


def test_who_is_not_known_is_led_to_the_form_and_back(browser, secret):
    led = browser.get("/runs/x?a=1", headers=HTML)
    form = browser.get(led.headers["location"])
    done = sign_in(browser, secret)
    page = browser.get(done.headers["location"], headers=HTML)

    assert (led.status_code, led.headers["location"]) == (303, "/login?next=/runs/x%3Fa%3D1")
    assert 'name="next" value="/runs/x?a=1"' in form.text
    assert (done.status_code, done.headers["location"]) == (303, "/runs/x?a=1")
    assert page.text.startswith("token ada ")
    assert secret not in page.text + form.text + done.text


def test_the_cookie_is_for_no_script_and_no_other_site(browser, secret):
    said = sign_in(browser, secret).headers["set-cookie"].lower()

    assert "httponly" in said
    assert "samesite=lax" in said
    assert "secure" not in said
    https = {"origin": "https://127.0.0.1:8787"}
    assert "secure" in sign_in(browser, secret, headers=https).headers["set-cookie"].lower()


def test_a_form_of_another_page_signs_nobody_in(browser, secret):
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
def test_what_is_no_token_is_refused(browser, token):
    reply = sign_in(browser, token)

    assert reply.status_code in (400, 401)
    assert "set-cookie" not in reply.headers
    assert token == "" or token not in reply.text


@pytest.mark.parametrize(
    "following",
    ["//evil.example.com", "https://evil.example.com", "/\\evil.example.com", "javascript:x", "/a\r\nb: c", ""],
)
def test_the_form_leads_nowhere_else(browser, secret, following):
    assert sign_in(browser, secret, next=following).headers["location"] == "/"


def test_what_is_asked_for_is_shown_as_text(browser):
    page = browser.get("/login", params={"next": '/"><script>alert(1)</script>'})

    assert "<script" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")


def test_a_cookie_ends_with_its_token_and_by_signing_out(browser, secret, tokens):
    sign_in(browser, secret)
    assert browser.get("/", headers=HTML).status_code == 200
    browser.post("/logout", headers={"origin": "https://evil.example.com"})
    assert browser.get("/", headers=HTML).status_code == 200

    browser.post("/logout", headers=OURS)
    assert browser.get("/", headers=HTML).status_code == 303
    sign_in(browser, secret)
    tokens.revoke("ada")
    assert browser.get("/", headers=HTML).status_code == 303
    assert browser.post("/", headers=OURS).status_code == 401


def test_programs_are_told_no_and_are_led_nowhere(browser):
    assert browser.get("/").status_code == 401
    assert browser.get("/", headers={**HTML, "authorization": "Bearer wl_x"}).status_code == 401


def test_sessions_differ_and_do_not_tell_the_token(browser, secret, tokens):
    other = tokens.create("bob", ["read"], ["*"], seconds=60)[0]
    told = [browser.get("/", headers={"authorization": f"Bearer {one}"}).text.split()[-1] for one in (secret, other)]

    assert told[0] != told[1]
    assert len(told[0]) == 64
