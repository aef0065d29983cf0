"""An agent with a shell on the user's account, the project that it should repair, and the real server that judges it."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from support.client import Server
from support.json_values import Json, JsonObject
from support.make import document, settings_file, step, write
from support.proving import Project

Outcome = Literal["refused", "shown", "passed"]
RUN = "r1"
ROOM = 60.0
"""Seconds that an answer may take on a busy machine."""
FIX = "add() { echo $(($1 + $2)); }\n"
FILES = {
    ".gitignore": "*.log\n",
    "app.sh": "add() { echo $(($1 - $2)); }\n",
    "Makefile": "test:\n\t@sh tests/run.sh\n",
    "tests/run.sh": (
        "passed=0 failed=0\n"
        "if [ -f tests/setup.sh ]; then . tests/setup.sh; fi\n"
        "for test in tests/test_*.sh; do\n"
        '  if sh "$test"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $test"; fi\n'
        "done\n"
        'echo "$passed passed, $failed failed"\n'
        '[ "$failed" = 0 ]\n'
    ),
    "tests/test_add.sh": '. ./app.sh\n[ "$(add 2 2)" = 4 ]\n',
    "tests/test_zero.sh": '. ./app.sh\n[ "$(add 4 0)" = 4 ]\n',
}
NEW_TEST = '. ./app.sh\n[ "$(add 1 2)" = 3 ]\n'
SETTINGS = """
[commands]
test = ["make", "-s", "test"]
regression = ["sh", "tests/test_new.sh"]
hang = ["sh", "hang.sh"]
"""
SUITE: JsonObject = {
    "kind": "command",
    "name": "suite",
    "use": "test",
    "timeout": 20,
    "measure": {"passed": {"pattern": "(\\d+) passed", "type": "integer"}},
}
BASELINE: JsonObject = {**SUITE, "name": "baseline", "at": "start"}
PINNED: JsonObject = {"kind": "git", "name": "tests-unchanged", "unchanged": ["tests/**", "Makefile"]}
AT_BASE: JsonObject = {"base": "run", "with": ["tests/test_new.sh"]}
PROOFS: dict[str, list[JsonObject]] = {
    "suite": [SUITE],
    "pinned": [PINNED, {**SUITE, "holds": {"var": "proof.suite.passed", "gte": 2}}],
    "fresh": [{**SUITE, "against": {"base": "run", "with": ["app.sh"]}}],
    "measured": [
        BASELINE,
        {
            **SUITE,
            "exitCode": [0, 1, 2],
            "holds": {"var": "proof.suite.passed", "gt": "{{proof.baseline.passed}}"},
        },
    ],
    "regression": [
        {"kind": "file", "name": "test-written", "path": "tests/test_new.sh", "changed": "run"},
        {"kind": "git", "name": "others-unchanged", "unchanged": ["tests/run.sh", "tests/test_[az]*.sh", "Makefile"]},
        {"kind": "command", "name": "fails-before", "use": "regression", "exitCode": "nonzero", "against": AT_BASE},
        {"kind": "command", "name": "passes-now", "use": "regression"},
    ],
    "committed": [
        {"kind": "git", "name": "committed", "changed": ["app.sh"], "clean": True, "commits": 1, "branch": "^main$"},
        PINNED,
        SUITE,
    ],
    "written": [
        {
            "kind": "file",
            "name": "report",
            "path": "report.json",
            "changed": "run",
            "json": {"type": "object", "required": ["cause"], "properties": {"cause": {"type": "string"}}},
        },
        {"kind": "file", "name": "app", "path": "app.sh", "changed": "step"},
    ],
    "timed": [{"kind": "command", "name": "in-time", "use": "hang", "timeout": 2}],
    "agreed": [],
}


class Attacker:
    """What an attempt uses: a shell in the project, the journal's file, the commands, and the server's tools."""

    def __init__(self, home: Path, *, environment: dict[str, str] | None = None, proofs: Json = None) -> None:
        self.home = home
        self.root = home / "project"
        self.library = home / "library"
        self.journal = home / "runs.sqlite"
        self.bin = home / ".local" / "bin"
        self.settings = settings_file(home)
        self.settings.write_text(SETTINGS)
        self.servers: list[Server] = []
        self.transcript = ""
        """What the server and the user's commands have said about the attempt."""
        self._environment = environment or {}
        for directory in (self.root, self.library, self.bin):
            directory.mkdir(parents=True)
        self.project = Project(self.root)
        self.project.git("init", "-q")
        for name, text in FILES.items():
            self.project.write(name, text)
        self.base = self.project.commit("begin")
        for name, entries in PROOFS.items():
            entry = {"requireConfirmation": {"by": "person"}} if name == "agreed" else {"proof": entries}
            write(self.library, document(step("fix", **entry), id=name))
        by_person: JsonObject = {"requireConfirmation": {"by": "person"}}
        write(self.library, document(step("fix", **by_person), step("deploy", **by_person), id="twice"))
        if proofs is not None:
            write(self.library, document(step("fix", proof=proofs), id="own"))

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the server and of the user's commands; a directory of the user is first on PATH."""
        return {
            "HOME": str(self.home),
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "WORKFLOWLOOKUP_JOURNAL": str(self.journal),
            **self._environment,
        }

    def serve(self, capabilities: JsonObject | None = None, /, **environment: str) -> Server:
        """Start a server. The last one is the one that is used."""
        server = Server(self.home, directory=self.library, environment={**self.variables, **environment})
        self.servers.append(server)
        server.initialize(capabilities=capabilities)
        return server

    @property
    def server(self) -> Server:
        return self.servers[-1]

    def call(self, tool: str, **arguments: Json) -> JsonObject:
        """The result of a tool, whatever else the server sends meanwhile."""
        return self.receive(self.send(tool, **arguments))

    def send(self, tool: str, **arguments: Json) -> str:
        """Call a tool without waiting. Returns the id of the request."""
        identifier = f"attempt-{os.urandom(6).hex()}"
        params = {"name": tool, "arguments": arguments}
        self.server.send({"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": params})
        return identifier

    def receive(self, identifier: str) -> JsonObject:
        while (reply := self.server.receive(ROOM)).get("id") != identifier:
            pass
        result: JsonObject = reply.get("result", reply)
        self.transcript += json.dumps(result)
        return result

    def begin(self, workflow: str, run: str = RUN, **arguments: Json) -> JsonObject:
        return self.call("workflow_start", workflowId=workflow, runId=run, **arguments)

    def submit(self, output: str = "All tests pass now.", run: str = RUN, **arguments: Json) -> JsonObject:
        return self.call("workflow_submit", runId=run, stepId="fix", output=output, **arguments)

    def sh(self, script: str, **environment: str) -> str:
        """What the agent does in its shell, in the project."""
        identity = {
            f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        variables = {**os.environ, **self.variables, **identity, "BASE": self.base, "BIN": str(self.bin)}
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=self.root,
            env={**variables, **environment},
            capture_output=True,
            text=True,
            timeout=ROOM,
            check=False,
        )
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout.strip()

    def cli(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command of the user."""
        return subprocess.run(
            [sys.executable, "-m", "workflowlookup", *words],
            cwd=self.root,
            env={**os.environ, **self.variables, "WORKFLOW_STORAGE_PATH": str(self.library), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ROOM,
            check=False,
        )

    def sql(self, statement: str, *values: object) -> list[Any]:
        """Change or read the journal behind the server's back."""
        with contextlib.closing(sqlite3.connect(self.journal, timeout=ROOM)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def crash(self) -> None:
        """kill -9 of the server."""
        self.server.stop()

    def close(self) -> None:
        for server in self.servers:
            server.stop()

    def outcome(self, run: str = RUN, evidence: str = "") -> Outcome:
        """What the attempt came to, as somebody sees it who looks at the run afterwards, with a program of their own."""
        self.close()
        report = self.cli("run", "show", run, "--json")
        self.transcript += report.stdout + report.stderr
        if report.returncode != 0:
            return "shown"
        shown: JsonObject = msgspec.json.decode(report.stdout)
        if shown["state"] != "completed":
            return "refused"
        proofs = shown.get("proofs") or {}
        if any(proofs.get(name) for name in ("waived", "unproved", "skipped")) or shown.get("notProven"):
            return "shown"
        verified = self.cli("verify", run)
        self.transcript += verified.stdout + verified.stderr
        if verified.returncode != 0:
            return "shown"
        if evidence and evidence in self.cli("run", "show", run).stdout:
            return "shown"
        return "passed"


class Result(NamedTuple):
    """What an attempt came to, and what was said about it."""

    outcome: Outcome
    transcript: str


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One way to get an output accepted without doing the work."""

    kind: str
    name: str
    workflow: str = "suite"
    attack: Callable[[Attacker], object] | str
    """What is done between the start of the run and the submission; a text is a script of the shell."""
    expected: Outcome = "refused"
    evidence: str = ""
    """What the report of the run says, if the attempt is `shown` in no other way."""
    reason: str = ""
    """A pattern of what is said about it, so that it does not fail for another reason; by default see `expects`."""
    listed: str = ""
    """Words of docs/security.md that describe it, if it cannot be prevented."""
    before: str = ""
    """A script that runs before the server is started."""
    output: str = "All tests pass now."
    arguments: JsonObject = {}
    """More arguments of the submission."""
    start: JsonObject = {}
    """More arguments of the start."""
    environment: dict[str, str] = {}
    """Of the server."""
    submits: bool = True
    """Whether the attempt ends with an ordinary submission."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"

    @property
    def expects(self) -> str:
        """A pattern of the reason for which it is refused or shown."""
        if self.reason or self.expected == "passed":
            return self.reason
        if self.workflow == "agreed":
            return "[Pp]erson|unknown field"
        return "[Pp]roof" if self.expected == "refused" else ""

    def make(self, home: Path) -> Result:
        """Make the attempt in an empty home."""
        attacker = Attacker(home, environment=self.environment)
        outcome = self._make(attacker)
        return Result(outcome, attacker.transcript)

    def _make(self, attacker: Attacker) -> Outcome:
        with contextlib.closing(attacker):
            if self.before:
                attacker.sh(self.before)
            attacker.serve()
            started = attacker.begin(self.workflow, **self.start)
            if started.get("isError"):
                return "refused"
            if isinstance(self.attack, str):
                attacker.sh(self.attack)
            else:
                self.attack(attacker)
            if self.submits:
                answer = attacker.submit(self.output, **self.arguments)
                content = answer.get("structuredContent", {})
                if answer.get("isError") or content.get("state") != "completed":
                    return "refused"
            return attacker.outcome(evidence=self.evidence)


def scripts(kind: str, workflow: str, rows: dict[str, str], **fields: Any) -> Iterator[Attempt]:
    """Attempts that are a script of the shell each."""
    for name, script in rows.items():
        yield Attempt(kind=kind, name=name, workflow=workflow, attack=script, **fields)
