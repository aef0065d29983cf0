"""Documents become Markdown and come back as they were."""

import pytest
from hypothesis import given, settings

from support.any_document import documents
from support.bundled import BUNDLED_DOCUMENTS
from support.json_values import Json, JsonObject
from support.make import document, loop, step
from workflowlookup.language.field_order import ordered
from workflowlookup.language.formats.layout import CannotLayOut
from workflowlookup.language.forms import JSON, MARKDOWN, YAML, document_text, encoded
from workflowlookup.language.markdown.short_forms import CRITERIA, PROOFS, ShortForm, read_line, suggestion, write_line
from workflowlookup.language.values import json_equal


@given(documents())
@settings(deadline=None)
def test_any_document_becomes_markdown_and_comes_back(made: JsonObject) -> None:
    text = document_text(made, MARKDOWN)  # which compares

    laid_out = encoded(MARKDOWN.lay_out(text, ordered(made)), MARKDOWN, made).decode()
    assert MARKDOWN.lay_out(laid_out, ordered(made)) == laid_out


@pytest.mark.parametrize("identifier", BUNDLED_DOCUMENTS)
def test_the_bundled_documents_keep_their_meaning_in_every_form(identifier: str) -> None:
    made = value = BUNDLED_DOCUMENTS[identifier]

    for form in (MARKDOWN, YAML, MARKDOWN, JSON, MARKDOWN):
        value = form.parse(document_text(value, form).encode())

    assert json_equal(value, made)


@pytest.mark.parametrize("form", [*CRITERIA, *PROOFS], ids=lambda form: form.example)
def test_every_short_form_is_read_and_written_as_it_is_shown(form: ShortForm) -> None:
    forms = PROOFS if form in PROOFS else CRITERIA
    for line in (form.example, f"{form.example}: Do it, and say: done."):
        value = read_line(line, forms)

        assert value == form.read(line)
        assert write_line(value, forms) == line


def test_a_suggestion_is_a_comment_and_without_its_marks_a_line() -> None:
    comment = suggestion('contains "Symptom"', 41)

    assert comment == '<!-- suggested, from line 41: - contains "Symptom" -->'
    assert suggestion('contains "-->"', 1) == r'<!-- suggested, from line 1: - contains "--\u003e" -->'
    assert read_line(r'contains "--\u003e"', CRITERIA) == {"type": "contains", "value": "-->", "message": ""}


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ([], "it has no list of steps"),
        ({"id": "abc"}, "it has no list of steps"),
        (document(steps=[]), "it has no list of steps"),
        (document(steps=[5]), "it has no list of steps"),
        (document({"title": "T"}), "a step has no 'id'"),
        (document({"id": "abc"}), "a step has no 'title'"),
        (document({"id": "abc", "title": "T", "loop": {}}), "a step has 'loop' without 'type'"),
        (document(step(prompt="\ud800")), "a text in it is not valid Unicode"),
    ],
)
def test_what_no_markdown_stands_for_is_refused(made: Json, reason: str) -> None:
    with pytest.raises(CannotLayOut, match=reason):
        document_text(made, MARKDOWN)


def test_only_what_cannot_stand_as_text_is_in_the_block() -> None:
    inner = step(
        "inner", prompt="### Look\n\nTwice.", validationCriteria=[{"type": "length", "min": 9, "message": "M"}]
    )
    conditional = step(
        "other", prompt="Go.\n", validationCriteria=[{"type": "contains", "value": "a", "condition": {}}]
    )

    text = document_text(document(loop("again", [inner], type="for", count=2), conditional), MARKDOWN)

    assert text == (
        "---\n"
        "id: sample-workflow\n"
        "description: A workflow for tests\n"
        'version: "1.0.0"\n'
        "---\n\n"
        "# Sample workflow\n\n"
        "## Loop again {#again}\n\n"
        "```step\n"
        "loop: {maxIterations: 10, type: for, count: 2}\n"
        "```\n\n"
        "### Title inner {#inner}\n\n"
        "```step\n"
        "prompt: |-\n"
        "  ### Look\n\n"
        "  Twice.\n"
        "```\n\n"
        "#### Criteria\n\n"
        "- at least 9 characters: M\n\n"
        "## Title other {#other}\n\n"
        "```step\n"
        "prompt: |\n"
        "  Go.\n"
        "validationCriteria:\n"
        "  - type: contains\n"
        "    value: a\n"
        "    condition: {}\n"
        "```\n"
    )


PAGE = """\
---
name:   Sample   # shown in lists
id: "sample-workflow"
---
Prose   that is
 not reflowed.

## One   ##
```step
produces: [a]
# why
agentRole:   You look.
```
*  Look
### Criteria
*   contains "a"
<!-- suggested, from line 4: - contains "b" -->
"""


def test_formatting_lays_out_the_yaml_and_leaves_the_rest() -> None:
    laid_out = MARKDOWN.lay_out(PAGE, ordered(MARKDOWN.parse(PAGE.encode())))

    assert laid_out == PAGE.replace(
        'name:   Sample   # shown in lists\nid: "sample-workflow"',
        'id: "sample-workflow"\nname: Sample  # shown in lists',
    ).replace("produces: [a]\n# why\nagentRole:   You look.", "# why\nagentRole: You look.\nproduces: [a]")
    assert MARKDOWN.comments(PAGE) == [
        "# shown in lists",
        "# why",
        '<!-- suggested, from line 4: - contains "b" -->',
    ]
