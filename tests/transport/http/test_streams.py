"""The streams of responses, without HTTP: what is stored for clients that resume, and what has room for those that wait."""

import asyncio
import re
import time

import pytest
from starlette.types import Message

from support.json_values import JsonObject
from support.narrowing import not_none
from workflowlookup.shares import Shares
from workflowlookup.transport.http import streams
from workflowlookup.transport.http.streams import MAX_BYTES, MAX_EVENTS, MAX_UNREAD, REPLAY_SECONDS, Replay, Stream


class Response:
    """One response that a stream is written to; the client leaves when `leave` is set."""

    def __init__(self) -> None:
        self.leave = asyncio.Event()
        self.sent: list[Message] = []

    async def receive(self) -> JsonObject:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Message) -> None:
        self.sent.append(event)

    @property
    def text(self) -> bytes:
        return b"".join(event.get("body", b"") for event in self.sent)

    @property
    def is_over(self) -> bool:
        return bool(self.sent) and not self.sent[-1].get("more_body", self.sent[-1]["type"] == "http.response.start")

    def write(self, stream: Stream) -> asyncio.Task[None]:
        return asyncio.create_task(stream.write(self.receive, self.send))


def data(text: bytes) -> list[bytes]:
    """The messages in events."""
    return re.findall(rb"^data: (.+)\r$", text, re.MULTILINE)


def event_id(event: bytes) -> bytes:
    return not_none(re.match(rb"id: (\d+-\d+)\r\n", event))[1]


# ── what is stored ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def replay() -> streams.Replay:
    return Replay()


def test_a_stream_is_resumed_after_the_last_received_event(replay: streams.Replay) -> None:
    one, two = replay.open(1), replay.open(2)
    first, _, third = (replay.add(log, text) for log, text in ((one, b"a"), (two, b"b"), (one, b"c")))

    assert replay.after(event_id(first)) == (one, [third])


def test_a_stream_is_resumed_from_its_beginning(replay: streams.Replay) -> None:
    log = replay.open("a")
    begun, reply = replay.add(log, b""), replay.add(log, b"{}")

    assert data(begun) == []
    assert replay.after(event_id(begun)) == (log, [reply])


def test_two_sessions_have_no_event_in_common(replay: streams.Replay) -> None:
    assert Replay().after(event_id(replay.add(replay.open(None), b"{}"))) is None


@pytest.mark.parametrize("last", [b"", b"0", b"x", b"-1", b"1-1", b"9" * 5_000, "\u0665".encode()])
def test_an_unknown_event_id_cannot_be_resumed(replay: streams.Replay, last: bytes) -> None:
    replay.add(replay.open(1), b"{}")

    assert replay.after(last) is None


@pytest.mark.parametrize(("text", "count"), [(b"x", MAX_EVENTS), (b"x" * (MAX_BYTES // 4), 3)], ids=["many", "long"])
def test_the_oldest_events_are_dropped(replay: streams.Replay, text: bytes, count: int) -> None:
    log = replay.open(1)
    events = [replay.add(log, text) for _ in range(MAX_EVENTS + 5)]

    assert replay.after(event_id(events[-count - 2])) is None
    assert replay.after(event_id(events[-count - 1])) == (log, events[-count:])


def test_a_caller_has_its_share_of_memory_for_all_its_sessions() -> None:
    memory = Shares(4_000)
    replays = [Replay(memory, caller) for caller in ("one", "one", "other")]
    logs = [replay.open(1) for replay in replays]
    first, second, other = (replay.add(log, b"x" * 800) for replay, log in zip(replays, logs, strict=True))

    assert [replay.after(b"%d-%d" % (log.key, log.key)) for replay, log in zip(replays, logs, strict=True)] == [
        (logs[0], [first]),
        None,  # what there was no room for cannot be sent again, and that is said
        (logs[2], [other]),
    ]
    assert replays[1].after(event_id(second)) == (logs[1], [])
    for replay in replays:
        replay.clear()
    assert memory.sum == 0


@pytest.mark.parametrize("retry_seconds", [None, 1], ids=["answered", "to be sent again"])
def test_a_complete_stream_is_dropped_after_the_replay_time(retry_seconds: int | None) -> None:
    async def write() -> tuple[int, list[int]]:
        memory = Shares(1 << 20)
        replay = Replay(memory, "one")
        Stream(None, 1, replay).put(b"1")
        size, ended = memory.sum, Stream(None, 2, replay)
        ended.finish(b"2", None, retry_seconds)
        await Response().write(ended)
        sizes = [memory.sum]
        for seconds in (0, REPLAY_SECONDS):
            replay.forget_delivered(time.monotonic() + seconds)
            sizes.append(memory.sum)
        return size, sizes

    size, sizes = asyncio.run(write())

    assert sizes == [2 * size, 2 * size, size]


# ── what is written ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reply_is_buffered_even_if_the_client_does_not_read() -> None:
    async def fill() -> list[bytes]:
        stream, response = Stream(None, 1, None), Response()
        for _ in range(10 * MAX_UNREAD):
            stream.put(b"{}", is_optional=True)
        stream.finish(b"[]", None)
        await response.write(stream)
        return data(response.text)

    assert asyncio.run(fill()) == [b"{}"] * MAX_UNREAD + [b"[]"]


def test_a_pending_reply_is_plain_json_if_no_message_came_before_it() -> None:
    async def talk() -> tuple[int, bytes]:
        stream, response = Stream(None, 1, None), Response()
        writing = response.write(stream)
        await asyncio.sleep(0)
        stream.finish(b"{}", -32601)
        await writing
        return response.sent[0]["status"], response.text

    assert asyncio.run(talk()) == (404, b"{}")


def test_a_silent_stream_sends_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PING_SECONDS", 0.01)

    async def talk() -> tuple[bool, bool, list[bytes]]:
        stream, response = Stream(None, 1, None), Response()
        writing = response.write(stream)
        await asyncio.sleep(0.2)
        stream.finish(b"{}", None)
        await writing
        return response.is_over, response.text.count(b": ping\r\n\r\n") >= 2, data(response.text)

    assert asyncio.run(talk()) == (True, True, [b"{}"])


def test_a_message_put_during_a_write_is_written_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk() -> list[bytes]:
        stream, response = Stream(None, 1, None), Response()
        stream.put(b"1")
        send = response.send

        async def busy(event: Message) -> None:
            await send(event)
            if len(response.sent) == 2:
                stream.put(b"2")
                stream.finish(b"3", None)

        monkeypatch.setattr(response, "send", busy)
        await asyncio.wait_for(response.write(stream), 5)
        return data(response.text)

    assert asyncio.run(talk()) == [b"1", b"2", b"3"]


def test_a_client_that_disconnected_resumes_the_same_stream() -> None:
    async def talk() -> tuple[list[bytes], list[bytes]]:
        replay, first, second = Replay(), Response(), Response()
        stream = Stream(None, 1, replay)
        stream.put(b"")
        writing = first.write(stream)
        await asyncio.sleep(0)
        first.leave.set()
        await writing
        stream.put(b"1")
        _, events = not_none(replay.after(event_id(first.text)))
        stream.resume(events)
        resumed = second.write(stream)
        await asyncio.sleep(0)
        stream.finish(b"2", None)
        await resumed
        return data(first.text), data(second.text)

    assert asyncio.run(talk()) == ([], [b"1", b"2"])


def test_only_the_latest_response_writes_a_stream() -> None:
    async def talk() -> tuple[bool, list[bytes], list[bytes]]:
        replay, first, second = Replay(), Response(), Response()
        stream = Stream(None, 1, replay)
        stream.put(b"")
        writing = first.write(stream)
        await asyncio.sleep(0)
        stream.resume([])
        resumed = second.write(stream)
        await asyncio.wait_for(writing, 5)  # the client came back before we noticed that it had left
        stream.finish(b"1", None)
        await resumed
        return first.is_over, data(first.text), data(second.text)

    assert asyncio.run(talk()) == (True, [], [b"1"])
