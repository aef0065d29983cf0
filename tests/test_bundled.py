"""The bundled workflows: where each path leads, which outputs their criteria accept, and which they refuse.

`data/bundled/<id>.json` holds, for the document of the same name, `paths` (a context, and the steps that it leads
through) and `outputs` (for each step a `good` and a `lazy` one, and the `context` in which they are judged).
"""

import json
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from workflowlookup.core.document import build, check
from workflowlookup.core.model import PromptStep
from workflowlookup.core.navigation import next_step
from workflowlookup.core.patterns import start_budget
from workflowlookup.core.validation import judge as judge_by

Object = dict[str, Any]


# The only two doors into the product: bind them elsewhere to hold the same tests through another one.


def lead(workflow: Object, completed: Sequence[str], context: Object) -> str | None:
    """The id of the next step, or None when the workflow is complete."""
    return next_step(build(workflow), completed, context).instance_id or None


def judge(workflow: Object, step_id: str, output: str, context: Object) -> list[str]:
    """The messages with which an output is refused; none when it is accepted."""
    step = build(workflow).steps[step_id]
    assert isinstance(step, PromptStep)
    start_budget()
    return [issue.message for issue in judge_by(step.criteria, output, context).issues]


def documents(directory: Path) -> dict[str, Object]:
    return {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(directory.glob("*.json"))}


WORKFLOWS = documents(Path(str(files("workflowlookup"))) / "bundled")
FIXTURES = documents(Path(__file__).parent / "data" / "bundled")
KNOWN = WORKFLOWS.keys() & FIXTURES.keys()

PATHS = [
    pytest.param(WORKFLOWS[name], path["context"], path["steps"], id=f"{name}: {path['name']}")
    for name in sorted(KNOWN)
    for path in FIXTURES[name]["paths"]
]
OUTPUTS = [
    pytest.param(WORKFLOWS[name], step_id, output, id=f"{name}: {step_id}")
    for name in sorted(KNOWN)
    for step_id, output in FIXTURES[name]["outputs"].items()
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


def test_every_bundled_workflow_has_a_fixture_and_every_fixture_a_workflow() -> None:
    assert WORKFLOWS.keys() == FIXTURES.keys()


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_bundled_workflow_is_named_after_its_file_and_nothing_is_wrong_with_it(name: str) -> None:
    assert (WORKFLOWS[name]["id"], check(WORKFLOWS[name])) == (name, [])


@pytest.mark.parametrize(("workflow", "context", "steps"), PATHS)
def test_a_path_hands_out_exactly_its_steps(workflow: Object, context: Object, steps: list[str]) -> None:
    handed_out: list[str] = []
    while (step_id := lead(workflow, handed_out, context)) is not None:
        handed_out.append(step_id)

    assert handed_out == steps


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_step_lies_on_a_path_and_has_its_outputs(name: str) -> None:
    steps = {step["id"] for step in WORKFLOWS[name]["steps"]}

    reached = {step_id for path in FIXTURES[name]["paths"] for step_id in path["steps"]}

    assert (reached, FIXTURES[name]["outputs"].keys()) == (steps, steps)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_one_path_shows_what_happens_when_the_agent_forgets_the_context(name: str) -> None:
    assert {} in [path["context"] for path in FIXTURES[name]["paths"]]


@pytest.mark.parametrize(("workflow", "step_id", "output"), OUTPUTS)
def test_an_honest_output_is_accepted(workflow: Object, step_id: str, output: Object) -> None:
    assert judge(workflow, step_id, output["good"], output.get("context", {})) == []


@pytest.mark.parametrize(("workflow", "step_id", "output"), OUTPUTS)
def test_a_lazy_output_is_refused_with_a_message_of_the_author(workflow: Object, step_id: str, output: Object) -> None:
    step = next(step for step in workflow["steps"] if step["id"] == step_id)

    issues = judge(workflow, step_id, output["lazy"], output.get("context", {}))

    assert set(issues) & set(values_of("message", step["validationCriteria"]))


@pytest.mark.parametrize("filler", FILLER.values(), ids=FILLER)
@pytest.mark.parametrize(("workflow", "step_id"), STEPS)
def test_filler_is_refused_by_every_step(workflow: Object, step_id: str, filler: str) -> None:
    assert judge(workflow, step_id, filler, {}) != []


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
