"""Services that lead elsewhere, are slow, late, or never end."""

import asyncio
import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.proving import Project
from workflowlookup.proving.prover import CANCEL_SECONDS


@contextlib.contextmanager
def serving(answer: Callable[[socket.socket], Any], host: str = "127.0.0.1") -> Iterator[int]:
    """The port of a service that gives every connection to `answer`."""
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(5)
                    answer(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def head_of(connection: socket.socket) -> str:
    data = b""
    while not data.endswith(b"\r\n\r\n") and (more := connection.recv(4096)):
        data += more
    return data.decode()


def answer_with(text: str) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(text.encode())

    return answer


def ask(project: Project, url: str, **fields: Any) -> Any:
    return project.take({"kind": "http", "url": url, "within": 0.5, **fields})


@pytest.mark.parametrize(
    "url",
    [
        "http://192.0.2.1/",
        "http://0.0.0.0/",
        "http://[2001:db8::1]/",
        "http://10.0.0.1:80/",
        "http://169.254.169.254/latest/meta-data",
        "http://user:pass@localhost/",
        "http://user@localhost/",
        "ftp://localhost/",
        "file:///etc/passwd",
        "http:///x",
        "http://localhost:99999/",
        "http://localhost/a b",
        "http://no-such-host.invalid/",
        "http://localhost\\@192.0.2.1/",
        "http://" + "a" * 300 + "/",
    ],
)
def test_addresses_that_are_not_asked(folder: Project, url: str) -> None:
    assert ask(folder, url).verdict == "unproved"


def test_a_host_that_the_settings_allow(folder: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is resolved once, and the connection goes to the address that was checked."""
    asked: list[str] = []
    resolve = socket.getaddrinfo

    def resolve_once(host: Any, *arguments: Any, **options: Any) -> Any:
        asked.append(host)
        return resolve("127.0.0.1" if asked.count(host) == 1 else "192.0.2.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_once)
    with serving(answer_with("HTTP/1.1 200 OK\r\n\r\nhello")) as port:
        assert ask(folder, f"http://service.example:{port}/", body=["hello"]).verdict == "passed"
    assert asked.count("service.example") == 1

    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *rest, **options: resolve("192.0.2.1", *rest, **options))
    assert "the settings do not allow it" in ask(folder, "http://service.example:1/").reason
    folder.allowed_hosts = ["Service.example"]
    assert ask(folder, "http://service.example:1/").verdict == "failed"


def test_what_is_asked(folder: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    heads: list[str] = []

    def answer(connection: socket.socket) -> None:
        heads.append(head_of(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\n\r\n")

    with serving(answer, "::1") as port:
        entry = {"kind": "http", "url": f"http://[::1]:{port}/{{{{name}}}}?q#fragment", "within": 5}
        assert folder.take(entry, {"name": "a/../b"}).verdict == "passed"

    assert heads[0].startswith(f"GET /a%2F..%2Fb?q HTTP/1.1\r\nHost: [::1]:{port}\r\n")
    assert "Authorization" not in heads[0]


def test_every_address_of_a_host_is_tried(folder: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
    ]
    resolve = socket.getaddrinfo
    with serving(answer_with("HTTP/1.1 200 OK\r\n\r\n"), "::1") as port:
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *rest, **o: entries if host == "both" else resolve(host, *rest, **o)
        )
        assert ask(folder, f"http://both:{port}/", within=5).verdict == "passed"


def test_a_redirect_is_only_an_answer(folder: Project) -> None:
    connections: list[str] = []

    def elsewhere(connection: socket.socket) -> None:
        connections.append(head_of(connection))

    with serving(elsewhere) as other:
        location = f"http://127.0.0.1:{other}/"
        with serving(answer_with(f"HTTP/1.1 302 Found\r\nLocation: {location}\r\n\r\n")) as port:
            judgement = ask(folder, f"http://127.0.0.1:{port}/")

    assert judgement.verdict == "failed"
    assert f"status 302 to {location}, which is not followed; 200 is needed" in judgement.reason
    assert connections == []


def test_a_service_that_comes_late_is_waited_for(folder: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    answers = iter(["HTTP/1.1 503 Busy\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nstarting", "HTTP/1.1 200 OK\r\n\r\nready"])
    started = threading.Event()

    def start() -> None:
        started.wait()
        with socket.create_server(("127.0.0.1", port)) as listener:
            for text in answers:
                connection, _ = listener.accept()
                with connection:
                    answer_with(text)(connection)

    thread = threading.Thread(target=start)
    thread.start()
    folder.progress = Started(started)
    entry = {"kind": "http", "url": f"http://127.0.0.1:{port}/", "body": ["^ready$"], "within": 20}
    assert folder.take(entry).verdict == "passed"
    thread.join()


class Started(list[str]):
    """Progress that sets an event: the port was refused once."""

    def __init__(self, event: threading.Event) -> None:
        super().__init__()
        self._event = event

    def append(self, text: str) -> None:
        super().append(text)
        self._event.set()


def receive_and_wait(connection: socket.socket) -> None:
    connection.recv(10_000_000)
    time.sleep(3)


def send_slowly(connection: socket.socket, data: bytes, beginning: bytes = b"") -> None:
    connection.sendall(beginning)
    for _ in range(40):
        connection.sendall(data)
        time.sleep(0.1)


@pytest.mark.parametrize(
    "answer",
    [
        receive_and_wait,
        lambda connection: send_slowly(connection, b"x"),
        lambda connection: send_slowly(connection, b"a: b\r\n", b"HTTP/1.1 200 OK\r\n"),
        lambda connection: connection.sendall(b"SSH-2.0-nothing\r\n\r\n"),
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"a" * 100_000),
        lambda connection: None,
        answer_with("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly a part"),
        answer_with("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\nonly a part"),
    ],
)
def test_a_service_that_does_not_answer(folder: Project, answer: Callable[[socket.socket], Any]) -> None:
    with serving(answer) as port:
        judgement = ask(folder, f"http://127.0.0.1:{port}/")

    assert judgement.verdict == "failed"
    assert "did not answer" in judgement.reason


def test_a_body_that_does_not_end(folder: Project) -> None:
    def answer(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nbegin")
        while True:
            connection.sendall(b"x" * 65_536)

    with serving(answer) as port:
        url = f"http://127.0.0.1:{port}/"
        assert ask(folder, url, within=10).verdict == "passed"
        assert "longer than 1,048,576 bytes" in ask(folder, url, within=10, body=[{"not": "y"}]).reason
        contains = {"type": "contains", "value": "begin", "message": ""}
        assert ask(folder, url, within=10, body=[contains]).verdict == "passed"


def test_cancelling_ends_the_waiting(folder: Project) -> None:
    asked = threading.Event()

    def answer(connection: socket.socket) -> None:
        head_of(connection)
        asked.set()
        connection.recv(1)  # until it is closed

    async def conversation(port: int) -> None:
        task = folder.task({"kind": "http", "url": f"http://127.0.0.1:{port}/", "within": 600})
        taking = asyncio.create_task(folder.prover.take(task, folder.progress.append))
        await asyncio.to_thread(asked.wait)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking

    start = time.monotonic()
    with serving(answer) as port:
        asyncio.run(conversation(port))
    assert time.monotonic() - start < CANCEL_SECONDS  # else it was given up, not ended


def test_https_needs_a_certificate_for_the_host(
    folder: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    names = ["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def answer(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            answer_with("HTTP/1.1 200 OK\r\n\r\nhello")(secure)

    with serving(answer) as port:
        untrusted = ask(folder, f"https://localhost:{port}/", within=3)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        trusted = ask(folder, f"https://localhost:{port}/", body=["hello"], within=20)
        other_name = ask(folder, f"https://127.0.0.1:{port}/", within=3)

    assert [untrusted.verdict, trusted.verdict, other_name.verdict] == ["failed", "passed", "failed"]
    assert "CERTIFICATE_VERIFY_FAILED" in untrusted.reason
    assert "CERTIFICATE_VERIFY_FAILED" in other_name.reason
