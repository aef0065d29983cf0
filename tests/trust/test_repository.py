"""Whose file is it: links, parents, nested marks, other spellings, and the home directory."""

import os
from pathlib import Path

import pytest

from workflowlookup.repository import Project, configuration_directory, find_root


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A cloned repository, and a directory inside it."""
    (tmp_path / "clone" / ".git").mkdir(parents=True)
    (tmp_path / "clone" / "sub").mkdir()
    return tmp_path / "clone"


def project(root: Path, home: str = "/nobody") -> Project:
    return Project(root=str(root), home=home)


def test_the_root_is_the_nearest_directory_with_a_git_directory(clone: Path) -> None:
    assert find_root(str(clone / "sub"), "/nobody") == str(clone)
    assert find_root(str(clone.parent), "/nobody") == str(clone.parent)


@pytest.mark.parametrize("mark", [".workflowlookup", ".git"])
def test_a_marker_file_that_a_repository_can_bring_makes_no_smaller_root(clone: Path, mark: str) -> None:
    place = clone / "sub" / mark
    place.write_text("gitdir: ../.git/modules/sub\n") if mark == ".git" else place.mkdir()

    assert find_root(str(clone / "sub"), "/nobody") == str(clone)


def test_the_home_directory_is_no_root_for_files_below_it(clone: Path) -> None:
    home = clone.parent
    (home / ".git").mkdir()
    (home / ".workflowlookup").mkdir()
    (home / "work").mkdir()

    assert find_root(str(home / "work"), str(home)) == str(home / "work")
    assert find_root(str(clone), str(home)) == str(clone)


def test_a_project_in_the_home_directory_does_not_include_the_accounts_own_files(tmp_path: Path) -> None:
    here = project(tmp_path, home=str(tmp_path))

    assert here.brings(str(tmp_path / "workflowlookup.toml"))
    assert not here.brings(str(tmp_path / ".config" / "workflowlookup" / "workflowlookup.toml"))
    assert not here.brings(str(tmp_path / ".workflowlookup" / "workflows" / "mine.json"))


@pytest.mark.parametrize("above", [False, True])
def test_a_server_started_in_the_home_directory_or_above_treats_the_users_files_as_theirs(
    clone: Path, tmp_path: Path, above: bool
) -> None:
    """As desktop clients do. What lies right there, and what is in a repository further down, is not."""
    (tmp_path / "team").mkdir()
    here = project(tmp_path.parent if above else tmp_path, home=str(tmp_path))

    assert not here.brings(str(tmp_path / "team" / "mine.toml"))
    assert here.brings(f"{here.root}/workflowlookup.toml")
    assert here.brings(f"{here.root}/.workflowlookup/workflows/x.json") is above  # else the account's own library
    assert here.brings(str(clone / "sub" / "evil.toml"))
    assert not here.contains(str(tmp_path / "team" / "flows"))
    assert here.contains(str(clone / "flows"))
    assert here.contains(str(clone))


def test_a_home_that_the_environment_points_into_the_project_is_not_the_accounts(clone: Path) -> None:
    own = configuration_directory({"HOME": str(clone)}, str(clone))

    assert project(clone, home=str(clone.parent / "real-home")).brings(own)


@pytest.mark.parametrize("base", ["x", "./x", "../clone/x", "{clone}/x"])
def test_a_configuration_directory_inside_the_project_is_the_projects(clone: Path, base: str) -> None:
    own = configuration_directory({"XDG_CONFIG_HOME": base.format(clone=clone)}, str(clone))

    assert project(clone).brings(own)


def test_links_into_and_out_of_the_project_are_followed(clone: Path, tmp_path: Path) -> None:
    (clone / "real.toml").write_text("")
    (tmp_path / "outside.toml").write_text("")
    (tmp_path / "in").symlink_to(clone / "real.toml")
    (clone / "out").symlink_to(tmp_path / "outside.toml")
    (tmp_path / "through").symlink_to(clone / "out")
    (tmp_path / "directory").symlink_to(clone)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    brought = ["in", "clone/out", "through", "directory/real.toml", "directory/missing.toml", "clone/sub/../real.toml"]
    own = ["outside.toml", "clone/../outside.toml", "missing.toml", "clone-of-another/x"]
    assert [name for name in brought if not project(clone).brings(str(tmp_path / name))] == []
    assert [name for name in own if project(clone).brings(str(tmp_path / name))] == []


def test_the_same_directory_under_another_spelling_is_the_project(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on file systems that fold case (`CLONE`) or Unicode (NFC, NFD): what stands there is the same directory."""
    real = os.stat

    def folding(path: str, *arguments: object, **options: object) -> os.stat_result:
        text = str(path).replace(f"{tmp_path}/CLO\u004e\u0301E", str(clone)).replace(f"{tmp_path}/CLONE", str(clone))
        return real(text, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", folding)

    assert project(clone).brings(str(tmp_path / "CLONE" / "workflowlookup.toml"))
    assert project(clone).brings(str(tmp_path / "CLO\u004e\u0301E" / "workflowlookup.toml"))
    assert not project(clone).brings(str(tmp_path / "CLONES" / "workflowlookup.toml"))
