"""Where a request comes from, and the caller whose share of the server it uses."""

import ipaddress
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

ACCESS: Final = "access"
"""The key in the ASGI scope of an authenticated request for its `Access`."""
CALLER: Final = "caller"
"""The key in the ASGI scope of an authenticated request for the caller that it counts against."""
_NETWORK_BITS: Final = 64
"""An IPv6 client usually has a whole /64, so that counts as one address."""


class Proxies:
    """The proxies whose `X-Forwarded-For` header is trusted."""

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        """`trusted`: addresses and networks."""
        self._networks = [ipaddress.ip_network(network) for network in trusted]

    def address_of(self, scope: Scope) -> str:
        """The client's address: the nearest one that is not a trusted proxy; for IPv6 its /64."""
        address = scope["client"][0] if scope.get("client") else ""
        if self.is_trusted(address):
            hops = [hop.strip() for line in Headers(scope=scope).getlist("x-forwarded-for") for hop in line.split(",")]
            while hops and self.is_trusted(address) and _parsed(hops[-1]) is not None:
                address = hops.pop()
        return network_of(address)

    def is_trusted(self, address: str) -> bool:
        """Whether this is the address of a trusted proxy."""
        if not self._networks:
            return False
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._networks)


def network_of(address: str) -> str:
    """The address, or for IPv6 the /64 that it is in."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, _NETWORK_BITS), strict=False))
    return str(parsed or address)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed
