"""The seam of rules: what a struct says of itself is all that others need."""

import json
from collections.abc import Iterator

import pytest

from support.json_values import JsonObject
from support.make import document, step
from support.narrowing import instance_of
from workflowlookup.authoring.lint.checks import lint
from workflowlookup.errors import InvalidCriteria
from workflowlookup.language import rules
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import check
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.model import PromptStep
from workflowlookup.language.navigation import next_step
from workflowlookup.language.rules import RULES, MalformedCriteria, parse_criteria
from workflowlookup.language.validation import judge
from workflowlookup.language.workflow_schema import workflow_schema


def test_the_schema_and_the_table_name_the_same_rules() -> None:
    assert list(RULES) == workflow_schema()["$defs"]["rule"]["properties"]["type"]["enum"]


@pytest.fixture
def schema_with_another_rule(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The schema of criteria admits a rule that the table does not have."""
    admits = json.loads(json.dumps(workflow_schema()))
    admits["$defs"]["rule"]["properties"]["type"]["enum"].append("lines")
    monkeypatch.setattr(rules, "workflow_schema", lambda: admits)
    rules._criteria_validator.cache_clear()
    yield
    rules._criteria_validator.cache_clear()


@pytest.mark.usefixtures("schema_with_another_rule")
def test_a_rule_without_a_line_in_the_table_is_refused_in_words() -> None:
    rules = [{"type": "lines", "min": 3, "message": "Write three lines."}]

    assert parse_criteria(rules) == MalformedCriteria(reason="there is no rule of type 'lines'")
    content = document(step(validationCriteria=rules))
    workflow = build(content)
    assert next_step(workflow, (), {}, Budget()).step is not None
    assert check(content) is not None
    assert lint(content) is not None
    with pytest.raises(InvalidCriteria, match="no rule of type") as refusal:
        judge(instance_of(PromptStep, workflow.steps["first-step"]).check, "an output", {}, Budget())
    assert refusal.value.data == {"details": "there is no rule of type 'lines'"}


@pytest.mark.parametrize(
    "rules", [[{"type": "length", "min": 1e400, "message": "m"}], [{"type": "length", "min": 3.0}]]
)
def test_rules_that_no_struct_accepts_never_raise_a_library_error(rules: list[JsonObject]) -> None:
    assert isinstance(parse_criteria(rules), MalformedCriteria)
