"""The backends of the callers of one server: all share its services, and each sees only what its caller may see."""

import functools
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from workflowlookup.access import Access
from workflowlookup.cache import BoundedCache
from workflowlookup.protocol.backend import Backend, ServerBackend

if TYPE_CHECKING:
    from workflowlookup.protocol.notifications import Listener
    from workflowlookup.store.runs_view import RunWatch
    from workflowlookup.tools.contract import ServerServices, Services

MAX_BACKENDS: Final = 256
"""How many callers' backends are cached."""


class SharedBackend(ServerBackend):
    """The backend of a server with many clients: it outlives each of them, and polls the journal once for all."""

    def __init__(
        self,
        make_services: "Callable[[], ServerServices]",
        wake: Callable[[], None],
        *,
        announces_changes: Callable[[], bool] = lambda: False,
    ) -> None:
        """`wake` is called when this process has changed a run, so that other clients are notified."""
        super().__init__(make_services, announces_changes=announces_changes)
        self.wake = wake
        self._shared_watch = _SharedWatch(self)

    def close(self) -> None:
        """Called when a client has disconnected: nothing to do."""

    def end(self) -> None:
        """Called when the server stops."""
        super().close()

    def watch(self, listener: "Listener") -> "RunWatch":
        return self._shared_watch.add(listener)

    def begin_watch(self, listener: "Listener") -> "RunWatch":
        """Watch the journal itself."""
        return super().watch(listener)


class _SharedWatch:
    """One watch of the journal, shared by all clients that follow runs."""

    def __init__(self, backend: SharedBackend) -> None:
        self._backend = backend
        self._watch: RunWatch | None = None
        self._subscribers: list[_Subscriber] = []

    def add(self, listener: "Listener") -> "_Subscriber":
        if self._watch is None:
            watch = self._backend.begin_watch(self._on_change)
            if self._watch is None:
                self._watch = watch
            else:  # another client was faster while the journal was read
                watch.close()
        subscriber = _Subscriber(self, listener)
        self._subscribers.append(subscriber)
        return subscriber

    def remove(self, subscriber: "_Subscriber") -> None:
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
        if not self._subscribers and self._watch is not None:
            self._watch.close()
            self._watch = None

    def poll(self) -> None:
        """Give every subscriber the ids of runs that other processes changed since the last poll."""
        changed_ids = self._watch.changed() if self._watch is not None else ()
        for subscriber in self._subscribers:
            subscriber.changed_ids.update(changed_ids)
            subscriber.is_fresh = True

    def _on_change(self, run_id: str) -> None:
        for subscriber in list(self._subscribers):
            subscriber.listener(run_id)
        self._backend.wake()


class _Subscriber:
    """The `RunWatch` of one client."""

    def __init__(self, shared_watch: _SharedWatch, listener: "Listener") -> None:
        self._shared_watch = shared_watch
        self.listener = listener
        self.changed_ids: set[str] = set()
        self.is_fresh = False
        """Whether another subscriber has polled since this one last did."""

    def changed(self) -> Collection[str]:
        if not self.is_fresh:
            self._shared_watch.poll()
        self.is_fresh = False
        changed_ids, self.changed_ids = self.changed_ids, set()
        return changed_ids

    def close(self) -> None:
        self._shared_watch.remove(self)


class CallerBackends:
    """The backend of each caller, made with its first request."""

    def __init__(self, shared: SharedBackend) -> None:
        self._shared = shared
        self._by_access: BoundedCache[Access, Backend] = BoundedCache(MAX_BACKENDS)

    def of(self, access: object) -> Backend:
        """The backend of this caller. Raises `TypeError` for a request that was not authenticated."""
        if not isinstance(access, Access):
            raise TypeError("the request was not authenticated")
        backend = self._by_access.get(access)
        if backend is None:
            make_services = functools.partial(self._make_services, access)
            own = (
                None
                if access.is_unrestricted
                else Backend(make_services, announces_changes=self._shared.announces_changes)
            )
            backend = self._by_access[access] = own or self._shared
        return backend

    def _make_services(self, access: Access) -> "Services":
        from workflowlookup.auth.scoped import scoped  # noqa: PLC0415 - with the tools, when first asked for

        return scoped(self._shared.services, access, self._shared.registry.refresh, self._shared.watch)
