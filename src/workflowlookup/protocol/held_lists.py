"""Which lists the client holds, so that it can be told when one of them is old: once for each change, never otherwise.

Nobody is told before having listed: the first list has everything in it.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.protocol.surface import Surface

if TYPE_CHECKING:
    from workflowlookup.library.catalog import Snapshot

log = logging.getLogger(__name__)

LISTS: Final = {"toolsListChanged": "tools", "resourcesListChanged": "resources"}
"""By what `subscriptions/listen` calls it: the list whose changes can be told."""


class Lists:
    """The lists of one client."""

    def __init__(self, surface: Surface, announce: Callable[[str], None]) -> None:
        self._surface = surface
        self._announce = announce
        self._holds_tools = False
        self._is_listening = False
        self._library: Snapshot | None = None
        self._is_blind = False
        self.is_watching = False
        """Whether the client holds a list that may change."""

    def tools(self) -> msgspec.Raw:
        """All tools, as of now."""
        registry = self._surface.registry
        self._holds_tools = False  # what changes while it is looked at is in the list
        registry.refresh()
        self._holds_tools = True
        if not self._is_listening and self._surface.services.workflows is not None:
            self._is_listening = self.is_watching = True
            registry.listeners.append(self._tools_changed)
        return registry.tools_json()

    def lists_resources(self) -> None:
        """The client gets the list of resources now."""
        self._library = self._surface.services.catalog.snapshot()
        self.is_watching = True

    def may_be_held(self) -> None:
        """The client may have lists that another connection gave it."""
        self.tools()
        self.lists_resources()

    def close(self) -> None:
        """Nobody holds anything any more."""
        if self._is_listening:
            self._surface.registry.listeners.remove(self._tools_changed)
            self._is_listening = self._holds_tools = self.is_watching = False
        self._library = None

    def look(self) -> None:
        """Announce what changed. What cannot be looked at now is looked at again the next time."""
        try:
            if self._holds_tools:
                self._surface.registry.refresh()
            if self._library is not None:
                before, self._library = self._library, self._surface.services.catalog.snapshot()
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
