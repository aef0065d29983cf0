"""What a model reads when the run tools lead it through a bundled workflow, beside the workflow pasted as Markdown.

Clients show a model either `structuredContent` or the text of an answer, so both are counted, each by itself. A run
takes the longest path of the workflow's fixtures with their good outputs. Its proofs pass, and the agent relays the
person's answers, which costs more than a client that shows forms.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from workflowlookup.authoring.fixtures import Case, parse_fixture
from workflowlookup.language.captures import capture_values
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.formats.syntax import parse_yaml
from workflowlookup.language.guidance import guide
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.navigation import NextStep, split_instance
from workflowlookup.language.rules import unfenced
from workflowlookup.language.templates import as_words
from workflowlookup.library.catalog import Catalog
from workflowlookup.library.directory import DirectorySource
from workflowlookup.protocol.requests import tool_result
from workflowlookup.runs.events import Judgement, Snapshot
from workflowlookup.runs.proofs.due import SnapshotDue, next_due
from workflowlookup.runs.run import Waiting
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.tools.builtin import BUILTIN_TOOLS
from workflowlookup.tools.contract import NO_CLIENT, Elicitation, Pending, Services
from workflowlookup.tools.registry import Registry

BUNDLED = Path(str(files("workflowlookup"))) / "bundled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one workflow costs to read, in bytes."""

    answers: int
    structured: int
    text: int
    markdown: int


def measure(scratch: Path) -> dict[str, Reading]:
    """By id: each bundled workflow, led to its end."""
    library = Catalog([DirectorySource("bundled", str(BUNDLED))])
    runs = Runs(SqliteJournal(str(scratch / "reading.sqlite")))
    try:
        agent = Agent(Services(catalog=library, open_runs=lambda: runs), runs)
        return {identifier: _read(agent, library.get(identifier)) for identifier in library.snapshot().entries}
    finally:
        runs.close()


def _read(agent: "Agent", workflow: Workflow) -> Reading:
    results = list(agent.follow(workflow, read_script(BUNDLED / f"{workflow.id}.test.yaml")))
    return Reading(
        answers=len(results),
        structured=sum(len(bytes(result["structuredContent"])) for result in results),
        text=sum(len(block["text"].encode()) for result in results for block in result["content"]),
        markdown=len(as_markdown(workflow).encode()),
    )


@dataclass(frozen=True, slots=True)
class Script:
    """The longest path of a workflow's fixtures, and what the agent and the person say on it."""

    case: Case
    cases: Sequence[Case]

    def output(self, step: PromptStep, step_id: str) -> str:
        """A good output of the step: that of the case, or of another one with the variables of the case.

        One that declares `none` waives a proof, which only a person may accept, so others are preferred.
        """
        by_case = [_of_step(case.outputs, step_id) for case in (self.case, *self.cases)]
        outputs = [outputs.accept[0] for outputs in by_case if outputs is not None and outputs.accept]
        output = min(
            outputs, key=lambda output: "none" in capture_values(step.captures, output, Budget()).values.values()
        )
        variables = {**self.case.context, **(_of_step(self.case.after, step_id) or {})}
        captures = {(one.pointer or one.name).removeprefix("/"): variables.get(one.name) for one in step.captures}
        values = {name: value for name, value in captures.items() if value is not None}
        if unfenced(output).startswith("{"):
            return json.dumps({**json.loads(unfenced(output)), **values}, indent=2)
        return "\n".join([output, *(f"{name}: {as_words(value)}" for name, value in values.items())])


def read_script(path: Path) -> Script:
    """The case that hands out the most different steps, in as few calls as possible."""
    cases = parse_fixture(parse_yaml(path.read_bytes())).cases
    decided = [case for case in cases if case.complete and case.context]

    def extent(case: Case) -> tuple[int, int]:
        steps = case.steps or ()
        return len({split_instance(step_id)[0] for step_id in steps}), -len(steps)

    return Script(max(decided, key=extent), cases)


def _of_step(values: Mapping[str, Any], step_id: str) -> Any:
    return values.get(step_id) or values.get(split_instance(step_id)[0])


class Agent:
    """Follows a workflow by the run tools, as a client calls them."""

    def __init__(self, services: Services, runs: Runs) -> None:
        self._registry = Registry(BUILTIN_TOOLS, services)
        self._runs = runs

    def follow(self, workflow: Workflow, script: Script) -> Iterator[Mapping[str, Any]]:
        """Every result of `tools/call`, from `workflow_start` to the end of the run."""
        result = self._call("workflow_start", workflowId=workflow.id)
        yield result
        while (run := self._runs.get(_decoded(result)["runId"])).waiting_for is not None:
            step: Any = {"runId": run.id, "stepId": run.current}
            if run.waiting_for is Waiting.CONFIRMATION:
                answers = _of_step(script.case.answers, run.current) or {}
                result = self._call("workflow_submit", **step, confirmed=True, answers=dict(answers))
            else:
                result = self._call("workflow_submit", **step, output=script.output(run.step, run.current))
                assert _decoded(result)["verdict"]["valid"], (workflow.id, run.current, _decoded(result)["verdict"])
            yield result

    def _call(self, tool: str, **arguments: Any) -> Mapping[str, Any]:
        outcome = self._registry.call(BUILTIN_TOOLS[tool], arguments, NO_CLIENT, 0)
        if isinstance(outcome, Pending):
            self._prove(outcome.run_id)
            polled = outcome.poll()
            assert polled is not None
            outcome = polled
        assert not isinstance(outcome, Elicitation)
        return tool_result(outcome)

    def _prove(self, run_id: str) -> None:
        """Take every proof that is due, as passed."""
        while (run := self._runs.get(run_id)).waiting_for is Waiting.PROOF:
            match next_due(run, Budget()):
                case None:
                    self._runs.server_work.conclude_proofs(run_id, run.current)
                case SnapshotDue(since=since):
                    self._runs.server_work.take_snapshot(run_id, run.current, since, Snapshot(is_repository=True))
                case proof:
                    measures = {"passed": 412, "ran": "4"} if proof.name == "baseline" else {}
                    judgement = Judgement(
                        name=proof.name, kind="", verdict="passed", summary="make test", measures=measures
                    )
                    self._runs.server_work.take_proof(run_id, run.current, judgement)


def _decoded(result: Mapping[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = msgspec.json.decode(result["structuredContent"])
    return state


# ── Markdown ────────────────────────────────────────────────────────────────────────────────────────────────────


def as_markdown(workflow: Workflow) -> str:
    """The workflow as a person would paste it: everything that an agent has to know, and nothing for the server."""
    parts = [f"# {workflow.name}", workflow.description]
    for title, lines in (
        ("Before you start", workflow.preconditions),
        ("Ask first", workflow.clarification_prompts),
        ("Throughout", workflow.meta_guidance),
    ):
        if lines:
            parts.append(f"## {title}\n" + _bullets(lines))
    parts += [_step(workflow, step) for step in workflow.steps.values() if isinstance(step, PromptStep)]
    return "\n\n".join(parts) + "\n"


def _step(workflow: Workflow, step: PromptStep) -> str:
    following = NextStep(step, step.id, {}, None, (), (), 0, in_run=True)
    guidance = guide(workflow, following, Budget())
    parts = [f"## {guidance.step['title']}"]
    parts += [guidance.step["agentRole"]] if "agentRole" in guidance.step else []
    parts += [_bullets(guidance.step["guidance"])] if "guidance" in guidance.step else []
    parts.append(guidance.step["prompt"])
    parts += ["The output must meet this:\n" + _bullets(guidance.criteria)] if guidance.criteria else []
    return "\n\n".join(parts)


def _bullets(lines: Any) -> str:
    return "\n".join(f"- {line}" for line in lines)


def main() -> None:
    """Print these figures alone: id, answers, bytes of structuredContent, of the text and of the Markdown."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        for name, one in measure(Path(scratch)).items():
            print(f"{name:27} {one.answers:3} {one.structured:6} {one.text:6} {one.markdown:6}")


if __name__ == "__main__":
    main()
