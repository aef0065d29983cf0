"""Live updates of pages: changes by this process at once, by others soon, and only to viewers who may see the run."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar, cast

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from console.sites import VIEWERS, Console, OpenConsole, Site
from support.json_values import Json
from support.make import document, step
from support.narrowing import instance_of, not_none
from workflowlookup.console.request import RequestRefused
from workflowlookup.console.run_pages import events
from workflowlookup.console.streams import HEARTBEAT, RETRY, Streams
from workflowlookup.language.document.building import build
from workflowlookup.shares import Shares
from workflowlookup.store.sqlite import SqliteJournal

T = TypeVar("T")

FLOW = build(document(step("one-step"), step("two-step"), identifier="other-flow"))


async def next_event(stream: AsyncIterator[T]) -> T:
    """The next thing that is sent, which must come soon."""
    async with asyncio.timeout(10):
        return await anext(stream)


def ids(message: bytes) -> Json:
    assert message.startswith(b"event: changed\ndata: ")
    return json.loads(message.split(b"data: ")[1])


@pytest.mark.parametrize("is_other", [False, True], ids=["this process", "another process"])
def test_a_change_is_announced_with_the_run_id(empty: Site, is_other: bool) -> None:
    async def follow() -> None:
        console = empty.console(pause=0.05)
        stream = console.streams.follow(console.backends.of(VIEWERS["mira"]))
        assert await next_event(stream) == RETRY
        await asyncio.sleep(0.1)
        run = (empty.runs if is_other else console.runs).start(FLOW, {}, {})
        assert ids(await next_event(stream)) == [run.id]
        await stream.aclose()
        console.runs.close()

    asyncio.run(follow())


def test_nothing_is_polled_while_nobody_listens(empty: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def follow() -> None:
        console = empty.console(pause=0.01)
        looks: list[object] = []
        monkeypatch.setattr(console.runs, "watch", looks.append)
        await asyncio.sleep(0.05)
        assert looks == []
        monkeypatch.undo()
        first, second = (console.streams.follow(console.backends.of(VIEWERS["mira"])) for _ in range(2))
        await next_event(first)
        await next_event(second)
        assert console.streams.count == 2
        await asyncio.sleep(0.05)
        assert len(console.runs.listeners) == 1
        await first.aclose()
        await asyncio.sleep(0.05)
        assert len(console.runs.listeners) == 1
        await second.aclose()
        await asyncio.sleep(0.05)
        assert (console.streams.count, console.runs.listeners) == (0, [])
        console.runs.close()

    asyncio.run(follow())


def test_a_stream_sends_heartbeats_and_ends_with_the_server(empty: Site) -> None:
    async def follow() -> None:
        streams = Streams(beat=0.02)
        stream = streams.follow(empty.console().backends.of(VIEWERS["mira"]))
        assert [await next_event(stream) for _ in range(3)] == [RETRY, HEARTBEAT, HEARTBEAT]
        streams.close()
        with pytest.raises(StopAsyncIteration):
            await next_event(stream)
        assert streams.is_full("ada")

    asyncio.run(follow())


def test_a_run_past_its_deadline_fails_while_it_is_watched(empty: Site) -> None:
    flow = build(document(step("one-step"), deadlineSeconds=0.2))

    async def follow() -> None:
        console = empty.console(pause=0.03)
        run = empty.runs.start(flow, {}, {})
        stream = console.streams.follow(console.backends.of(VIEWERS["mira"]))
        await next_event(stream)
        assert ids(await next_event(stream)) == [run.id]
        assert empty.runs.get(run.id).state == "failed"
        await stream.aclose()
        console.runs.close()

    asyncio.run(follow())


def test_a_journal_that_cannot_be_followed_is_tried_again(empty: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def follow() -> None:
        console = empty.console(pause=0.05)
        journal = instance_of(SqliteJournal, console.runs.journal)
        place, journal.path = journal.path, "/proc/no/such/place"
        stream = console.streams.follow(console.backends.of(VIEWERS["mira"]))
        await next_event(stream)
        await asyncio.sleep(0.1)
        journal.path = place
        await asyncio.sleep(0.2)
        run = empty.runs.start(FLOW, {}, {})
        assert run.id in ids(await next_event(stream))
        await stream.aclose()
        console.runs.close()

    asyncio.run(follow())
    assert "the journal cannot be polled for changes" in caplog.text


class Asked:
    """A request for a stream."""

    method = "GET"

    def __init__(self, viewer: str, **query: str) -> None:
        self.cookies = {"viewer": viewer}
        self.query_params = query


async def open_stream(console: Console, viewer: str, **query: str) -> AsyncGenerator[bytes, None]:
    response = await events(not_none(console.identify(cast("Request", Asked(viewer, **query)))))
    stream: AsyncGenerator[bytes, None] = instance_of(StreamingResponse, response).body_iterator  # type: ignore[assignment]
    return stream


def test_each_viewer_is_notified_of_visible_runs_and_of_the_watched_run(site: Site) -> None:
    async def follow() -> None:
        console = site.console(pause=0.05)
        watched = site.named["held"]
        mira, stranger = [await open_stream(console, viewer) for viewer in ("mira", "stranger")]
        reader = await open_stream(console, "reader", run=watched)
        for stream in (mira, stranger, reader):
            await next_event(stream)
        await asyncio.sleep(0.1)
        console.runs.confirm(watched, "publish", how="console")
        assert ids(await next_event(mira)) == [watched]
        other = console.runs.start(FLOW, {}, {})
        assert ids(await next_event(mira)) == [other.id]
        assert ids(await next_event(stranger)) == [other.id]
        console.runs.delete(other.id)
        assert ids(await next_event(mira)) == [other.id]
        console.runs.cancel(watched)
        assert ids(await next_event(reader)) == [watched]
        for stream in (mira, stranger, reader):
            await stream.aclose()
        console.runs.close()

    asyncio.run(follow())


def test_the_number_of_streams_is_limited(furnished: Site, visit: OpenConsole) -> None:
    client = visit(furnished, listeners=Shares(0))
    answer = client.get("/events")

    assert answer.status_code == 429
    assert client.head("/events").status_code == 429


def test_one_viewer_with_many_pages_does_not_exclude_others(site: Site) -> None:
    async def follow() -> None:
        listeners = Shares(40)
        console = site.console(listeners=listeners, pause=0.05)
        streams = [await open_stream(console, "mira") for _ in range(listeners.per_caller)]
        for stream in streams:
            await next_event(stream)
        with pytest.raises(RequestRefused, match="You have too many live pages open"):
            await open_stream(console, "mira")
        streams.append(await open_stream(console, "reader"))
        assert await next_event(streams[-1]) == RETRY
        for stream in streams:
            await stream.aclose()
        console.runs.close()

    asyncio.run(follow())


def test_a_head_request_opens_no_stream(furnished: Site, visit: OpenConsole) -> None:
    client = visit(furnished)

    assert client.head("/events").headers["content-type"].startswith("text/event-stream")
    assert client.console.streams.count == 0
