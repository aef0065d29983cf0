"""Proofs of kind `http`: asks a service until it answers as it should, or the time is over.

The host's address is resolved once and checked, and the connection goes to that address. A redirect is an answer like
any other. No proxy and no credentials are used.
"""

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.proof import HttpProof
from workflowlookup.language.text import shorten
from workflowlookup.proving.contract import CannotJudge, Fault, ProofTask, World, may_be_cut, unmet_criteria
from workflowlookup.proving.tail import plain, tail
from workflowlookup.runs.events import Judgement

MAX_BODY_BYTES: Final = 1 << 20
FIRST_PAUSE_SECONDS: Final = 0.05
MAX_PAUSE_SECONDS: Final = 1.0
_USER_AGENT: Final = "workflowlookup"


class _Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes."""

    is_secure: bool
    host: str
    port: int
    path: str
    addresses: Sequence[str]
    """Checked, in the order in which they are tried."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    location: str
    body: bytes
    is_whole: bool


def take_http(task: ProofTask, world: World) -> Judgement:
    """Take the proof. Raises `CannotJudge`."""
    proof = task.proof
    assert isinstance(proof, HttpProof)
    start = time.monotonic()
    deadline = start + proof.within
    url = task.fill(proof.url, lambda text: urllib.parse.quote(text, safe=""))
    target = _resolve(url, world, deadline)
    summary = shorten(f"{proof.method} {url}", 300)
    pause, fault, answer = FIRST_PAUSE_SECONDS, ("It was not asked.", "Raise `within`."), None
    is_first = True
    while time.monotonic() < deadline and not world.stop.is_set():
        try:
            answer = _request(target, proof, deadline, world)
        except (OSError, http.client.HTTPException) as problem:
            if is_first or time.monotonic() < deadline:  # else we cut it, and the answer before says more
                words = str(problem) or type(problem).__name__
                fault = (
                    f"It did not answer: {shorten(words, 200)}.",
                    "Start the service, and see that it listens there.",
                )
        else:
            unmet = next(_faults(task, answer), None)
            if unmet is None:
                return _judgement(proof, summary, start, answer, None)
            fault = unmet
        is_first = False
        world.on_progress(f"{summary}, {time.monotonic() - start:.0f} s")
        world.stop.wait(min(pause, deadline - time.monotonic()))
        pause = min(2 * pause, MAX_PAUSE_SECONDS)
    reason, remedy = fault
    return _judgement(proof, summary, start, answer, (f"Within {proof.within:g} s: {reason}", remedy))


def _judgement(proof: HttpProof, summary: str, start: float, answer: _Answer | None, fault: Fault | None) -> Judgement:
    reason, remedy = fault or ("", "")
    return Judgement(
        name=proof.name,
        kind="http",
        verdict="failed" if fault else "passed",
        summary=summary,
        reason=reason,
        remedy=remedy,
        seconds=round(time.monotonic() - start, 3),
        tail=tail(plain(answer.body)) if answer is not None else "",
    )


def _resolve(url: str, world: World, deadline: float) -> _Target:
    """Where the request goes. Raises `CannotJudge` unless the host is allowed, or is this machine."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = (parts.hostname or "").encode("idna").decode() if parts.hostname else ""
        is_sound = parts.scheme in ("http", "https") and host and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        is_sound = False
    if not is_sound:
        raise CannotJudge(
            f"'{shorten(url, 200)}' is not a URL that can be asked.", "Write it as http://localhost:8000/."
        )
    if parts.username is not None or parts.password is not None:
        raise CannotJudge("The URL contains a user name or password.", "Remove it from the URL.")
    addresses = _addresses(host, port, deadline)
    allowed = {name.lower() for name in world.allowed_hosts()}
    if not {host.lower(), f"{host.lower()}:{port}"} & allowed:
        for address in addresses:
            if not _is_loopback(address):
                raise CannotJudge(
                    f"The host {host} is not this machine ({address}), and the settings do not allow it.",
                    "Add the host to `proof_hosts` in the user's settings, or use a service on this machine.",
                )
    path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
    return _Target(is_secure=parts.scheme == "https", host=host, port=port, path=path, addresses=addresses)


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def _addresses(host: str, port: int, deadline: float) -> list[str]:
    """The addresses of a host, IPv4 first. Resolving has no time limit of its own, so it gets a thread."""
    answers: list[list[str]] = []

    def resolve() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        entries.sort(key=lambda entry: entry[0] != socket.AF_INET)
        answers.append(list(dict.fromkeys(str(entry[4][0]) for entry in entries)))

    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    if not answers or not answers[0]:
        raise CannotJudge(f"The host {shorten(host, 200)} has no address.", "Correct the URL.")
    return answers[0]


class _Connection(http.client.HTTPConnection):
    """A connection to an address that was checked."""

    def __init__(self, target: _Target, seconds: float) -> None:
        super().__init__(target.host, target.port, timeout=seconds)
        if target.is_secure:
            self.default_port = 443
        self._target = target

    def connect(self) -> None:
        target = self._target
        for address in target.addresses:
            try:
                self.sock = socket.create_connection((address, target.port), self.timeout)
                break
            except OSError:
                if address == target.addresses[-1]:
                    raise
        if target.is_secure:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=target.host)


def _request(target: _Target, proof: HttpProof, deadline: float, world: World) -> _Answer:
    """One request. The connection is cut at the deadline, however slowly the answer comes."""
    remaining = max(0.01, deadline - time.monotonic())
    connection = _Connection(target, remaining)
    is_over, is_cut = threading.Event(), threading.Event()

    def cut() -> None:
        while not is_over.wait(0.05):
            if world.stop.is_set() or time.monotonic() >= deadline:
                is_cut.set()  # an answer that we cut must not look like one that ended
                if connection.sock is not None:
                    with contextlib.suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
                return

    threading.Thread(target=cut, daemon=True).start()
    try:
        headers = {"User-Agent": _USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"}
        connection.request(proof.method, target.path, headers=headers)
        response = connection.getresponse()
        body = response.read(MAX_BODY_BYTES + 1) if proof.method == "GET" else b""
        if is_cut.is_set():
            raise TimeoutError("the time is over")
        if response.length and len(body) <= MAX_BODY_BYTES and proof.method == "GET":
            raise http.client.IncompleteRead(body, response.length)
        return _Answer(
            status=response.status,
            location=response.getheader("Location") or "",
            body=body[:MAX_BODY_BYTES],
            is_whole=len(body) <= MAX_BODY_BYTES,
        )
    except (ValueError, AttributeError) as problem:  # the socket was closed meanwhile
        if isinstance(problem, OSError):  # a certificate that is not valid
            raise
        raise TimeoutError("the time is over") from problem
    finally:
        is_over.set()
        connection.close()


def _faults(task: ProofTask, answer: _Answer) -> Iterator[Fault]:
    proof = task.proof
    assert isinstance(proof, HttpProof)
    if answer.status != proof.status:
        to = f" to {shorten(answer.location, 100)}, which is not followed" if answer.location else ""
        yield f"It answered with status {answer.status}{to}; {proof.status} is needed.", "Fix the service."
    if proof.body is not None:
        if not answer.is_whole and not may_be_cut(proof.body):
            raise CannotJudge(
                f"The body is longer than {MAX_BODY_BYTES:,} bytes, so that its criteria cannot be judged.",
                "Ask for a smaller answer.",
            )
        yield from unmet_criteria(proof.body, plain(answer.body), "body", task, Budget())
