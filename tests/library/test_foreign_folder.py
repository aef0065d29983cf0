"""What is read of the folder of a skill."""

from pathlib import Path

import pytest

from workflowlookup.errors import StorageError
from workflowlookup.library import foreign_folder
from workflowlookup.library.foreign_folder import MAX_FILES, folders_below, main_file, read_folder


def test_a_folder_with_too_many_files_is_read_up_to_the_limit(tmp_path: Path) -> None:
    for number in range(MAX_FILES):
        (tmp_path / f"a{number}.txt").write_bytes(b"x")
    (tmp_path / "SKILL.md").write_bytes(b"Do it.")

    folder = read_folder(str(tmp_path), main_file(str(tmp_path)))

    assert (next(iter(folder.files)), len(folder.files), folder.is_complete) == ("SKILL.md", MAX_FILES, False)


def test_folders_of_tools_and_names_that_are_not_text_are_left_out(tmp_path: Path) -> None:
    for name in (".git", "node_modules", "references"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.md").write_bytes(b"x")
    (tmp_path / "SKILL.md").write_bytes(b"Do it.")
    (tmp_path / "line\nbreak").write_bytes(b"x")

    folder = read_folder(str(tmp_path), "SKILL.md")

    assert (list(folder.files), folder.is_complete) == (["SKILL.md", "references/notes.md"], True)
    assert folder.refused == [("line\\nbreak", "its name is not text")]


def test_a_search_for_skills_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "c").mkdir(parents=True)
    (tmp_path / "b" / "SKILL.md").write_bytes(b"x")
    (tmp_path / "a" / "c" / "skill.md").write_bytes(b"x")
    (tmp_path / "a" / "up").symlink_to("..")
    assert folders_below(str(tmp_path)) == ["a/c", "b"]

    monkeypatch.setattr(foreign_folder, "MAX_NAMES", 3)
    with pytest.raises(StorageError, match="has more than 3 files"):
        folders_below(str(tmp_path))
