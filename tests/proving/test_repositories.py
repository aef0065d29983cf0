"""Repositories that are hostile, unusual or in the middle of something."""

import asyncio
import os
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.json_values import JsonObject
from support.proving import Project
from workflowlookup.runs.events import Judgement, Snapshot

EVERYTHING: list[dict[str, Any]] = [
    {"kind": "git", "changed": ["**"]},
    {"kind": "git", "unchanged": ["**"]},
    {"kind": "git", "clean": True},
    {"kind": "git", "commits": 1},
    {"kind": "git", "branch": "main"},
    {"kind": "file", "path": "src/app.py", "changed": "run"},
    {"kind": "command", "run": ["true"]},
    {"kind": "command", "run": ["true"], "against": {"base": "run", "with": ["tests/**"]}},
    {"kind": "command", "run": ["true"], "against": {"base": "HEAD~1"}},
]


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of a directory: its time of change and its content."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@pytest.fixture
def hostile(project: Project, tmp_path: Path) -> Path:
    """Every setting of the repository that names a program names one that writes a file, which is returned."""
    trap = tmp_path / "trap"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $@" >> {trap}\ncat\n')
    program.chmod(0o755)
    project.commit("second")
    project.write(".gitattributes", "* filter=evil diff=evil merge=evil ident\n")
    project.write("secret.txt")
    project.commit("attributes")
    for name, value in {
        "core.fsmonitor": program,
        "core.hooksPath": tmp_path / "hooks",
        "core.pager": program,
        "core.editor": program,
        "core.sshCommand": program,
        "core.gitProxy": program,
        "core.askPass": program,
        "core.alternateRefsCommand": program,
        "core.worktree": tmp_path,
        "core.attributesFile": tmp_path / "attributes",
        "pager.status": program,
        "pager.log": program,
        "filter.evil.clean": program,
        "filter.evil.smudge": program,
        "filter.evil.process": program,
        "filter.evil.required": "true",
        "diff.external": program,
        "diff.evil.textconv": program,
        "diff.evil.command": program,
        "merge.evil.driver": program,
        "credential.helper": program,
        "gpg.program": program,
        "log.showSignature": "true",
        "sequence.editor": program,
        "interactive.diffFilter": program,
        "uploadpack.packObjectsHook": program,
        "remote.origin.url": f"ext::{program}",
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": program,
        "extensions.partialClone": "origin",
        "protocol.ext.allow": "always",
        "submodule.recurse": "true",
        "include.path": tmp_path / "included",
        "includeIf.gitdir:/.path": tmp_path / "included",
        **{f"alias.{name}": f"!{program}" for name in ("status", "diff", "rev-parse", "read-tree", "ls-tree")},
    }.items():
        subprocess.run(["git", "config", "-f", project.root / ".git/config", name, str(value)], check=True)
    (tmp_path / "included").write_text(f"[core]\n\tfsmonitor = {program}\n")
    for directory in (tmp_path / "hooks", project.root / ".git/hooks"):
        directory.mkdir(exist_ok=True)
        for name in ("post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watchman", "pre-commit"):
            (directory / name).write_text(program.read_text())
            (directory / name).chmod(0o755)
    (project.root / ".git/info/attributes").write_text("* filter=evil diff=evil\n")
    project.run_snapshot = Snapshot(commit=project_head(project), is_repository=True)
    return trap


def project_head(project: Project) -> str:
    head = project.root / ".git/refs/heads/main"
    return head.read_text().strip()


def test_nothing_that_a_repository_names_is_run(project: Project, hostile: Path) -> None:
    os.utime(project.root / "src/app.py")  # git has to look at its content
    project.write("tests/test_app.py", "changed\n")
    before = contents(project.root)

    taken = [project.take(entry) for entry in EVERYTHING]

    assert [judgement.verdict for judgement in taken] == [
        *("passed", "failed", "unproved", "failed", "passed", "failed", "passed", "passed", "passed")
    ]
    assert not hostile.exists(), hostile.read_text()
    assert contents(project.root) == before


def test_the_trap_works(project: Project, hostile: Path) -> None:
    """Git itself would run what the repository names."""
    os.utime(project.root / "src/app.py")
    subprocess.run(["git", "config", "-f", ".git/config", "--unset", "core.worktree"], cwd=project.root, check=True)

    subprocess.run(["git", "--no-pager", "diff"], cwd=project.root, capture_output=True, check=False)

    assert hostile.exists()


def test_nothing_in_the_index_hides_a_change(project: Project) -> None:
    project.commit("all")
    project.begin()
    for flag in ("--assume-unchanged", "--skip-worktree"):
        project.write("src/app.py", f"{flag}\n")
        project.git("update-index", flag, "src/app.py")
        assert project.git("status", "--porcelain") == ""

        assert project.take({"kind": "git", "unchanged": ["src/**"]}).verdict == "failed"
        assert project.take({"kind": "git", "clean": True}).verdict == "failed"
        project.git("update-index", f"--no-{flag[2:]}", "src/app.py")


def test_a_change_with_the_size_and_times_of_before_is_seen(project: Project) -> None:
    project.begin()
    path = project.root / "src/app.py"
    status = path.stat()
    path.write_text("x = 2\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert project.take({"kind": "git", "unchanged": ["src/**"]}).verdict == "failed"
    assert project.take({"kind": "git", "changed": ["src/**"]}).verdict == "passed"


def test_staged_changes_are_not_clean(project: Project) -> None:
    project.write("src/app.py", "x = 2\n")
    project.git("add", "-A")
    project.write("src/app.py", "x = 1\n")

    assert project.take({"kind": "git", "clean": True}).verdict == "failed"


def test_a_replaced_commit_counts_for_nothing(project: Project) -> None:
    project.begin()
    other = project.git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "forged")
    project.git(
        "replace",
        "-f",
        project.git("rev-parse", "HEAD"),
        project.git("commit-tree", "HEAD^{tree}", "-p", other, "-m", "x"),
    )

    assert project.take({"kind": "git", "commits": 1}).verdict == "failed"


def test_a_repository_without_commits(folder: Project) -> None:
    folder.git("init", "-q")
    folder.write("a.txt")
    snapshot = folder.begin()

    assert (snapshot.commit, list(snapshot.files), snapshot.problem) == ("", ["a.txt"], "")
    assert folder.take({"kind": "git", "changed": ["a.txt"]}).verdict == "failed"
    assert folder.take({"kind": "git", "clean": True}).verdict == "failed"
    assert folder.take({"kind": "git", "commits": 1}).verdict == "failed"
    assert folder.run("true", against={"base": "run"}).verdict == "unproved"
    assert folder.run("true", against={"base": "HEAD"}).verdict == "unproved"
    assert folder.run("true").verdict == "passed"
    folder.commit()
    assert folder.take({"kind": "git", "commits": 1}).verdict == "passed"


def test_no_repository(folder: Project) -> None:
    folder.write("a.txt")
    folder.begin()

    assert folder.take({"kind": "git", "clean": True}).verdict == "unproved"
    assert folder.run("true", against={"base": "run"}).verdict == "unproved"
    folder.git("init", "-q")
    folder.commit()
    assert "was not in a git repository then" in folder.take({"kind": "git", "changed": ["a.txt"]}).reason


def test_a_bare_repository(folder: Project) -> None:
    folder.git("init", "-q", "--bare")

    assert "bare" in folder.begin().problem
    assert "bare" in folder.take({"kind": "git", "clean": True}).reason


@pytest.mark.parametrize("operation", ["rebase", "merge", "cherry-pick"])
def test_an_operation_in_progress(project: Project, operation: str) -> None:
    project.begin()
    project.git("switch", "-q", "-c", "other")
    project.write("src/app.py", "x = 2\n")
    project.commit()
    project.git("switch", "-q", "main")
    project.write("src/app.py", "x = 3\n")
    project.commit()
    with pytest.raises(subprocess.CalledProcessError):
        project.git(operation, "other")

    judgement = project.take({"kind": "git", "changed": ["src/**"]})

    assert (judgement.verdict, judgement.reason) == ("unproved", f"A {operation} is in progress.")


def test_a_shallow_clone(project: Project, tmp_path: Path) -> None:
    project.commit("second")
    first = project.git("rev-parse", "HEAD~1")
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{project.root}", tmp_path / "clone"], check=True)
    clone = Project(tmp_path / "clone")
    clone.begin()
    clone.commit("third")

    assert clone.take({"kind": "git", "commits": 1}).verdict == "passed"
    assert clone.take({"kind": "git", "commits": 2}).verdict == "failed"
    judgement = clone.run("true", against={"base": first})
    clone.prover.close()
    assert judgement.verdict == "unproved"
    assert (f"'{first}' is not in the repository, which is shallow" in judgement.reason, judgement.remedy) == (
        True,
        "Fetch the history: `git fetch --unshallow`.",
    )


def test_a_base_commit_that_vanished(project: Project) -> None:
    project.begin()
    shutil.rmtree(project.root / ".git")
    project.git("init", "-q")
    project.commit("again")

    for entry in ({"kind": "git", "changed": ["**"]}, {"kind": "git", "commits": 1}):
        assert project.take(entry).verdict == "unproved"
    assert project.run("true", against={"base": "run"}).verdict == "unproved"


@pytest.fixture
def with_submodule(project: Project, tmp_path: Path) -> Project:
    library = Project(tmp_path / "library")
    library.root.mkdir()
    library.git("init", "-q")
    library.write("lib.txt")
    library.commit()
    project.git("submodule", "add", "-q", str(library.root), "vendor")
    project.commit()
    return project


def test_submodules(with_submodule: Project) -> None:
    project = with_submodule
    project.begin()

    assert project.take({"kind": "git", "clean": True}).verdict == "passed"
    assert project.take({"kind": "git", "unchanged": ["src/**"]}).verdict == "passed"
    assert "is in a submodule" in project.take({"kind": "git", "unchanged": ["vendor/**"]}).reason
    assert project.run("cat", "vendor/lib.txt", against={"base": "HEAD"}).tail == "x"
    project.write("vendor/lib.txt", "y\n")
    assert project.take({"kind": "git", "clean": True}).verdict == "failed"


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "git", "changed": ["vendor/**"]},
        {"kind": "git", "unchanged": ["**"]},
        {"kind": "file", "path": "vendor/*.txt", "changed": "run"},
    ],
    ids=str,
)
@pytest.mark.parametrize("is_edited", [False, True])
def test_changes_inside_a_submodule_are_unproved_with_a_remedy(
    with_submodule: Project, entry: JsonObject, is_edited: bool
) -> None:
    project = with_submodule
    project.begin()
    if is_edited:
        project.write("vendor/lib.txt", "y\n")

    judgement = project.take(entry)

    assert judgement.verdict == "unproved"
    assert "vendor/lib.txt is in a submodule" in judgement.reason
    assert "the path of the submodule itself" in judgement.remedy


def test_an_edit_inside_a_submodule_during_or_between_two_proofs_is_noticed(with_submodule: Project) -> None:
    project = with_submodule
    project.begin()
    edit = ("sh", "-c", "echo more >> vendor/lib.txt")

    before = project.run("true")
    during = project.run(*edit)
    task = msgspec.structs.replace(project.task({"kind": "command", "run": ["true"]}), tree=before.tree)
    between = asyncio.run(project.prover.take(task, project.progress.append))

    assert (before.verdict, during.verdict, between.verdict) == ("passed", "unproved", "unproved")
    assert during.reason.startswith("vendor/lib.txt changed while the proof was taken")
    assert between.reason.startswith("Files changed after the proof before this one was taken")


def test_the_path_of_a_submodule_changes_with_its_commit(with_submodule: Project) -> None:
    project = with_submodule
    project.begin()
    before = [project.take({"kind": "git", name: ["vendor"]}).verdict for name in ("changed", "unchanged")]
    project.write("vendor/lib.txt", "y\n")
    Project(project.root / "vendor").commit()

    after = [project.take({"kind": "git", name: ["vendor"]}).verdict for name in ("changed", "unchanged")]

    assert (before, after) == (["failed", "passed"], ["passed", "failed"])


def test_a_linked_worktree(project: Project, tmp_path: Path) -> None:
    project.git("worktree", "add", "-q", "-b", "other", str(tmp_path / "linked"))
    linked = Project(tmp_path / "linked")
    linked.begin()
    linked.write("src/app.py", "x = 2\n")

    assert linked.take({"kind": "git", "changed": ["src/**"], "branch": "^other$"}).verdict == "passed"
    assert linked.run("cat", "src/app.py", against={"base": "run"}).tail == "x = 1"
    linked.prover.close()


def test_a_root_below_the_top_of_the_repository(project: Project) -> None:
    inner = Project(project.root / "src")
    inner.begin()
    project.write("tests/test_app.py", "changed\n")

    assert inner.take({"kind": "git", "unchanged": ["**"]}).verdict == "passed"
    assert inner.take({"kind": "git", "clean": True}).verdict == "failed"
    inner.write("app.py", "x = 2\n")
    assert inner.take({"kind": "git", "changed": ["app.py"]}).verdict == "passed"
    assert inner.take({"kind": "file", "path": "app.py", "changed": "run"}).verdict == "passed"
    assert inner.run("cat", "app.py", against={"base": "run"}).tail == "x = 1"
    inner.prover.close()


def test_names_that_are_not_utf_8(project: Project) -> None:
    name = os.path.join(os.fsencode(project.root), b"caf\xe9 \n.txt")
    with open(name, "wb") as file:
        file.write(b"x")
    snapshot = project.begin()

    assert list(snapshot.files) == ["caf\\udce9 \\n.txt"]
    assert project.take({"kind": "git", "unchanged": ["**"]}).verdict == "passed"
    with open(name, "wb") as file:
        file.write(b"y")
    judgement = project.take({"kind": "git", "changed": ["caf*"]})
    assert (judgement.verdict, list(judgement.digests)) == ("passed", ["caf\\udce9 \\n.txt"])
    assert project.take({"kind": "file", "path": "caf*", "changed": "run"}).verdict == "passed"
    assert project.run("ls", against={"base": "run", "with": ["caf*"]}).verdict == "passed"


def test_sha_256_repositories(folder: Project) -> None:
    folder.git("init", "-q", "--object-format=sha256")
    folder.write("a.txt")
    folder.commit()
    folder.begin()
    assert folder.take({"kind": "git", "unchanged": ["**"], "clean": True}).verdict == "passed"
    folder.write("a.txt", "y\n")

    assert folder.take({"kind": "git", "changed": ["a.txt"]}).verdict == "passed"
    assert folder.run("cat", "a.txt", against={"base": "run"}).tail == "x"


def test_a_damaged_repository(project: Project) -> None:
    project.begin()
    shutil.rmtree(project.root / ".git/objects")
    (project.root / ".git/objects").mkdir()

    for entry in EVERYTHING[:6]:
        assert project.take(entry).verdict in ("unproved", "passed" if "branch" in entry else "unproved")
    (project.root / ".git/HEAD").unlink()
    assert project.take({"kind": "git", "branch": "main"}).verdict == "unproved"


def test_too_many_changed_files_are_said(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflowlookup.proving.git.MAX_SNAPSHOT_FILES", 10)
    for number in range(11):
        project.write(f"new/{number}.txt")

    assert "11 files would have to be compared, and 10 is the limit" in project.begin().problem
    judgement = project.take({"kind": "git", "changed": ["**"]})
    assert judgement.verdict == "unproved"
    assert "could not be recorded" in judgement.reason


def test_a_repository_inside_hides_nothing(project: Project) -> None:
    project.begin()
    project.write("src/inner/a.txt")
    project.git("init", "-q", "src/inner")

    assert project.take({"kind": "git", "unchanged": ["src/**"]}).verdict == "failed"


def test_a_new_file_counts_if_the_rules_that_ignore_it_are_new(project: Project) -> None:
    project.write(".gitignore", "*.pyc\n")
    project.commit("rules")
    project.begin()
    unchanged = {"kind": "git", "unchanged": ["tests/**"]}

    project.write("tests/a.pyc")
    assert project.take(unchanged).verdict == "passed"
    project.write("tests/:(top)conftest.py")
    project.write(".git/info/exclude", "*conftest.py\n")
    judgement = project.take(unchanged)

    assert (judgement.verdict, "tests/:(top)conftest.py changed since" in judgement.reason) == ("failed", True)


def test_files_that_changed_since_the_proof_before_leave_this_one_unproved(project: Project) -> None:
    project.begin()
    task = project.task({"kind": "command", "run": ["true"]})

    def take(tree: str) -> Judgement:
        return asyncio.run(project.prover.take(msgspec.structs.replace(task, tree=tree), project.progress.append))

    first = take("")
    same = take(first.tree)
    project.write("src/app.py", "x = 2\n")
    changed = take(first.tree)

    assert [one.verdict for one in (first, same, changed)] == ["passed", "passed", "unproved"]
    assert changed.reason.startswith("Files changed after the proof before this one was taken")
    assert "submit again" in changed.remedy


@pytest.mark.parametrize("entry", [{"kind": "command", "run": ["true"], "against": {"base": "run"}}], ids=str)
def test_an_object_that_was_overwritten_in_the_repository_leaves_a_proof_unproved(
    project: Project, entry: JsonObject
) -> None:
    project.begin()
    blob = project.git("rev-parse", "HEAD:src/app.py")
    file = project.root / ".git" / "objects" / blob[:2] / blob[2:]
    file.chmod(0o600)
    text = b"x = 3\n"
    file.write_bytes(zlib.compress(b"blob %d\0" % len(text) + text))

    judgement = project.take(entry)

    assert judgement.verdict == "unproved"
    assert blob[:7] in judgement.reason or "src/app.py" in judgement.reason, judgement.reason


def test_the_program_of_a_command_is_recorded_by_its_absolute_path(project: Project) -> None:
    assert project.run("true").program == shutil.which("true")


def test_what_could_not_be_proved_is_described_with_its_variables(folder: Project) -> None:
    judgement = folder.take({"kind": "git", "changed": ["{{testFile}}"]}, {"testFile": "tests/test_a.py"})

    assert (judgement.verdict, "`tests/test_a.py`" in judgement.summary) == ("unproved", True)
    assert "{{" not in judgement.summary
