"""Removing temporary directories: everything in them goes, and nothing beside them is changed."""

import os
import stat
from pathlib import Path

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
