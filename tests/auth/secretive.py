"""A library with something to hide, runs of it, and connections of callers who see different parts of it."""

import json
import os
from pathlib import Path

from support.json_values import Json, JsonObject
from support.make import document, step, write
from support.memory_client import MemoryClient
from workflowlookup.access import Access
from workflowlookup.auth.backends import CallerBackends, SharedBackend
from workflowlookup.library.catalog import Catalog
from workflowlookup.library.directory import DirectorySource
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.connection import Connection
from workflowlookup.providers.config import Plan
from workflowlookup.runs.run import Run
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.tools.contract import ServerServices
from workflowlookup.tools.dynamic import DynamicTools

HELD = [step("write", requireConfirmation=True), step("send")]
OPEN = ("docs-guide", "docs-notes")
HIDDEN = ("docs", "secret-plan", "secret-docs-plan")
"""The first is what most patterns for the others nearly admit."""
ASKING: JsonObject = {"elicitation": {}}


def caller(
    *scopes: str, name: str = "token ci-bot", kind: str = "agent", workflows: tuple[str, ...] = ("docs-*",)
) -> Access:
    return Access(name=name, kind=kind, scopes=frozenset(scopes or ("read",)), workflows=workflows)


class Deployment:
    """One library and one journal; `hidden` says whether there is anything to hide."""

    def __init__(
        self, directory: Path, *, hidden: bool = True, confirmation: str = "auto", budget: int = 200_000
    ) -> None:
        self.library = directory / "library"
        self.library.mkdir(parents=True)
        self.now = 1_800_000_000_000
        self.ids = iter(f"run-{number}" for number in range(1_000))
        for identifier in OPEN + (HIDDEN if hidden else ()):
            word = "docs" if identifier in OPEN else "canary"
            questions = [f"Which {word}?"]
            write(
                self.library,
                document(*HELD, identifier=identifier, name=f"The {word}", clarificationPrompts=questions),
            )
            folder = self.library / f"{identifier}.files"
            if identifier == "docs-notes":
                folder.symlink_to("docs-guide.files")  # which makes the skill one that cannot be served
                continue
            folder.mkdir()
            (folder / "note.txt").write_text(f"A note about {word}")
        (self.library / "docs-broken.json").write_text('{"id": "docs-broken"}')
        if hidden:
            (self.library / "secret-broken.json").write_text('{"id": "secret-broken", "canary": 1}')
        self.journal = SqliteJournal(os.fspath(directory / "runs.sqlite"))
        self.runs = Runs(
            self.journal,
            clock=lambda: self.now,
            new_id=lambda: next(self.ids),
        )
        self.services = ServerServices(
            catalog=Catalog([DirectorySource("library", os.fspath(self.library))]),
            open_runs=lambda: self.runs,
            open_workflows=lambda: self.workflows,
            confirmation=confirmation,
        )
        self.workflows = DynamicTools(self.services, Plan(budget_bytes=budget))
        self.backends = CallerBackends(
            SharedBackend(lambda: self.services, lambda: None, announces_changes=lambda: True)
        )
        for identifier in OPEN + (HIDDEN if hidden else ()):
            self.begin(identifier, f"of-{identifier}")
            self.begin(identifier, f"held-{identifier}")
            self.runs.submit(f"held-{identifier}", "write", f"The output of {identifier}", {})

    def begin(self, workflow_id: str, run_id: str) -> Run:
        return self.runs.start(self.services.catalog.get(workflow_id), {}, {}, run_id=run_id, by="somebody")

    def connect(self, access: Access, *, capabilities: JsonObject | None = None) -> "ScopedClient":
        return ScopedClient(self.backends.of(access), capabilities)

    def close(self) -> None:
        self.runs.close()


class ScopedClient(MemoryClient):
    """A connection in memory, at 2025-11-25."""

    def __init__(self, backend: Backend, capabilities: JsonObject | None = None) -> None:
        self.connection = Connection(backend)
        about = {"capabilities": capabilities or {}, "clientInfo": {"name": "Claude Code", "version": "1"}}
        self.ask("initialize", {"protocolVersion": "2025-11-25", **about})

    def ask(self, method: str, params: Json = None) -> Json:
        """The whole reply, and everything that was said meanwhile."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        reply = self.connection.handle(json.dumps(message).encode())
        return json.loads(reply) if reply else None

    def answer(self, name: str, content: JsonObject) -> Json:
        message = {"jsonrpc": "2.0", "id": name, "result": {"action": "accept", "content": content}}
        reply = self.connection.handle(json.dumps(message).encode())
        return json.loads(reply) if reply else None

    def result(self, method: str, params: Json = None) -> Json:
        reply = self.ask(method, params)
        assert "error" not in reply, reply
        return reply["result"]

    def refusal(self, method: str, params: Json = None) -> Json:
        reply = self.ask(method, params)
        assert "result" not in reply, reply
        return reply["error"]

    def heard(self) -> list[str]:
        """The addresses that were announced as changed."""
        self.connection.poll()
        sent, self.connection.outbox[:] = [json.loads(one) for one in self.connection.outbox], []
        return sorted(one["params"]["uri"] for one in sent if one["method"] == "notifications/resources/updated")
