"""What is kept of what was sent: enough to go on with, and no more."""

import asyncio

import pytest
from mcp_types import JSONRPCNotification

from workflowlookup.transport.replay import MOST_BYTES, MOST_EVENTS, Replay


def message(text=""):
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": text})


def replayed(replay, last):
    """The stream that is gone on with, and the data of each message that is sent again."""
    sent = []

    async def send(event):
        sent.append(event.message.params["data"])

    return asyncio.run(replay.replay_events_after(last, send)), sent


@pytest.fixture
def replay():
    return Replay()


def store(replay, *sent):
    async def keep():
        return [await replay.store_event(stream, message(text)) for stream, text in sent]

    return asyncio.run(keep())


def test_a_stream_goes_on_after_the_last_event_that_came(replay):
    first, *_ = store(replay, ("a", "1"), ("b", "2"), ("a", "3"))

    assert replayed(replay, first) == ("a", ["3"])


@pytest.mark.parametrize("last", ["", "0", "x", "-1", "9" * 5_000, "\u0665"])
def test_what_was_never_sent_is_not_gone_on_with(replay, last):
    store(replay, ("a", "1"))

    assert replayed(replay, last) == (None, [])


@pytest.mark.parametrize(("text", "kept"), [("x", MOST_EVENTS), ("x" * (MOST_BYTES // 4), 3)], ids=["many", "long"])
def test_the_oldest_are_forgotten(replay, text, kept):
    ids = store(replay, *[("a", text)] * (MOST_EVENTS + 5))

    assert replayed(replay, ids[-kept - 1]) == (None, [])
    assert replayed(replay, ids[-kept]) == ("a", [text] * (kept - 1))
