"""Test fixtures of a workflow: the format of `*.test.yaml`, and the findings of a fixture that does not match it.

A fixture is beside its workflow and has cases. A case is one walk of an agent: its input, and the expected outcome.
This is a complete one; only `cases` and `name` are required, and what is left out is not compared:

    workflow: bug-investigation       # an id, or a path from here; else the document with the name of this file
    cases:
      - name: a flaky bug
        context: {goal: fix}                      # the variables at the start
        after:                                    # variables that the agent sets when a step is done
          triage: {bugKind: intermittent}
          review@2: {approved: true}              # in a loop also for one iteration: so that `while` can end
        answers:                                  # of the person who confirms a step
          deploy: {window: tonight}
        outputs:                                  # judged when the step is taken, in the context of that moment
          triage:                                 # in a loop every iteration; review@2 only that one
            accept: ["Seen 9/100 times; bugKind: intermittent"]
            refuse:
              - It is flaky.                      # refused for any reason
              - output: It is flaky.
                issues: [Say how often it fails.] # refused with exactly these messages
              - output: "Fixed; bugKind: plain"
                proof: {tests: fail}              # refused because of what this proof would give
            proof:                                # what the proofs of the step give: pass, fail or unproved
              tests: {verdict: pass, passed: 212} # with measures; the verdict may be left out
        steps: [reproduce, triage, review@1, review@2, report]    # the path, as ids that workflow_next gives
        iterations: {review-loop: 2}              # how many iterations of a loop were entered in total
        complete: true                            # false: the workflow is not complete after these steps
        warnings: []                              # of workflow_next, each sentence once

The first output under `accept` counts as submitted: the variables that `produces` captures from it are set, and
override `after`. For a step with a call it is the result, which is stored in the variable `saveAs`, decoded if it is
JSON. `test` takes no proof: one that is not mentioned is assumed to pass, and the report says so. Measures become
`proof.NAME.MEASURE`. The id of a loop in `steps` means that the agent ends the loop there by completing its id.
`--update` writes the outcome into `steps`, `iterations`, `complete`, `warnings` and `outputs`. A `*.test.json` has the
same format in JSON.
"""

import functools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from workflowlookup.language.document.findings import Finding, Severity
from workflowlookup.language.formats.schemas import Misfit, PathTo, Validator, compile_schema, dotted
from workflowlookup.language.values import Json

NOTHING: Final[Mapping[str, Json]] = MappingProxyType({})


class BadFixture(ValueError):
    """A fixture that does not match the format or its workflow: a finding for each mistake."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(finding.message for finding in findings))
        self.findings = findings


def mistake(path: PathTo, message: str, suggestion: str) -> Finding:
    return Finding(severity=Severity.ERROR, path=path, message=message, suggestion=suggestion)


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a fixture. The types are the format; UNSET means that the author left the field out."""


ProofVerdict = Literal["pass", "fail", "unproved"]
DeclaredProof = ProofVerdict | Mapping[str, Json]
"""What a proof would give: a verdict, or its measures and perhaps a `verdict` (else it passes)."""
DeclaredProofs = Mapping[str, DeclaredProof]
"""By the name of the proof."""


class RefusedOutput(_Part, frozen=True, kw_only=True):
    """An output that must be refused, with exactly these messages."""

    output: str
    issues: tuple[str, ...] | UnsetType = UNSET
    proof: DeclaredProofs = {}


class Outputs(_Part, frozen=True, kw_only=True):
    """Outputs of one step, by the expected verdict."""

    accept: tuple[str, ...] = ()
    refuse: tuple[str | RefusedOutput, ...] = ()
    proof: DeclaredProofs = {}
    """For every output of the step; a refused one may say more."""


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
    """The cases of a file, and their workflow."""

    schema: str = msgspec.field(default="", name="$schema")
    workflow: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    cases: Annotated[tuple[Case, ...], Meta(min_length=1)]


def parse_fixture(value: Json) -> Fixture:
    """The fixture that a JSON value means. Raises `BadFixture`."""
    findings = [_from_misfit(misfit, value) for misfit in _validator().misfits(value)]
    if findings:
        raise BadFixture(*findings)
    fixture = msgspec.convert(value, Fixture)
    findings = list(_semantic_findings(fixture))
    if findings:
        raise BadFixture(*findings)
    return fixture


def _semantic_findings(fixture: Fixture) -> Iterator[Finding]:
    """Mistakes that the JSON Schema cannot express."""
    names: set[str] = set()
    for index, case in enumerate(fixture.cases):
        subject, path = f"case {index + 1} ('{case.name}')", ("cases", index)
        if case.name in names:
            message = f"{subject}: another case has this name already"
            yield mistake((*path, "name"), message, "Give every case a name of its own")
        names.add(case.name)
        for at, declared in _declared_proofs(case):
            verdict = declared.get("verdict", "pass") if isinstance(declared, Mapping) else declared
            if verdict not in get_args(ProofVerdict):
                message = f"{subject}: {dotted((*at, 'verdict'))} must be pass, fail or unproved"
                yield mistake((*path, *at), message, "Write one of these, such as {verdict: pass, passed: 212}")
        if not case.complete and case.steps is UNSET:
            message = f"{subject}: 'complete: false' needs 'steps', which say where to stop"
            yield mistake((*path, "complete"), message, "List the steps up to there in 'steps'")


def _declared_proofs(case: Case) -> Iterator[tuple[PathTo, DeclaredProof]]:
    for key, outputs in case.outputs.items():
        declared: list[tuple[PathTo, DeclaredProofs]] = [(("outputs", key, "proof"), outputs.proof)]
        declared += [
            (("outputs", key, "refuse", index, "proof"), refused.proof)
            for index, refused in enumerate(outputs.refuse)
            if isinstance(refused, RefusedOutput)
        ]
        yield from (((*at, name), result) for at, proofs in declared for name, result in proofs.items())


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
