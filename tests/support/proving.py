"""A project directory in which proofs are taken."""

import asyncio
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from workflowlookup.language.proof import proofs_of
from workflowlookup.language.values import Context
from workflowlookup.proving.contract import ProofTask
from workflowlookup.proving.prover import Prover
from workflowlookup.runs.events import Judgement, Snapshot

NO_CONTEXT: Context = {}


class Project:
    """A project directory, the prover, and the snapshots of the run and the step."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commands: Mapping[str, Sequence[str]] = {}
        self.allowed_hosts: Collection[str] = ()
        self.refusal = ""
        self.progress: list[str] = []
        self.prover = Prover(lambda: self.commands, lambda _: self.refusal, lambda: self.allowed_hosts)
        self.run_snapshot: Snapshot | None = None
        self.step_snapshot: Snapshot | None = None

    @classmethod
    def create(cls, root: Path, files: Mapping[str, str]) -> "Project":
        """A project directory with a repository and one commit of these files."""
        root.mkdir()
        project = cls(root)
        project.git("init", "-q")
        for name, text in files.items():
            project.write(name, text)
        project.commit("begin")
        return project

    def __fspath__(self) -> str:
        return str(self.root)

    def write(self, name: str, text: str = "x\n") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def git(self, *arguments: str, **options: Any) -> str:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        command = ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *identity, *arguments]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True, **options)
        return str(done.stdout).strip()

    def commit(self, message: str = "change") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def begin(self, *globs: str) -> Snapshot:
        """Take the snapshot with which a run begins."""
        self.run_snapshot = asyncio.run(self.prover.snapshot(str(self.root), globs))
        return self.run_snapshot

    def begin_step(self, *globs: str) -> Snapshot:
        self.step_snapshot = asyncio.run(self.prover.snapshot(str(self.root), globs))
        return self.step_snapshot

    def task(self, entry: Mapping[str, Any], context: Context = NO_CONTEXT) -> ProofTask:
        (proof,) = proofs_of({"proof": [{"name": "it", **entry}]})
        return ProofTask(
            run_id="r",
            proof=proof,
            context=context,
            root=str(self.root),
            run_snapshot=self.run_snapshot,
            step_snapshot=self.step_snapshot,
        )

    def take(self, entry: Mapping[str, Any], context: Context = NO_CONTEXT) -> Judgement:
        """Take the proof of a document's entry."""
        return asyncio.run(self.prover.take(self.task(entry, context), self.progress.append))

    def run(self, *words: str, context: Context = NO_CONTEXT, **fields: Any) -> Judgement:
        """Take the proof of a command."""
        return self.take({"kind": "command", "run": list(words), **fields}, context)
