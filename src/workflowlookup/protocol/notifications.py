"""Notifications that the server starts: changes of runs that a client subscribed to, and of lists that it has fetched.

Up to 2025-11-25 `resources/subscribe` names one URI at a time, and notifications are plain; since 2026-07-28
`subscriptions/listen` is a request that stays open, names all of its URIs and lists, and has the notifications as its
parts. Nothing is watched before a client wants it. Changes by this process are announced at once. Changes by other
processes are announced by `poll`, which the transport calls from time to time while something is watched.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.errors import InvalidParams
from workflowlookup.language.values import Json
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.versions import META_SUBSCRIPTION

if TYPE_CHECKING:
    from workflowlookup.library.catalog import Snapshot
    from workflowlookup.store.runs_view import RunWatch

log = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS: Final = 64
MAX_URIS: Final = 100
"""Of a session, or of one `subscriptions/listen`. Each has up to 300 characters and stays in memory."""
MAX_ECHOED: Final = 100
"""How many characters of a URI an error repeats."""

Listener = Callable[[str], None]
"""Called with the id of a run that changed."""


class _ListenRequest(msgspec.Struct, frozen=True):
    """An open `subscriptions/listen`: its id, and the URIs and lists that it is notified of."""

    key: Json
    uris: frozenset[str]
    lists: frozenset[str] = frozenset()
    """Some of the values of `notifications.LISTS`."""


class Subscriptions:
    """The subscriptions of one connection."""

    def __init__(self, outbox: list[bytes], begin_watch: "Callable[[Listener], RunWatch]") -> None:
        self._outbox = outbox
        self._begin_watch = begin_watch
        self._watch: RunWatch | None = None
        self._uris: set[str] = set()
        self._listen_requests: dict[bytes, _ListenRequest] = {}
        self._is_failing = False

    @property
    def is_watching(self) -> bool:
        """Whether the client is subscribed to any run, so that `poll` should be called."""
        return self._watch is not None

    # ── up to 2025-11-25 ────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, uri: str) -> None:
        if not _is_announced(uri):
            raise InvalidParams(
                f"changes of '{uri[:MAX_ECHOED]}' are not announced; subscribe to run://ID or runs://recent"
            )
        if len(self._uris) >= MAX_URIS and uri not in self._uris:
            raise InvalidParams(f"at most {MAX_URIS:,} URIs can be subscribed to at once; unsubscribe from one first")
        self._start_watch()
        self._uris.add(uri)

    def unsubscribe(self, uri: str) -> None:
        self._uris.discard(uri)
        self._stop_watch_if_unused()

    @property
    def subscribed_uris(self) -> frozenset[str]:
        """The URIs of `resources/subscribe`."""
        return frozenset(self._uris)

    def replace(self, uris: frozenset[str]) -> None:
        """Be subscribed to these URIs and no others."""
        self._uris = set(uris)
        if uris:
            self._start_watch()
        self._stop_watch_if_unused()

    # ── since 2026-07-28 ────────────────────────────────────────────────────────────────────────────────────────

    def listen(self, request_id: bytes, requested: Mapping[str, Json], offered: Mapping[str, str]) -> None:
        """Hold a request open. Its first message is the acknowledgement, which says what of `requested` is announced.

        `offered`: the lists whose changes are announced, by their key in the request.
        """
        if request_id in self._listen_requests:
            raise InvalidParams("a subscription with this id is open")
        if len(self._listen_requests) >= MAX_SUBSCRIPTIONS:
            raise InvalidParams(f"at most {MAX_SUBSCRIPTIONS} subscriptions are open at once; cancel one first")
        uris = [uri for uri in _requested_uris(requested) if _is_announced(uri)]
        if uris:
            self._start_watch()
        key = msgspec.json.decode(request_id)
        lists = [name for name in offered if requested.get(name) is True]
        self._listen_requests[request_id] = _ListenRequest(
            key, frozenset(uris), frozenset(offered[name] for name in lists)
        )
        honoured: dict[str, Json] = dict.fromkeys(lists, True)
        if uris:
            honoured["resourceSubscriptions"] = uris
        acknowledged = {"notifications": honoured, "_meta": {META_SUBSCRIPTION: key}}
        self._outbox.append(jsonrpc.notification("notifications/subscriptions/acknowledged", acknowledged))

    def cancel(self, cancelled_id: Json) -> None:
        """End the `subscriptions/listen` with this id, if there is one. It gets no reply."""
        for request_id, listen_request in self._listen_requests.items():
            if jsonrpc.same_id(listen_request.key, cancelled_id):
                del self._listen_requests[request_id]
                self._stop_watch_if_unused()
                return

    def close(self) -> Iterator[tuple[bytes, Json]]:
        """End all subscriptions. Yields the id of each request that is still open, as it was sent and as a value."""
        yield from [(request_id, listen_request.key) for request_id, listen_request in self._listen_requests.items()]
        self._listen_requests.clear()
        self._uris.clear()
        self._stop_watch_if_unused()

    # ── notifications ───────────────────────────────────────────────────────────────────────────────────────────

    def poll(self) -> None:
        """Announce what other processes changed. A failure is logged once, and the next poll tries again."""
        if self._watch is None:
            return
        try:
            changed_ids = self._watch.changed()
        except Exception:  # broad on purpose: a failed poll must not end the server
            if not self._is_failing:
                log.warning("changes of runs by other processes cannot be noticed now", exc_info=True)
            self._is_failing = True
            return
        self._is_failing = False
        if changed_ids:
            self._announce(changed_ids)

    def list_changed(self, kind: str) -> None:
        """Notify the `subscriptions/listen` requests that want it that a list has changed."""
        for listen_request in self._listen_requests.values():
            if kind in listen_request.lists:
                params = {"_meta": {META_SUBSCRIPTION: listen_request.key}}
                self._outbox.append(jsonrpc.notification(f"notifications/{kind}/list_changed", params))

    def _announce(self, run_ids: Collection[str]) -> None:
        from workflowlookup.tools.resources import addresses_of_run  # noqa: PLC0415 - with the tools, when first needed

        changed = {uri for run_id in run_ids for uri in addresses_of_run(run_id)}
        for uri in sorted(changed & self._uris):
            self._notify({"uri": uri})
        for listen_request in self._listen_requests.values():
            for uri in sorted(changed & listen_request.uris):
                self._notify({"uri": uri, "_meta": {META_SUBSCRIPTION: listen_request.key}})

    def _notify(self, params: Mapping[str, Json]) -> None:
        message = jsonrpc.notification("notifications/resources/updated", params)
        if message not in self._outbox:  # a call that changes a run twice is announced once
            self._outbox.append(message)

    def _start_watch(self) -> None:
        if self._watch is None:
            self._watch = self._begin_watch(lambda run_id: self._announce([run_id]))

    def _stop_watch_if_unused(self) -> None:
        is_used = self._uris or any(listen_request.uris for listen_request in self._listen_requests.values())
        if self._watch is not None and not is_used:
            self._watch.close()
            self._watch = None


def _is_announced(uri: str) -> bool:
    """Whether changes of this resource are announced."""
    from workflowlookup.tools.resources import changes  # noqa: PLC0415 - as above

    return changes(uri)


def _requested_uris(requested: Mapping[str, Json]) -> list[str]:
    """The URIs in the parameters of a `subscriptions/listen`, each once."""
    uris = requested.get("resourceSubscriptions")
    if uris is None:
        return []
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise InvalidParams("notifications.resourceSubscriptions must be a list of URIs ('string')")
    if len(uris) > MAX_URIS:
        raise InvalidParams(f"notifications.resourceSubscriptions must have at most {MAX_URIS:,} URIs")
    return list(dict.fromkeys(uris))


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
