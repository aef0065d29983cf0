"""An application behind a guard: what becomes of a request that takes long."""

import asyncio
from collections.abc import MutableMapping
from typing import Any, NoReturn

import pytest

from support.narrowing import not_none
from workflowlookup.auth.authentication import Authenticator
from workflowlookup.transport.http import auth_middleware
from workflowlookup.transport.http.auth_middleware import AuthMiddleware

SCOPE = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [], "client": ("127.0.0.1", 5)}


class Breaking:
    """A store of tokens that has never had one, and that fails from the second question on."""

    checks = 0

    def find(self, _: object) -> None:
        return None

    def version(self) -> tuple[int, int]:
        self.checks += 1
        if self.checks > 1:
            raise RuntimeError("a fault of ours")
        return 0, 0

    is_away = False

    def is_stale(self) -> bool:
        return False


def test_a_request_whose_recheck_fails_is_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(auth_middleware, "RECHECK_INTERVAL_SECONDS", 0.01)
    ended, sent = [], []

    async def app(_scope: object, _receive: object, _send: object) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def nothing() -> NoReturn:
        raise AssertionError("nothing is read")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def ask() -> None:
        guarded = AuthMiddleware(app, Authenticator(Breaking(), None, is_open=True))
        await asyncio.wait_for(guarded(dict(SCOPE), nothing, send), 10)

    asyncio.run(ask())

    assert ended == [True]
    assert sent[0]["status"] == 401
    assert "RuntimeError: a fault of ours" in caplog.text


def test_short_requests_share_one_recheck_task_that_ends_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_middleware, "RECHECK_INTERVAL_SECONDS", 0.05)
    watches: set[asyncio.Task[None] | None] = set()

    async def app(_scope: object, _receive: object, _send: object) -> None:
        watches.add(guarded._recheck_task)

    async def nothing(*_: object) -> NoReturn:
        raise AssertionError("nothing is read or sent")

    async def ask() -> None:
        for _ in range(5):
            await guarded(dict(SCOPE), nothing, nothing)
            await asyncio.sleep(0)
        (watch,) = watches
        await asyncio.wait_for(not_none(watch), 10)

    guarded = AuthMiddleware(app, Authenticator(Breaking(), None, is_open=True))
    asyncio.run(ask())
