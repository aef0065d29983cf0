"""How a page is split: every line belongs to one part, and the parts are what a person would take."""

from pathlib import Path

import pytest
import yaml

from support.json_values import JsonObject
from workflowlookup.authoring.foreign.draft import NotImportable
from workflowlookup.authoring.foreign.page import MAX_LINES, MAX_PARTS, read_page
from workflowlookup.authoring.foreign.splitting import split

PAGES: dict[str, JsonObject] = yaml.safe_load((Path(__file__).parent / "splits.yaml").read_text("utf-8"))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_split_as_a_person_would(name: str) -> None:
    expected = PAGES[name]
    page = read_page(expected["page"].encode(), "SKILL.md")
    parts = split(page)

    guidance = [page.text(*lines).split("\n", 1)[0] for lines in parts.guidance if not page.is_blank(*lines)]
    assert [step.title for step in parts.steps] == expected["steps"]
    assert guidance == expected.get("guidance", [])
    assert (parts.title.text if parts.title else "") == expected["title"]
    assert parts.is_split is expected.get("split", True)


@pytest.mark.parametrize("name", PAGES)
def test_every_line_belongs_to_one_part(name: str) -> None:
    page = read_page(PAGES[name]["page"].encode(), "SKILL.md")
    parts = split(page)

    ranges = [*parts.guidance, *(lines for step in parts.steps for lines in step.text)]
    heads = [parts.title.first] if parts.title else []
    heads += [step.first for step in parts.steps if not any(first <= step.first < after for first, after in step.text)]
    taken = sorted([*heads, *(number for first, after in ranges for number in range(first, after))])
    filled = [number for number in range(page.body, page.end) if page.line(number).strip()]
    assert [number for number in taken if page.line(number).strip()] == filled


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a\n" * (MAX_LINES + 1), "SKILL.md has 20,001 lines, and 20,000 is the limit. Import a part of it."),
        ("# a\n" * (MAX_PARTS + 1), "SKILL.md has 2,001 headings, and 2,000 is the limit. Import a part of it."),
        ("1. a\n" * (MAX_PARTS + 1), "SKILL.md has 2,001 numbered items, and 2,000 is the limit. Import a part of it."),
    ],
)
def test_a_page_with_too_many_parts_is_refused(text: str, problem: str) -> None:
    with pytest.raises(NotImportable) as refused:
        read_page(text.encode(), "SKILL.md")
    assert str(refused.value) == problem


@pytest.mark.parametrize(
    ("header", "name", "line"),
    [
        ("name: release\ndescription: Use when: a release is due", "release", 3),
        ("name: release\n\tversion: 1", "release", 3),
        ("name: release\ndescription: [a", "release", 3),
    ],
)
def test_front_matter_that_is_no_yaml_is_read_line_by_line_and_named(header: str, name: str, line: int) -> None:
    page = read_page(f"---\n{header}\n---\nDo it.\n".encode(), "SKILL.md")
    assert page.header["name"] == name
    assert page.header_problem is not None
    assert page.header_problem[1] >= line


def test_a_rule_at_the_top_is_no_front_matter() -> None:
    page = read_page(b"---\n\nDo it.\n\n---\n\nAll of it.\n", "SKILL.md")
    assert (page.header, page.body) == ({}, 1)
