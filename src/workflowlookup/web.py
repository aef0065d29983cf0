"""Checks of HTTP requests that a browser may have sent: the `Host`, the `Origin`, and the fields of a form.

They keep pages of other sites from using a browser that is logged in here. Authentication is in `auth/`.
"""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from starlette.requests import Request

LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")
"""The names of the loopback address, as in a `Host` header."""
FORM_TYPE: Final = "application/x-www-form-urlencoded"
MAX_PORT: Final = 65_535
MAX_FORM_BYTES: Final = 64 << 10
MAX_FORM_FIELDS: Final = 20


@functools.lru_cache(64)
def is_allowed_host(host: str, allowed: tuple[str, ...]) -> bool:
    """Whether a `Host` header is allowed; a name without a port allows every port."""
    host = host.lower()
    return "*" in allowed or host in allowed or _without_port(host) in allowed


def is_loopback_name(host: str) -> bool:
    """Whether a host name, with or without a port, means the loopback address."""
    name = _without_port(host.lower())
    return name in LOOPBACK_HOSTS or name == "::1" or name.endswith(".localhost")


def is_allowed_origin(origin: str, host: str, allowed: Sequence[str]) -> bool:
    """Whether a page of this origin may send requests: the server's own pages, and origins in the settings.

    Scheme, host and port must be equal; without a port the default port of the scheme counts.
    """
    origin, host = origin.lower().rstrip("/"), host.lower()
    if origin in (f"http://{host}", f"https://{host}"):
        return True
    return "*" in allowed or _with_port(origin) in map(_with_port, allowed)


def _with_port(origin: str) -> str:
    """An origin with its port, or with the default port of its scheme."""
    scheme, _, name = origin.lower().rstrip("/").partition("://")
    default = {"http": 80, "https": 443}.get(scheme)
    return f"{scheme}://{name}:{default}" if default and _without_port(name) == name else origin.lower().rstrip("/")


def split_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT. Raises `ValueError`."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > MAX_PORT:
        raise ValueError("HOST:PORT, such as 127.0.0.1:8787")
    return host, int(port)


def _without_port(name: str) -> str:
    try:
        return split_address(name)[0]
    except ValueError:
        return name


class FormError(Exception):
    """A form that is refused, with the HTTP status and the reason."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def is_same_origin(request: "Request") -> bool:
    """Whether one of our own pages sent a form, by the headers that browsers add."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site not in (None, "same-origin"):
        return False
    if origin is None:
        return site == "same-origin"
    return urlsplit(origin).netloc == request.headers.get("host", "")


async def read_form_fields(request: "Request") -> dict[str, str]:
    """The fields of a form by name. Raises `FormError`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise FormError(415, f"Send forms as {FORM_TYPE}.")
    from starlette.requests import ClientDisconnect  # noqa: PLC0415 - commands without a server need no Starlette

    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_FORM_BYTES:
                raise FormError(413, f"A form may have {MAX_FORM_BYTES:,} bytes at most.")
    except ClientDisconnect:
        raise FormError(400, "The connection ended before the form did. Send it again.") from None
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS))
    except ValueError:
        raise FormError(400, "The form cannot be read. Load the page again, then try once more.") from None
