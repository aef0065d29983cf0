"""A real bug and its fix: the new test fails on the commit before, and passes now."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.json_values import JsonObject
from support.proving import Project
from support.waiting import wait_until
from workflowlookup.proving.scratch import PREFIX

AGAINST = {"base": "run", "with": ["tests/**", "*_test.*", "test/**"]}


class Language:
    def __init__(self, command: list[str], files: dict[str, str], fix: dict[str, str], test: dict[str, str]) -> None:
        self.command = command
        self.files = files
        self.fix = fix
        self.test = test


LANGUAGES = {
    "unittest": Language(
        [sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", "-t", "."],
        {"app.py": "def double(n): return n + 2\n", "tests/__init__.py": ""},
        {"app.py": "def double(n): return n * 2\n"},
        {
            "tests/test_app.py": "import unittest, app\nclass TestApp(unittest.TestCase):\n"
            "    def test_double(self): self.assertEqual(app.double(3), 6)\n"
        },
    ),
    "pytest": Language(
        [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "tests"],
        {"app.py": "def double(n): return n + 2\n", "tests/conftest.py": "import sys; sys.path.insert(0, '.')\n"},
        {"app.py": "def double(n): return n * 2\n"},
        {"tests/test_app.py": "import app\ndef test_double(): assert app.double(3) == 6\n"},
    ),
    "node": Language(
        ["node", "--test"],
        {"app.mjs": "export const double = n => n + 2;\n"},
        {"app.mjs": "export const double = n => n * 2;\n"},
        {
            "test/app.test.mjs": "import test from 'node:test';\nimport assert from 'node:assert';\n"
            "import { double } from '../app.mjs';\ntest('doubles', () => assert.equal(double(3), 6));\n"
        },
    ),
    "cargo": Language(
        ["cargo", "test", "--offline", "--quiet"],
        {
            "Cargo.toml": '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n',
            "Cargo.lock": 'version = 3\n\n[[package]]\nname = "app"\nversion = "0.1.0"\n',
            ".gitignore": "target\n",
            "src/lib.rs": "pub fn double(n: i32) -> i32 { n + 2 }\n",
        },
        {"src/lib.rs": "pub fn double(n: i32) -> i32 { n * 2 }\n"},
        {"tests/app.rs": "#[test]\nfn doubles() { assert_eq!(app::double(3), 6); }\n"},
    ),
    "java": Language(
        ["java", "tests/AppTest.java"],
        {"double.txt": "5"},
        {"double.txt": "6"},
        {
            "tests/AppTest.java": "import java.nio.file.*;\nclass AppTest { public static void main(String[] a) throws Exception {\n"
            '    if (!Files.readString(Path.of("double.txt")).equals("6")) throw new AssertionError("not 6");\n}}\n'
        },
    ),
    "go": Language(
        ["go", "test", "./..."],
        {"go.mod": "module app\n\ngo 1.20\n", "app.go": "package app\n\nfunc Double(n int) int { return n + 2 }\n"},
        {"app.go": "package app\n\nfunc Double(n int) int { return n * 2 }\n"},
        {
            "app_test.go": 'package app\n\nimport "testing"\n\nfunc TestDouble(t *testing.T) {\n'
            "\tif Double(3) != 6 {\n\t\tt.Fatal(Double(3))\n\t}\n}\n"
        },
    ),
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_regression_test_fails_without_the_fix_and_passes_with_it(folder: Project, name: str) -> None:
    language = LANGUAGES[name]
    version = [language.command[0], "version" if name == "go" else "--version"]
    if shutil.which(version[0]) is None or subprocess.run(version, capture_output=True, check=False).returncode:
        pytest.skip(f"{version[0]} is not installed, or not set up for this user")
    folder.git("init", "-q")
    for path, text in language.files.items():
        folder.write(path, text)
    folder.commit("with a bug")
    folder.begin()
    fails_before: JsonObject = {"exitCode": "nonzero", "against": AGAINST, "env": ["CARGO_HOME", "RUSTUP_HOME"]}

    def verdicts() -> list[str]:
        before = folder.run(*language.command, **fails_before)
        now = folder.run(*language.command, env=["CARGO_HOME", "RUSTUP_HOME"])
        return [before.verdict, now.verdict]

    for path, text in language.test.items():
        folder.write(path, text)
    assert verdicts() == ["unproved", "failed"]  # the test alone: it fails with and without the change
    for path, text in language.fix.items():
        folder.write(path, text)
    assert verdicts() == ["passed", "passed"]
    for path in language.test:
        folder.write(path, "" if name != "java" else "class AppTest { public static void main(String[] a) {} }")
    assert "failed" in verdicts()  # a test that tests nothing fails neither before nor now, or both times


def left_over(project: Project) -> list[str]:
    return [name for name in os.listdir(project.prover._scratch._path) if name.startswith("worktree")]


def test_the_files_are_those_of_the_commit_and_the_copied_ones(project: Project) -> None:
    project.begin()
    project.write("src/app.py", "x = 2\n")
    project.write("tests/test_app.py", "new\n")
    project.write("tests/deep/more.py", "more\n")
    project.write("untracked.txt")

    judgement = project.run(
        "sh",
        "-c",
        "pwd; git rev-parse HEAD; git status --short; cat $(git ls-files); cat tests/deep/*",
        against=AGAINST,
    )

    directory, commit, *rest = judgement.tail.split("\n")
    assert rest == [" M tests/test_app.py", "?? tests/deep/", "x = 1", "new", "more"]
    assert (judgement.verdict, commit) == ("passed", project.git("rev-parse", "HEAD"))
    assert not directory.startswith(str(project.root))
    assert not os.path.exists(directory)
    assert list(judgement.digests) == ["tests/deep/more.py", "tests/test_app.py"]
    assert left_over(project) == []


def test_nothing_in_the_root_is_written(project: Project) -> None:
    project.begin()
    project.write("tests/test_app.py", "new\n")
    project.git("status")

    def everything() -> dict[str, Any]:
        return {str(path): path.is_file() and path.read_bytes() for path in project.root.rglob("*")}

    before = everything()
    script = "git add -A; git -c user.name=a -c user.email=b commit -qm x; git branch other; git gc -q; rm -rf src; mkdir made"

    assert project.run("sh", "-c", script, against=AGAINST).verdict == "passed"
    assert everything() == before


def test_links_in_the_commit_are_not_written_through(project: Project, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    shutil.rmtree(project.root / "tests")
    (project.root / "tests").symlink_to(tmp_path / "victim")
    (project.root / "file").symlink_to(tmp_path / "victim.txt")
    project.commit("links")
    project.begin()
    for name in ("tests", "file"):
        (project.root / name).unlink()
    project.write("tests/test_app.py", "new\n")
    project.write("file", "new\n")

    judgement = project.run("cat", "tests/test_app.py", "file", against={"base": "run", "with": ["tests/**", "file"]})

    assert judgement.tail == "new\nnew"
    assert list((tmp_path / "victim").iterdir()) == []
    assert not (tmp_path / "victim.txt").exists()


def test_links_out_of_the_root_are_not_copied(project: Project, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    project.begin()
    (project.root / "tests/link").symlink_to(tmp_path / "secret")

    judgement = project.run("true", against=AGAINST)

    assert (judgement.verdict, "leaves the root" in judgement.reason) == ("unproved", True)
    assert left_over(project) == []


@pytest.mark.parametrize("base", ["step", "no-such-branch", "-h", "--help", "HEAD@{1}", "a b"])
def test_a_base_that_does_not_exist(project: Project, base: str) -> None:
    project.begin()

    assert project.run("true", against={"base": base}).verdict == "unproved"


def test_nothing_to_copy_is_unproved(project: Project) -> None:
    project.begin()

    judgement = project.run("false", exitCode="nonzero", against={"base": "run", "with": ["spec/**"]})

    assert (judgement.verdict, "nothing to copy" in judgement.reason) == ("unproved", True)


def test_a_program_that_the_commit_has_not_is_the_one_of_the_root(project: Project) -> None:
    project.write(".gitignore", "bin\n")
    project.commit()
    project.begin()
    project.write("bin/tool", "#!/bin/sh\npwd\n").chmod(0o755)

    judgement = project.run("bin/tool", against={"base": "run"})

    assert (judgement.verdict, judgement.tail.startswith(str(project.root))) == ("passed", False)


def test_read_only_leftovers_of_a_command_are_removed(project: Project) -> None:
    project.begin()

    assert (
        project.run("sh", "-c", "mkdir -p a/b; touch a/b/c; chmod 0 a/b; chmod 500 a", against={"base": "run"}).verdict
        == "passed"
    )
    assert left_over(project) == []


KILLED = """
import sys
from support.proving import Project
from pathlib import Path
project = Project(Path(sys.argv[1]))
project.begin()
project.run("sh", "-c", "touch ../ready; sleep 600", against={"base": "run"})
"""


def test_what_a_killed_server_left_is_removed_by_the_next(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[1])}
    server = subprocess.Popen([sys.executable, "-c", KILLED, str(project.root)], env=environment)
    wait_until(lambda: list(temporary.glob("*/ready")))
    server.kill()
    server.wait()
    (left,) = temporary.iterdir()
    (temporary / f"{PREFIX}file").touch()
    (temporary / f"{PREFIX}link").symlink_to(project.root)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))

    assert oct(left.stat().st_mode & 0o777) == "0o700"
    assert project.run("true").verdict == "passed"
    assert not left.exists()
    assert (project.root / "src").exists()


ENDED = """
import os, signal, sys
from pathlib import Path
from support.proving import Project
from workflowlookup.transport import signals
project = Project(Path(sys.argv[1]))
project.begin()
assert os.listdir(os.environ["TMPDIR"])
if sys.argv[2] == "signal":
    signals.end_by(signal.SIGTERM)
"""


@pytest.mark.parametrize("way", ["signal", "exit"])
def test_a_server_that_ends_leaves_nothing(project: Project, tmp_path: Path, way: str) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[1])}

    done = subprocess.run([sys.executable, "-c", ENDED, str(project.root), way], env=environment, check=False)

    assert done.returncode == (-15 if way == "signal" else 0)
    assert list(temporary.iterdir()) == []


def test_a_temporary_directory_inside_the_root(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.root / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(project.root / "tmp"))

    judgement = project.take({"kind": "git", "clean": True})

    assert (judgement.verdict, "is inside the root" in judgement.reason) == ("unproved", True)
    assert list((project.root / "tmp").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting is not allowed")
    monkeypatch.setattr("tempfile.tempdir", str(small))
    try:
        project.write("large.bin", "x" * 200_000)
        project.commit()
        project.begin()
        judgement = project.run("true", against={"base": "HEAD"})
        project.prover.close()
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", small], check=True)

    assert judgement.verdict == "unproved"


def test_a_command_that_always_fails_in_a_fresh_copy_proves_nothing(project: Project) -> None:
    project.begin()
    project.write("tests/test_app.py", "new\n")
    project.write("ignored/installed", "")
    project.write(".git/info/exclude", "ignored\n")

    judgement = project.run("cat", "ignored/installed", exitCode="nonzero", against=AGAINST)

    assert (judgement.verdict, project.run("cat", "ignored/installed").verdict) == ("unproved", "passed")
    assert judgement.reason.startswith("It also fails in the temporary copy with the whole change")


def test_the_whole_change_has_new_and_deleted_files(project: Project) -> None:
    project.write("old.txt")
    project.commit("more")
    project.begin()
    (project.root / "old.txt").unlink()
    project.write("src/new.txt", "new")
    project.write("tests/test_app.py", "test -e src/new.txt && ! test -e old.txt\n")

    assert project.run("sh", "tests/test_app.py", exitCode="nonzero", against=AGAINST).verdict == "passed"
