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
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from workflowlookup.language.document import Finding, Severity
from workflowlookup.language.schemas import Misfit, PathTo, Validator, compile_schema
from workflowlookup.language.values import Json

NOTHING: Final[Mapping[str, Json]] = MappingProxyType({})


class BadFixture(ValueError):
    """A fixture that does not fit its format, or leads nowhere: a finding for each mistake."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(finding.message for finding in findings))
        self.findings = findings


def mistake(path: PathTo, message: str, suggestion: str) -> Finding:
    return Finding(severity=Severity.ERROR, path=path, message=message, suggestion=suggestion)


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a fixture. Its types are the format; UNSET is what the author left out."""


class RefusedOutput(_Part, frozen=True, kw_only=True):
    """An output that must be refused, with exactly these messages."""

    output: str
    issues: tuple[str, ...] | UnsetType = UNSET


class Outputs(_Part, frozen=True, kw_only=True):
    """Outputs of one step, by the verdict that they should get."""

    accept: tuple[str, ...] = ()
    refuse: tuple[str | RefusedOutput, ...] = ()


class Case(_Part, frozen=True, kw_only=True):
    """One walk through the workflow."""

    name: Annotated[str, Meta(min_length=1)]
    context: Mapping[str, Json] = {}
    after: Mapping[str, Mapping[str, Json]] = {}
    answers: Mapping[str, Mapping[str, Json]] = {}
    outputs: Mapping[str, Outputs] = {}
    steps: tuple[str, ...] | UnsetType = UNSET
    iterations: Mapping[str, Annotated[int, Meta(ge=0)]] | UnsetType = UNSET
    complete: bool = True
    warnings: tuple[str, ...] | UnsetType = UNSET


class Fixture(_Part, frozen=True, kw_only=True):
    """The cases of a file, and the workflow that they are about."""

    schema: str = msgspec.field(default="", name="$schema")
    workflow: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    cases: Annotated[tuple[Case, ...], Meta(min_length=1)]


def parse_fixture(value: Json) -> Fixture:
    """The fixture that a JSON value means. Raises `BadFixture`."""
    findings = [_from_misfit(misfit, value) for misfit in _validator().misfits(value)]
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
        if not case.complete and case.steps is UNSET:
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


@functools.cache
def _schema() -> dict[str, Json]:
    return msgspec.json.schema(Fixture)


@functools.cache
def _validator() -> Validator:
    return compile_schema(_schema(), is_ours=True)
