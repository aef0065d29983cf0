"""The benchmark: our server beside `cat`, a bare interpreter and the official SDK, in one run.

The contestants take turns within every round, so that whatever else the machine does hits all of them alike.
`report.py` holds the targets and prints the tables.
"""

import argparse
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from rich.console import Console

import chains
import documents
import growth
import hooks
import installation
import proofs
import reading
import runs
import validation
import web
import workflow_tools
from client import BrokenServer, Pace, Peer, Request, direct_calls, tool_calls
from report import BARE, BUNDLED, CAT, DIRECT, OURS, SDK, THOUSAND, THROUGH_CALL, Figures, Report

Item = TypeVar("Item")

TEN_THOUSAND: Final = "10,000"
GENERATED: Final = {THOUSAND: 1_000, TEN_THOUSAND: 10_000}
WEB_TOOLS: Final = ("workflow_get", "workflow_next", "workflow_validate")
VARIANTS: Final = 8  # workflows that the calls go round, so that no answer can be a remembered one

ECHO: Final = """
import asyncio, msgspec, os
while data := os.read(0, 65536):
    os.write(1, data)
"""
LOOP: Final = """
import os, sys, time, msgspec
start = time.perf_counter_ns()
for name in os.listdir(sys.argv[1]):
    with open(os.path.join(sys.argv[1], name), "rb") as file:
        msgspec.json.decode(file.read())
print(time.perf_counter_ns() - start)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure."""

    cold_rounds: int
    list_rounds: int
    call_rounds: int
    calls: int
    seconds: float  # the most that one series of calls may take
    growth_rounds: int
    run_rounds: int
    waiting_runs: int
    tool_rounds: int
    web_rounds: int
    web_calls: int


FULL: Final = Effort(
    cold_rounds=21,
    list_rounds=9,
    call_rounds=5,
    calls=2_000,
    seconds=0.5,
    growth_rounds=7,
    run_rounds=40,
    waiting_runs=10_000,
    tool_rounds=7,
    web_rounds=5,
    web_calls=1_000,
)
QUICK: Final = Effort(
    cold_rounds=5,
    list_rounds=2,
    call_rounds=2,
    calls=200,
    seconds=0.15,
    growth_rounds=3,
    run_rounds=10,
    waiting_runs=1_000,
    tool_rounds=2,
    web_rounds=2,
    web_calls=100,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A command to put at the other end of the pipes."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    is_server: bool = True

    def start(self) -> Peer:
        """A fresh process that has answered `initialize`."""
        peer = Peer(self.command, self.environment)
        try:
            if self.is_server:
                peer.ready()
        except BaseException:
            peer.close()
            raise
        return peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A set of workflows, our server on top of it, and the questions about it with their recorded answers."""

    label: str
    directory: Path | None
    server: Contestant
    arguments: Mapping[str, Sequence[Mapping[str, Any]]]
    answers: Path
    questions: Mapping[str, Request]
    direct_questions: Mapping[str, Request]
    sdk: Contestant


class Bench:
    """The contestants and the measurements."""

    def __init__(self, server: Sequence[str], scratch: Path) -> None:
        """Write the documents, and record our server's answers for the SDK's to repeat."""
        self._server = server
        self._scratch = scratch
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("WORKFLOW", "XDG_")) and name != "PYTHONDONTWRITEBYTECODE"
        }
        self._cat = Contestant(name=CAT, command=["cat"], environment=self._environment, is_server=False)
        echo = [sys.executable, "-c", ECHO]
        self._bare = Contestant(name=BARE, command=echo, environment=self._environment, is_server=False)
        self._libraries = [self._library(BUNDLED, 0), *(self._library(*item) for item in GENERATED.items())]

    def cold_start(self, rounds: int) -> dict[str, list[float]]:
        """Milliseconds from spawn to the first answer, whatever the size of the library."""
        ours = {f"{OURS}, {library.label}": library.server for library in self._libraries}
        contestants = {CAT: self._cat, BARE: self._bare, **ours, SDK: self._libraries[0].sdk}
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for number in range(rounds + 1):
            for name in _rotated(list(contestants), number):
                with contestants[name].start() as peer:
                    if number:  # the first round only warms caches and writes bytecode
                        times[name].append(peer.start_ms)
        return times

    def lists(self, rounds: int) -> dict[str, dict[str, list[float]]]:
        """Milliseconds of the first and the second `workflow_list` of a process, and of the bare loop."""
        times: dict[str, dict[str, list[float]]] = {library.label: defaultdict(list) for library in self._libraries}
        for number in range(rounds + 1):
            for library in self._libraries:
                milliseconds: dict[str, float] = {}
                for loop_first in (number % 2 == 0, number % 2 == 1):
                    if not loop_first:
                        with library.server.start() as peer:
                            milliseconds["first"] = peer.ask(library.questions["workflow_list"])[1]
                            milliseconds["second"] = peer.ask(library.questions["workflow_list"])[1]
                    elif library.directory is not None:
                        milliseconds["loop"] = _bare_loop(library.directory, self._environment)
                if number:  # the first round only warms the page cache
                    for name, elapsed in milliseconds.items():
                        times[library.label][name].append(elapsed)
        return times

    def calls(
        self, effort: Effort
    ) -> tuple[dict[str, dict[str, dict[str, list[Pace]]]], dict[str, dict[str, list[float]]]]:
        """The pace of every tool over every library, and the memory that the processes hold afterwards."""
        paces: dict[str, dict[str, dict[str, list[Pace]]]] = {}
        memory: dict[str, dict[str, list[float]]] = {}
        for number in range(effort.call_rounds):
            for library in self._libraries:
                contestants = [library.server, self._cat, self._bare, library.sdk]
                used = memory.setdefault(library.label, defaultdict(list))
                with ExitStack() as stack:
                    peers = [(each.name, stack.enter_context(each.start())) for each in contestants]
                    ours, cat, _, sdk = (peer for _, peer in peers)
                    for tool, question in library.questions.items():
                        direct = library.direct_questions[tool]
                        series = paces.setdefault(library.label, {}).setdefault(tool, defaultdict(list))
                        roads = [
                            (DIRECT, ours, direct),
                            (CAT, cat, direct),
                            (THROUGH_CALL, ours, question),
                            (SDK, sdk, question),
                        ]
                        for name, peer, requests in _rotated(roads, number):
                            peer.pace(requests, effort.calls // 5, effort.seconds / 5)  # warms up
                            series[name].append(peer.pace(requests, effort.calls, effort.seconds))
                    for name, peer in peers:
                        used[name].append(peer.resident_mb())
        return paces, memory

    def validations(self, effort: Effort) -> dict[str, list[float]]:
        """Microseconds to check a document of 20 kB, and for the bare schema."""
        with self._libraries[0].server.start() as peer:
            return validation.measure(peer, effort.growth_rounds, effort.calls // 10, effort.seconds)

    def growth(self, effort: Effort) -> dict[str, dict[int, list[float]]]:
        """Microseconds of one `workflow_next` in documents of several sizes, and as more of them is completed."""
        directory = self._scratch / "growth"
        directory.mkdir()
        for document in growth.documents():
            (directory / f"{document['id']}.json").write_text(documents.encode(document), encoding="utf-8")
        environment = self._environment | {"WORKFLOWLOOKUP_BUNDLED": "false", "WORKFLOW_STORAGE_PATH": str(directory)}
        with Contestant(name=OURS, command=self._server, environment=environment).start() as peer:
            for point in growth.points():
                peer.ask(point.question)  # a refusal is not worth measuring
            return growth.measure(peer, effort.growth_rounds, effort.calls // 10, effort.seconds / 5)

    def runs(self, effort: Effort) -> runs.RunFigures:
        """What it costs to keep runs, beside bare commits to the same disk."""
        directory = self._scratch / "runs"
        library = directory / "library"
        library.mkdir(parents=True)
        (library / "measured-run.json").write_text(documents.encode(runs.WORKFLOW), encoding="utf-8")
        environment = self._environment | {"WORKFLOWLOOKUP_BUNDLED": "false", "WORKFLOW_STORAGE_PATH": str(library)}
        waiting, rounds = effort.waiting_runs, effort.run_rounds
        return runs.measure(self._server, environment, directory, waiting=waiting, rounds=rounds)

    def proofs(self, effort: Effort) -> Mapping[str, Sequence[float]]:
        """What a proof adds to its command."""
        return proofs.measure(self._server, self._environment, self._scratch, effort.cold_rounds)

    def workflow_tools(self, effort: Effort) -> workflow_tools.ToolFigures:
        """What it costs that workflows are tools, and that the server does what they say."""
        directory = self._scratch / "tools"
        directory.mkdir()
        with _databases(2) as databases:
            return workflow_tools.measure(
                self._server, self._environment, directory, databases, rounds=effort.tool_rounds
            )

    def web(self, effort: Effort) -> web.WebFigures:
        """What it costs to be asked over HTTP, and what replicas bring."""
        library = self._libraries[0]
        arguments = {tool: library.arguments[tool] for tool in WEB_TOOLS}
        with _databases(len(web.REPLICAS)) as places:
            return web.measure(
                self._server,
                self._environment,
                library.answers,
                arguments,
                places,
                rounds=effort.web_rounds,
                calls=effort.web_calls,
            )

    def _library(self, label: str, count: int) -> Library:
        environment, directory = self._environment, None
        if count:
            directory = self._scratch / f"documents-{count}"
            documents.write(directory, count)
            environment = environment | {"WORKFLOWLOOKUP_BUNDLED": "false", "WORKFLOW_STORAGE_PATH": str(directory)}
        server = Contestant(name=OURS, command=self._server, environment=environment)
        with server.start() as peer:
            arguments = _arguments(peer)
            questions = {name: tool_calls(name, variants) for name, variants in arguments.items()}
            answers = {name: [peer.ask(call)[0] for _ in range(VARIANTS)] for name, call in questions.items()}
        recorded = self._scratch / f"answers-{count}.json"
        recorded.write_bytes(msgspec.json.encode(answers))
        command = [sys.executable, str(Path(__file__).with_name("sdk_server.py")), str(recorded)]
        sdk = Contestant(name=SDK, command=command, environment=self._environment)
        return Library(
            label=label,
            directory=directory,
            server=server,
            arguments=arguments,
            answers=recorded,
            questions=questions,
            direct_questions={name: direct_calls(name, variants) for name, variants in arguments.items()},
            sdk=sdk,
        )


def _arguments(peer: Peer) -> dict[str, list[dict[str, Any]]]:
    """What each tool is asked, about several workflows of the library in turn."""
    listed = peer.ask(tool_calls("workflow_list", [{}]))[0]["structuredContent"]["workflows"]
    ids = [workflow["id"] for workflow in listed][:: max(1, len(listed) // VARIANTS)][:VARIANTS]
    full = [{"id": name, "mode": "full"} for name in ids]
    workflows = [peer.ask(tool_calls("workflow_get", [arguments]))[0]["structuredContent"] for arguments in full]
    validations = [
        {"workflowId": workflow["id"], "stepId": _judged_step(workflow), "output": documents.OUTPUT}
        for workflow in workflows
    ]
    arguments: dict[str, list[dict[str, Any]]] = {
        "workflow_list": [{}],
        "workflow_get": [{"id": name, "mode": "preview"} for name in ids],
        "workflow_next": [
            {"workflowId": workflow["id"], "completedSteps": [step["id"] for step in workflow["steps"][:2]]}
            for workflow in workflows
        ],
        "workflow_validate": validations,
        "workflow_validate_json": [
            {"workflowJson": documents.encode(documents.document(number))} for number in range(VARIANTS)
        ],
    }
    for variant in arguments["workflow_next"] + validations:
        variant["context"] = documents.CONTEXT
    return arguments


@contextmanager
def _databases(count: int) -> Iterator[list[str]]:
    """New databases of a real PostgreSQL."""
    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    from support.postgres import Postgres  # noqa: PLC0415 - the tests know how to have one

    postgres = Postgres()
    try:
        yield [postgres.create_database() for _ in range(count)]
    finally:
        postgres.remove()


def _judged_step(workflow: Mapping[str, Any]) -> str:
    """The first step with criteria; the first of all where none has any."""
    steps = workflow["steps"]
    return str(next((step for step in steps if step.get("validationCriteria")), steps[0])["id"])


def _bare_loop(directory: Path, environment: Mapping[str, str]) -> float:
    """Milliseconds that a fresh interpreter needs to read and decode the files, its own start left out."""
    command = [sys.executable, "-c", LOOP, str(directory)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return int(done.stdout) / 1e6


@contextmanager
def _one_core() -> Iterator[None]:
    """Keep this process, and those that it starts meanwhile, on one core.

    One request at a time never uses two. Where the system puts the two ends of a pipe decides, by luck, whether a call
    wakes a sleeping core, which can cost more than the call itself.
    """
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _rotated(items: Sequence[Item], by: int) -> Sequence[Item]:
    """The items with another one first each round."""
    by %= len(items)
    return [*items[by:], *items[:by]]


def main() -> int:
    """Measure, print, and end with 0 whatever the figures: a benchmark informs. A broken server is 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first impression")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw figures to FILE")
    parser.add_argument("--server", metavar="COMMAND", help="another command that starts the server")
    options = parser.parse_args()
    effort = QUICK if options.quick else FULL
    server = shlex.split(options.server) if options.server else [sys.executable, "-m", "workflowlookup", "serve"]
    console = Console()
    console.width = max(console.width, 120)  # a broken line is easier to read than a shortened figure
    machine = _machine()
    console.print(" · ".join(f"{name} {value}" for name, value in machine.items()), highlight=False)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
            _tell("writing documents")
            bench = Bench(server, Path(scratch))
            _tell("cold start")
            cold = bench.cold_start(effort.cold_rounds)
            _tell("hooks and reading")
            hooked, readings = hooks.measure(Path(scratch), effort.cold_rounds), reading.measure(Path(scratch))
            _tell("workflow_list")
            lists = bench.lists(effort.list_rounds)
            with _one_core():
                _tell("calls")
                calls, memory = bench.calls(effort)
                _tell("validation")
                validations = bench.validations(effort)
                _tell("growth")
                grown = bench.growth(effort)
                _tell("runs")
                results = bench.runs(effort)
                _tell("chain")
                chain = chains.measure(Path(scratch), effort.growth_rounds)
            _tell("proofs")
            proven = bench.proofs(effort)
            _tell("workflow tools")
            tools = bench.workflow_tools(effort)
            _tell("HTTP")
            over_http = bench.web(effort)
            _tell("light installation")
            light = installation.measure(Path(scratch))
    except BrokenServer as problem:
        print(f"broken server: {problem}", file=sys.stderr)
        return 1
    figures = Figures(
        cold_ms=cold,
        hooks_ms=hooked,
        readings=readings,
        calls=calls,
        lists_ms=lists,
        memory_mb=memory,
        growth_us=grown,
        validations_us=validations,
        runs=results,
        chain_ms=chain,
        proofs_ms=proven,
        tools=tools,
        web=over_http,
        light=light,
    )
    report = Report(console)
    report.show(figures)
    if options.json:
        raw = msgspec.json.encode({"machine": machine, "figures": figures, "targets": report.checks})
        options.json.write_bytes(msgspec.json.format(raw) + b"\n")
    return 0


def _machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "mcp": version("mcp"),
        "msgspec": version("msgspec"),
        "system": platform.platform(terse=True),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def _tell(phase: str) -> None:
    """Say what is going on, on stderr; nothing that ticks, for that would disturb the clock."""
    print(f"… {phase}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
