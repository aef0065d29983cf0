"""The bell, and what waiting for input costs when nobody is to be woken."""

import json
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from support.json_values import JsonObject
from workflowlookup.app import make_connection
from workflowlookup.settings import read_settings
from workflowlookup.transport import stdio
from workflowlookup.transport.signals import Waker
from workflowlookup.transport.stdio import Stdio

T = TypeVar("T")


@pytest.fixture
def waker() -> Iterator[Waker]:
    made = Waker()
    yield made
    made.close()


def is_ringing(waker: Waker) -> bool:
    return bool(select.select([waker.descriptor], [], [], 0)[0])


def test_it_is_readable_until_it_is_cleared(waker: Waker) -> None:
    assert not is_ringing(waker)
    for _ in range(70_000):
        waker.wake()
    assert is_ringing(waker)
    waker.clear()
    assert not is_ringing(waker)
    waker.wake()
    assert is_ringing(waker)


def test_no_wake_is_lost_when_many_threads_wake(waker: Waker) -> None:
    done = threading.Event()
    rung = [0] * 4

    def wake(number: int) -> None:
        while not done.is_set():
            rung[number] += 1
            waker.wake()

    threads = [threading.Thread(target=wake, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        assert select.select([waker.descriptor], [], [], 20)[0]
        waker.clear()
    done.set()
    for thread in threads:
        thread.join()
    waker.clear()
    waker.wake()
    assert is_ringing(waker)
    assert all(rung)


def test_a_closed_waker_can_be_woken() -> None:
    waker = Waker()
    waker.close()
    waker.wake()


def test_a_lone_request_costs_one_read_and_one_write(
    waker: Waker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    their_end, wire_in = os.pipe()[::-1]
    wire_out, our_end = os.pipe()[::-1]
    settings = read_settings(
        {"journal": str(tmp_path / "runs.sqlite")}, {"HOME": str(tmp_path)}, directory=str(tmp_path)
    )
    server = Stdio(make_connection(settings, waker.wake), (wire_in, wire_out), 1 << 20, waker)
    thread = threading.Thread(target=server.run)
    thread.start()

    def ask(method: str, params: JsonObject) -> bytes:
        os.write(
            their_end, json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n"
        )
        return os.read(our_end, 1 << 20)

    ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    ask("workflow_get", {"id": "bug-investigation"})
    counts = {"read": 0, "write": 0, "poll": 0}
    read = Stdio._read

    def counted(name: str, function: Callable[..., T]) -> Callable[..., T]:
        def call(*arguments: Any) -> Any:
            counts[name] += 1
            return function(*arguments)

        return call

    def read_and_count(server: Any) -> Any:
        data = read(server)
        counts["read"] += 1  # only now: the one that waits for the next request belongs to that
        return data

    monkeypatch.setattr(Stdio, "_read", read_and_count)
    monkeypatch.setattr(Stdio, "_write", counted("write", Stdio._write))
    monkeypatch.setattr(Stdio, "_poll_until_input", counted("poll", lambda _: True))
    monkeypatch.setattr(stdio, "_is_ready", counted("poll", lambda *_: True))
    ask("ping", {})  # the read that waited for this one may have been an uncounted one
    for key in counts:
        counts[key] = 0
    for _ in range(10):
        ask("workflow_get", {"id": "bug-investigation"})
    seen = dict(counts)
    os.close(their_end)
    thread.join()
    os.close(our_end)

    assert seen == {"read": 10, "write": 10, "poll": 0}
