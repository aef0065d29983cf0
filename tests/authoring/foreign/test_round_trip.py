"""What was imported is exported with its name, its description, the order of its steps and its text."""

from pathlib import Path

import pytest
import yaml

from support.json_values import JsonObject
from support.skill_corpus import listed, problems_of
from workflowlookup.authoring.export.standalone import standalone
from workflowlookup.authoring.foreign.draft import Source
from workflowlookup.authoring.foreign.markdown_formats import read_skill
from workflowlookup.authoring.foreign.writing import Provenance, document_of
from workflowlookup.language.document.building import build

PAGES: dict[str, JsonObject] = yaml.safe_load((Path(__file__).parent / "splits.yaml").read_text("utf-8"))


@pytest.mark.parametrize("name", PAGES)
def test_an_import_is_exported_without_a_loss(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "release-notes"
    folder.mkdir()
    (folder / "SKILL.md").write_bytes(PAGES[name]["page"].encode())

    assert list(problems_of(folder / "SKILL.md")) == []


def test_an_export_keeps_lines_code_and_double_braces() -> None:
    text = (
        "# Notes\n\n## When\n\n- always\n\n```sh\nls\n```\n\n## Step 1: Write\n\nWrite {{name}}.\n\n## Step 2: Send\n"
    )
    source = Source(main="SKILL.md", files={"SKILL.md": text.encode()}, location="x/notes/SKILL.md")
    document, _ = document_of(read_skill(source), Provenance(format="x", location="y", files={}))

    exported = standalone(build(document))

    assert "**Throughout:**\n\n## When\n\n- always\n\n```sh\nls\n```\n" in exported
    assert "## 1. Step 1: Write\n\nWrite {{name}}.\n" in exported


def test_the_list_of_real_skills_is_large_enough() -> None:
    skills = listed()
    assert len(skills) >= 300
    assert len({skill.repository for skill in skills}) >= 15
    assert len({skill.digest for skill in skills}) == len(skills)
