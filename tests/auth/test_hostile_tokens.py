"""Tokens that were made to break the check: each is refused like any other wrong one, and none is an error."""

import asyncio
import itertools
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from auth.issuer import AUDIENCE, Issuer, part
from auth.token_server import TokenServer
from support.json_values import Json, JsonObject
from workflowlookup.access import Access
from workflowlookup.auth import oauth
from workflowlookup.auth.authentication import Authenticator

DEEP = b"[" * 5_000 + b"]" * 5_000
WRONG_TOKENS_ALLOWED = 20
NUMBERS = ["1" + "0" * 400, "1" + "0" * 5_000, "1e400", "-1e400", "NaN", "Infinity", "[]", "{}", '"1e400"']


@pytest.fixture
def token_server(tmp_path: Path, issuer: Issuer) -> Iterator[TokenServer]:
    flags = ("--oauth-issuer", issuer.name, "--oauth-audience", AUDIENCE, "--oauth-jwks-url", issuer.jwks_url)
    token_server = TokenServer(tmp_path, *flags, "--trusted-proxies", "127.0.0.1", is_open=True)
    yield token_server
    token_server.close()


def signed(issuer: Issuer, payload: bytes, **header: Json) -> str:
    """A token that the issuer signed, over any bytes."""
    algorithm, key = issuer.private["one"]
    return jwt.PyJWS().encode(payload, key, algorithm, {"kid": "one", **header})


def hostile_tokens(issuer: Issuer) -> Iterator[str]:
    claims = issuer.claims()
    heads = [{"alg": ["RS256"]}, {"alg": {}}, {"alg": 1}, {"alg": None}, {"alg": "RS256", "kid": {}}, [], 1, None, DEEP]
    heads += [b'{"alg": "RS256", "kid": ' + DEEP + b"}", b'{"alg": ' + DEEP + b"}", b"\xff", b""]
    yield from (f"{part(head)}.{part(claims)}.{part(b'x')}" for head in heads)
    yield "x" * 8_000 + ".a.b"
    yield from (signed(issuer, payload) for payload in (DEEP, b"[]", b"1", b"null", b"\xff", b"", b'{"exp":'))
    for name in ("exp", "nbf", "iat"):
        rest = json.dumps({key: value for key, value in claims.items() if key != name})[1:]
        for number in NUMBERS if name == "exp" else NUMBERS[2:]:
            yield signed(issuer, f'{{"{name}": {number}, {rest}'.encode())
    for name in ("iss", "aud", "sub"):
        values: list[Json] = [[], {}, 1, [[]], [{}]]
        for value in values:
            yield signed(issuer, json.dumps({**claims, name: value}).encode())


def send(token_server: TokenServer, token: str, address: str = "192.0.2.1") -> httpx2.Response:
    headers = {"authorization": f"Bearer {token}", "x-forwarded-for": address}
    return httpx2.post(token_server.server.url, content=b"{}", headers=headers)


def ask(token_server: TokenServer, token: str, address: str = "192.0.2.1") -> int:
    return send(token_server, token, address).status_code


def test_each_is_refused_with_401(token_server: TokenServer, issuer: Issuer) -> None:
    tokens = list(hostile_tokens(issuer))

    answers = {token[:100]: ask(token_server, token, f"192.0.2.{number}") for number, token in enumerate(tokens)}

    assert {token: status for token, status in answers.items() if status != 401} == {}
    assert ask(token_server, issuer.token()) == 400  # let in: the body is no message


def test_each_counts_as_a_wrong_token(token_server: TokenServer, issuer: Issuer) -> None:
    answers = []
    for token in hostile_tokens(issuer):
        last = send(token_server, token)
        answers.append(last.status_code)
        if last.status_code == 429:
            break

    assert set(answers[:WRONG_TOKENS_ALLOWED]) == {401}
    error = last.json()["error"]
    assert (last.status_code, error["code"], error["message"]) == (429, -32012, "Server busy")
    assert last.headers["retry-after"] == str(error["data"]["retryAfterSeconds"])
    unscoped = send(token_server, issuer.token(scope="openid"))
    assert (unscoped.status_code, unscoped.json()["error"]["code"]) == (403, -32011)
    assert 'error="insufficient_scope"' in unscoped.headers["www-authenticate"]


@pytest.mark.parametrize(
    "document", [DEEP, b'{"keys": [{"kty": "RSA", "kid": ' + DEEP + b"}]}", b'{"keys": ' + DEEP + b"}"]
)
def test_unreadable_keys_let_nobody_in(token_server: TokenServer, issuer: Issuer, document: bytes) -> None:
    issuer.raw = document
    try:
        assert ask(token_server, issuer.token()) in (401, 503)
    finally:
        issuer.raw = None


def test_a_subject_with_a_lone_surrogate_can_be_stored(issuer: Issuer) -> None:
    about = oauth.Issuer(issuer=issuer.name, audience=AUDIENCE, jwks_url=issuer.jwks_url)

    access = asyncio.run(oauth.OAuthVerifier(about).find(issuer.token(sub="\ud800ada")))

    assert access is not None
    assert access.name.encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
HEADS = JSON | st.fixed_dictionaries({"alg": JSON | st.just("RS256"), "kid": JSON | st.just("one")})
CLAIMS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("exp", "nbf", "iat", "iss", "aud", "sub", "scope", "client_id", "jti"), JSON)
)
SECRETS = (
    st.text(st.characters(max_codepoint=255), max_size=60)
    | st.builds("{}.{}.{}".format, st.text(max_size=9), st.text(max_size=9), st.text(max_size=9))
    | st.builds(lambda head, claims: f"{part(head)}.{part(claims)}.{part(b'x')}", HEADS, JSON)
)


NUMBER = itertools.count()
"""Every request has an address of its own, so that none is slowed down."""


class NoTokens:
    def find(self, _: object) -> None:
        return None

    def version(self) -> tuple[int, int]:
        return 1, 0

    is_away = False

    def is_stale(self) -> bool:
        return False


@pytest.fixture(scope="module")
def authenticator(issuer: Issuer) -> Authenticator:
    about = oauth.Issuer(issuer=issuer.name, audience=AUDIENCE, jwks_url=issuer.jwks_url)
    return Authenticator(NoTokens(), oauth.OAuthVerifier(about), is_open=True)


@settings(max_examples=300, deadline=None)
@given(secret=SECRETS, claims=CLAIMS, head=HEADS)
def test_whatever_is_sent_is_answered_and_nothing_fails(
    issuer: Issuer, authenticator: Authenticator, caplog_errors: "Errors", secret: str, claims: JsonObject, head: Json
) -> None:
    more = {name: value for name, value in head.items() if name != "alg"} if isinstance(head, dict) else {}
    try:
        theirs = signed(issuer, json.dumps({**issuer.claims(), **claims}).encode(), **more)
    except (TypeError, ValueError, jwt.PyJWTError):  # what the library does not sign
        theirs = ""

    async def answers() -> AsyncIterator[Access | int]:
        for one in (secret, theirs):
            header = f"Bearer {one}".encode("latin-1", errors="replace")
            request = Request(
                {"type": "http", "client": (f"client {next(NUMBER)}", 5), "headers": [(b"authorization", header)]}
            )
            answer = await authenticator.authenticate(request)
            yield answer if isinstance(answer, Access) else answer.status_code

    async def collect() -> list[Access | int]:
        return [answer async for answer in answers()]

    first, second = asyncio.run(collect())
    assert first in (400, 401)
    assert isinstance(second, Access) or second in (401, 403)
    assert caplog_errors.records == []


class Errors(logging.Handler):
    """Records what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture(scope="module")
def caplog_errors() -> Iterator[Errors]:
    """What is logged as an error, over all examples."""

    handler = Errors()
    logger = logging.getLogger("workflowlookup")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
