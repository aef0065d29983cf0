"""The guard when it cannot ask who somebody is."""

import asyncio
import logging
from collections.abc import Callable

import pytest
from starlette.requests import Request
from starlette.responses import Response

from support.narrowing import instance_of
from workflowlookup.access import LOOPBACK, Access
from workflowlookup.auth.authentication import Authenticator
from workflowlookup.errors import StorageError
from workflowlookup.store.journal import Token
from workflowlookup.store.tokens import PREFIX

SECRETS = [f"{PREFIX}{letter * 43}".encode() for letter in "AB"]
TOKEN = Token(
    id="t", name="t", kind="agent", scopes=("read",), workflows=("*",), created=0, expires=None, revoked=None, maker=""
)
REQUEST = Request({"type": "http", "client": ("127.0.0.1", 5), "headers": []})


class Journal:
    """Where tokens are; it can be away."""

    is_away = True
    reads = 0

    def find(self, _: object) -> None:
        return None

    def version(self) -> tuple[int, int]:
        self.reads += 1
        if self.is_away:
            raise StorageError("It is away.")
        return 0, 0

    def is_stale(self) -> bool:
        return False


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def ask(journal: Journal) -> Callable[[int], list[Access | Response]]:
    """Who sends a request that is under way, asked as often as there are streams."""
    authenticator = Authenticator(journal, None, is_open=True)

    async def all_of_them(streams: int) -> list[Access | Response]:
        return [await authenticator.authenticate(REQUEST, is_recheck=True) for _ in range(streams)]

    return lambda streams: asyncio.run(all_of_them(streams))


def test_during_an_outage_streams_share_one_poll(
    ask: Callable[[int], list[Access | Response]], journal: Journal
) -> None:
    answers = ask(300)

    assert {answer.status_code for answer in answers if isinstance(answer, Response)} == {503}
    assert journal.reads < 10


def test_the_beginning_and_the_end_of_an_outage_are_logged_once(
    ask: Callable[[int], list[Access | Response]],
    journal: Journal,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workflowlookup.auth.authentication.TOKEN_POLL_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, logger="workflowlookup"):
        ask(100)
        journal.is_away = False
        assert ask(100) == [LOOPBACK] * 100

    assert [record.getMessage() for record in caplog.records] == [
        "requests cannot be authenticated: It is away.",
        "requests can be authenticated again",
    ]


def test_cached_tokens_do_not_end_the_outage_in_the_log(
    journal: Journal, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator = Authenticator(journal, None, is_open=False)
    requests = [Request({**REQUEST.scope, "headers": [(b"authorization", b"Bearer " + secret)]}) for secret in SECRETS]

    def find(secret: str) -> Token:
        if journal.is_away and secret == SECRETS[0].decode():
            raise StorageError("It is away.")
        return TOKEN

    monkeypatch.setattr(journal, "find", find)
    with caplog.at_level(logging.INFO, logger="workflowlookup"):
        for is_away in (True, True, False):
            journal.is_away = is_away
            for request in requests:
                asyncio.run(authenticator.authenticate(request))

    assert [record.getMessage() for record in caplog.records] == [
        "requests cannot be authenticated: It is away.",
        "requests can be authenticated again",
    ]


def test_a_token_that_is_revoked_while_it_is_read_is_not_cached(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.is_away = False
    authenticator = Authenticator(journal, None, is_open=False)
    request = Request({**REQUEST.scope, "headers": [(b"authorization", b"Bearer " + SECRETS[0])]})
    versions = [(1, 0)]
    monkeypatch.setattr(journal, "version", lambda: versions[-1])

    def find_while_it_is_revoked(_: object) -> Token:
        versions.append((1, 1))
        authenticator._polled_at = float("-inf")
        authenticator._poll_tokens()
        return TOKEN

    monkeypatch.setattr(journal, "find", find_while_it_is_revoked)
    asyncio.run(authenticator.authenticate(request, is_recheck=True))
    monkeypatch.setattr(journal, "find", lambda _: None)

    answer = asyncio.run(authenticator.authenticate(request, is_recheck=True))
    assert instance_of(Response, answer).status_code == 401
