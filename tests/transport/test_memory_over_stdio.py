"""When a server on standard input and output returns the memory of requests to the system."""

import gc
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from workflowlookup.app import make_connection
from workflowlookup.protocol import memory
from workflowlookup.protocol.connection import Connection
from workflowlookup.protocol.jsonrpc import Message
from workflowlookup.settings import read_settings
from workflowlookup.transport import stdio
from workflowlookup.transport.signals import Waker
from workflowlookup.transport.stdio import Stdio

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'


def test_memory_is_returned_after_requests_that_took_long_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    costs = [memory.SHORT_SECONDS / 2] * 20 + [memory.COSTLY_SECONDS * 0.6] * 2
    remaining, now, replies_before = iter(costs), 0.0, []
    their_end, wire_in = os.pipe()[::-1]
    wire_out, our_end = os.pipe()[::-1]
    answer = Connection.answer

    def answer_slowly(connection: Connection, message: Message) -> bytes | None:
        nonlocal now
        now += next(remaining)
        return answer(connection, message)

    def collect() -> None:
        replies_before.append(len(os.read(our_end, 1 << 20).splitlines()))

    monkeypatch.setattr(Connection, "answer", answer_slowly)
    monkeypatch.setattr(stdio, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(memory, "process_time", lambda: now)  # no request waited
    monkeypatch.setattr(gc, "collect", collect)
    os.write(their_end, PING * len(costs))
    os.close(their_end)

    settings = read_settings({}, {"HOME": str(tmp_path)}, directory=str(tmp_path))
    Stdio(make_connection(settings), (wire_in, wire_out), 1 << 20, Waker()).run()

    assert replies_before == [len(costs)]
