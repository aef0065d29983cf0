"""Every kind of proof, both ways."""

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support.json_values import JsonObject
from support.proving import Project
from workflowlookup.language.proof import PROOFS
from workflowlookup.proving.prover import KINDS

PYTHON = sys.executable


def test_every_kind_can_be_taken() -> None:
    assert set(KINDS) == set(PROOFS.values())


# ── command ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("script", "fields", "verdict"),
    [
        ("", {}, "passed"),
        ("raise SystemExit(3)", {}, "failed"),
        ("raise SystemExit(3)", {"exitCode": 3}, "passed"),
        ("raise SystemExit(3)", {"exitCode": [0, 3]}, "passed"),
        ("raise SystemExit(3)", {"exitCode": "nonzero"}, "passed"),
        ("", {"exitCode": "nonzero"}, "failed"),
        ("print('all well')", {"stdout": [{"type": "contains", "value": "well", "message": "m"}]}, "passed"),
        ("print('all bad')", {"stdout": [{"type": "contains", "value": "well", "message": "m"}]}, "failed"),
        ("import sys; print('e', file=sys.stderr)", {"stderr": ["^e$"]}, "passed"),
        ("import sys; print('e', file=sys.stderr)", {"stderr": ["^f$"]}, "failed"),
        ("print('3 passed\\n5 passed')", {"measure": {"n": {"pattern": r"(\d+) passed"}}}, "passed"),
        ("print('nothing')", {"measure": {"n": {"pattern": r"(\d+) passed"}}}, "unproved"),
    ],
)
def test_a_command(folder: Project, script: str, fields: dict[str, Any], verdict: str) -> None:
    assert folder.run(PYTHON, "-c", script, **fields).verdict == verdict


def test_a_measure_is_the_last_match_and_may_be_compared(folder: Project) -> None:
    entry: JsonObject = {
        "measure": {"n": {"pattern": r"(\d+) passed", "type": "integer"}},
        "holds": {"var": "proof.it.n", "gte": "{{proof.baseline.n}}"},
    }
    script = "print('3 passed\\n5 passed')"

    taken = [folder.run(PYTHON, "-c", script, context={"proof": {"baseline": {"n": n}}}, **entry) for n in (5, 6)]

    assert [(it.verdict, it.measures) for it in taken] == [("passed", {"n": 5}), ("failed", {"n": 5})]
    assert "proof.it.n is 5" in taken[1].reason
    assert folder.run(PYTHON, "-c", script, **entry).verdict == "unproved"


def test_a_command_of_the_settings(folder: Project) -> None:
    folder.commands = {"test": [PYTHON, "-c", "import sys; print(sys.argv[1:])"]}
    entry = {"kind": "command", "use": "test", "args": ["{{what}}", "x;y"]}

    judgement = folder.take(entry, {"what": "a b"})

    assert (judgement.verdict, judgement.tail) == ("passed", "['a b', 'x;y']")
    assert folder.take({"kind": "command", "use": "lint"}).remedy.startswith("Define it in the settings")


# ── file ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"path": "src/app.py"}, "passed"),
        ({"path": "src/*.py"}, "passed"),
        ({"path": "**/app.py"}, "passed"),
        ({"path": "src/*.js"}, "failed"),
        ({"path": "src/*.js", "exists": False}, "passed"),
        ({"path": "src/app.py", "exists": False}, "failed"),
        ({"path": "src", "exists": False}, "failed"),
        ({"path": "src/app.py", "text": ["x = 1"]}, "passed"),
        ({"path": "src/app.py", "text": ["x = 2"]}, "failed"),
        ({"path": "a.json", "json": {"type": "object", "required": ["a"]}}, "passed"),
        ({"path": "a.json", "json": {"type": "object", "required": ["b"]}}, "failed"),
        ({"path": "src/app.py", "json": {}}, "failed"),
        ({"path": "src/app.py", "changed": "run"}, "failed"),
        ({"path": "new.txt", "changed": "run"}, "passed"),
        ({"path": "dirty.txt", "changed": "run"}, "failed"),
        ({"path": "tests/*", "changed": "run"}, "passed"),
        ({"path": "ignored.txt", "changed": "run"}, "failed"),
    ],
)
@pytest.mark.parametrize("has_repository", [True, False])
def test_a_file(folder: Project, has_repository: bool, fields: dict[str, Any], verdict: str) -> None:
    for name in ("src/app.py", "tests/test_app.py"):
        folder.write(name, "x = 1\n")
    folder.write(".gitignore", "ignored.txt\n")
    folder.write("a.json", json.dumps({"a": 1}))
    if has_repository:
        folder.git("init", "-q")
        folder.commit()
    folder.write("dirty.txt")
    folder.write("ignored.txt")
    folder.begin("**")
    folder.write("tests/test_app.py", "x = 2\n")
    folder.write("new.txt")

    judgement = folder.take({"kind": "file", **fields})

    assert judgement.verdict == verdict
    assert judgement.is_clean is (False if has_repository else None)


# ── git ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"changed": ["src/**"]}, "passed"),
        ({"changed": ["src/**", "docs/**"]}, "failed"),
        ({"changed": ["new.txt"]}, "passed"),
        ({"changed": ["committed.txt"]}, "passed"),
        ({"changed": ["deleted.txt"]}, "passed"),
        ({"changed": ["reverted.txt"]}, "failed"),
        ({"changed": ["dirty.txt"]}, "failed"),
        ({"changed": ["dirtier.txt"]}, "passed"),
        ({"changed": ["ignored.txt"]}, "failed"),
        ({"unchanged": ["tests/**"]}, "passed"),
        ({"unchanged": ["src/**"]}, "failed"),
        ({"unchanged": ["dirty.txt", "reverted.txt", "ignored.txt"]}, "passed"),
        ({"clean": True}, "failed"),
        ({"clean": False}, "passed"),
        ({"commits": 1}, "passed"),
        ({"commits": 2}, "failed"),
        ({"branch": "^main$"}, "passed"),
        ({"branch": "^feature/"}, "failed"),
    ],
)
def test_git(project: Project, fields: dict[str, Any], verdict: str) -> None:
    project.write(".gitignore", "ignored.txt\n")
    for name in ("deleted.txt", "reverted.txt"):
        project.write(name)
    project.commit()
    for name in ("dirty.txt", "dirtier.txt"):
        project.write(name)
    project.begin()
    project.write("committed.txt")
    project.write("reverted.txt", "other\n")
    project.git("add", "committed.txt", "reverted.txt")
    project.git("commit", "-q", "-m", "one")
    project.write("reverted.txt")
    project.write("src/app.py", "x = 2\n")
    project.write("new.txt")
    project.write("ignored.txt")
    project.write("dirtier.txt", "y\n")
    (project.root / "deleted.txt").unlink()

    judgement = project.take({"kind": "git", **fields})

    assert (judgement.verdict, judgement.reason != "") == (verdict, verdict != "passed"), judgement


def test_a_clean_tree(project: Project) -> None:
    assert project.take({"kind": "git", "clean": True}).verdict == "passed"
    assert project.take({"kind": "git", "clean": False}).verdict == "failed"


# ── http ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = int(self.path.strip("/").partition("?")[0] or 200)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://192.0.2.1/elsewhere")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"hello")

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize(
    ("path", "fields", "verdict"),
    [
        ("", {}, "passed"),
        ("404", {}, "failed"),
        ("404", {"status": 404}, "passed"),
        ("302", {}, "failed"),
        ("302", {"status": 302}, "passed"),
        ("", {"method": "HEAD"}, "passed"),
        ("500", {"method": "HEAD"}, "failed"),
        ("", {"body": ["hello"]}, "passed"),
        ("", {"body": ["goodbye"]}, "failed"),
    ],
)
def test_http(folder: Project, port: int, path: str, fields: dict[str, Any], verdict: str) -> None:
    entry = {"kind": "http", "url": f"http://localhost:{port}/{path}", "within": 0.3, **fields}

    judgement = folder.take(entry)

    assert (judgement.verdict, judgement.reason.startswith("Within")) == (verdict, verdict == "failed")
