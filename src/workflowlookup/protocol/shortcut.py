"""The short way: a call in its usual form, of a tool that has one, is decoded, checked and answered in one go.

A tool says what its usual arguments are, and answers them when nothing about them is in doubt. Whatever is: an id that
nobody asked for yet, a field too many, a refusal. It is left to the long way, which starts from the beginning and has
the last word. So the short way can only be quicker, never different.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.core.patterns import start_budget
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.jsonrpc import Usual
from workflowlookup.protocol.replies import tool_result
from workflowlookup.protocol.versions import META_TIMEOUT, META_VERSION

if TYPE_CHECKING:
    from workflowlookup.tools.registry import Registry

LONGEST: Final = 2048
"""Longer messages have lists and contexts that are worth a closer look."""


class _Meta(msgspec.Struct, rename={"token": "progressToken", "version": META_VERSION, "timeout": META_TIMEOUT}.get):
    """What a client says about a call beside its arguments."""

    token: str | int | None = None
    version: msgspec.Raw = msgspec.Raw()
    timeout: msgspec.Raw = msgspec.Raw()


class _ToolCall(msgspec.Struct, forbid_unknown_fields=True, rename={"meta": "_meta"}.get):
    name: str
    arguments: msgspec.Raw
    meta: _Meta | None = None


_decode_call: Final = msgspec.json.Decoder(_ToolCall).decode


class Shortcut:
    """The short way to the tools that have one, for a client that shook hands."""

    def __init__(self, registry: "Registry") -> None:
        self._tools = registry.short
        self._services = registry.services

    def answer(self, request: Usual, size: int) -> bytes | None:
        """The reply to a message of so many bytes; None when the long way must be taken."""
        if size > LONGEST:
            return None
        name, arguments = request.method, request.params
        is_through = name == "tools/call"
        try:
            if is_through:
                call = _decode_call(arguments)
                if call.meta is not None and (call.meta.version or call.meta.timeout):
                    return None
                name, arguments = call.name, call.arguments
            tool = self._tools.get(name)
            if tool is None:
                return None
            start_budget()
            result = tool.answer(self._services, tool.decode(arguments))
            if result is None:
                return None
            return jsonrpc.success(b"%d" % request.id, tool_result(result) if is_through else result)
        except Exception:  # noqa: BLE001 - broad on purpose: the long way says what is wrong
            return None
