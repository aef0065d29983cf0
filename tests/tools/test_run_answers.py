"""What the run tools answer, as a model reads it: each text once, and refusals that are short."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.bundled import BUNDLED, BUNDLED_DOCUMENTS, fixture_of
from support.json_values import JsonObject
from support.make import document, loop, step, write
from workflowlookup.authoring.fixtures import parse_fixture
from workflowlookup.language.document.building import build
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.formats.syntax import parse_yaml
from workflowlookup.language.guidance import PROMPT_REFERENCE
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.validation import judge_step
from workflowlookup.library.catalog import Catalog
from workflowlookup.library.directory import DirectorySource
from workflowlookup.protocol.requests import tool_result
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.tools.builtin import BUILTIN_TOOLS
from workflowlookup.tools.contract import NO_CLIENT, Services
from workflowlookup.tools.registry import Registry

MAX_REFUSAL = 1_000
"""Bytes of a refusal beside the author's messages."""
PROMPT = "Look at {{file}} and write down what you see there. " * 20
LONG_STEP = step(
    "look",
    prompt=PROMPT,
    agentRole="You are a patient reader of code.",
    guidance=["Read slowly, twice."],
    runCondition={"var": "go", "not_equals": "no"},
    validationCriteria=[
        {"type": "regex", "pattern": "^(?:PASS|FAIL)$", "flags": "m", "message": "Say how it ended."},
        {"type": "regex", "pattern": "[a-z]+/[a-z]+\\.py:\\d+", "message": "Name the places."},
    ],
)

Call = Callable[..., tuple[JsonObject, str]]


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Call]:
    """Calls a tool of a server with one workflow; both halves of the result, `structuredContent` and the text."""
    content = document(loop("all", [LONG_STEP], type="forEach", items="files", itemVar="file"))
    write(tmp_path / "library", content)
    with closing(Runs(SqliteJournal(str(tmp_path / "runs.sqlite")))) as runs:
        catalog = Catalog([DirectorySource("library", str(tmp_path / "library"))])
        registry = Registry(BUILTIN_TOOLS, Services(catalog=catalog, open_runs=lambda: runs))

        def call_tool(name: str, **arguments: Any) -> tuple[JsonObject, str]:
            outcome: Any = registry.call(BUILTIN_TOOLS[name], arguments, NO_CLIENT, 0)
            result = tool_result(outcome)
            (block,) = result["content"]
            return json.loads(bytes(result["structuredContent"])), block["text"]

        yield call_tool


def start(call: Call) -> tuple[JsonObject, str]:
    return call("workflow_start", workflowId="sample-workflow", runId="r", context={"files": ["a.py"]})


def test_a_step_has_every_text_once_in_either_half(call: Call) -> None:
    structured, text = start(call)

    assert json.loads(text) == structured
    prompt = PROMPT.replace("{{file}}", "a.py")
    for once in (prompt, "patient reader", "Read slowly", "Say how it ended.", "Name the places."):
        assert text.count(once) == 1, once
    assert structured["step"] == {
        "id": "look@1",
        "title": "Title look",
        "loop": {"id": "all", "iteration": 1, "index": 0, "total": 1},
    }


def test_a_refusal_has_the_verdict_and_not_the_step_again(call: Call) -> None:
    start(call)

    refused, _ = call("workflow_submit", runId="r", stepId="look@1", output="I looked.")

    assert refused == {
        "runId": "r",
        "state": "waiting",
        "progress": {"done": 0},
        "waitingFor": "output",
        "verdict": {
            "valid": False,
            "issues": ["Say how it ended.", "Name the places."],
            "suggestions": [
                "Review validation criteria and adjust output accordingly.",
                'The output must have a line that is "PASS" or "FAIL".',
            ],
        },
        "attempts": 1,
        "step": {"id": "look@1", "title": "Title look"},
        "next": "Fix what verdict says, then call workflow_submit with stepId 'look@1' and the whole output again.",
    }


def test_a_refusal_by_many_rules_has_every_issue_and_the_first_suggestions(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(60)]
    rules = [{"type": "contains", "value": word, "message": f"Mention {word}."} for word in words]
    with closing(Runs(SqliteJournal(str(tmp_path / "runs.sqlite")))) as runs:
        run = runs.start(build(document(step("look", validationCriteria=rules))), {}, {})
        services = Services(catalog=Catalog([]), open_runs=lambda: runs)
        arguments = {"runId": run.id, "stepId": "look", "output": "I looked."}
        refused: Any = Registry(BUILTIN_TOOLS, services).call(BUILTIN_TOOLS["workflow_submit"], arguments, NO_CLIENT, 0)

    messages = [f"Mention {word}." for word in words]
    assert list(refused["verdict"]["issues"]) == messages
    assert len(json.dumps(refused)) - len(json.dumps(messages)) <= MAX_REFUSAL


def test_the_status_of_a_refused_step_has_all_of_it(call: Call) -> None:
    started, _ = start(call)
    call("workflow_submit", runId="r", stepId="look@1", output="I looked.")

    status, _ = call("workflow_status", runId="r")

    assert (status["guidance"], status["step"]) == (started["guidance"], started["step"])
    assert status["verdict"]["issues"] == ["Say how it ended.", "Name the places."]


def bundled_refusals() -> Iterator[Any]:
    for identifier, made in BUNDLED_DOCUMENTS.items():
        workflow = build(made)
        outputs: dict[str, str] = {}
        for case in parse_fixture(parse_yaml(fixture_of(identifier))).cases:
            for step_id, some in case.outputs.items():
                for one in some.refuse:
                    outputs.setdefault(step_id.partition("@")[0], one if isinstance(one, str) else one.output)
        yield pytest.param(workflow, outputs, id=workflow.id)


@pytest.mark.parametrize(("workflow", "outputs"), list(bundled_refusals()))
def test_a_refusal_of_a_bundled_workflow_is_short(workflow: Workflow, outputs: dict[str, str], tmp_path: Path) -> None:
    """Each step as a workflow of its own, so that its lazy output is the first thing that is submitted."""
    catalog = Catalog([DirectorySource("bundled", str(BUNDLED))])
    for number, (step_id, output) in enumerate(outputs.items()):
        one = workflow.steps[step_id]
        assert isinstance(one, PromptStep)
        issues = judge_step(one, output, {}, Budget()).issues
        if not issues:
            continue  # refused by a proof
        alone = {**workflow.document, "steps": [{**step_of(workflow.document, step_id), "proof": []}]}
        with closing(Runs(SqliteJournal(str(tmp_path / f"{number}.sqlite")))) as runs:
            run = runs.start(build(without_conditions(alone)), {}, {})
            services = Services(catalog=catalog, open_runs=lambda runs=runs: runs)  # type: ignore[misc]
            arguments = {"runId": run.id, "stepId": step_id, "output": output}
            outcome: Any = Registry(BUILTIN_TOOLS, services).call(
                BUILTIN_TOOLS["workflow_submit"], arguments, NO_CLIENT, 0
            )
        refusal = bytes(tool_result(outcome)["structuredContent"])
        messages = outcome["verdict"]["issues"]
        assert not outcome["verdict"]["valid"]
        assert len(refusal) - sum(len(message.encode()) for message in messages) <= MAX_REFUSAL, step_id
        suggestions = " ".join(outcome["verdict"]["suggestions"])
        assert [pattern for pattern in patterns_of(alone) if pattern in suggestions] == []


def test_workflow_next_refers_to_a_long_prompt_and_repeats_a_short_one(call: Call) -> None:
    long, text = call("workflow_next", workflowId="sample-workflow", completedSteps=[], context={"files": ["a.py"]})

    assert long["guidance"]["prompt"] == (
        "## Agent Role Instructions\nYou are a patient reader of code.\n\n## Step Guidance\n- Read slowly, twice.\n\n"
        f"{PROMPT_REFERENCE}\n\n## Loop Context\n- Iteration: 1\n- Total Items: 1\n- Current Index: 0\n"
        "- Current Item: a.py"
    )
    assert text.count(long["step"]["prompt"]) == 1


def test_a_run_of_a_bundled_workflow_costs_at_most_half_more_than_its_markdown() -> None:
    """By the figures of the benchmark: answers, bytes of `structuredContent`, of the text, and of the Markdown."""
    bench = Path(__file__).parents[2] / "bench" / "reading.py"
    printed = subprocess.run([sys.executable, str(bench)], capture_output=True, text=True, check=True).stdout

    figures = {name: list(map(int, numbers)) for name, *numbers in map(str.split, printed.splitlines())}
    assert figures.keys() == BUNDLED_DOCUMENTS.keys()
    too_long = {name: one for name, one in figures.items() if max(one[1], one[2]) > 1.5 * one[3]}
    assert too_long == {}


def step_of(workflow: Any, step_id: str) -> JsonObject:
    steps = [inner for one in workflow["steps"] for inner in one.get("body", [one])]
    return next(one for one in steps if one["id"] == step_id)


def without_conditions(workflow: JsonObject) -> JsonObject:
    (only,) = workflow["steps"]
    return {
        **workflow,
        "steps": [{name: value for name, value in only.items() if name not in ("runCondition", "requireConfirmation")}],
    }


def patterns_of(value: Any) -> Iterator[str]:
    """The patterns of rules. For one within a JSON Schema there may be no other words."""
    if isinstance(value, dict):
        if value.get("type") == "regex":
            yield value["pattern"]
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from patterns_of(part)
