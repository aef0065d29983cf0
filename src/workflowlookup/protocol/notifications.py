"""Notifications that the server starts: changes of runs that a client subscribed to, and of lists that it has fetched.

Both have the form of each era: plain notifications up to 2025-11-25, parts of an open request since 2026-07-28. Nothing
is watched before a client wants it.
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
"""The lists whose changes are announced, by their key in `subscriptions/listen`."""


class Notifications:
    """What one client is notified of."""

    def __init__(self, backend: Backend, outbox: list[bytes]) -> None:
        self._backend = backend
        self._outbox = outbox
        self._subscriptions: Subscriptions | None = None
        self._lists: ListWatcher | None = None
        self.is_used = False
        """Whether there are subscriptions or watched lists. An attribute, because it is read after every message."""
        self.is_initialized = False
        """Whether the handshake is complete. Before that, no notification may be sent."""

    @property
    def has_subscriptions(self) -> bool:
        """Whether the client subscribed to runs, which other processes may change."""
        return self._subscriptions is not None and self._subscriptions.is_watching

    @property
    def has_lists(self) -> bool:
        """Whether the client has a list that may change."""
        return self._lists is not None and self._lists.is_watching

    def poll(self) -> None:
        """Put notifications of what changed into the outbox."""
        if self._subscriptions is not None:
            self._subscriptions.poll()
        if self._lists is not None:
            self._lists.poll()

    # ── lists ───────────────────────────────────────────────────────────────────────────────────────────────────

    def list_tools(self) -> msgspec.Raw:
        """All tools; the client is notified of changes from now on."""
        return self._opened_lists().list_tools()

    def watch_resources(self) -> None:
        """The client gets the list of resources now: notify it of changes."""
        if self._backend.announces_changes():
            self._opened_lists().watch_resources()

    def watch_lists(self) -> None:
        """Watch all lists: an earlier connection of the same client may have sent them."""
        if self._backend.announces_changes():
            lists = self._opened_lists()
            lists.list_tools()
            lists.watch_resources()

    def _opened_lists(self) -> "ListWatcher":
        if self._lists is None:
            self._lists = ListWatcher(self._backend, self._announce_list)
            self.is_used = True
        return self._lists

    def _announce_list(self, kind: str) -> None:
        """Notify the client that a list has changed, in the form of each era that it uses."""
        if self.is_initialized:
            message = jsonrpc.notification(f"notifications/{kind}/list_changed", {})
            if message not in self._outbox:
                self._outbox.append(message)
        if self._subscriptions is not None:
            self._subscriptions.list_changed(kind)

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────

    def listen(self, request_id: bytes, requested: Mapping[str, Json]) -> None:
        """Hold a `subscriptions/listen` request open; the acknowledgement is the first message of its stream."""
        self._opened_subscriptions().listen(request_id, requested, LISTS if self._backend.announces_changes() else {})

    def subscribe(self, uri: str) -> None:
        """Notify the client of changes of this resource. Raises `InvalidParams` for one that is never announced."""
        self._opened_subscriptions().subscribe(uri)

    def unsubscribe(self, uri: str) -> None:
        self._opened_subscriptions().unsubscribe(uri)

    @property
    def subscribed_uris(self) -> frozenset[str]:
        """The URIs of `resources/subscribe`."""
        return self._subscriptions.subscribed_uris if self._subscriptions is not None else frozenset()

    def replace_subscriptions(self, uris: frozenset[str]) -> None:
        """Be subscribed to these URIs and no others."""
        if uris or self._subscriptions is not None:
            self._opened_subscriptions().replace(uris)

    def cancel(self, request_id: Json) -> None:
        """End the `subscriptions/listen` request with this id, if there is one."""
        if self._subscriptions is not None:
            self._subscriptions.cancel(request_id)

    def close(self) -> Iterator[tuple[bytes, Json]]:
        """End everything. Yields the id of each request that is still open, as it was sent and as a value."""
        if self._subscriptions is not None:
            yield from self._subscriptions.close()
        if self._lists is not None:
            self._lists.close()

    def _opened_subscriptions(self) -> "Subscriptions":
        if self._subscriptions is None:
            from workflowlookup.protocol.subscriptions import Subscriptions  # noqa: PLC0415 - seldom needed

            self._subscriptions = Subscriptions(self._outbox, self._backend.watch)
            self.is_used = True
        return self._subscriptions


class ListWatcher:
    """Watches the lists that one client has fetched, and announces each change once.

    A list that the client has not fetched is not announced: its first fetch will have everything.
    """

    def __init__(self, backend: Backend, announce: Callable[[str], None]) -> None:
        """`announce` is called with the kind of a list that changed: one of `LISTS`."""
        self._backend = backend
        self._announce = announce
        self._watches_tools = False
        self._is_listening = False
        self._library: Snapshot | None = None
        """The library when resources were last listed; None before that."""
        self._is_failing = False
        self.is_watching = False
        """Whether the client has a list that may change."""

    def list_tools(self) -> msgspec.Raw:
        """All tools, as JSON."""
        registry = self._backend.registry
        self._watches_tools = False  # a change found by this refresh is in the list, so it is not announced
        registry.refresh()
        self._watches_tools = True
        if not self._is_listening and self._backend.services.workflows is not None:
            self._is_listening = self.is_watching = True
            registry.listeners.append(self._on_tools_changed)
        return registry.tools_json()

    def watch_resources(self) -> None:
        """The client gets the list of resources now."""
        self._library = self._backend.services.catalog.snapshot()
        self.is_watching = True

    def close(self) -> None:
        """Stop watching."""
        if self._is_listening:
            self._backend.registry.listeners.remove(self._on_tools_changed)
            self._is_listening = self._watches_tools = self.is_watching = False
        self._library = None

    def poll(self) -> None:
        """Announce what changed. A failure is logged once, and the next poll tries again."""
        try:
            if self._watches_tools:
                self._backend.registry.refresh()
            if self._library is not None:
                before, self._library = self._library, self._backend.services.catalog.snapshot()
                if before is not self._library and before.encoded != self._library.encoded:
                    self._announce("resources")
        except Exception:  # broad on purpose: a failed poll must not end the server
            if not self._is_failing:
                log.warning("changes of workflows cannot be noticed now; the next poll tries again", exc_info=True)
            self._is_failing = True
            return
        self._is_failing = False

    def _on_tools_changed(self) -> None:
        if self._watches_tools:
            self._announce("tools")
