"""One client over HTTP, without HTTP: what has room for it, and what it is told when others cannot be told."""

import asyncio
from types import SimpleNamespace

import pytest
from mcp.shared.exceptions import MCPError

from workflowlookup.errors import StorageError
from workflowlookup.protocol.connection import Connection
from workflowlookup.protocol.jsonrpc import Request
from workflowlookup.protocol.surface import Surface
from workflowlookup.transport.link import MOST_UNREAD, Box, Link

NEWS = {"method": "notifications/resources/updated", "params": {"uri": "runs://recent"}}


def test_a_reply_has_room_though_nobody_reads():
    async def fill():
        box = Box(1, None)
        for _ in range(10 * MOST_UNREAD):
            box.put(NEWS)
        box.put({"id": 1, "result": {}})
        return [await box.take() for _ in range(MOST_UNREAD + 1)]

    assert asyncio.run(fill()) == [NEWS] * MOST_UNREAD + [{"id": 1, "result": {}}]


def test_what_other_servers_could_not_be_told_is_refused_with_its_code():
    def note(_, __):
        raise StorageError("The database is away. Try again.", details="away")

    link = Link(Connection(Surface(lambda: None)), None)
    link.note = note
    context = SimpleNamespace(protocol_version="2025-11-25", session=None, request_id=1)

    with pytest.raises(MCPError) as refused:
        asyncio.run(link.answer(context, Request(b"1", "ping", {}, 40)))

    assert (refused.value.code, refused.value.message) == (-32006, "Storage error")
