"""What a client is told without having asked just now: changes of runs that it follows, and of lists that it holds.

Both come in the way of each era: as plain notifications up to 2025-11-25, as parts of an open request since 2026-07-28.
Nothing of it is loaded before a client wants it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.language.values import Json
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.backend import Backend

if TYPE_CHECKING:
    from workflowlookup.library.catalog import Snapshot
    from workflowlookup.protocol.subscriptions import Subscriptions

log = logging.getLogger(__name__)

LISTS: Final = {"toolsListChanged": "tools", "resourcesListChanged": "resources"}
"""By what `subscriptions/listen` calls it: the list whose changes can be told."""


class News:
    """What one client wants to hear of."""

    def __init__(self, backend: Backend, outbox: list[bytes]) -> None:
        self._backend = backend
        self._outbox = outbox
        self._subscriptions: Subscriptions | None = None
        self._lists: Lists | None = None
        self.is_wanted = False
        """Whether any of the two is there: asked between any two messages."""
        self.is_initialized = False
        """Whether the handshake is complete: before that, a client is told nothing that it did not ask for."""

    @property
    def is_followed(self) -> bool:
        """Whether the client follows runs, which others may change."""
        return self._subscriptions is not None and self._subscriptions.is_watching

    @property
    def is_holding(self) -> bool:
        """Whether the client holds a list that may change."""
        return self._lists is not None and self._lists.is_watching

    def look(self) -> None:
        """Put what changed into the outbox."""
        if self._subscriptions is not None:
            self._subscriptions.look()
        if self._lists is not None:
            self._lists.look()

    # ── lists ───────────────────────────────────────────────────────────────────────────────────────────────────

    def tools(self) -> msgspec.Raw:
        """All tools, as of now; the client holds this list from here on."""
        return self._opened_lists().tools()

    def lists_resources(self) -> None:
        """The client gets the list of resources now."""
        if self._backend.tells_changes():
            self._opened_lists().lists_resources()

    def continues(self) -> None:
        """Another connection of the same client came before this one, and may have given it lists."""
        if self._backend.tells_changes():
            self._opened_lists().may_be_held()

    def _opened_lists(self) -> "Lists":
        if self._lists is None:
            self._lists = Lists(self._backend, self._announce_list)
            self.is_wanted = True
        return self._lists

    def _announce_list(self, kind: str) -> None:
        """A list that the client holds is another now: tell it, in the way of each era that it speaks."""
        if self.is_initialized:
            message = jsonrpc.notification(f"notifications/{kind}/list_changed", {})
            if message not in self._outbox:
                self._outbox.append(message)
        if self._subscriptions is not None:
            self._subscriptions.list_changed(kind)

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────

    def listen(self, request_id: bytes, wanted: Mapping[str, Json]) -> None:
        """Hold a request open; the acknowledgement is the first frame of its stream."""
        self._opened_subscriptions().listen(request_id, wanted, LISTS if self._backend.tells_changes() else {})

    def subscribe(self, address: str) -> None:
        """Tell the client of changes of what is at this address. Raises `InvalidParams` when there are none to tell."""
        self._opened_subscriptions().subscribe(address)

    def unsubscribe(self, address: str) -> None:
        """Tell it no more."""
        self._opened_subscriptions().unsubscribe(address)

    @property
    def addresses(self) -> frozenset[str]:
        """Those that were subscribed to, one by one."""
        return self._subscriptions.addresses if self._subscriptions is not None else frozenset()

    def follow(self, addresses: frozenset[str]) -> None:
        """Follow these and no others."""
        if addresses or self._subscriptions is not None:
            self._opened_subscriptions().follow(addresses)

    def cancel(self, request_id: Json) -> None:
        """The client wants to hear no more by the open request of this id, if there is one."""
        if self._subscriptions is not None:
            self._subscriptions.cancel(request_id)

    def end(self) -> Iterator[tuple[bytes, Json]]:
        """Follow nothing more: the id of each request that is still open, as it was sent and as a value."""
        if self._subscriptions is not None:
            yield from self._subscriptions.end()
        if self._lists is not None:
            self._lists.close()

    def _opened_subscriptions(self) -> "Subscriptions":
        if self._subscriptions is None:
            from workflowlookup.protocol.subscriptions import Subscriptions  # noqa: PLC0415 - seldom needed

            self._subscriptions = Subscriptions(self._outbox, self._backend.watch)
            self.is_wanted = True
        return self._subscriptions


class Lists:
    """The lists of one client."""

    def __init__(self, backend: Backend, announce: Callable[[str], None]) -> None:
        self._backend = backend
        self._announce = announce
        self._holds_tools = False
        self._is_listening = False
        self._library: Snapshot | None = None
        self._is_blind = False
        self.is_watching = False
        """Whether the client holds a list that may change."""

    def tools(self) -> msgspec.Raw:
        """All tools, as of now."""
        registry = self._backend.registry
        self._holds_tools = False  # what changes while it is looked at is in the list
        registry.refresh()
        self._holds_tools = True
        if not self._is_listening and self._backend.services.workflows is not None:
            self._is_listening = self.is_watching = True
            registry.listeners.append(self._tools_changed)
        return registry.tools_json()

    def lists_resources(self) -> None:
        """The client gets the list of resources now."""
        self._library = self._backend.services.catalog.snapshot()
        self.is_watching = True

    def may_be_held(self) -> None:
        """The client may have lists that another connection gave it."""
        self.tools()
        self.lists_resources()

    def close(self) -> None:
        """Nobody holds anything any more."""
        if self._is_listening:
            self._backend.registry.listeners.remove(self._tools_changed)
            self._is_listening = self._holds_tools = self.is_watching = False
        self._library = None

    def look(self) -> None:
        """Announce what changed. What cannot be looked at now is looked at again the next time."""
        try:
            if self._holds_tools:
                self._backend.registry.refresh()
            if self._library is not None:
                before, self._library = self._library, self._backend.services.catalog.snapshot()
                if before is not self._library and before.encoded != self._library.encoded:
                    self._announce("resources")
        except Exception:  # broad on purpose: no news must not be the end of the server
            if not self._is_blind:
                log.warning("changes of workflows cannot be seen", exc_info=True)
            self._is_blind = True
            return
        self._is_blind = False

    def _tools_changed(self) -> None:
        if self._holds_tools:
            self._announce("tools")
