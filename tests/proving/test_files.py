"""Files that lead out of the root, never end, or are too many."""

import os
import socket
from pathlib import Path

import pytest

from support.proving import Project
from workflowlookup.proving import file_proofs
from workflowlookup.proving.contract import CannotJudge
from workflowlookup.proving.files import Glob, escape, matching, shown


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("**", "a", True),
        ("**", "a/b", True),
        ("a/**", "a", False),
        ("a/**", "a/b/c", True),
        ("a/", "a/b/c", True),
        ("**/x.py", "x.py", True),
        ("**/x.py", "a/b/x.py", True),
        ("**/x.py", "a/b/y.py", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/c/d/b", True),
        ("a/**/**/b", "a/b", True),
        ("*.py", "a/b.py", False),
        ("*.py", ".b.py", True),
        ("./src/?.py", "src/x.py", True),
        ("[ab].c", "b.c", True),
        ("[!ab].c", "b.c", False),
        ("*" * 50 + "b", "a" * 200, False),
        ("**/" * 50 + "b", "a/" * 100 + "c", False),
    ],
)
def test_globs(glob: str, path: str, matches: bool) -> None:
    assert Glob(glob).matches(path) is matches


@pytest.mark.parametrize("glob", ["/etc/passwd", "../x", "a/../../x", "", ".", "a\0b", "x" * 5000])
def test_globs_outside_the_root(folder: Project, glob: str) -> None:
    with pytest.raises(CannotJudge):
        Glob(glob)
    assert folder.take({"kind": "file", "path": glob}).verdict == "unproved"


def test_values_in_a_path_match_only_themselves(folder: Project) -> None:
    folder.write("a.txt")

    assert folder.take({"kind": "file", "path": "{{name}}.txt"}, {"name": "a"}).verdict == "passed"
    assert folder.take({"kind": "file", "path": "{{name}}.txt"}, {"name": "*"}).verdict == "failed"
    assert folder.take({"kind": "file", "path": "{{name}}"}, {"name": "../../etc/passwd"}).verdict == "unproved"
    assert Glob(escape("[a]*?")).matches("[a]*?")


@pytest.mark.parametrize("path", ["secret", "out/secret", "o*/secret", "**/secret", "out/**"])
def test_links_that_leave_the_root(folder: Project, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("x")
    (folder.root / "secret").symlink_to(tmp_path / "secret")
    (folder.root / "out").symlink_to(tmp_path)

    judgement = folder.take({"kind": "file", "path": path, "text": ["x"]})

    assert judgement.verdict == ("failed" if path == "o*/secret" else "unproved")
    assert judgement.digests == {}


def test_links_that_stay_in_the_root(folder: Project) -> None:
    folder.write("releases/2/notes.txt", "hello")
    (folder.root / "latest").symlink_to("releases/2")
    (folder.root / "notes").symlink_to("latest/notes.txt")

    for path in ("latest/notes.txt", "latest/*", "notes"):
        assert folder.take({"kind": "file", "path": path, "text": ["hello"]}).verdict == "passed"


def test_what_is_no_regular_file_is_not_read(folder: Project) -> None:
    os.mkfifo(folder.root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder.root / "socket"))
        for name in ("fifo", "socket"):
            assert folder.take({"kind": "file", "path": name}).verdict == "unproved"
        assert "fifo" in folder.begin("*").problem
    (folder.root / "loop").symlink_to("loop")
    assert folder.take({"kind": "file", "path": "loop"}).verdict == "unproved"
    (folder.root / "dangling").symlink_to("missing")
    assert folder.take({"kind": "file", "path": "dangling"}).verdict == "unproved"


def test_large_files(folder: Project) -> None:
    with (folder.root / "large").open("wb") as file:
        file.truncate(17 << 20)

    judgement = folder.take({"kind": "file", "path": "large", "text": ["x"]})

    assert (judgement.verdict, "longer than 16,777,216 bytes" in judgement.reason) == ("unproved", True)
    assert folder.take({"kind": "file", "path": "large"}).verdict == "passed"


def test_the_limit_is_for_all_files_of_a_proof_together(folder: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_proofs, "MAX_DIGEST_BYTES", 100)
    folder.write("one", "x" * 60)

    assert folder.take({"kind": "file", "path": "*"}).verdict == "passed"

    folder.write("two", "x" * 60)
    judgement = folder.take({"kind": "file", "path": "*"})

    assert (judgement.verdict, judgement.reason) == ("unproved", "'two' is longer than 40 bytes, which is the limit.")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_files_that_must_not_be_read(folder: Project) -> None:
    folder.write("closed").chmod(0)

    assert folder.take({"kind": "file", "path": "closed", "text": ["x"]}).verdict == "unproved"


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with 100,000 files."""
    root = tmp_path_factory.mktemp("crowd")
    for directory in range(100):
        (root / f"{directory}").mkdir()
        for number in range(1000):
            os.close(os.open(root / f"{directory}/{number}.txt", os.O_CREAT | os.O_WRONLY))
    return root


def test_a_glob_that_matches_100_000_files(crowd: Path) -> None:
    project = Project(crowd)

    judgement = project.take({"kind": "file", "path": "**"})

    assert (judgement.verdict, judgement.reason) == ("unproved", "'**' matches more than 10,000 files.")
    assert "matches more than 10,000 files" in project.begin("**").problem
    assert project.take({"kind": "file", "path": "**/999.txt"}).verdict == "passed"
    assert project.take({"kind": "file", "path": "**/*.py", "exists": False}).verdict == "passed"
    project.prover.close()


def test_a_walk_is_bounded(crowd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflowlookup.proving.files.MAX_ENTRIES", 1000)

    with pytest.raises(CannotJudge, match="has to look at more than 1,000 files"):
        matching(str(crowd), ["**/x"])


def test_a_crowd_of_untracked_files(crowd: Path) -> None:
    project = Project(crowd)
    project.git("init", "-q")
    project.git("commit", "-q", "--allow-empty", "-m", "x")

    assert "100,000 files would have to be compared" in project.begin().problem
    judgement = project.run("true")
    project.prover.close()
    assert (judgement.verdict, judgement.is_clean) == ("passed", False)


def test_what_is_shown_of_names() -> None:
    names = ["a b", "é", "a\nb", "a\\nb", "\udcff", "\\udcff", "\u202e"]

    assert [shown(name) for name in names] == ["a b", "é", "a\\nb", "a\\\\nb", "\\udcff", "\\\\udcff", "\\u202e"]


def test_json_that_is_none(folder: Project) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    for text, verdict in (("{}", "passed"), ('{"n": "x"}', "failed"), ("{", "failed"), ("[" * 100_000, "failed")):
        folder.write("a.json", text)
        assert folder.take({"kind": "file", "path": "a.json", "json": schema}).verdict == verdict
    folder.write("a.json", " " * (2 << 20) + "{}")
    assert folder.take({"kind": "file", "path": "a.json", "json": schema}).verdict == "unproved"
