"""What is kept of what was sent: enough to go on with, and no more."""

import asyncio
import re

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


@pytest.mark.parametrize("is_resumable", [True, False])
def test_a_stream_that_is_a_reply_and_nothing_else_can_be_gone_on_with(replay, is_resumable):
    (before,) = store(replay, ("a", "1"))
    reply = b'{"jsonrpc":"2.0","id":1,"result":{"n":1}}'
    sent = []

    async def send(event):
        sent.append((event.event_id, event.message.model_dump(exclude_unset=True)))

    written = replay.write("a", reply, is_resumable=is_resumable)
    asyncio.run(replay.replay_events_after(before, send))

    *begun, number = re.findall(rb"id: (\d+)", written)
    assert len(begun) == is_resumable
    assert written.endswith(b"id: %b\r\nevent: message\r\ndata: %b\r\n\r\n" % (number, reply))
    assert sent == [(number.decode(), {"jsonrpc": "2.0", "id": 1, "result": {"n": 1}})]


def test_replies_are_forgotten_like_all_else(replay):
    (first,) = store(replay, ("a", "1"))
    for _ in range(5):
        replay.write("a", b"x" * (MOST_BYTES // 4), is_resumable=True)

    assert replayed(replay, first) == (None, [])


@pytest.mark.parametrize("last", ["", "0", "x", "-1", "9" * 5_000, "\u0665"])
def test_what_was_never_sent_is_not_gone_on_with(replay, last):
    store(replay, ("a", "1"))

    assert replayed(replay, last) == (None, [])


@pytest.mark.parametrize(("text", "kept"), [("x", MOST_EVENTS), ("x" * (MOST_BYTES // 4), 3)], ids=["many", "long"])
def test_the_oldest_are_forgotten(replay, text, kept):
    ids = store(replay, *[("a", text)] * (MOST_EVENTS + 5))

    assert replayed(replay, ids[-kept - 1]) == (None, [])
    assert replayed(replay, ids[-kept]) == ("a", [text] * (kept - 1))
