"""What each caller of one server sees of it: a surface for each of them, on the same ground."""

import contextvars
from typing import TYPE_CHECKING, Final

from workflowlookup.access import Access
from workflowlookup.core.cache import BoundedCache
from workflowlookup.protocol.surface import Surface
from workflowlookup.transport.shared import SharedSurface

if TYPE_CHECKING:
    from workflowlookup.tools.contract import Services

MAX_SURFACES: Final = 256
"""How many callers' surfaces are kept ready."""

ACCESS: Final = "access"
"""Where in the scope of an HTTP request it says who sent it."""
CURRENT: Final[contextvars.ContextVar[Access]] = contextvars.ContextVar("access")
"""The same for those who are not given the scope."""


class Views:
    """The surfaces of callers, made when they first come."""

    def __init__(self, whole: SharedSurface) -> None:
        self._whole = whole
        self._surfaces: BoundedCache[Access, Surface] = BoundedCache(MAX_SURFACES)

    def of(self, access: object) -> Surface:
        """What this caller sees. Nobody is taken for the local person because they were not asked."""
        if not isinstance(access, Access):
            raise TypeError("nobody asked who sent this request")
        if access.is_unbound:
            return self._whole
        surface = self._surfaces.get(access)
        if surface is None:
            surface = self._surfaces[access] = View(self._whole, access)
        return surface

    @property
    def current(self) -> Surface:
        """That of whoever sent the request that is being served."""
        return self.of(CURRENT.get())


class View(Surface):
    """What one caller sees. Their leaving ends nothing, and the journal is looked at once for all."""

    def __init__(self, whole: SharedSurface, access: Access) -> None:
        def see() -> "Services":
            from workflowlookup.tools.scoped import scoped  # noqa: PLC0415 - with the tools, when first asked for

            return scoped(whole.services, access, whole.registry.refresh, whole.watch)

        super().__init__(see, tells_changes=whole.tells_changes)

    def settle(self) -> None:
        """Nothing: the server sees to it."""

    def close(self) -> None:
        """Nothing: the others go on."""
