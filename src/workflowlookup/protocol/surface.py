"""What a connection calls: the tools and what is behind them, imported when first asked for."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workflowlookup.protocol.subscriptions import Listener
    from workflowlookup.runs.view import Watch
    from workflowlookup.tools.contract import Services
    from workflowlookup.tools.registry import Registry


class Surface:
    """The tools and the library behind them."""

    def __init__(
        self, make_services: "Callable[[], Services]", *, tells_changes: Callable[[], bool] = lambda: False
    ) -> None:
        """`tells_changes`: whether clients are promised now to hear of changes of the tools."""
        self._make_services = make_services
        self.tells_changes = tells_changes
        self._is_closed = False

    @functools.cached_property
    def services(self) -> "Services":
        return self._make_services()

    @functools.cached_property
    def registry(self) -> "Registry":
        from workflowlookup.tools import BUILTIN_TOOLS  # noqa: PLC0415 - `initialize` must not wait for the core
        from workflowlookup.tools.registry import Registry  # noqa: PLC0415

        return Registry(BUILTIN_TOOLS, self.services)

    def watch(self, listener: "Listener") -> "Watch":
        """Follow the runs, until closed."""
        return self.services.runs.watch(listener)

    def settle(self) -> None:
        """Start what goes on behind the replies: the first one has been sent."""
        self.services.settle()

    def close(self) -> None:
        """End what goes on behind, if anything was ever asked for. Safe to repeat."""
        if "services" in self.__dict__ and not self._is_closed:
            self._is_closed = True
            self.services.close()
