"""The short way: a call in its usual form, of a tool that has one, is decoded, checked and answered in one go.

A tool says what its usual arguments are, and answers them when nothing about them is in doubt. Everything else is left
to the long way, which starts from the beginning and alone refuses: an id that nobody asked for yet, a field too many.
So the short way can only be quicker, never different.
"""

from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.core.patterns import start_budget
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.jsonrpc import Usual
from workflowlookup.protocol.replies import tool_result
from workflowlookup.protocol.versions import META_TIMEOUT, META_VERSION

if TYPE_CHECKING:
    from workflowlookup.tools.registry import Registry

LONGEST: Final = 1 << 15
"""No context in a message like this can be too large, however its numbers are written."""


class _ToolCall(msgspec.Struct, forbid_unknown_fields=True, rename={"meta": "_meta"}.get):
    name: str
    arguments: msgspec.Raw
    meta: dict[str, Any] | None = None


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
                if call.meta and not _says_nothing(call.meta):
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


def _says_nothing(meta: dict[str, Any]) -> bool:
    """Whether what a client says beside the arguments makes no difference here."""
    is_known = META_VERSION in meta or META_TIMEOUT in meta
    return not is_known and type(meta.get("progressToken")) in (str, int, NoneType)
