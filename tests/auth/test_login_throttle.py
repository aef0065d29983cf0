"""Wrong tokens are slowed down by address; right ones are always served."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from auth.token_server import TokenServer
from workflowlookup import shares
from workflowlookup.auth import authentication
from workflowlookup.auth.authentication import FAILURES_PER_MINUTE, Authenticator, LoginThrottle
from workflowlookup.auth.callers import Proxies
from workflowlookup.store.sessions import ConsoleSessions
from workflowlookup.store.tokens import Tokens
from workflowlookup.transport.http.login import Login

BASE = "http://127.0.0.1:8787"
OURS = {"origin": BASE, "sec-fetch-site": "same-origin"}
PROXY = "10.0.0.9"


@pytest.fixture
def good(tokens: Tokens) -> str:
    return tokens.create("ada", ["read"], ["*"], seconds=600)[0]


@pytest.fixture
def ask(tokens: Tokens, now: list[float], sessions: ConsoleSessions) -> Iterator[Callable[..., httpx2.Response]]:
    """Asks for a page with a token, from an address, in the thread of the test: the journal is of one thread."""

    async def page(_: object) -> PlainTextResponse:
        return PlainTextResponse("here you are")

    login = Login(Authenticator(tokens, None, is_open=True, proxies=Proxies([PROXY])), sessions)
    pages = Starlette(routes=[Route("/{path:path}", page)])
    app = Starlette(routes=[*login.routes(), Mount("/", app=login.authenticated(pages))])

    async def send(token: str, address: str, *, by_form: bool, headers: dict[str, str]) -> httpx2.Response:
        transport = httpx2.ASGITransport(app, client=(address, 5))
        async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
            if by_form:
                return await client.post("/login", data={"token": token}, headers={**OURS, **headers})
            return await client.get("/", headers={"authorization": f"Bearer {token}", **headers})

    with asyncio.Runner() as runner:
        yield lambda token, address="192.0.2.1", *, by_form=False, **headers: runner.run(
            send(token, address, by_form=by_form, headers={name.replace("_", "-"): v for name, v in headers.items()})
        )


def wrong() -> str:
    return f"wl_{secrets.token_urlsafe(32)}"


def guess(ask: Callable[..., httpx2.Response], *from_where: str, **how: bool | str) -> tuple[int, httpx2.Response]:
    """Try tokens until the answer is another than no; how many were looked at, and that answer."""
    for number in range(FAILURES_PER_MINUTE + 1):
        answer = ask(wrong(), *from_where, **how)
        if answer.status_code != 401:
            return number, answer
    return number + 1, answer


@pytest.mark.parametrize("by_form", [False, True], ids=["bearer", "form"])
def test_after_some_wrong_tokens_others_are_answered_with_429(
    ask: Callable[..., httpx2.Response], by_form: bool
) -> None:
    number, answer = guess(ask, by_form=by_form)

    assert (number, answer.status_code) == (FAILURES_PER_MINUTE, 429)
    assert answer.headers["retry-after"] == "3"
    assert "Too many wrong tokens came from your address" in answer.text


@pytest.mark.parametrize("by_form", [False, True], ids=["bearer", "form"])
def test_a_valid_token_is_served_though_its_address_is_throttled(
    ask: Callable[..., httpx2.Response], good: str, by_form: bool
) -> None:
    guess(ask)

    assert ask(good, by_form=by_form).status_code == (303 if by_form else 200)
    assert ask(wrong()).status_code == 429


def test_the_throttle_ends_with_time(ask: Callable[..., httpx2.Response], now: list[float]) -> None:
    guess(ask)
    now[0] += 3.0

    assert [ask(wrong()).status_code for _ in range(2)] == [401, 429]


def test_other_addresses_are_not_throttled(ask: Callable[..., httpx2.Response]) -> None:
    guess(ask)

    assert ask(wrong(), "192.0.2.2").status_code == 401


def test_a_client_that_repeats_its_stale_token_is_not_throttled(ask: Callable[..., httpx2.Response]) -> None:
    stale = wrong()

    assert {ask(stale).status_code for _ in range(3 * FAILURES_PER_MINUTE)} == {401}
    assert ask(wrong()).status_code == 401


def test_one_ipv6_network_counts_as_one_address(ask: Callable[..., httpx2.Response]) -> None:
    for number in range(FAILURES_PER_MINUTE):
        ask(wrong(), f"2001:db8::{number:x}")

    assert ask(wrong(), "2001:db8::ffff").status_code == 429
    assert ask(wrong(), "2001:db8:0:1::1").status_code == 401


def test_behind_a_trusted_proxy_the_address_of_the_client_counts(ask: Callable[..., httpx2.Response]) -> None:
    number, answer = guess(ask, PROXY, x_forwarded_for="198.51.100.7")

    assert (number, answer.status_code) == (FAILURES_PER_MINUTE, 429)
    assert ask(wrong(), PROXY, x_forwarded_for="198.51.100.8").status_code == 401


def test_the_forwarded_address_of_an_untrusted_client_is_ignored(ask: Callable[..., httpx2.Response]) -> None:
    for number in range(FAILURES_PER_MINUTE):
        ask(wrong(), x_forwarded_for=f"198.51.100.{number}")

    assert ask(wrong(), x_forwarded_for="198.51.100.99").status_code == 429


@pytest.mark.parametrize(
    ("peer", "forwarded", "place"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["198.51.100.7"], "192.0.2.1"),
        (PROXY, [], PROXY),
        (PROXY, ["198.51.100.7"], "198.51.100.7"),
        (PROXY, ["1.1.1.1, 198.51.100.7"], "198.51.100.7"),
        (PROXY, ["1.1.1.1", "198.51.100.7"], "198.51.100.7"),
        (PROXY, [f"198.51.100.7, {PROXY}"], "198.51.100.7"),
        (PROXY, ["198.51.100.7, somewhere"], PROXY),
        (PROXY, [""], PROXY),
        ("::ffff:10.0.0.9", ["198.51.100.7"], "198.51.100.7"),
        ("::ffff:192.0.2.1", [], "192.0.2.1"),
        ("fe80::1%eth0", [], "fe80::/64"),
    ],
)
def test_the_address_of_a_client(peer: str, forwarded: list[str], place: str) -> None:
    headers = [(b"x-forwarded-for", line.encode()) for line in forwarded]
    scope = {"type": "http", "client": (peer, 5), "headers": headers}

    assert Proxies([PROXY]).address_of(scope) == place


def test_throttling_is_logged_once_and_without_tokens(
    ask: Callable[..., httpx2.Response], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="workflowlookup"):
        guess(ask)
        guess(ask)

    refused = "a log-in from 192.0.2.1 was refused: its token is not known, has expired or was revoked"
    throttled = "too many wrong tokens came from 192.0.2.1: further ones are answered with 429 for now"
    assert [record.getMessage() for record in caplog.records] == [*[refused] * FAILURES_PER_MINUTE, throttled]


def test_the_number_of_stored_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "MAX_FAILURES", 10)
    monkeypatch.setattr(shares, "MAX_CLIENTS", 10)
    throttle = LoginThrottle()
    for address in range(100):
        for secret in range(FAILURES_PER_MINUTE + 1):
            throttle.fail(str(address), str(secret))

    assert [len(vars(throttle)[name]) for name in ("_failed", "_logged_at")] == [10, 10]


def test_a_throttled_client_on_loopback_cannot_forge_its_address_and_locks_out_nobody(
    own_token_server: TokenServer,
) -> None:
    def guessed(number: int) -> httpx2.Response:
        headers = {"authorization": f"Bearer {wrong()}", "x-forwarded-for": f"198.51.100.{number}"}
        return client.post(own_token_server.server.url, content=b"{}", headers=headers)

    with httpx2.Client() as client:
        answers = [guessed(number) for number in range(FAILURES_PER_MINUTE + 1)]

    assert [answer.status_code for answer in answers] == [401] * FAILURES_PER_MINUTE + [429]
    assert own_token_server.client("root").initialize()["result"]["serverInfo"]["name"] == "workflowlookup"
    assert own_token_server.server.log().count("too many wrong tokens") == 1
