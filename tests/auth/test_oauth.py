"""JWTs of an issuer: real keys, published by a real server on loopback."""

import asyncio
import hashlib
import hmac
import json
import time
import warnings
from collections.abc import Callable, Iterator

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from auth.issuer import AUDIENCE, Issuer, part
from support.json_values import Json, JsonObject
from support.narrowing import not_none
from workflowlookup.access import Access
from workflowlookup.auth import oauth as module
from workflowlookup.auth.oauth import KeysUnavailable, OAuthVerifier


class SecondsClock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    issuer.add_key("one")
    yield issuer
    issuer.close()


@pytest.fixture
def clock() -> SecondsClock:
    return SecondsClock()


@pytest.fixture
def make(issuer: Issuer, clock: SecondsClock) -> Callable[..., module.OAuthVerifier]:
    def make_oauth(**fields: Json) -> module.OAuthVerifier:
        about = {"issuer": issuer.name, "audience": AUDIENCE, "jwks_url": issuer.jwks_url, **fields}
        return OAuthVerifier(module.Issuer(**about), clock=clock)

    return make_oauth


@pytest.fixture
def find(make: Callable[..., module.OAuthVerifier]) -> Callable[..., Access | None]:
    oauth = make()
    return lambda token: asyncio.run(oauth.find(token))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_token_of_the_issuer_is_accepted(issuer: Issuer, find: Callable[..., Access | None], algorithm: str) -> None:
    issuer.add_key("two", algorithm)

    access = find(issuer.token("two"))

    assert not_none(access).name == "oauth ada"
    assert not_none(access).kind == "agent"
    assert not_none(access).scopes == {"read", "run"}
    assert not_none(access).workflows == ("*",)
    assert find(issuer.token("two", aud=["other", AUDIENCE])) == access


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "http://evil.example.com"},
        {"iss": None},
        {"iss": ["x"]},
        {"aud": "https://other.example.com/mcp"},
        {"aud": AUDIENCE + "/"},
        {"aud": None},
        {"aud": []},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"exp": "soon"},
        {"exp": 0},
        {"nbf": 9_999_999_999},
        {"iat": 9_999_999_999},
    ],
    ids=str,
)
def test_other_claims_are_refused(issuer: Issuer, find: Callable[..., Access | None], changed: JsonObject) -> None:
    now = int(time.time())
    assert find(issuer.token(exp=now + 60)) is not None

    assert find(issuer.token(**changed)) is None


def test_expiry_has_no_leeway(issuer: Issuer, find: Callable[..., Access | None]) -> None:
    assert find(issuer.token(exp=int(time.time()) - 1)) is None
    assert find(issuer.token(nbf=int(time.time()) + 5)) is not None  # for which they may


def test_a_time_claim_may_be_a_string(issuer: Issuer, find: Callable[..., Access | None]) -> None:
    now = int(time.time())

    assert find(issuer.token(exp=str(now + 60))) is not None
    assert find(issuer.token(exp=str(now - 1))) is None


def test_a_wrong_signature_is_refused(issuer: Issuer, find: Callable[..., Access | None]) -> None:
    head, body, signature = issuer.token().split(".")
    other = part(issuer.claims(scope="admin"))
    stranger = Issuer()
    stranger.add_key("one")
    stranger_token = stranger.token(iss=issuer.name)
    stranger.close()

    wrong = [
        f"{head}.{other}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-4]}AAAA",
        f"{part({'alg': 'none', 'kid': 'one'})}.{other}.",
        f"{part({'alg': 'None', 'kid': 'one'})}.{other}.",
        f"{part({'alg': 'ES256', 'kid': 'one', 'crit': ['b64'], 'b64': False})}.{body}.{signature}",
        f"{part({'kid': 'one'})}.{body}.{signature}",
        f"{part({'alg': 'ES256', 'kid': ['one']})}.{body}.{signature}",
        f"{part({'alg': 'ES256', 'kid': 'no-such-key'})}.{body}.{signature}",
        stranger_token,
        "a.b.c",
        "..",
        f"{part([])}.{part([])}.{part(b'x')}",
        "x" * 20_000 + ".a.b",
    ]

    assert [one for one in wrong if find(one) is not None] == []


def test_a_public_key_cannot_be_used_as_a_shared_secret(issuer: Issuer, find: Callable[..., Access | None]) -> None:
    key = issuer.add_key("rsa", "RS256")
    text = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for secret in (text, json.dumps(issuer.published[-1]).encode()):
        signed = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part(issuer.claims())}"
        forged = f"{signed}.{part(hmac.digest(secret, signed.encode(), hashlib.sha256))}"
        assert find(forged) is None
    assert find(issuer.token("rsa")) is not None


def test_keys_in_a_token_are_ignored(issuer: Issuer, find: Callable[..., Access | None]) -> None:
    own = rsa.generate_private_key(65537, 2048)
    headers = {"jku": issuer.jwks_url, "x5u": "http://127.0.0.1:1/", "jwk": {"kty": "RSA", "n": "AQ", "e": "AQAB"}}

    assert find(issuer.token(key=own, algorithm="RS256", headers=headers)) is None
    assert find(issuer.token(key=own, algorithm="RS256", headers={**headers, "kid": None})) is None


@pytest.mark.parametrize(
    "fields", [{"use": "enc"}, {"alg": "RS512"}, {"d": "AQ"}, {"kty": "oct", "k": "AQ"}, {"kty": None}, {"n": "AQ"}]
)
def test_keys_for_other_uses_are_ignored(
    issuer: Issuer, find: Callable[..., Access | None], fields: JsonObject
) -> None:
    issuer.add_key("odd", "RS256", **fields)

    assert find(issuer.token("odd")) is None
    assert find(issuer.token("one")) is not None


def test_a_key_that_is_too_short_is_not_trusted(issuer: Issuer, find: Callable[..., Access | None]) -> None:
    short = rsa.generate_private_key(65537, 1024)
    issuer.published.append({**RSAAlgorithm.to_jwk(short.public_key(), as_dict=True), "kid": "short"})
    issuer.private["short"] = ("RS256", short)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert find(issuer.token("short")) is None


# ── what it may do ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("claim", "claims", "scopes"),
    [
        ("scope", {"scope": "openid workflowlookup:run profile"}, {"run"}),
        ("scope", {"scope": ["read", "confirm"]}, {"read", "confirm"}),
        ("scope", {"scope": "Admin root *"}, set()),
        ("scope", {"scope": None}, set()),
        ("scope", {"scope": {"admin": True}}, set()),
        ("scope", {"scope": ["run", 7, None]}, {"run"}),
        ("realm_access.roles", {"realm_access": {"roles": ["admin"]}}, {"admin"}),
        ("realm_access.roles", {"realm_access": "admin"}, set()),
        ("https://x.example/roles", {"https://x.example/roles": ["read"]}, {"read"}),
    ],
)
def test_scopes_are_read_from_the_claim_in_the_settings(
    issuer: Issuer, make: Callable[..., module.OAuthVerifier], claim: str, claims: JsonObject, scopes: set[str]
) -> None:
    access = asyncio.run(make(scopes_claim=claim).find(issuer.token(**claims)))

    assert not_none(access).scopes == scopes


@pytest.mark.parametrize(
    ("claims", "workflows"),
    [
        ({"flows": "docs-* release-?"}, ("docs-*", "release-?")),
        ({"flows": ["docs-*"]}, ("docs-*",)),
        ({}, ()),
        ({"flows": 1}, ()),
    ],
)
def test_patterns_are_read_from_the_claim_in_the_settings_and_without_them_nothing_is_visible(
    issuer: Issuer, make: Callable[..., module.OAuthVerifier], claims: JsonObject, workflows: tuple[str, ...]
) -> None:
    access = asyncio.run(make(workflows_claim="flows").find(issuer.token(**claims)))

    assert not_none(access).workflows == workflows


def test_the_scope_word_person_marks_the_token_of_a_person(issuer: Issuer, find: Callable[..., Access | None]) -> None:
    assert not_none(find(issuer.token(scope="run person"))).kind == "person"
    assert not_none(find(issuer.token(scope="run workflowlookup:person"))).kind == "person"


def test_a_subject_cannot_forge_a_name(issuer: Issuer, find: Callable[..., Access | None]) -> None:
    assert not_none(find(issuer.token(sub="a via token\nroot\x1b[0m" + "x" * 500))).name.startswith(
        "oauth a_via_token_root"
    )
    assert not_none(find(issuer.token(sub=None, client_id="ci"))).name == "oauth ci"
    assert not_none(find(issuer.token(sub=None))).name == "oauth somebody"


def test_no_two_subjects_have_the_same_name(issuer: Issuer, find: Callable[..., Access | None]) -> None:
    hashed = not_none(find(issuer.token(sub="a b"))).name.removeprefix("oauth ")
    subjects = [
        "a b",
        "a_b",
        "a\u00a0b",
        "a\u200bb",
        "a\u200db",
        "x" * 200,
        "x" * 201,
        hashed,
        "somebody",
        " ",
        "",
        "\ud800",
    ]

    assert len({not_none(find(issuer.token(sub=subject))).name for subject in subjects}) == len(subjects)


# ── the keys ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_keys_are_fetched_once_and_again_for_an_unknown_key(
    issuer: Issuer, find: Callable[..., Access | None], clock: SecondsClock
) -> None:
    for _ in range(5):
        assert find(issuer.token()) is not None
    assert issuer.key_requests == 1

    clock.now += 60
    issuer.add_key("two")
    assert find(issuer.token("two")) is not None
    assert issuer.key_requests == 2


def test_made_up_key_ids_do_not_cause_many_fetches(
    issuer: Issuer, find: Callable[..., Access | None], clock: SecondsClock
) -> None:
    find(issuer.token())
    for number in range(50):
        clock.now += 0.1
        assert find(issuer.token(headers={"kid": f"made-up-{number}"})) is None

    assert issuer.key_requests == 1


def test_a_withdrawn_key_is_not_accepted(
    issuer: Issuer, find: Callable[..., Access | None], clock: SecondsClock
) -> None:
    token = issuer.token()
    assert find(token) is not None
    issuer.published.clear()

    clock.now += module.KEYS_SECONDS + 1

    assert find(token) is None


@pytest.mark.parametrize(
    "trouble",
    [{"status": 500}, {"status": 302}, {"status": 204}, {"raw": b"{"}, {"raw": b"[]"}, {"raw": b"x" * 2_000_000}],
)
def test_cached_keys_are_used_while_the_issuer_does_not_answer(
    issuer: Issuer, find: Callable[..., Access | None], clock: SecondsClock, trouble: JsonObject
) -> None:
    token = issuer.token()
    assert find(token) is not None
    for name, value in trouble.items():
        setattr(issuer, name, value)

    clock.now += module.KEYS_SECONDS + 1
    assert find(token) is not None
    clock.now += module.STALE_SECONDS
    with pytest.raises(KeysUnavailable):
        find(token)


def test_no_token_is_accepted_before_the_keys_are_fetched(
    issuer: Issuer, find: Callable[..., Access | None], clock: SecondsClock
) -> None:
    issuer.status = 503
    with pytest.raises(KeysUnavailable):
        find(issuer.token())
    issuer.status = 200
    with pytest.raises(KeysUnavailable):
        find(issuer.token())

    clock.now += module.PAUSE_SECONDS
    assert find(issuer.token()) is not None


def test_no_token_reaches_the_log(
    issuer: Issuer, find: Callable[..., Access | None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    tokens = [issuer.token(), issuer.token(exp=1), issuer.token(headers={"kid": "x"}), "a.b.c"]
    for token in tokens:
        find(token)

    assert [token for token in tokens[:3] for piece in token.split(".")[1:] if piece in caplog.text] == []
