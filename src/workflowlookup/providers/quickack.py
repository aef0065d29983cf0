"""TCP_QUICKACK for HTTP responses whose head and body are sent separately, as many services do.

Such a service sends the body only after the head is acknowledged (Nagle's algorithm, RFC 896), and Linux delays the
acknowledgement of a partial segment by up to 40 ms (RFC 1122, 4.2.3.2). Without this, each request on a persistent
connection would take 40 ms longer than the service needs.
"""

import contextlib
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2


async def acknowledge_at_once(response: "httpx2.Response") -> None:
    """Response hook: acknowledge the head of the response now, so that the service sends the body."""
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream is not None else None
    if sys.platform == "linux" and connection is not None:  # other systems have no such option
        with contextlib.suppress(OSError):  # not TCP, or closed
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
