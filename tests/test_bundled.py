"""The bundled workflows: their fixtures pass and reach everything, and their criteria refuse filler.

`bundled/<id>.test.yaml` holds the paths and the outputs; the runner behind `workflowlookup test` runs them here.
`bundled_outputs.yaml` has outputs that were written from the prompts alone, before the criteria.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.bundled import BUNDLED, BUNDLED_DOCUMENTS
from support.json_values import JsonObject
from workflowlookup.authoring.coverage import Coverage
from workflowlookup.authoring.fixtures import Fixture, RefusedOutput, parse_fixture
from workflowlookup.authoring.rehearsal import rehearse
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import check
from workflowlookup.language.formats.patterns import Budget, extract_last
from workflowlookup.language.formats.syntax import parse_yaml
from workflowlookup.language.model import PromptStep
from workflowlookup.language.validation import judge_step

WORKFLOWS = BUNDLED_DOCUMENTS
FIXTURES: dict[str, Fixture] = {
    file.name.removesuffix(".test.yaml"): parse_fixture(parse_yaml(file.read_bytes()))
    for file in sorted(BUNDLED.glob("*.test.yaml"))
}
KNOWN = sorted(WORKFLOWS.keys() & FIXTURES.keys())

CASES = [
    pytest.param(WORKFLOWS[name], case, id=f"{name}: {case.name}") for name in KNOWN for case in FIXTURES[name].cases
]


def prompt_steps(workflow: JsonObject) -> Iterator[JsonObject]:
    """The steps that are handed out, those of loops included."""
    for step in workflow["steps"]:
        yield from step["body"] if step.get("type") == "loop" else [step]


STEPS = [
    pytest.param(workflow, step["id"], id=f"{name}: {step['id']}")
    for name, workflow in WORKFLOWS.items()
    for step in prompt_steps(workflow)
]
OUTPUTS: dict[str, list[dict[str, str]]] = parse_yaml((Path(__file__).parent / "bundled_outputs.yaml").read_bytes())
"""`good` and `lazy` outputs, each with its workflow and step."""
MIN_GOOD_ACCEPTED = 91
MAX_LAZY_ACCEPTED = 4
FILLER = {
    "a short claim": "Done. Everything works as expected and all tests pass.",
    "a long claim": "I did this step carefully; the result was verified, tests pass, and nothing failed. " * 20,
    "a placeholder": "TODO",
    "an empty object": "{}",
}
HALF_TRIED = {
    ("code-review", "security", "rule 3"),
    ("code-review", "tests", "rule 2"),
    ("performance-investigation", "guard", "rule 2"),
    ("performance-investigation", "guard", "rule 4"),
    ("refactoring", "callers", "rule 3"),
}
"""Alternatives that no output takes."""
SUITE_OUTPUTS = {
    "pytest": ("== 2 skipped, 412 passed in 38.20s ==", 412),
    "pytest with failures": ("1 failed, 411 passed in 38.20s", 411),
    "unittest": ("Ran 9 tests in 0.001s\n\nOK", 9),
    "cargo": ("test result: ok. 64 passed; 0 failed; 2 ignored; 0 measured; finished in 3.11s", None),
    "jest": (
        "Test Suites: 1 failed, 2 passed, 3 total\nTests:       1 failed, 23 passed, 24 total\nSnapshots:   3 passed, 3 total",
        23,
    ),
    "vitest": (" Test Files  2 passed (2)\n      Tests  17 passed (17)", 17),
    "mocha": ("  31 passing (2s)\n  1 failing", 31),
    "node --test": ("# tests 5\n# pass 4\n# fail 1", 4),
    "node --test, spec": ("\u2139 tests 5\n\u2139 pass 4\n\u2139 fail 1", 4),
}
"""By runner: the end of what it prints, and how many tests passed (unittest: ran). cargo prints a number for each binary, so
that the last one says nothing."""


def judge(workflow: JsonObject, step_id: str, output: str) -> list[str]:
    """The messages with which an output is refused; none when it is accepted."""
    step = build(workflow).steps[step_id]
    assert isinstance(step, PromptStep)
    return [issue.message for issue in judge_step(step, output, {}, Budget()).issues]


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
    gaps = {(name, *place) for name in KNOWN for place, rule in covered(name).rules.items() if len(rule.outcomes) < 2}

    assert gaps == HALF_TRIED


@pytest.mark.parametrize("name", KNOWN)
def test_one_case_shows_what_happens_when_the_agent_forgets_the_context(name: str) -> None:
    assert {} in [case.context for case in FIXTURES[name].cases]


@pytest.mark.parametrize("name", KNOWN)
def test_every_step_has_an_honest_output_and_a_lazy_one_that_gets_a_message_of_the_author(name: str) -> None:
    for step in prompt_steps(WORKFLOWS[name]):
        outputs = [case.outputs[step["id"]] for case in FIXTURES[name].cases if step["id"] in case.outputs]
        lazy = [one for output in outputs for one in output.refuse if isinstance(one, RefusedOutput) and not one.proof]
        assert any(output.accept for output in outputs), step["id"]
        messages = set(values_of("message", step["validationCriteria"]))
        assert any(set(one.issues or ()) & messages for one in lazy), step["id"]


@pytest.mark.parametrize("filler", FILLER.values(), ids=FILLER)
@pytest.mark.parametrize(("workflow", "step_id"), STEPS)
def test_filler_is_refused_by_every_step(workflow: JsonObject, step_id: str, filler: str) -> None:
    assert judge(workflow, step_id, filler) != []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_step_relies_only_on_variables_that_it_or_an_earlier_step_produces(name: str) -> None:
    produced = set(WORKFLOWS[name]["inputSchema"]["properties"])
    for step in WORKFLOWS[name]["steps"]:
        loop = step.get("loop", {})
        produced |= {loop[field] for field in ("itemVar", "indexVar", "iterationVar") if field in loop}
        produced |= {variable for inner in prompt_steps({"steps": [step]}) for variable in inner.get("produces", ())}
        used = {*values_of("var", step), *re.findall(r"(?<!\{)\{\{([\w.]+)\}\}", json.dumps(step))}
        assert {variable.partition(".")[0] for variable in used} <= {*produced, "proof"}, step["id"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_runs_only_commands_of_the_project_and_asks_where_it_cannot_prove(name: str) -> None:
    entries = [entry for step in prompt_steps(WORKFLOWS[name]) for entry in step.get("proof", ())]

    assert {entry["kind"] for entry in entries} <= {"command", "file", "git"}
    assert {entry.get("use") for entry in entries if entry["kind"] == "command"} <= {"test"}
    assert WORKFLOWS[name].get("whenUnproved") == ("ask" if entries else None)


def test_good_outputs_are_accepted_and_lazy_ones_refused() -> None:
    accepted = {
        kind: [one for one in outputs if not judge(WORKFLOWS[one["workflow"]], one["step"], one["output"])]
        for kind, outputs in OUTPUTS.items()
    }

    print(*(f"{kind}: {len(some)} of {len(OUTPUTS[kind])} accepted" for kind, some in accepted.items()), sep="\n")
    assert {kind: len(outputs) for kind, outputs in OUTPUTS.items()} == {"good": 93, "lazy": 103}
    assert len(accepted["good"]) >= MIN_GOOD_ACCEPTED
    assert len(accepted["lazy"]) <= MAX_LAZY_ACCEPTED


@pytest.mark.parametrize(("output", "passed"), SUITE_OUTPUTS.values(), ids=SUITE_OUTPUTS)
def test_the_number_of_passed_tests_is_read_from_the_output_of_a_runner(output: str, passed: int | None) -> None:
    patterns = {
        entry["measure"]["passed"]["pattern"]
        for workflow in WORKFLOWS.values()
        for step in prompt_steps(workflow)
        for entry in step.get("proof", ())
        if "measure" in entry
    }

    assert [extract_last(pattern, "m", output, Budget()) for pattern in patterns] == [passed and str(passed)]


def values_of(key: str, value: object) -> Iterator[str]:
    """Every text under this key, however deep."""
    if isinstance(value, dict):
        if isinstance(value.get(key), str):
            yield value[key]
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from values_of(key, part)
