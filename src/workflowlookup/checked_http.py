"""HTTP requests to addresses that were checked: a host is resolved once, and the connection goes to that address.

No redirect is followed, no proxy and no credentials of the environment are used, and a request is cut at its deadline.
"""

import contextlib
import http.client
import ipaddress
import os
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from workflowlookup.language.text import shorten

MAX_BODY_BYTES: Final = 1 << 20
USER_AGENT: Final = "workflowlookup"


class StopSignal(Protocol):
    """Says whether a request is no longer wanted."""

    def is_set(self) -> bool: ...


HTTP_ERRORS: Final = (OSError, http.client.HTTPException)
"""What `request` raises if there is no answer."""


class AddressRefused(Exception):
    """A URL that must not, or cannot, be asked: a sentence that says why, and one that says what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason} {remedy}")
        self.reason = reason
        self.remedy = remedy


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes."""

    is_secure: bool
    host: str
    port: int
    path: str
    addresses: Sequence[str]
    """In the order in which they are tried."""

    def is_named_in(self, hosts: Collection[str]) -> bool:
        """Whether the host, with or without its port, is one of these."""
        host = self.host.lower()
        return not {host, f"{host}:{self.port}"}.isdisjoint(name.lower() for name in hosts)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int
    location: str
    retry_after: str
    body: bytes
    is_whole: bool


def resolve(url: str, deadline: float) -> Target:
    """Where a request to this URL goes. Raises `AddressRefused`; the caller checks the addresses."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = (parts.hostname or "").encode("idna").decode() if parts.hostname else ""
        is_sound = parts.scheme in ("http", "https") and host and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        is_sound = False
    if not is_sound:
        raise AddressRefused(
            f"'{shorten(url, 200)}' is not a URL that can be asked.", "Write it as http://localhost:8000/."
        )
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("The URL contains a user name or password.", "Remove it from the URL.")
    path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
    addresses = addresses_of(host, port, deadline)
    return Target(is_secure=parts.scheme == "https", host=host, port=port, path=path, addresses=addresses)


def addresses_of(host: str, port: int, deadline: float) -> list[str]:
    """The addresses of a host, IPv4 first. Resolving has no time limit of its own, so it gets a thread."""
    answers: list[list[str]] = []

    def ask() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        entries.sort(key=lambda entry: entry[0] != socket.AF_INET)
        answers.append(list(dict.fromkeys(str(entry[4][0]) for entry in entries)))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    if not answers or not answers[0]:
        raise AddressRefused(f"The host {shorten(host, 200)} has no address.", "Correct the URL.")
    return answers[0]


def parse_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address without its zone; the IPv4 address of a mapped one."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 addresses that a gateway turns into the IPv4 address at their end."""
_PRIVATE: Final = tuple(map(ipaddress.IPv6Network, ("::/96", "64:ff9b:1::/48", "fec0::/10")))
"""IPv6 addresses of the own network that `is_global` does not know in all versions of Python."""


def is_public(address: str) -> bool:
    """Whether an address is one machine outside of this one and its network, also if it stands for an IPv4 address."""
    parsed = parse_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        if any(parsed in network for network in _PRIVATE):
            return False
        translated = ipaddress.IPv4Address(parsed.packed[-4:]) if parsed in _TRANSLATED else None
        parsed = parsed.sixtofour or translated or parsed
    return parsed.is_global and not parsed.is_multicast


def connect(addresses: Sequence[str], port: int, deadline: float) -> socket.socket:
    """A connection to the first address that takes one. Raises `OSError`."""
    failure = OSError("there is no address")
    for address in addresses:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the time is over")
        try:
            return socket.create_connection((address, port), remaining)
        except OSError as problem:
            failure = problem
    raise failure


@contextlib.contextmanager
def cutting(
    deadline: float, stop: StopSignal, socket_of: Callable[[], socket.socket | None]
) -> Iterator[threading.Event]:
    """Until the block ends, a socket is cut off at the deadline or on `stop`, however slowly or long the other side
    answers. Gives an event that is set once that happened.
    """
    is_over, is_cut = threading.Event(), threading.Event()
    detached: list[int] = []

    def cut() -> None:
        while not is_over.wait(0.05):
            if stop.is_set() or time.monotonic() >= deadline:
                is_cut.set()  # an answer that we cut must not look like one that ended
                connected = socket_of()
                if connected is not None and connected.fileno() >= 0:
                    with contextlib.suppress(OSError):
                        connected.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
                    detached.append(connected.detach())  # what still arrives is not read any more

    thread = threading.Thread(target=cut, daemon=True)
    thread.start()
    try:
        yield is_cut
    finally:
        is_over.set()
        thread.join()
        for descriptor in detached:  # not before: the number could be given to another file
            os.close(descriptor)


class _Connection(http.client.HTTPConnection):
    """A connection to an address that was checked."""

    def __init__(self, target: Target, deadline: float) -> None:
        super().__init__(target.host, target.port)
        if target.is_secure:
            self.default_port = 443
        self._target = target
        self._deadline = deadline

    def connect(self) -> None:
        target = self._target
        self.sock = connect(target.addresses, target.port, self._deadline)
        if target.is_secure:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=target.host)


def request(  # noqa: PLR0913 - a request
    method: str,
    target: Target,
    deadline: float,
    stop: StopSignal,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request; raises `HTTP_ERRORS`. It is cut at the deadline, or on `stop`, however slowly the answer comes."""
    connection = _Connection(target, deadline)
    try:
        with cutting(deadline, stop, lambda: connection.sock) as is_cut:
            common = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"}
            connection.request(method, target.path, body, common | dict(headers or {}))
            response = connection.getresponse()
            content = b"" if method == "HEAD" else response.read(MAX_BODY_BYTES + 1)
            if is_cut.is_set():
                raise TimeoutError("the time is over")
            if response.length and len(content) <= MAX_BODY_BYTES and method != "HEAD":
                raise http.client.IncompleteRead(content, response.length)
            return Answer(
                status=response.status,
                location=response.getheader("Location") or "",
                retry_after=response.getheader("Retry-After") or "",
                body=content[:MAX_BODY_BYTES],
                is_whole=len(content) <= MAX_BODY_BYTES,
            )
    except (ValueError, AttributeError) as problem:  # the socket was closed meanwhile
        if isinstance(problem, OSError):  # a certificate that is not valid
            raise
        raise TimeoutError("the time is over") from problem
    finally:
        connection.close()
