"""Three replicas at fixed ports, the shipped nginx before them, and clients that count every request that fails."""

import asyncio
import collections
import contextlib
import itertools
import json
import os
import queue
import re
import shutil
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, Self
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import yaml

from support.client import ENVELOPE
from support.json_values import JsonObject
from support.make import document, settings_file, step, write
from support.waiting import wait_until
from support.web import HEADERS, WebServer, routing
from upstream.upstreams import McpUpstream, free_port
from workflowlookup.store.postgres import PostgresJournal
from workflowlookup.store.tokens import Tokens

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
PAUSE_SECONDS: Final = 0.02
"""Between two requests of a client."""


def nginx_program() -> str:
    """The path of nginx. Skips the test where there is none."""
    path = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if path is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    return path


def shipped_environment() -> dict[str, str]:
    """The environment of a replica in deploy/compose.yaml."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    environment: dict[str, str] = compose["services"]["replica-1"]["environment"]
    return environment


# ── nginx ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_nginx_configuration(directory: Path, port: int, replicas: Sequence[int]) -> Path:
    """deploy/nginx.conf with other ports, and other paths that nginx writes to."""
    text = (DEPLOY / "nginx.conf").read_text()
    for number, replica in enumerate(replicas, 1):
        text = text.replace(f"replica-{number}:8787", f"127.0.0.1:{replica}")
        text = text.replace(f"1878{number}", str(free_port()))
    text = text.replace("listen 8080", f"listen 127.0.0.1:{port}").replace("processes auto", "processes 2")
    paths = "".join(f"{name}_temp_path {directory};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    text = text.replace("access_log off;", "access_log off;\n" + paths)
    user = "user root;\n" if os.geteuid() == 0 else ""
    path = directory / "nginx.conf"
    path.write_text(f"daemon off;\n{user}pid {directory}/nginx.pid;\nerror_log {directory}/nginx.log;\n{text}")
    return path


@contextlib.contextmanager
def nginx(directory: Path, replicas: Sequence[int]) -> Iterator[str]:
    """nginx by deploy/nginx.conf before replicas at these ports; the URL of MCP."""
    port = free_port()
    configuration = write_nginx_configuration(directory, port, replicas)
    process = subprocess.Popen([nginx_program(), "-c", str(configuration)], stderr=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: is_ready(base))
        yield f"{base}/mcp"
    finally:
        process.terminate()
        process.wait(30)


# ── the replicas ────────────────────────────────────────────────────────────────────────────────────────────────────


class DatabaseLink:
    """A TCP port that leads to a PostgreSQL on a Unix socket, and that can be cut or frozen."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._tasks: dict[asyncio.Task[Any], list[asyncio.StreamWriter]] = {}
        self._forgotten: set[asyncio.Task[Any]] = set()
        self._is_cut = False
        self._trigger: re.Pattern[bytes] | None = None
        ports: queue.Queue[int] = queue.Queue()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ports)), daemon=True)
        self._thread.start()
        self.url = f"postgresql://{parts.username}@127.0.0.1:{ports.get(timeout=60)}{parts.path}"

    def cut(self) -> None:
        """End all connections, and every new one at once."""
        self._call(self._set, True, False)

    def freeze(self) -> None:
        """Accept connections and pass nothing on."""
        self._call(self._set, False, True)

    def forget(self) -> None:
        """Pass nothing on any more on the connections that are open, and leave them open; new ones work."""
        self._call(lambda: self._forgotten.update(self._tasks))

    def freeze_after(self, pattern: bytes) -> None:
        """Freeze as soon as a connection has passed on what matches this: PostgreSQL gets it, its answer is withheld."""
        self._trigger = re.compile(pattern, re.DOTALL)

    def restore(self) -> None:
        self._call(self._set, False, False)

    def close(self) -> None:
        self.cut()
        self._call(self._over.set)
        self._thread.join(60)

    def _call(self, act: Callable[..., None], *arguments: bool) -> None:
        self._loop.call_soon_threadsafe(act, *arguments)

    async def _run(self, ports: "queue.Queue[int]") -> None:
        self._loop = asyncio.get_running_loop()
        self._over, self._flows = asyncio.Event(), asyncio.Event()
        self._flows.set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        ports.put(server.sockets[0].getsockname()[1])
        await self._over.wait()
        server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _set(self, is_cut: bool, is_frozen: bool) -> None:
        self._is_cut = is_cut
        (self._flows.clear if is_frozen else self._flows.set)()
        for writer in itertools.chain(*self._tasks.values()) if is_cut else ():
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = [writer]
        try:
            if self._is_cut:
                writer.transport.abort()
                return
            back, forth = await asyncio.open_unix_connection(self._socket)
            self._tasks[task].append(forth)
            await asyncio.gather(self._pump(task, reader, forth, self._watch), self._pump(task, back, writer))
        finally:
            for each in self._tasks.pop(task):
                each.close()

    async def _pump(
        self,
        task: asyncio.Task[Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        watch: Callable[[bytes], bytes] = lambda _: b"",
    ) -> None:
        """`watch` is given what was passed on, and returns what it wants to see again with the next."""
        recent = b""
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flows.wait()
                if task in self._forgotten:
                    continue
                writer.write(data)
                recent = watch(recent + data)
                await writer.drain()
        if task in self._forgotten:
            await self._over.wait()
        writer.close()

    def _watch(self, sent: bytes) -> bytes:
        """Freeze the link when what a client sent is what `freeze_after` waits for."""
        if self._trigger is None:
            return b""
        if self._trigger.search(sent):
            self._trigger = None
            self._flows.clear()
        return sent


class Fleet:
    """Three replicas with the stop delay of deploy/compose.yaml. The first has a database link of its own."""

    def __init__(self, home: Path, database: str, *flags: str, slow_seconds: float) -> None:
        """`flags`: of every replica. `slow_seconds`: of the call that the workflow `slow` makes."""
        self._home = home
        self._flags = flags
        self.link = DatabaseLink(database)
        self.database = database
        self._databases = [self.link.url, database, database]
        write(home / "library", document(step("one"), step("two"), identifier="by-hand"))
        call = {"server": "up", "tool": "sleep", "arguments": {"seconds": slow_seconds, "steps": 4}}
        write(home / "library", document({"id": "work", "title": "Work", "call": call}, identifier="slow"))
        settings_file(home).write_text(McpUpstream(home / "up").toml())
        self.ports = [free_port() for _ in range(3)]
        journal = PostgresJournal(database)
        self.token, _ = Tokens(journal).create("tests", ["run"], ["*"], seconds=3600)
        journal.close()
        self._servers = [self._start(number) for number in range(3)]

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}/mcp" for port in self.ports]

    def log(self) -> str:
        """What all replicas have logged."""
        return "".join(server.log() for server in self._servers)

    def stop(self) -> None:
        for server in self._servers:
            server.stop()
        self.link.close()  # after the servers: they would connect again meanwhile

    def restart(self, number: int) -> None:
        """End a replica by SIGTERM, and start it again when it has ended."""
        server = self._servers[number]
        server.terminate()
        assert server.wait() == 0
        server.stop()
        assert "cut short" not in server.log()
        self._servers[number] = self._start(number)
        self.wait_until_ready(number)

    def wait_until_ready(self, number: int, *, is_so: bool = True) -> None:
        base = f"http://127.0.0.1:{self.ports[number]}"
        wait_until(lambda: is_ready(base) is is_so)

    def _start(self, number: int) -> WebServer:
        seconds = shipped_environment()["WORKFLOWLOOKUP_STOP_DELAY_SECONDS"]
        address = f"127.0.0.1:{self.ports[number]}"
        flags: tuple[str, ...] = ("--http", address, "--stop-delay-seconds", seconds, "--drain-seconds", "60")
        limits = ("--requests-per-minute", "0", "--timeout-seconds", "600")
        environment = {"WORKFLOWLOOKUP_JOURNAL": self._databases[number]}
        flags += limits + self._flags
        return WebServer(self._home, *flags, directory=self._home / "library", environment=environment)


def is_ready(base: str) -> bool:
    with contextlib.suppress(httpx2.HTTPError):
        return httpx2.get(f"{base}/readyz", timeout=10).status_code == 200
    return False


# ── clients ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Sender(Protocol):
    """Sends a request where it is answered."""

    async def post(self, content: bytes, headers: dict[str, str]) -> httpx2.Response: ...


class ProxySender:
    """Sends each request once, to the load balancer."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http = http
        self._url = url

    async def post(self, content: bytes, headers: dict[str, str]) -> httpx2.Response:
        return await self._http.post(self._url, content=content, headers=headers)


class RoundRobinSender:
    """Sends each request to the next replica, and to the one after it in the cases that docs/http.md names."""

    def __init__(self, http: httpx2.AsyncClient, urls: Sequence[str], first: int) -> None:
        self._http = http
        self._urls = itertools.cycle([*urls[first:], *urls[:first]])
        self._tries = len(urls)

    async def post(self, content: bytes, headers: dict[str, str]) -> httpx2.Response:
        for tries_left in reversed(range(self._tries)):
            try:
                async with self._http.stream("POST", next(self._urls), content=content, headers=headers) as response:
                    await response.aread()
            except httpx2.TransportError:
                if tries_left and "response" not in locals():  # not a byte of one
                    continue
                raise
            if response.status_code == 503 and "retry-after" in response.headers and tries_left:
                continue
            return response
        raise AssertionError("unreachable")


class Load:
    """Clients of both eras that lead runs, one request after the other, while the context is entered."""

    def __init__(self, fleet: Fleet, proxy: str, clients: int) -> None:
        """`clients`: of each kind, through the proxy and round robin."""
        self._fleet = fleet
        self._proxy = proxy
        self._clients = clients
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.requests: collections.Counter[str] = collections.Counter()
        """By the way that they went: through nginx, or round robin."""
        self.failures: list[str] = []
        self.slowest = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        self.go_on(0.5)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(120)

    def go_on(self, seconds: float) -> None:
        """Have the clients go on for a while."""
        time.sleep(seconds)

    def figures(self, trial: str) -> str:
        counts = ", ".join(f"{count:,} {way}" for way, count in sorted(self.requests.items()))
        return f"{trial}: {counts}; failed {len(self.failures)}, slowest {self.slowest:.1f} s"

    async def _run(self) -> None:
        limits = httpx2.Limits(max_connections=None)
        headers = HEADERS | {"authorization": f"Bearer {self._fleet.token}"}
        async with httpx2.AsyncClient(timeout=60, limits=limits, headers=headers) as http:
            await asyncio.gather(*(self._lead_runs(*each) for each in self._senders(http)))

    def _senders(self, http: httpx2.AsyncClient) -> Iterator[tuple[str, Sender, bool]]:
        for number in range(self._clients):
            yield "through nginx", ProxySender(http, self._proxy), number % 2 == 0
            yield "round robin", RoundRobinSender(http, self._fleet.urls, number % 3), number % 2 == 0

    async def _lead_runs(self, way: str, sender: Sender, is_modern: bool) -> None:
        client = _Client(sender, is_modern=is_modern)
        async for run in self._runs():
            for name, arguments in (
                ("workflow_start", {"workflowId": "by-hand", "runId": run}),
                ("workflow_submit", {"runId": run, "stepId": "one", "output": "done"}),
                ("workflow_status", {"runId": run}),
                ("workflow_list", {}),
            ):
                begun = time.monotonic()
                problem = await client.call(name, arguments)
                self.slowest = max(self.slowest, time.monotonic() - begun)
                self.requests[way] += 1
                if problem:
                    self.failures.append(f"{way}: {name}: {problem}")
                await asyncio.sleep(PAUSE_SECONDS)

    async def _runs(self) -> AsyncIterator[str]:
        prefix = os.urandom(8).hex()
        for number in itertools.count():
            if self._is_over.is_set():
                return
            yield f"run-{prefix}-{number}"


class _Client:
    def __init__(self, sender: Sender, *, is_modern: bool) -> None:
        self._sender = sender
        self._is_modern = is_modern
        self._session: dict[str, str] = {}
        self._ids = itertools.count(1)

    async def call(self, name: str, arguments: JsonObject) -> str:
        """Call a tool; why it failed, or nothing."""
        params: JsonObject = {"name": name, "arguments": arguments}
        try:
            if self._is_modern:
                return _problem(await self._request("tools/call", params | {"_meta": ENVELOPE}))
            return await self._begin() or _problem(await self._request("tools/call", params))
        except httpx2.HTTPError as problem:
            return repr(problem)

    async def _begin(self) -> str:
        """Begin a session, unless there is one."""
        if self._session:
            return ""
        version = "2025-11-25"
        response = await self._request("initialize", {"protocolVersion": version, "capabilities": {}})
        if not (problem := _problem(response)):
            self._session = {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": version}
        return problem

    async def _request(self, method: str, params: JsonObject) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        headers = self._session | routing(message)
        return await self._sender.post(json.dumps(message).encode(), headers)


def _problem(response: httpx2.Response) -> str:
    """Why a response is not the answer that was asked for; empty when it is."""
    reply = reply_of(response)
    if response.status_code == 200 and "result" in reply and not reply["result"].get("isError"):
        return ""
    return f"{response.status_code} {response.text[:300]}"


def reply_of(response: httpx2.Response) -> JsonObject:
    """The reply in a response, which is JSON or the last event of a stream; empty when there is none."""
    text = response.text
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        text = next((line[6:] for line in reversed(text.splitlines()) if line.startswith("data: {")), "")
    with contextlib.suppress(ValueError):
        reply: JsonObject = json.loads(text)
        return reply
    return {}
