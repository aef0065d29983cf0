"""Real receivers of notices on loopback: an HTTP server and an SMTP server that keep what they get."""

import contextlib
import http.server
import queue
import socketserver
import threading
from collections.abc import Iterator

import msgspec


class Received(msgspec.Struct):
    """A request that a webhook got."""

    path: str
    headers: dict[str, str]
    body: bytes


class Webhook:
    """An HTTP server that answers with these statuses in turn, and with the last one from then on."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses) or [204]
        self.received: queue.Queue[Received] = queue.Queue()
        webhook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                webhook.received.put(Received(self.path, dict(self.headers), body))
                status = webhook.statuses.pop(0) if len(webhook.statuses) > 1 else webhook.statuses[0]
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def drain(self) -> list[Received]:
        received = []
        with contextlib.suppress(queue.Empty):
            while True:
                received.append(self.received.get_nowait())
        return received


@contextlib.contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def webhook(*statuses: int) -> Iterator[Webhook]:
    made = Webhook(*statuses)
    with serving(made.server):
        yield made


class Mailbox(socketserver.ThreadingTCPServer):
    """An SMTP server without TLS that accepts every message."""

    allow_reuse_address = True

    def __init__(self) -> None:
        self.messages: queue.Queue[str] = queue.Queue()
        mailbox = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.answer("220 ready")
                while line := self.rfile.readline().decode().strip().upper():
                    if line == "DATA":
                        self.answer("354 go on")
                        lines = iter(lambda: self.rfile.readline().decode(), ".\r\n")
                        mailbox.messages.put("".join(lines))
                        self.answer("250 accepted")
                    elif line == "QUIT":
                        self.answer("221 bye")
                        return
                    else:
                        self.answer("250 ok")

            def answer(self, text: str) -> None:
                self.wfile.write(f"{text}\r\n".encode())

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"smtp://127.0.0.1:{self.server_address[1]}"
