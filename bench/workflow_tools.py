"""What workflow tools cost: over the other system's own time, by the second, in the list of tools, and at the start.

Everything that is waited for is on loopback and of known length. A bare client that does the same without us takes part
wherever there is something that it could do.
"""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from client import Peer, request, tool_calls

SECONDS: Final = 0.1
"""How long a job of the other system takes."""
LISTED: Final = (10, 200, 2_000)
WORKERS: Final = (1, 2, 3)
BARE_CLIENT: Final = "bare client"
BARE_DBOS: Final = "bare DBOS"
SQLITE: Final = "SQLite"
POSTGRES: Final = "PostgreSQL"
OURS: Final = "workflow tool"
CAT: Final = "cat"
NO_PROVIDERS: Final = "no provider"
THREE_PROVIDERS: Final = "three providers, one down"

_UPSTREAM: Final = [sys.executable, str(Path(__file__).with_name("upstream.py"))]
_CALLS: Final[dict[str, Any]] = {
    "id": "three-calls",
    "name": "Three calls",
    "description": "Three calls, one after the other.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "steps": [
        {
            "id": f"call-{number}",
            "title": f"Call {number}",
            "call": {"server": "echo", "tool": "echo", "arguments": {"said": "{{text}}"}, "saveAs": f"said{number}"},
        }
        for number in range(3)
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFigures:
    """What was measured of workflow tools."""

    job_ms: Mapping[str, Sequence[float]]  # contestant; of a job that takes SECONDS
    runs_per_second: Mapping[str, Mapping[int, Sequence[float]]]  # journal or contestant, servers; one a round
    list_us: Mapping[int, Mapping[str, Sequence[float]]]  # workflow tools, contestant
    list_bytes: Mapping[int, int]
    cold_ms: Mapping[str, Sequence[float]]


def measure(
    command: Sequence[str], environment: Mapping[str, str], scratch: Path, databases: Sequence[str], *, rounds: int
) -> ToolFigures:
    """All of it; `rounds` says how often each thing is done. Of the two databases the second is for bare DBOS."""
    listed = {count: _list(command, environment, scratch, count, rounds) for count in LISTED}
    return ToolFigures(
        job_ms=_jobs(command, environment, scratch, rounds * 10),
        runs_per_second=_paces(command, environment, scratch, databases, rounds),
        list_us={count: times for count, (times, _) in listed.items()},
        list_bytes={count: size for count, (_, size) in listed.items()},
        cold_ms=_cold(command, environment, scratch, rounds * 3),
    )


# ── over the other system's own time ────────────────────────────────────────────────────────────────────────────


def _jobs(command: Sequence[str], environment: Mapping[str, str], scratch: Path, times: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {BARE_CLIENT: [], OURS: []}
    with _service(1, SECONDS) as port, _server(command, environment, scratch / "jobs", _provider("svc", port)) as peer:
        call = _when_listed(peer, "job_0", {"service": "api"})
        for number in range(times + 1):
            for name in list(took)[:: 1 if number % 2 else -1]:
                elapsed = peer.ask(call)[1] if name == OURS else _bare_job(port)
                if number:  # the first one opens connections
                    took[name].append(elapsed)
    return took


def _bare_job(port: int) -> float:
    """Start a job and ask for it every five milliseconds, without us; the milliseconds."""
    address = f"http://127.0.0.1:{port}/workflows/job-0/runs"
    began = time.perf_counter()
    posted = urllib.request.Request(address, data=b'{"input":{}}', method="POST")
    with urllib.request.urlopen(posted) as reply:
        run_id = json.load(reply)["runId"]
    while True:
        with urllib.request.urlopen(f"{address}/{run_id}") as reply:
            if json.load(reply)["status"] == "COMPLETED":
                return (time.perf_counter() - began) * 1e3
        time.sleep(0.005)


# ── by the second ───────────────────────────────────────────────────────────────────────────────────────────────


def _paces(
    command: Sequence[str], environment: Mapping[str, str], scratch: Path, databases: Sequence[str], rounds: int
) -> dict[str, dict[int, list[float]]]:
    """Runs of three calls a second: of all contestants in turn, so that whatever else happens hits all alike."""
    journals = {SQLITE: str(scratch / "three.sqlite"), POSTGRES: databases[0]}
    bare_dbos = [sys.executable, str(Path(__file__).with_name("bare_dbos.py")), databases[1], str(rounds * 20), "10"]
    paces: dict[str, dict[int, list[float]]] = {name: {number: [] for number in WORKERS} for name in journals}
    paces |= {BARE_CLIENT: {1: []}, BARE_DBOS: {1: []}}
    for _ in range(max(1, rounds // 2)):
        paces[BARE_CLIENT][1].append(_bare_calls(environment, rounds * 60) / 3)
        for name, journal in journals.items():
            for number in WORKERS:
                place = {**environment, "WORKFLOWLOOKUP_JOURNAL": journal}
                paces[name][number].append(_throughput(command, place, scratch, number, rounds * 20))
        done = subprocess.run(bare_dbos, capture_output=True, check=True, text=True)
        paces[BARE_DBOS][1].append(float(done.stdout.split()[-1]))
    return paces


def _throughput(
    command: Sequence[str], environment: Mapping[str, str], scratch: Path, workers: int, runs: int
) -> float:
    """Runs of three calls a second, with so many servers on one journal, each with a client that keeps eight open."""
    library = scratch / "calls"
    library.mkdir(exist_ok=True)
    (library / "three-calls.json").write_text(json.dumps(_CALLS))
    environment = {**environment, "WORKFLOW_STORAGE_PATH": str(library)}
    settings = (
        f"[mcpServers.echo]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps([_UPSTREAM[1], 'mcp'])}\n"
    )
    with ExitStack() as stack:
        peers = [
            stack.enter_context(_server(command, environment, scratch / f"worker-{number}", settings))
            for number in range(workers)
        ]
        for peer in peers:
            peer.ask(tool_calls("three_calls", [{"text": "warm"}]))
        began = time.perf_counter()
        share = runs // workers
        for peer in peers:
            peer.send([tool_calls("three_calls", [{"text": "go"}])] * share)
        for peer in peers:
            peer.collect(share)
        return share * workers / (time.perf_counter() - began)


def _bare_calls(environment: Mapping[str, str], calls: int) -> float:
    with Peer([*_UPSTREAM, "mcp"], environment) as peer:
        peer.ready()
        return peer.pace(tool_calls("echo", [{"said": "go"}]), calls, 10.0).calls_per_second


# ── in the list of tools ────────────────────────────────────────────────────────────────────────────────────────


def _list(
    command: Sequence[str], environment: Mapping[str, str], scratch: Path, count: int, rounds: int
) -> tuple[dict[str, list[float]], int]:
    """Microseconds of `tools/list`, beside `cat` that passes on as many bytes; and how many they are."""
    settings = f"tools_budget_bytes = {64 << 20}\n"
    took: dict[str, list[float]] = {OURS: [], CAT: []}
    with ExitStack() as stack:
        port = stack.enter_context(_service(count, 0))
        peer = stack.enter_context(
            _server(command, environment, scratch / f"list-{count}", settings + _provider("svc", port))
        )
        _when_listed(peer, f"job_{count - 1}", {})
        question = request("tools/list", {})
        size = len(json.dumps(peer.ask(question)[0], separators=(",", ":")))
        cat = stack.enter_context(Peer(["cat"], environment))
        for _ in range(rounds):
            took[OURS].append(peer.pace(question, 50, 1.0).p50_us)
            took[CAT].append(cat.bounce(size, 50))
    return took, size


# ── at the start ────────────────────────────────────────────────────────────────────────────────────────────────


def _cold(command: Sequence[str], environment: Mapping[str, str], scratch: Path, rounds: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {NO_PROVIDERS: [], THREE_PROVIDERS: []}
    with _service(20, 0) as first, _service(20, 0) as second:
        down = _free_port()
        three = "".join(_provider(f"svc{number}", port) for number, port in enumerate((first, second, down)))
        for number in range(rounds + 1):
            for name in list(took)[:: 1 if number % 2 else -1]:
                with _server(command, environment, scratch / "cold", three if name == THREE_PROVIDERS else "") as peer:
                    if number:
                        took[name].append(peer.start_ms)
    return took


# ── what takes part ─────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _server(command: Sequence[str], environment: Mapping[str, str], place: Path, settings: str) -> Iterator[Peer]:
    place.mkdir(exist_ok=True)
    file = place / "workflowlookup.toml"
    file.write_text(settings)
    quiet = {"WORKFLOWLOOKUP_BUNDLED": "false", "WORKFLOWLOOKUP_JOURNAL": str(place / "runs.sqlite")}
    with Peer([*command, "--config", str(file)], {**quiet, **environment}) as peer:
        peer.ready()
        yield peer


@contextmanager
def _service(count: int, seconds: float) -> Iterator[int]:
    port = _free_port()
    process = subprocess.Popen([*_UPSTREAM, "http", str(port), str(count), str(seconds)])
    try:
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        yield port
    finally:
        process.kill()
        process.wait()


def _provider(name: str, port: int) -> str:
    return f'[providers.{name}]\nkind = "http"\nbase_url = "http://127.0.0.1:{port}"\n'


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _when_listed(peer: Peer, name: str, arguments: Mapping[str, Any]) -> Any:
    """A call of a workflow tool, as soon as there is the tool."""
    for _ in range(600):
        if any(tool["name"] == name for tool in peer.ask(request("tools/list", {}))[0]["tools"]):
            return tool_calls(name, [arguments])
        time.sleep(0.05)
    raise RuntimeError(f"the tool {name} did not appear")
