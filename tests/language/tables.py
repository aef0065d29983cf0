"""How the tables of this folder are read: every row becomes a document, and a question about it.

A file holds, under each sentence of the language's page, rows of one or more kinds:

    holds, fails    [name, condition, context]
    passes          [name, criteria, output, context?]
    issues          [name, criteria, output, [message, …], context?]
    refused         [name, criteria, code]
    fills           [name, text, context, what the agent reads, [unset variable, …]?]
    leads           {name, steps, completed?, context?, next, …}: one question; see `expected_answer`
    walks           {name, steps, context?, completed?, path}: whatever comes next is completed until nothing does
    judges          {name, steps, step, output, context?, issues or code}: an output of one of several steps
    finds           {name, document, loads, issues?, notes?}: what is said of a document
    forms           [name, YAML, JSON]: two ways to write one document

Steps are written as short as can be: `one` is a step of that id, a title and a prompt, `{id, loop, body}` is a loop of at
most ten iterations.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import make
from support.json_values import Json, JsonObject
from workflowlookup.language.formats.syntax import parse_yaml

FOLDER = Path(__file__).parent
KINDS = ("holds", "fails", "passes", "issues", "refused", "fills", "leads", "walks", "judges", "finds", "forms")


@dataclass(frozen=True, kw_only=True)
class Row:
    file: str
    sentence: str
    kind: str
    name: str
    content: Json
    identifier: str

    @property
    def cells(self) -> Sequence[Any]:
        """What follows the name, for the kinds that are lists."""
        cells: Sequence[Any] = self.content[1:]
        return cells

    def document(self) -> JsonObject:
        """The document that the row is about, under the row's own id."""
        match self.kind:
            case "holds" | "fails":
                return make.document(*everywhere(self.cells[0]), identifier=self.identifier)
            case "passes" | "issues" | "refused":
                return make.document(make.step("judged", validationCriteria=self.cells[0]), identifier=self.identifier)
            case "fills":
                return make.document(filled_everywhere(self.cells[0]), identifier=self.identifier)
            case "finds":
                result: JsonObject = with_defaults(self.content["document"], self.identifier)
                return result
            case _:
                steps = [short_step(step) for step in self.content["steps"]]
                return make.document(*steps, **{"identifier": self.identifier, **self.content.get("workflow", {})})


def everywhere(condition: Any) -> list[JsonObject]:
    """The condition in each place that has conditions."""
    return [
        make.step("guarded", runCondition=condition),
        make.step(
            "asks",
            requireConfirmation=condition,
            promptFragments=[{"id": "extra", "text": "A fragment.", "when": condition}],
            validationCriteria=[{"type": "contains", "value": "never", "message": "m", "condition": condition}],
        ),
        make.loop("again", [make.step("inner")], type="while", condition=condition),
    ]


def filled_everywhere(text: str) -> JsonObject:
    """The text in each place that has templates, except calls."""
    return {"id": "told", "title": text, "prompt": text, "agentRole": f"You know: {text}", "guidance": [text]}


def short_step(step: Any) -> JsonObject:
    """A step with what the row left out."""
    if isinstance(step, str):
        return make.step(step)
    if "loop" in step:
        body = step["body"] if isinstance(step["body"], str) else [short_step(inner) for inner in step["body"]]
        return {**make.loop(step["id"], body), **step, "loop": {"maxIterations": 10, **step["loop"]}, "body": body}
    if step.keys() & {"promptBlocks", "parallelDelegations", "templateCall"}:
        return {"title": f"Title {step['id']}", **step}
    return {**make.step(step["id"]), **step}


def with_defaults(content: Json, identifier: str) -> Json:
    """A document of a row of `finds`: fields over the usual ones, `null` for those to leave out; steps as they are."""
    if not isinstance(content, dict):
        return content
    return {key: value for key, value in make.document(identifier=identifier, **content).items() if value is not None}


def rows() -> Iterator[Row]:
    number = 0
    for path in sorted(FOLDER.glob("*.yaml")):
        if path.name == "page.yaml":
            continue
        for sentence, kinds in parse_yaml(path.read_bytes()).items():
            for kind, contents in kinds.items():
                for content in contents:
                    number += 1
                    yield Row(
                        file=path.name,
                        sentence=sentence,
                        kind=kind,
                        name=content["name"] if isinstance(content, Mapping) else content[0],
                        content=content,
                        identifier=f"row-{number:04}",
                    )


ROWS = list(rows())
