"""Thousands of documents become Markdown and come back."""

from hypothesis import given, settings

from support.any_document import documents
from support.json_values import JsonObject
from workflowlookup.language.forms import MARKDOWN, YAML, document_text
from workflowlookup.language.values import json_equal


@given(documents())
@settings(deadline=None, max_examples=5_000)
def test_any_document_becomes_markdown_and_comes_back(made: JsonObject) -> None:
    there = YAML.parse(document_text(made, YAML).encode())
    back = MARKDOWN.parse(document_text(there, MARKDOWN).encode())

    assert json_equal(back, made)
