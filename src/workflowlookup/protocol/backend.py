"""What a connection calls: the tools and their services, imported when they are first needed."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workflowlookup.protocol.notifications import Listener
    from workflowlookup.store.runs_view import RunWatch
    from workflowlookup.tools.contract import ServerServices, Services
    from workflowlookup.tools.registry import Registry


class Backend:
    """The tools and the services behind them, as one caller sees them."""

    def __init__(
        self, make_services: "Callable[[], Services]", *, announces_changes: Callable[[], bool] = lambda: False
    ) -> None:
        """`announces_changes`: whether clients are promised notifications when the list of tools changes."""
        self._make_services = make_services
        self.announces_changes = announces_changes

    @functools.cached_property
    def services(self) -> "Services":
        return self._make_services()

    @functools.cached_property
    def registry(self) -> "Registry":
        from workflowlookup.tools.builtin import BUILTIN_TOOLS  # noqa: PLC0415 - `initialize` must not wait for the core
        from workflowlookup.tools.registry import Registry  # noqa: PLC0415

        return Registry(BUILTIN_TOOLS, self.services)

    def sign(self, client: str) -> str:
        """The name of a client as handlers get it. Scoped services add the name of their caller themselves."""
        access = self.services.access
        return access.sign(client) if access.is_unrestricted else client

    def watch(self, listener: "Listener") -> "RunWatch":
        """Call `listener` when a run changes, until the watch is closed."""
        return self.services.runs.watch(listener)

    def start_background(self) -> None:
        """Called after the first reply. Only `ServerBackend` has background work to start."""

    def refresh(self) -> None:
        """Called on SIGHUP."""

    def close(self) -> None:
        """Called when the client has disconnected. May be called more than once."""


class ServerBackend(Backend):
    """The backend of a server with one client: background work begins and ends with that client."""

    _make_services: "Callable[[], ServerServices]"
    _is_closed = False

    @functools.cached_property
    def services(self) -> "ServerServices":
        return self._make_services()

    def start_background(self) -> None:
        self.services.start_background()

    def refresh(self) -> None:
        self.services.refresh()

    def close(self) -> None:
        if "services" in self.__dict__ and not self._is_closed:
            self._is_closed = True
            self.services.close()
