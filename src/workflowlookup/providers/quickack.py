"""Answers over HTTP that come in two pieces, the head and then the body, as many services write them.

Such a service sends the second piece when the first one is acknowledged (Nagle's algorithm, RFC 896), and Linux
acknowledges what is not a whole segment only after 40 ms, or with the next thing to send (RFC 1122, 4.2.3.2). Each
question on a connection that is kept would so take 40 ms more than the service needs to answer it.
"""

import contextlib
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2


async def acknowledge_at_once(response: "httpx2.Response") -> None:
    """What a client does when the head of an answer is there: say so now, so that the body is not held back."""
    stream = response.extensions.get("network_stream")
    wire = stream.get_extra_info("socket") if stream is not None else None
    if sys.platform == "linux" and wire is not None:  # elsewhere nobody can ask for this
        with contextlib.suppress(OSError):  # it is no TCP, or closed
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
