"""Removing temporary directories: everything in them goes, and nothing beside them is changed."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workflowlookup.proving import scratch


def test_read_only_directories_are_removed(tmp_path: Path) -> None:
    inner = tmp_path / "private" / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    for directory in (inner, inner.parent, tmp_path / "private"):
        directory.chmod(0o500)

    scratch.remove(str(tmp_path / "private"))

    assert not (tmp_path / "private").exists()


def test_removing_what_is_already_gone_leaves_the_parent_as_it_is(tmp_path: Path) -> None:
    """Two processes may remove the same leftovers, and the parent is the temporary directory of all users."""
    tmp_path.chmod(0o1777)

    scratch.remove(str(tmp_path / "gone"))

    assert stat.S_IMODE(os.stat(tmp_path).st_mode) == 0o1777


def test_removing_a_link_leaves_its_target_as_it_is(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    (target / "file").write_text("x")
    private = tmp_path / "private"
    private.mkdir()
    (private / "link").symlink_to(target)
    private.chmod(0o500)

    scratch.remove(str(private))

    assert not private.exists()
    assert (target / "file").read_text() == "x"
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


def test_a_directory_that_is_just_being_made_is_no_leftover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def make_and_remove(_: int) -> bool:
        private = scratch.Scratch()
        try:
            return os.path.isdir(private.make("worktree", "/nowhere"))
        finally:
            private.close()

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(make_and_remove, range(1_000)))
    assert os.listdir(tmp_path) == []
