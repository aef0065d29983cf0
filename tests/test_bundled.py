"""The bundled workflows: their fixtures pass and reach everything, and their criteria refuse filler.

`bundled/<id>.test.yaml` holds the paths and the outputs; the runner behind `workflowlookup test` runs them here.
"""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from support.json_values import JsonObject
from workflowlookup.authoring.coverage import Coverage
from workflowlookup.authoring.fixtures import Fixture, RefusedOutput, parse_fixture
from workflowlookup.authoring.rehearsal import rehearse
from workflowlookup.language.building import build
from workflowlookup.language.document import check
from workflowlookup.language.model import PromptStep
from workflowlookup.language.patterns import Budget
from workflowlookup.language.syntax import parse_yaml
from workflowlookup.language.validation import judge as judge_by

BUNDLED = Path(str(files("workflowlookup"))) / "bundled"
WORKFLOWS: dict[str, JsonObject] = {
    file.stem: json.loads(file.read_text("utf-8")) for file in sorted(BUNDLED.glob("*.json"))
}
FIXTURES: dict[str, Fixture] = {
    file.name.removesuffix(".test.yaml"): parse_fixture(parse_yaml(file.read_bytes()))
    for file in sorted(BUNDLED.glob("*.test.yaml"))
}
KNOWN = sorted(WORKFLOWS.keys() & FIXTURES.keys())

CASES = [
    pytest.param(WORKFLOWS[name], case, id=f"{name}: {case.name}") for name in KNOWN for case in FIXTURES[name].cases
]
STEPS = [
    pytest.param(workflow, step["id"], id=f"{name}: {step['id']}")
    for name, workflow in WORKFLOWS.items()
    for step in workflow["steps"]
]
FILLER = {
    "a short claim": "Done. Everything works as expected and all tests pass.",
    "a long claim": "I did this step carefully; the result was verified, tests pass, and nothing failed. " * 20,
    "a placeholder": "TODO",
    "an empty object": "{}",
}
HALF_TRIED = {
    ("bug-investigation", "reproduce", "rule 5"),
    ("code-review", "tests", "rule 2"),
    ("documentation-writing", "draft", "rule 5"),
    ("documentation-writing", "draft", "rule 7"),
    ("feature-implementation", "design", "rule 5"),
    ("feature-implementation", "verify", "rule 4"),
    ("performance-investigation", "change", "rule 5"),
    ("performance-investigation", "guard", "rule 4"),
    ("refactoring", "aim", "rule 4"),
    ("refactoring", "result", "rule 6"),
    ("workflow-authoring", "draft", "rule 4"),
    ("workflow-authoring", "dry-run", "rule 2"),
}
"""Alternatives that no output takes, rules inside a `not`, and rules for a context in which no output is judged."""


def judge(workflow: JsonObject, step_id: str, output: str) -> list[str]:
    """The messages with which an output is refused; none when it is accepted."""
    step = build(workflow).steps[step_id]
    assert isinstance(step, PromptStep)
    return [issue.message for issue in judge_by(step.check, output, {}, Budget()).issues]


def covered(name: str) -> Coverage:
    workflow = build(WORKFLOWS[name])
    coverage = Coverage(workflow)
    for case in FIXTURES[name].cases:
        rehearse(workflow, case, coverage)
    return coverage


def test_every_bundled_workflow_has_a_fixture_and_every_fixture_a_workflow() -> None:
    assert WORKFLOWS.keys() == FIXTURES.keys()


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_bundled_workflow_is_named_after_its_file_and_nothing_is_wrong_with_it(name: str) -> None:
    assert (WORKFLOWS[name]["id"], check(WORKFLOWS[name])) == (name, [])


@pytest.mark.parametrize(("workflow", "case"), CASES)
def test_a_case_leads_where_it_says_and_its_outputs_get_their_verdicts(workflow: JsonObject, case: Any) -> None:
    built = build(workflow)

    assert case.steps is not None
    assert rehearse(built, case, Coverage(built)).differences == ()


@pytest.mark.parametrize("name", KNOWN)
def test_the_fixture_hands_out_every_step_and_takes_every_branch(name: str) -> None:
    coverage = covered(name)

    assert [step for step, seen in coverage.steps.items() if not seen] == []
    assert [place for place, branch in coverage.branches.items() if len(branch.outcomes) < 2] == []


def test_every_rule_passes_and_fails_but_those_that_are_known() -> None:
    found = {(name, *place) for name in KNOWN for place, rule in covered(name).rules.items() if len(rule.outcomes) < 2}

    assert found == HALF_TRIED


@pytest.mark.parametrize("name", KNOWN)
def test_one_case_shows_what_happens_when_the_agent_forgets_the_context(name: str) -> None:
    assert {} in [case.context for case in FIXTURES[name].cases]


@pytest.mark.parametrize("name", KNOWN)
def test_every_step_has_an_honest_output_and_a_lazy_one_that_gets_a_message_of_the_author(name: str) -> None:
    outputs = {step_id: one for case in FIXTURES[name].cases for step_id, one in case.outputs.items()}
    assert outputs.keys() == {step["id"] for step in WORKFLOWS[name]["steps"]}
    for step in WORKFLOWS[name]["steps"]:
        lazy = outputs[step["id"]].refuse[0]
        assert outputs[step["id"]].accept
        assert isinstance(lazy, RefusedOutput)
        assert set(lazy.issues or ()) & set(values_of("message", step["validationCriteria"])), step["id"]


@pytest.mark.parametrize("filler", FILLER.values(), ids=FILLER)
@pytest.mark.parametrize(("workflow", "step_id"), STEPS)
def test_filler_is_refused_by_every_step(workflow: JsonObject, step_id: str, filler: str) -> None:
    assert judge(workflow, step_id, filler) != []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_step_relies_only_on_variables_that_an_earlier_prompt_asked_for(name: str) -> None:
    asked_for: set[str] = set()
    for step in WORKFLOWS[name]["steps"]:
        used = {*values_of("var", step), *re.findall(r"(?<!\{)\{\{(\w+)\}\}", step["prompt"])}
        assert used <= asked_for, step["id"]
        if "`context`" in step["prompt"]:
            asked_for.update(re.findall(r"`(\w+)`", step["prompt"]))


def values_of(key: str, value: object) -> Iterator[str]:
    """Every text under this key, however deep."""
    if isinstance(value, dict):
        if isinstance(value.get(key), str):
            yield value[key]
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from values_of(key, part)
