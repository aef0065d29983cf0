"""An application behind a guard: what becomes of a request that takes long."""

import asyncio

import pytest

from workflowlookup.transport import guard
from workflowlookup.transport.guard import Guard, Guarded

SCOPE = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [], "client": ("127.0.0.1", 5)}


class Breaking:
    """A store of tokens that has never had one, and that fails from the second question on."""

    asked = 0

    def find(self, _):
        return None

    def version(self):
        self.asked += 1
        if self.asked > 1:
            raise RuntimeError("a fault of ours")
        return 0, 0


def test_one_who_cannot_be_asked_again_is_not_let_on(monkeypatch, caplog):
    monkeypatch.setattr(guard, "LOOK_SECONDS", 0.01)
    ended = []

    async def app(_scope, _receive, _send):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def nothing(*_):
        raise AssertionError("nobody listens")

    async def ask():
        guarded = Guarded(app, Guard(Breaking(), None, is_loopback=True))
        await asyncio.wait_for(guarded(dict(SCOPE), nothing, nothing), 10)

    with pytest.raises(RuntimeError, match="a fault of ours"):
        asyncio.run(ask())

    assert ended == [True]
    assert "who sent a request could not be asked again" in caplog.text
