"""What is asked of a request that a browser may have sent: whom it is for, which page sent it, what its form holds.

So a page from elsewhere cannot use the browser of somebody who may come in. Who that is, is for others to say.
"""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from starlette.requests import Request

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
"""The names of this machine for itself, as a `Host` header has them."""
KIND: Final = "application/x-www-form-urlencoded"
MAX_PORT: Final = 65_535
MOST_BYTES: Final = 64 << 10
MOST_FIELDS: Final = 20


@functools.lru_cache(64)
def is_allowed_host(host: str, allowed: tuple[str, ...]) -> bool:
    """Whether a `Host` header names this server; a name without a port stands for every port."""
    host = host.lower()
    return "*" in allowed or host in allowed or _without_port(host) in allowed


def is_loopback_name(host: str) -> bool:
    """Whether a name that clients use, with or without a port, is one of this machine for itself."""
    name = _without_port(host.lower())
    return name in LOOPBACK or name == "::1" or name.endswith(".localhost")


def is_allowed_origin(origin: str, host: str, allowed: Sequence[str]) -> bool:
    """Whether a page of this origin may ask: the server's own pages, and those that the settings name.

    Scheme, name and port must be the same; no port means the one of the scheme.
    """
    origin, host = origin.lower().rstrip("/"), host.lower()
    if origin in (f"http://{host}", f"https://{host}"):
        return True
    return "*" in allowed or _with_port(origin) in map(_with_port, allowed)


def _with_port(origin: str) -> str:
    """An origin with the port that its scheme means where it names none."""
    scheme, _, name = origin.lower().rstrip("/").partition("://")
    default = {"http": 80, "https": 443}.get(scheme)
    return f"{scheme}://{name}:{default}" if default and _without_port(name) == name else origin.lower().rstrip("/")


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT, apart. Raises `ValueError`."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > MAX_PORT:
        raise ValueError("HOST:PORT, such as 127.0.0.1:8787")
    return host, int(port)


def _without_port(name: str) -> str:
    try:
        return split_address(name)[0]
    except ValueError:
        return name


class FormProblem(Exception):
    """A form that is not taken: the status that says so, and why."""

    def __init__(self, status: int, told: str) -> None:
        super().__init__(told)
        self.status = status
        self.told = told


def is_from_here(request: "Request") -> bool:
    """Whether a form was sent by one of our own pages; browsers say so."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site not in (None, "same-origin"):
        return False
    if origin is None:
        return site == "same-origin"
    return urlsplit(origin).netloc == request.headers.get("host", "")


async def read_fields(request: "Request") -> dict[str, str]:
    """The fields by their names. Raises `FormProblem`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != KIND:
        raise FormProblem(415, f"Forms are sent as {KIND}.")
    from starlette.requests import ClientDisconnect  # noqa: PLC0415 - commands without a server need no Starlette

    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                raise FormProblem(413, f"A form may have {MOST_BYTES:,} bytes at most.")
    except ClientDisconnect:
        raise FormProblem(400, "The connection ended before the form did. Send it again.") from None
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS))
    except ValueError:
        raise FormProblem(400, "The form cannot be read. Load the page again, then try once more.") from None
