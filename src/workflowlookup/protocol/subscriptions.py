"""Subscriptions to changes of runs, in both eras.

Up to 2025-11-25 `resources/subscribe` names one URI at a time; since 2026-07-28 `subscriptions/listen` is a request
that stays open and names all of its URIs. Changes by this process are announced at once. Changes by other processes
are announced by `poll`, which the transport calls from time to time while `is_watching`.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import msgspec

from workflowlookup.errors import InvalidParams
from workflowlookup.language.values import Json
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.versions import META_SUBSCRIPTION
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

    def __init__(self, outbox: list[bytes], begin_watch: Callable[[Listener], RunWatch]) -> None:
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
