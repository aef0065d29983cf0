"""A server's own work without the server around it: a journal, runs, and an execution that follows them."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.json_values import Json, JsonObject
from support.make import document
from upstream.upstreams import McpUpstream
from workflowlookup.execution.proof_runner import ProofRunner
from workflowlookup.execution.service import Execution
from workflowlookup.language.document.building import build
from workflowlookup.language.model import Workflow
from workflowlookup.providers.config import Plan, ServerConfig
from workflowlookup.runs.draft import Location
from workflowlookup.runs.run import Run
from workflowlookup.store.journal_url import JournalUrl
from workflowlookup.store.service import Runs

PATIENCE = 30.0
NO_COMMANDS: Mapping[str, Sequence[str]] = {}


def server_config(upstream: McpUpstream) -> ServerConfig:
    fields: JsonObject = {key: tuple(value) if key == "args" else value for key, value in upstream.server().items()}
    return ServerConfig(name=upstream.name, **fields)


def call(
    identifier: str,
    tool: str,
    arguments: JsonObject | None = None,
    *,
    server: str = "up",
    step: JsonObject | None = None,
    **fields: Json,
) -> JsonObject:
    """A step with a call; its result is saved under its id."""
    call = {"server": server, "tool": tool, "arguments": arguments or {}, "saveAs": identifier, **fields}
    return {"id": identifier, "title": f"Title {identifier}", "call": call, **(step or {})}


def flow(*steps: JsonObject, **fields: Json) -> Workflow:
    return build(document(*steps, **fields))


WITNESS_SECONDS = 0.1


def open_runs(journal_url: str, root: str = "") -> Runs:
    """The runs of a journal; those that are started here have this project directory."""
    return Runs(JournalUrl(journal_url).open(), locate=lambda: Location(root=root, root_source="flag", machine="here"))


class Working:
    """An execution, and the runs of the thread that uses it."""

    def __init__(
        self, journal_url: str, plan: Plan, root: str = "", commands: Mapping[str, Sequence[str]] = NO_COMMANDS
    ) -> None:
        self.journal_url = journal_url
        self.rung = threading.Event()
        self.runs = open_runs(journal_url, root)
        self.execution = Execution(
            plan,
            lambda: open_runs(journal_url),
            journal_url,
            self.rung.set,
            make_proofs=lambda consent: ProofRunner(
                lambda _: commands, tuple, consent, "here", lambda: WITNESS_SECONDS
            ),
        )
        self.runs.listeners.append(self._follow)

    def _follow(self, _: str, run: Run | None) -> None:
        if run is not None:
            self.execution.follow(run)

    def start(self, workflow: Workflow, given: JsonObject | None = None, **options: Any) -> Run:
        return self.runs.start(workflow, given or {}, {}, **options)

    def until(self, run_id: str, is_so: Callable[[Run], object], seconds: float = PATIENCE) -> Run:
        """The run, once it is so; looked at whenever the bell rings."""
        end = time.monotonic() + seconds
        while not is_so(run := self.runs.get(run_id)):
            assert time.monotonic() < end, (run.state, run.waiting_for, run.current, run.calling, run.end)
            self.rung.wait(0.1)
            self.rung.clear()
        return run

    def over(self, run_id: str, seconds: float = PATIENCE) -> Run:
        """The run, once it is over and nothing runs beneath it."""
        return self.until(run_id, lambda run: run.is_over and not run.needs_stop, seconds)

    def finished(self, workflow: Workflow, given: JsonObject | None = None, **options: Any) -> Run:
        return self.over(self.start(workflow, given, **options).id)

    def events(self, run_id: str) -> list[str]:
        return [type(record.event).__name__ for record in self.runs.history(run_id)]

    def close(self) -> None:
        self.execution.close(10.0)
        self.runs.close()
        end = time.monotonic() + 5
        while left := [t.name for t in threading.enumerate() if t.name.startswith(("workflowlookup", "dbos"))]:
            assert time.monotonic() < end, left
            time.sleep(0.01)


def effects(upstream: McpUpstream) -> list[str]:
    path = Path(upstream.directory) / "effects.txt"
    return path.read_text().splitlines() if path.exists() else []
