"""The authoring guide: every document on its page loads without a finding and leads to its end."""

import re
from pathlib import Path

import pytest

from support.json_values import JsonObject
from support.narrowing import instance_of
from workflowlookup.authoring.coverage import Coverage
from workflowlookup.authoring.fixtures import Fixture, parse_fixture
from workflowlookup.authoring.rehearsal import rehearse
from workflowlookup.language.conditions import OPERATORS
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import check
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.formats.syntax import parse_yaml
from workflowlookup.language.guidance import guide
from workflowlookup.language.markdown.reading import parse_markdown
from workflowlookup.language.markdown.short_forms import CRITERIA
from workflowlookup.language.markdown.short_forms import PROOFS as PROOF_FORMS
from workflowlookup.language.model import PromptStep
from workflowlookup.language.navigation import next_step
from workflowlookup.language.proof import PROOFS
from workflowlookup.language.rules import RULES
from workflowlookup.language.validation import judge
from workflowlookup.language.values import Json

PAGE = (Path(__file__).parent.parent / "docs" / "authoring.md").read_text("utf-8")
PAGES = re.findall(r"^````markdown\n(.*?)^````", PAGE, re.DOTALL | re.MULTILINE)
DOCUMENTS = [
    *(parse_yaml(block.encode()) for block in re.findall(r"```yaml\n(id: .*?)```", PAGE, re.DOTALL)),
    *(parse_markdown(block.encode()) for block in PAGES),
]
FIXTURES = [parse_yaml(block.encode()) for block in re.findall(r"```yaml\n(workflow: .*?)```", PAGE, re.DOTALL)]
CONTEXTS: dict[str, JsonObject] = {
    "small-or-large": {"taskSize": "small"},
    "review-each-file": {"files": ["a.py", "b.py"], "testsPass": True},
    "with-a-contract": {"taskSize": "small", "deadline": "2030-01-31"},
    "file-a-bug": {"title": "Crash", "labels": ["urgent"], "same": {"total": 0}},
}


def walk(content: JsonObject) -> tuple[list[str], list[str]]:
    workflow = build(content)
    completed: list[str] = []
    prompts: list[str] = []
    context = CONTEXTS.get(content["id"], {})
    while (current := next_step(workflow, completed, context, Budget())).step is not None:
        guidance = guide(workflow, current, Budget())
        assert guidance.warnings == ()
        prompts.append(guidance.prompt)
        completed.append(current.instance_id)
    return completed, prompts


@pytest.mark.parametrize("content", DOCUMENTS, ids=[content["id"] for content in DOCUMENTS])
def test_every_document_of_the_guide_is_sound_and_leads_to_its_end(content: Json) -> None:
    assert check(content) == []
    assert walk(content)[0]


@pytest.mark.parametrize("fixture", [*map(parse_fixture, FIXTURES)], ids=[fixture["workflow"] for fixture in FIXTURES])
def test_every_fixture_of_the_guide_passes(fixture: Fixture) -> None:
    workflow = build(next(content for content in DOCUMENTS if content["id"] == fixture.workflow))

    assert [rehearse(workflow, case, Coverage(workflow)).differences for case in fixture.cases] == [()]


def test_the_guide_shows_what_it_says_about_branches_and_loops() -> None:
    documents = {content["id"]: content for content in DOCUMENTS}

    assert walk(documents["small-or-large"])[0] == ["size-up", "build"]
    steps, prompts = walk(documents["review-each-file"])
    assert steps == ["list-files", "review@1", "review@2", "fix-one@1"]
    assert prompts[1].startswith("Review a.py: ")
    steps, prompts = walk(documents["file-a-bug"])
    assert steps == ["find-same", "file-it", "tell"]
    assert '"labels":["urgent"]' in prompts[1]


def test_the_criteria_of_the_guide_judge_as_it_says() -> None:
    documents = {content["id"]: build(content) for content in DOCUMENTS}
    criteria = instance_of(PromptStep, documents["risky-change"].steps["plan"]).check

    assert judge(criteria, '{"change": "x", "risk": "low", "undo": "rollback"}', {"taskSize": "large"}, Budget()).valid
    assert not judge(criteria, '{"change": "x", "risk": "low", "undo": "none"}', {}, Budget()).valid
    assert not judge(criteria, '{"change": "x", "risk": "huge", "undo": "y"}', {}, Budget()).valid


def test_the_first_workflow_of_the_guide_has_less_than_fifteen_lines() -> None:
    assert (PAGES[0].count("\n") < 15, parse_markdown(PAGES[0].encode())["id"]) == (True, "release-notes")


def test_the_page_has_every_short_form() -> None:
    assert [form.example for form in (*CRITERIA, *PROOF_FORMS) if f"- {form.example}" not in PAGE] == []


def test_the_page_has_every_operator_and_every_rule() -> None:
    assert [name for name in (*OPERATORS, *RULES) if f"`{name}`" not in PAGE] == []


def test_the_page_has_every_kind_of_proof_with_its_fields() -> None:
    for kind, struct in PROOFS.items():
        (row,) = re.findall(rf"^\| `{kind}` \| ([^|]*) \|", PAGE, re.MULTILINE)
        fields = {*struct.__struct_encode_fields__} - {"name", "condition", "message"}
        assert {*re.findall(r"`(\w+)`", row)} == fields
