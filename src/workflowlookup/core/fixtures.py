"""Test fixtures of a workflow: the format of `*.test.yaml`, and what is wrong with one that does not fit it.

A fixture lies beside its workflow and holds cases. Each is one walk of an agent: what goes in, and what should come
out. Here in full; only `cases` and `name` are required, and what is left out is not compared:

    workflow: bug-investigation       # an id, or a path from here; else the document with the name of this file
    cases:
      - name: a flaky bug
        context: {goal: fix}                      # the variables at the start
        after:                                    # variables that the agent sets when a step is done
          triage: {bugKind: intermittent}
          review@2: {approved: true}              # in a loop also for one iteration: so that `while` can end
        answers:                                  # what a person fills in who is asked about a step
          deploy: {window: tonight}
        outputs:                                  # judged when the step is handed out, in the context of that moment
          triage:                                 # in a loop every iteration; review@2 only that one
            accept: ["Seen 9/100 times; bugKind: intermittent"]
            refuse:
              - It is flaky.                      # refused, for whatever reason
              - output: It is flaky.
                issues: [Say how often it fails.] # refused with exactly these messages
        steps: [reproduce, triage, review@1, review@2, report]    # the path, as ids that workflow_next gives
        iterations: {review-loop: 2}              # how many iterations of a loop were entered, all told
        complete: true                            # false: the path is followed to its end, and more would come
        warnings: []                              # what workflow_next warned of, each sentence once

The first output under `accept` stands for what was submitted: variables that `produces` finds in it are set, and win
over `after`; of a step with a call it is the result, which its variable takes, as JSON if it is that.
The id of a loop in `steps` stands where the agent ends that loop by completing its id. `--update` writes what really
came out into `steps`, `iterations`, `complete`, `warnings` and `outputs`. The same in JSON is a `*.test.json`.
"""

import functools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.core.document import Finding, Severity
from workflowlookup.core.schemas import Misfit, PathTo, compile_schema, misfits
from workflowlookup.core.values import Json

if TYPE_CHECKING:
    import jsonschema_rs

NOTHING: Final[Mapping[str, Json]] = MappingProxyType({})


class BadFixture(ValueError):
    """A fixture that does not fit its format, or leads nowhere: a finding for each mistake."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(finding.message for finding in findings))
        self.findings = findings


def mistake(path: PathTo, message: str, suggestion: str) -> Finding:
    return Finding(severity=Severity.ERROR, path=path, message=message, suggestion=suggestion)


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """An output that must be refused, with exactly these messages."""

    output: str
    issues: tuple[str, ...] | None = None


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """Outputs of one step, by the verdict that they should get."""

    accept: tuple[str, ...] = ()
    refuse: tuple[str | Refused, ...] = ()


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One walk through the workflow; None is what the author did not ask for."""

    name: str
    context: Mapping[str, Json] = NOTHING
    after: Mapping[str, Mapping[str, Json]] = NOTHING
    answers: Mapping[str, Mapping[str, Json]] = NOTHING
    outputs: Mapping[str, Outputs] = NOTHING
    steps: tuple[str, ...] | None = None
    iterations: Mapping[str, int] | None = None
    complete: bool = True
    warnings: tuple[str, ...] | None = None


class Fixture(msgspec.Struct, frozen=True, kw_only=True):
    """The cases of a file, and the workflow that they are about."""

    cases: tuple[Case, ...]
    workflow: str = ""


def parse_fixture(value: Json) -> Fixture:
    """The fixture that a JSON value means. Raises `BadFixture`."""
    findings = [_from_misfit(misfit, value) for misfit in misfits(_validator(), value, SCHEMA)]
    if findings:
        raise BadFixture(*findings)
    fixture = msgspec.convert(value, Fixture)
    findings = list(_beyond_the_schema(fixture))
    if findings:
        raise BadFixture(*findings)
    return fixture


def _beyond_the_schema(fixture: Fixture) -> Iterator[Finding]:
    names: set[str] = set()
    for index, case in enumerate(fixture.cases):
        subject, path = f"case {index + 1} ('{case.name}')", ("cases", index)
        if case.name in names:
            message = f"{subject}: another case has this name already"
            yield mistake((*path, "name"), message, "Give every case a name of its own")
        names.add(case.name)
        if not case.complete and case.steps is None:
            message = f"{subject}: 'complete: false' needs 'steps', which say how far to go"
            yield mistake((*path, "complete"), message, "List the steps up to there in 'steps'")


def _from_misfit(misfit: Misfit, value: Json) -> Finding:
    path = (*misfit.path, *misfit.unknown[:1])
    return mistake(path, _sentence(misfit, value), "`workflowlookup test --example ID` prints a fixture that fits")


def _sentence(misfit: Misfit, value: Json) -> str:
    """`case 2 ('a flaky bug'): steps[0] must be text ('string'); found 7`."""
    match misfit.path:
        case ("cases", int(index), *field):
            case = value["cases"][index]
            name = f" ('{case['name']}')" if isinstance(case, dict) and isinstance(case.get("name"), str) else ""
            inside = msgspec.structs.replace(misfit, path=tuple(field))
            return f"case {index + 1}{name}: {inside.sentence()}"
    return misfit.sentence(None if misfit.path or misfit.unknown else "the fixture")


# ── the format ──────────────────────────────────────────────────────────────────────────────────────────────────

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_VARIABLES: Final = {"type": "object"}


def _object(properties: Mapping[str, Json], *required: str) -> Mapping[str, Json]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


SCHEMA: Final[Mapping[str, Json]] = _object(
    {
        "$schema": _TEXT,
        "workflow": {"type": "string", "minLength": 1},
        "cases": {
            "type": "array",
            "minItems": 1,
            "items": _object(
                {
                    "name": {"type": "string", "minLength": 1},
                    "context": _VARIABLES,
                    "after": {"type": "object", "additionalProperties": _VARIABLES},
                    "answers": {"type": "object", "additionalProperties": _VARIABLES},
                    "outputs": {
                        "type": "object",
                        "additionalProperties": _object(
                            {
                                "accept": _TEXTS,
                                "refuse": {
                                    "type": "array",
                                    "items": {"anyOf": [_TEXT, _object({"output": _TEXT, "issues": _TEXTS}, "output")]},
                                },
                            }
                        ),
                    },
                    "steps": _TEXTS,
                    "iterations": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
                    "complete": {"type": "boolean"},
                    "warnings": _TEXTS,
                },
                "name",
            ),
        },
    },
    "cases",
)


@functools.cache
def _validator() -> "jsonschema_rs.Validator":
    return compile_schema(SCHEMA)
