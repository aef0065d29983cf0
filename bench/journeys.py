"""How far a request travels: calls of our functions, and the modules of our package that they are in.

python bench/journeys.py [--source DIRECTORY]

A real server is started under a profiler that counts, in all its threads, the calls of functions of our package; a
coroutine counts once, however often it goes on. A signal writes the counts down and begins again with none. Each
journey is made several times, and the smallest count is shown: what else a server does now and then is no part of it.
"""

import argparse
import dis
import functools
import json
import os
import runpy
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).parent.parent
COUNTS: Final = "JOURNEYS_COUNTS"
"""The variable that names the file for the counts."""
ROUNDS: Final = 5
HTTP_OF_STDIO: Final = 2.0
LOOKUP: Final = "lookup"
QUESTION: Final = "a submission that asks a person"
CANCELLED: Final = "a call that is cancelled"
PAGE: Final = "a console page"
STDIO: Final = "stdio"
HANDSHAKE: Final = "HTTP, 2025-11-25"
ENVELOPE: Final = "HTTP, 2026-07-28"
YES: Final = {"action": "accept", "content": {}}
WORKFLOW: Final = "journey"
SLOW: Final = "journey-slow"
STEPS: Final = 2 * ROUNDS

Journeys = dict[tuple[str, str], tuple[int, int]]
"""By journey and way: calls and modules."""


# ── in the server ───────────────────────────────────────────────────────────────────────────────────────────────


def serve() -> None:
    """The program, under a profiler; the words after `--serve` are its own."""
    import workflowlookup  # noqa: PLC0415 - from wherever PYTHONPATH says

    package = str(Path(workflowlookup.__file__).parent) + os.sep
    calls: Counter[str] = Counter()

    @functools.cache
    def start(code: CodeType) -> int:
        return next(one.offset for one in dis.get_instructions(code) if one.opname == "RESUME")

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package) and frame.f_lasti <= start(code):
            calls[code.co_filename] += 1

    def write_down(*_: object) -> None:
        counts = dict(calls)
        calls.clear()
        path = Path(os.environ[COUNTS])
        path.with_suffix(".new").write_text(json.dumps(counts))
        path.with_suffix(".new").rename(path)

    signal.signal(signal.SIGUSR1, write_down)
    threading.setprofile(note)
    sys.setprofile(note)
    sys.argv = ["workflowlookup", *sys.argv[2:]]
    runpy.run_module("workflowlookup", run_name="__main__", alter_sys=True)


# ── beside it ───────────────────────────────────────────────────────────────────────────────────────────────────


class Trace:
    """The counts of a server."""

    def __init__(self, process: Any, path: Path) -> None:
        self._process = process
        self._path = path

    def take(self) -> dict[str, int]:
        """What was called since the last time."""
        self._path.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        end = time.monotonic() + 20
        while not self._path.exists():
            assert time.monotonic() < end, "the server writes nothing down"
            time.sleep(0.005)
        return dict(json.loads(self._path.read_text()))

    def least(self, journey: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> tuple[int, int]:
        """Calls and modules of a journey, after one that only warms up."""
        lines = []
        for number in range(ROUNDS + 1):
            prepare()
            time.sleep(0.05)
            self.take()
            journey()
            time.sleep(0.02)
            counts = self.take()
            if number:
                lines.append((sum(counts.values()), len(counts)))
        return min(lines)


def measure(home: Path) -> Journeys:
    """All journeys."""
    talks: Any = import_module("support.talks")  # the clients of the tests
    journeys: Journeys = {}
    for way in (STDIO, HANDSHAKE, ENVELOPE):
        with _served(home / way, is_http=way != STDIO) as (wire, trace, base):
            talk = talks.Talk(wire, is_modern=way == ENVELOPE)
            journeys[LOOKUP, way] = trace.least(functools.partial(talk.call, "workflow_get", {"id": WORKFLOW}))
            journeys[QUESTION, way] = _question(talk, trace)
            journeys[CANCELLED, way] = _cancelled(talk, trace)
            if way == ENVELOPE:
                journeys[PAGE, "HTTP"] = _page(talk, trace, base)
    return journeys


def _question(talk: Any, trace: Trace) -> tuple[int, int]:
    run = talk.call("workflow_start", {"workflowId": WORKFLOW}).content["runId"]
    steps = iter(range(STEPS))

    def submit() -> None:
        submission = {"runId": run, "stepId": f"step-{next(steps)}", "output": "done"}
        reply = talk.call("workflow_submit", submission, answer=YES)
        assert len(reply.questions) == 1, reply.reply

    return trace.least(submit)


def _cancelled(talk: Any, trace: Trace) -> tuple[int, int]:
    def cancel() -> None:
        begun = {"name": "workflow_start", "arguments": {"workflowId": SLOW}}
        assert talk.cancelled("tools/call", begun, 0.5)
        time.sleep(0.5)  # over HTTP the server notices a moment later that a client hung up

    return trace.least(cancel)


def _page(talk: Any, trace: Trace, base: str) -> tuple[int, int]:
    import httpx2  # noqa: PLC0415

    run = talk.call("workflow_start", {"workflowId": WORKFLOW}).content["runId"]
    with httpx2.Client() as client:
        return trace.least(lambda: client.get(f"{base}/runs/{run}").raise_for_status())


@contextmanager
def _served(home: Path, *, is_http: bool) -> Iterator[tuple[Any, Trace, str]]:
    """A wire to a new server, its counts, and its address."""
    names = ("support.client", "support.make", "support.talks", "upstream.upstreams", "support.web")
    client, make, talks, upstreams, web = (import_module(name) for name in names)
    library = home / "library"
    work = {"id": "work", "title": "Work", "call": {"server": "up", "tool": "sleep", "arguments": {"seconds": 60}}}
    make.write(library, make.document(work, identifier=SLOW))
    asking = [make.step(f"step-{number}", requireConfirmation=True) for number in range(STEPS)]
    make.write(library, make.document(*asking, identifier=WORKFLOW))
    make.settings_file(home).write_text(upstreams.McpUpstream(home / "up").toml())
    environment = {COUNTS: str(home / "counts.json")}
    program = (__file__, "--serve")
    if is_http:
        server = web.WebServer(home, directory=library, environment=environment, program=(*program, "serve"))
        caller = web.WebClient(server.url)
        try:
            yield talks.WebWire(caller), Trace(server.process, home / "counts.json"), server.base
        finally:
            caller.close()
            server.stop()
        return
    server = client.Server(home, directory=library, environment=environment, program=program)
    try:
        yield talks.PipeWire(server), Trace(server.process, home / "counts.json"), ""
    finally:
        server.process.kill()
        server.process.communicate()


def show(journeys: Journeys) -> None:
    table = Table("journey", "way", "calls", "modules", f"calls of stdio's\n≤ {HTTP_OF_STDIO:.0f}", box=SIMPLE_HEAD)
    for (journey, way), (calls, modules) in journeys.items():
        stdio = journeys.get((journey, STDIO))
        ratio = f"{calls / stdio[0]:.2f}" if stdio and way != STDIO else ""
        table.add_row(journey, way, f"{calls:,}", str(modules), ratio)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the calls of five journeys.")
    parser.add_argument("--source", default=str(ROOT / "src"), help="where the package is that serves")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = options.source
    sys.path[0] = str(ROOT / "tests")  # in place of this directory, which has a `client` as well
    with tempfile.TemporaryDirectory() as scratch:
        show(measure(Path(scratch)))


if __name__ == "__main__":
    serve() if sys.argv[1:2] == ["--serve"] else main()
