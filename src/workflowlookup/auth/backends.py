"""The tools and what is behind them, shared by all clients of one server."""

import functools
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from workflowlookup.access import Access
from workflowlookup.cache import BoundedCache
from workflowlookup.protocol.backend import Backend, ServerBackend

if TYPE_CHECKING:
    from workflowlookup.protocol.subscriptions import Listener
    from workflowlookup.store.runs_view import RunWatch
    from workflowlookup.tools.contract import ServerServices, Services

MAX_BACKENDS: Final = 256
"""How many callers' surfaces are kept ready."""


class SharedBackend(ServerBackend):
    """One client's leaving is not the end of it, and the journal is looked at once for all who follow it."""

    def __init__(
        self,
        make_services: "Callable[[], ServerServices]",
        wake: Callable[[], None],
        *,
        announces_changes: Callable[[], bool] = lambda: False,
    ) -> None:
        """`wake` is called when a change here is news for other clients."""
        super().__init__(make_services, announces_changes=announces_changes)
        self.wake = wake
        self._following = _Following(self)

    def close(self) -> None:
        """A client has left: nothing to do."""

    def end(self) -> None:
        """The server stops."""
        super().close()

    def watch(self, listener: "Listener") -> "RunWatch":
        return self._following.add(listener)

    def begin_watch(self, listener: "Listener") -> "RunWatch":
        """Follow the runs themselves."""
        return super().watch(listener)


class _Following:
    """Those who follow the runs, and the one watch that they share."""

    def __init__(self, backend: SharedBackend) -> None:
        self._backend = backend
        self._watch: RunWatch | None = None
        self._shares: list[_Share] = []

    def add(self, listener: "Listener") -> "_Share":
        if self._watch is None:
            watch = self._backend.begin_watch(self._tell)
            if self._watch is None:
                self._watch = watch
            else:  # another client was faster while the journal was read
                watch.close()
        share = _Share(self, listener)
        self._shares.append(share)
        return share

    def remove(self, share: "_Share") -> None:
        if share in self._shares:
            self._shares.remove(share)
        if not self._shares and self._watch is not None:
            self._watch.close()
            self._watch = None

    def look(self) -> None:
        """Give everybody what others changed since the last time."""
        changed = self._watch.changed() if self._watch is not None else ()
        for share in self._shares:
            share.news.update(changed)
            share.is_given = True

    def _tell(self, run_id: str) -> None:
        for share in list(self._shares):
            share.listener(run_id)
        self._backend.wake()


class _Share:
    """One of those who follow."""

    def __init__(self, following: _Following, listener: "Listener") -> None:
        self._following = following
        self.listener = listener
        self.news: set[str] = set()
        self.is_given = False
        """Whether another one looked for all since this one did."""

    def changed(self) -> Collection[str]:
        if not self.is_given:
            self._following.look()
        self.is_given = False
        news, self.news = self.news, set()
        return news

    def close(self) -> None:
        self._following.remove(self)


class CallerBackends:
    """The surfaces of callers, made when they first come."""

    def __init__(self, whole: SharedBackend) -> None:
        self._whole = whole
        self._by_access: BoundedCache[Access, Backend] = BoundedCache(MAX_BACKENDS)

    def of(self, access: object) -> Backend:
        """The surface of this caller. Raises `TypeError` for a request that was not authenticated."""
        if not isinstance(access, Access):
            raise TypeError("the request was not authenticated")
        backend = self._by_access.get(access)
        if backend is None:
            see = functools.partial(self._see, access)
            own = None if access.is_unrestricted else Backend(see, announces_changes=self._whole.announces_changes)
            backend = self._by_access[access] = own or self._whole
        return backend

    def _see(self, access: Access) -> "Services":
        from workflowlookup.auth.scoped import scoped  # noqa: PLC0415 - with the tools, when first asked for

        return scoped(self._whole.services, access, self._whole.registry.refresh, self._whole.watch)
