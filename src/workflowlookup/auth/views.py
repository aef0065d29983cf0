"""What each caller of one server sees of it: a surface for each of them, on the same ground."""

import functools
from typing import TYPE_CHECKING, Final

from workflowlookup.access import Access
from workflowlookup.auth.shared_surface import SharedSurface
from workflowlookup.cache import BoundedCache
from workflowlookup.protocol.surface import Surface

if TYPE_CHECKING:
    from workflowlookup.tools.contract import Services

MAX_SURFACES: Final = 256
"""How many callers' surfaces are kept ready."""

ACCESS: Final = "access"
"""Where in the scope of an HTTP request it says who sent it."""


class Views:
    """The surfaces of callers, made when they first come."""

    def __init__(self, whole: SharedSurface) -> None:
        self._whole = whole
        self._surfaces: BoundedCache[Access, Surface] = BoundedCache(MAX_SURFACES)

    def of(self, access: object) -> Surface:
        """The surface of this caller. Raises `TypeError` for a request that was not authenticated."""
        if not isinstance(access, Access):
            raise TypeError("the request was not authenticated")
        surface = self._surfaces.get(access)
        if surface is None:
            see = functools.partial(self._see, access)
            own = None if access.is_unbound else Surface(see, tells_changes=self._whole.tells_changes)
            surface = self._surfaces[access] = own or self._whole
        return surface

    def _see(self, access: Access) -> "Services":
        from workflowlookup.auth.scoped import scoped  # noqa: PLC0415 - with the tools, when first asked for

        return scoped(self._whole.services, access, self._whole.registry.refresh, self._whole.watch)
