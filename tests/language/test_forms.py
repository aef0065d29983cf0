"""The forms of documents: what every one of them must do, and which file has which."""

import pytest

from support.make import document, loop, step
from workflowlookup.language.field_order import ordered
from workflowlookup.language.forms import FORMS, JSON, MARKDOWN, YAML, Form, document_text, form_of, form_of_text

MADE = document(
    step(prompt="One\n\n- two", validationCriteria=[{"type": "length", "min": 3, "message": "M"}]),
    loop("again", [step("inner", produces=["a"])], type="for", count=2),
)
EACH = pytest.mark.parametrize("form", dict.fromkeys(FORMS.values()), ids=lambda form: form.name)


@EACH
def test_what_is_written_is_read_and_laid_out_without_a_change_of_meaning(form: Form) -> None:
    text = document_text(MADE, form)
    laid_out = form.lay_out(text, ordered(MADE))

    assert form.parse(text.encode()) == form.parse(laid_out.encode()) == MADE
    assert form.lay_out(laid_out, ordered(MADE)) == laid_out
    assert form.comments(text) == []
    assert form_of_text(text.encode()) is form


@EACH
def test_positions_are_those_of_the_text(form: Form) -> None:
    text = document_text(MADE, form)

    line, _ = form.find(text.encode())(("steps", 1, "body", 0, "produces"))

    assert "produces" in text.split("\n")[line - 1]


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("a.json", JSON),
        ("a/b.yml", YAML),
        ("a.workflow.md", MARKDOWN),
        ("a.test.yaml", YAML),
        ("README.md", None),
        ("workflow.md", None),
        ("a.workflow.md.bak", None),
    ],
)
def test_the_suffix_says_the_form(path: str, form: Form | None) -> None:
    assert form_of(path) is form
