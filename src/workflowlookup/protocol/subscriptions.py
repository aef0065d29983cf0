"""Who hears of changes of which runs, in both eras.

Up to 2025-11-25 `resources/subscribe` names one address after another; since 2026-07-28 `subscriptions/listen` is a
request that stays open and names all of its own. What this process changes is told at once. What others change is told
when `look` is called, which the transport does every now and then while `is_watching`, and never otherwise.
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
MAX_ADDRESSES: Final = 100
"""Of a session, or of one `subscriptions/listen`; each has up to 300 characters and is in memory while that lasts."""
MOST_ECHOED: Final = 100

Listener = Callable[[str], None]


class _Stream(msgspec.Struct, frozen=True):
    """An open `subscriptions/listen`: its id, and the addresses and lists that it follows."""

    key: Json
    addresses: frozenset[str]
    lists: frozenset[str] = frozenset()
    """Those of `lists.LISTS` whose changes it hears of."""


class Subscriptions:
    """The subscriptions of one connection."""

    def __init__(self, outbox: list[bytes], begin_watch: Callable[[Listener], RunWatch]) -> None:
        self._outbox = outbox
        self._begin_watch = begin_watch
        self._watch: RunWatch | None = None
        self._addresses: set[str] = set()
        self._streams: dict[bytes, _Stream] = {}
        self._is_blind = False

    @property
    def is_watching(self) -> bool:
        """Whether somebody follows a run, so that it is worth while to look."""
        return self._watch is not None

    # ── up to 2025-11-25 ────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, address: str) -> None:
        if not _can_be_followed(address):
            known = "subscribe to run://ID or runs://recent"
            raise InvalidParams(f"changes of '{address[:MOST_ECHOED]}' are not announced; {known}")
        if len(self._addresses) >= MAX_ADDRESSES and address not in self._addresses:
            raise InvalidParams(f"at most {MAX_ADDRESSES:,} addresses are followed at once; unsubscribe from one first")
        self._begin()
        self._addresses.add(address)

    def unsubscribe(self, address: str) -> None:
        self._addresses.discard(address)
        self._rest()

    @property
    def addresses(self) -> frozenset[str]:
        """Those that were subscribed to, one by one."""
        return frozenset(self._addresses)

    def follow(self, addresses: frozenset[str]) -> None:
        """Follow these and no others."""
        self._addresses = set(addresses)
        if addresses:
            self._begin()
        self._rest()

    # ── since 2026-07-28 ────────────────────────────────────────────────────────────────────────────────────────

    def listen(self, request_id: bytes, wanted: Mapping[str, Json], offered: Mapping[str, str]) -> None:
        """Hold a request open; the acknowledgement, with what of the wanted is announced, is its first message.

        `offered`: the lists whose changes are announced, by what they are called here.
        """
        if request_id in self._streams:
            raise InvalidParams("a subscription with this id is open")
        if len(self._streams) >= MAX_SUBSCRIPTIONS:
            raise InvalidParams(f"at most {MAX_SUBSCRIPTIONS} subscriptions are open at once; cancel one first")
        followed = [address for address in _wanted_addresses(wanted) if _can_be_followed(address)]
        if followed:
            self._begin()
        key = msgspec.json.decode(request_id)
        lists = [name for name in offered if wanted.get(name) is True]
        self._streams[request_id] = _Stream(key, frozenset(followed), frozenset(offered[name] for name in lists))
        honoured: dict[str, Json] = dict.fromkeys(lists, True)
        if followed:
            honoured["resourceSubscriptions"] = followed
        acknowledged = {"notifications": honoured, "_meta": {META_SUBSCRIPTION: key}}
        self._outbox.append(jsonrpc.notification("notifications/subscriptions/acknowledged", acknowledged))

    def cancel(self, cancelled: Json) -> None:
        """End the subscription of this id, if there is one; no answer follows."""
        for request_id, stream in self._streams.items():
            if jsonrpc.same_id(stream.key, cancelled):
                del self._streams[request_id]
                self._rest()
                return

    def end(self) -> Iterator[tuple[bytes, Json]]:
        """End every subscription: the id of each request that is still open, as it was sent and as a value."""
        yield from [(request_id, stream.key) for request_id, stream in self._streams.items()]
        self._streams.clear()
        self._addresses.clear()
        self._rest()

    # ── news ────────────────────────────────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        """Tell what other processes changed. A journal that cannot be read now is looked at again the next time."""
        if self._watch is None:
            return
        try:
            changed = self._watch.changed()
        except Exception:  # broad on purpose: no news must not be the end of the server
            if not self._is_blind:
                log.warning("changes that others make to runs cannot be seen", exc_info=True)
            self._is_blind = True
            return
        self._is_blind = False
        if changed:
            self._tell(changed)

    def list_changed(self, kind: str) -> None:
        """Tell those who listen for it that a list is another now."""
        for stream in self._streams.values():
            if kind in stream.lists:
                params = {"_meta": {META_SUBSCRIPTION: stream.key}}
                self._outbox.append(jsonrpc.notification(f"notifications/{kind}/list_changed", params))

    def _tell(self, run_ids: Collection[str]) -> None:
        from workflowlookup.tools.resources import addresses_of_run  # noqa: PLC0415 - with the tools, when first needed

        changed = {address for run_id in run_ids for address in addresses_of_run(run_id)}
        for address in sorted(changed & self._addresses):
            self._announce({"uri": address})
        for stream in self._streams.values():
            for address in sorted(changed & stream.addresses):
                self._announce({"uri": address, "_meta": {META_SUBSCRIPTION: stream.key}})

    def _announce(self, params: Mapping[str, Json]) -> None:
        message = jsonrpc.notification("notifications/resources/updated", params)
        if message not in self._outbox:  # a call that changes a run twice is told once
            self._outbox.append(message)

    def _begin(self) -> None:
        if self._watch is None:
            self._watch = self._begin_watch(lambda run_id: self._tell([run_id]))

    def _rest(self) -> None:
        """Stop watching when nobody follows anything any more."""
        if self._watch is not None and not self._addresses and not any(s.addresses for s in self._streams.values()):
            self._watch.close()
            self._watch = None


def _can_be_followed(address: str) -> bool:
    from workflowlookup.tools.resources import changes  # noqa: PLC0415 - as above

    return changes(address)


def _wanted_addresses(wanted: Mapping[str, Json]) -> list[str]:
    """The addresses in the filter of a `subscriptions/listen`, each once."""
    addresses = wanted.get("resourceSubscriptions")
    if addresses is None:
        return []
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        raise InvalidParams("notifications.resourceSubscriptions must be a list of addresses ('string')")
    if len(addresses) > MAX_ADDRESSES:
        raise InvalidParams(f"notifications.resourceSubscriptions must have at most {MAX_ADDRESSES:,} addresses")
    return list(dict.fromkeys(addresses))
