"""`workflowlookup test PATH…`: runs the test fixtures of workflows, and reports the coverage.

`authoring.fixtures` describes the format of a fixture, `authoring.rehearsal` how a case is run.
"""

import argparse
import contextlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from workflowlookup.authoring.coverage import BranchCoverage, Coverage, conditions_of
from workflowlookup.authoring.fixtures import Case, Outputs
from workflowlookup.authoring.rehearsal import Difference, corrections, rehearse
from workflowlookup.cli.commands.validate import write_remarks
from workflowlookup.cli.configuration import NotReadable, read_text, replace_text
from workflowlookup.cli.documents import PATHS_HELP, open_workflow, paths_or_project
from workflowlookup.cli.output import (
    CommandError,
    Piece,
    progress,
    shown_path,
    write,
    write_diff,
    write_file,
    write_heading,
    write_json,
    write_table,
)
from workflowlookup.cli.suites import NO_FIXTURE, Suite, SuiteLoader, TestedWorkflow
from workflowlookup.errors import StorageError
from workflowlookup.language.conditions import walk
from workflowlookup.language.contract import example_context
from workflowlookup.language.formats.yaml_layout import text_of
from workflowlookup.language.forms import with_edits
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.text import plural, printable
from workflowlookup.library.files import FIXTURE_SUFFIXES
from workflowlookup.settings import Settings

if TYPE_CHECKING:
    from workflowlookup.cli.real_proofs import RealProofs
    from workflowlookup.language.values import Json

MAX_LISTED: Final = 10
"""How many uncovered branches or rules of one workflow are listed; JSON has them all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help=f"a fixture (*{FIXTURE_SUFFIXES[0]}), a document with a fixture, or a directory {PATHS_HELP}",
    )
    parser.add_argument(
        "--update", action="store_true", help="write the actual results into the fixtures, and show the changes"
    )
    for flag, kind, condition in (
        ("--min-coverage", "steps", "steps were offered"),
        ("--min-branches", "branches", "conditions were both true and false"),
        ("--min-rules", "rules", "rules both passed and failed"),
    ):
        parser.add_argument(
            flag, dest=f"min_{kind}", metavar="PERCENT", type=_percent, default=0.0, help=f"fail if fewer {condition}"
        )
    parser.add_argument(
        "--real", action="store_true", help="take the proofs of outputs to accept, in this project; by default none"
    )
    parser.add_argument("--junit", metavar="FILE", help="also write the results as JUnit XML")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--example", metavar="ID", help="print a fixture to start from for this workflow, and run none")


def _percent(text: str) -> float:
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1
    if not 0 <= number <= 100:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 to 100")
    return number


def run(options: argparse.Namespace, settings: Settings) -> int:
    if options.example:
        workflow = open_workflow(options.example, settings)
        write(_example(workflow), wrap=False)
        return 0
    paths = paths_or_project(options.paths)
    if options.update:
        _update(SuiteLoader(settings).load(paths), is_quiet=options.json)
    loader = SuiteLoader(settings)
    suites = loader.load(paths)
    real = _real_proofs(settings) if options.real else None
    with progress("Testing", sum(len(suite.cases) for suite in suites)) as tick, contextlib.ExitStack() as stack:
        if real is not None:
            stack.callback(real.close)
        suites = [suite.run(tick, real) for suite in suites]
    minimum = {kind: getattr(options, f"min_{kind}") for kind in _COVERED}
    shortfalls = dict(_shortfalls(loader.subjects, minimum))
    if options.junit:
        write_file(options.junit, _junit(suites, shortfalls))
    (_report_json if options.json else _report_text)(suites, loader.subjects, shortfalls)
    if not suites:
        raise CommandError(
            f"no fixture found in {', '.join(map(shown_path, paths))}. A fixture is a *{FIXTURE_SUFFIXES[0]} beside "
            "its workflow; `workflowlookup test --example ID` prints one to start from."
        )
    return int(bool(shortfalls) or not all(suite.has_passed for suite in suites))


def _real_proofs(settings: Settings) -> "RealProofs":
    from workflowlookup.cli.real_proofs import RealProofs  # noqa: PLC0415 - only with --real

    real = RealProofs(settings)
    if not real.root:
        raise CommandError("there is no project directory to take proofs in. Change to one, or name it with --root.")
    return real


_COVERED: Final = {
    "steps": "of the steps were offered",
    "branches": "of the branches were taken",
    "rules": "of the verdicts of rules occurred",
}


def _shortfalls(subjects: Sequence[TestedWorkflow], minimum: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    for subject in subjects:
        texts = [
            f"{100 * seen / total:.0f}% {_COVERED[kind]} ({seen} of {total}); the minimum is {minimum[kind]:g}%"
            for kind, (seen, total) in _counts_of(subject.coverage).items()
            if 100 * seen < minimum[kind] * total
        ]
        if texts:
            yield subject.workflow.id, ". ".join(texts)


# ── update ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _update(suites: Sequence[Suite], *, is_quiet: bool) -> None:
    """Write the actual results into fixtures that expect other results."""
    for suite in suites:
        edits = {
            ("cases", index, *path): value
            for index, result in enumerate(suite.run(lambda: None).results)
            for path, value in corrections(result.case, result.outcome).items()
        }
        if not edits:
            continue
        before = _read_text(suite.file)
        after = with_edits(before, suite.file, edits)
        replace_text(suite.file, before, after, keep_copy=False)
        if not is_quiet:
            write_diff(suite.file, before, after)


def _read_text(path: str) -> str:
    try:
        return read_text(path) or ""
    except NotReadable as problem:
        raise StorageError(f"{shown_path(path)} cannot be edited: {problem}.", file=path) from problem


# ── coverage ────────────────────────────────────────────────────────────────────────────────────────────────────


def _count_sides(sides: Mapping[tuple[str, str], BranchCoverage]) -> tuple[int, int]:
    return sum(len(side.outcomes) for side in sides.values()), 2 * len(sides)


_BRANCH_WORDS: Final = {True: "was never true", False: "was never false"}
_RULE_WORDS: Final = {True: "never passed", False: "never failed"}


def _missing(sides: Mapping[tuple[str, str], BranchCoverage], words: Mapping[bool, str], unseen: str) -> list[str]:
    """`fix: runCondition (goal equals "fix") was never false`."""
    return [
        f"{side.step}: {side.name} ({side.words}) "
        + (words[next(iter({True, False} - side.outcomes))] if side.outcomes else unseen)
        for side in sides.values()
        if len(side.outcomes) < 2
    ]


def _missing_of(coverage: Coverage) -> dict[str, list[str]]:
    return {
        "steps": [step_id for step_id, was_seen in coverage.steps.items() if not was_seen],
        "branches": _missing(coverage.branches, _BRANCH_WORDS, "was never evaluated"),
        "rules": _missing(coverage.rules, _RULE_WORDS, "was never tried"),
    }


def _counts_of(coverage: Coverage) -> dict[str, tuple[int, int]]:
    return {
        "steps": (sum(coverage.steps.values()), len(coverage.steps)),
        "branches": _count_sides(coverage.branches),
        "rules": _count_sides(coverage.rules),
    }


# ── report ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _report_text(suites: Sequence[Suite], subjects: Sequence[TestedWorkflow], shortfalls: Mapping[str, str]) -> None:
    for suite in suites:
        write_remarks(shown_path(suite.file), suite.problems)
        for result in suite.results:
            if not result.has_passed:
                write(
                    (f"{shown_path(suite.file)}:{result.line}", "bold"),
                    ": ",
                    ("failed", "bold red"),
                    ": ",
                    result.case.name,
                )
                for difference in result.outcome.differences:
                    _write_difference(difference)
    if subjects:
        if not all(suite.has_passed for suite in suites):
            write()
        headings = ("workflow", "cases", "steps", "branches", "rules", "result")
        write_table(headings, [_row(subject, suites) for subject in subjects])
    for subject in subjects:
        if any(suite.subject is subject for suite in suites):
            _write_missing(subject)
    _write_assumed(suites)
    write()
    for workflow_id, text in shortfalls.items():
        write((workflow_id, "bold"), ": ", ("too little coverage", "bold red"), ": ", text)
    every = [result for suite in suites for result in suite.results]
    failed = sum(not result.has_passed for result in every)
    wrong = sum(bool(suite.problems) for suite in suites)
    state: Piece = (f"{failed} failed", "red") if failed else ("all passed", "green") if every else "nothing to run"
    broken: Piece = (f"; {plural(wrong, 'fixture')} could not be run", "red") if wrong else ""
    write(f"{plural(len(every), 'case')} of {plural(len(suites), 'fixture')}, ", state, broken)


def _write_difference(difference: Difference) -> None:
    first, *rest = difference.message.split("\n")
    write((f"    {difference.field}: ", "yellow"), first, hang=8)
    for line in rest:
        write(f"        {line}", hang=8)


def _row(subject: TestedWorkflow, suites: Sequence[Suite]) -> Sequence[Piece]:
    own = [suite for suite in suites if suite.subject is subject]
    results = [result for suite in own for result in suite.results]
    failed = sum(not result.has_passed for result in results)
    counts = _counts_of(subject.coverage).values()
    result = (f"{failed} failed", "red") if failed else ("passed", "green") if own else (NO_FIXTURE, "yellow")
    return [
        subject.workflow.id,
        str(len(results)),
        *((f"{seen}/{total}", "green" if seen == total else "yellow") for seen, total in counts),
        result,
    ]


def _write_missing(subject: TestedWorkflow) -> None:
    for kind, names in _missing_of(subject.coverage).items():
        if names:
            write_heading(f"{subject.workflow.id}: {kind} without a test")
            for name in names[:MAX_LISTED]:
                write(("  - ", "yellow"), name, hang=4)
            if len(names) > MAX_LISTED:
                write((f"    and {len(names) - MAX_LISTED} more; --json has them all", "dim"))


def _write_assumed(suites: Sequence[Suite]) -> None:
    """Say which proofs were assumed to pass, because no fixture says what they would give."""
    for suite in suites:
        assumed = list(dict.fromkeys(name for result in suite.results for name in result.outcome.assumed_proofs))
        if assumed and suite.subject is not None:
            write_heading(f"{suite.subject.workflow.id}: proofs assumed to pass")
            for name in assumed[:MAX_LISTED]:
                write(("  - ", "yellow"), name, hang=4)
            if len(assumed) > MAX_LISTED:
                write((f"    and {len(assumed) - MAX_LISTED} more; --json has them all", "dim"))


def _report_json(suites: Sequence[Suite], subjects: Sequence[TestedWorkflow], shortfalls: Mapping[str, str]) -> None:
    fixtures = [
        {
            "file": shown_path(suite.file),
            "workflowId": suite.subject.workflow.id if suite.subject else None,
            "passed": suite.has_passed,
            "problems": suite.problems,
            "cases": [
                {
                    "name": result.case.name,
                    "line": result.line,
                    "passed": result.has_passed,
                    "differences": result.outcome.differences,
                    "steps": result.outcome.path,
                    "complete": result.outcome.is_complete,
                    "iterations": result.outcome.iterations,
                    "warnings": result.outcome.warnings,
                    "assumedProofs": result.outcome.assumed_proofs,
                    "seconds": round(result.seconds, 6),
                }
                for result in suite.results
            ],
        }
        for suite in suites
    ]
    workflows = [
        {
            "id": subject.workflow.id,
            "file": subject.file,
            "hasFixture": any(suite.subject is subject for suite in suites),
            "coverage": {
                kind: {"seen": seen, "total": total, "missing": _missing_of(subject.coverage)[kind]}
                for kind, (seen, total) in _counts_of(subject.coverage).items()
            },
        }
        for subject in subjects
    ]
    passed = bool(suites) and all(suite.has_passed for suite in suites) and not shortfalls
    write_json({"passed": passed, "fixtures": fixtures, "workflows": workflows, "shortfalls": shortfalls})


# ── example ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _example(workflow: Workflow) -> str:
    """A fixture that passes: the path with minimal outputs and only the required variables."""
    text = "Done."
    judged = [step.id for step in workflow.steps.values() if isinstance(step, PromptStep) and step.criteria is not None]
    start = Case(
        name="nothing decided",
        context=example_context(workflow),
        outputs={step_id: Outputs(accept=(text,)) for step_id in judged[:1]},
    )
    outcome = rehearse(workflow, start, Coverage(workflow))
    case: dict[str, Json] = {"name": start.name, "context": start.context}
    for (field, *rest), value in corrections(start, outcome).items():
        case[str(field)] = {rest[0]: value} if rest else value
    variables = {
        str(part["var"])
        for step in workflow.steps.values()
        for _, condition in conditions_of(step)
        for part in walk(condition)
        if "var" in part
    }
    hint = f"# Conditions use: {', '.join(sorted(variables))}. Add a case for each path.\n" if variables else ""
    return (
        f"# Save this beside the workflow as {workflow.id}{FIXTURE_SUFFIXES[0]}, and run `workflowlookup test` on it.\n"
        f"{hint}{text_of({'workflow': workflow.id, 'cases': [case]})}"
    )


# ── JUnit XML, which every CI system can show ───────────────────────────────────────────────────────────────────

_NOT_XML: Final = re.compile("[\ufffe\uffff]")


def _junit(suites: Sequence[Suite], shortfalls: Mapping[str, str]) -> bytes:
    """JUnit XML: a suite for each fixture, and one for workflows with too little coverage (by id, a sentence)."""
    root = ET.Element("testsuites", name="workflowlookup")
    for suite in suites:
        cases = [
            _test_case(
                suite.subject.workflow.id if suite.subject else shown_path(suite.file),
                result.case.name,
                result.seconds,
                failure="\n".join(f"{diff.field}: {diff.message}" for diff in result.outcome.differences),
            )
            for result in suite.results
        ]
        if suite.problems:
            error = "\n".join(
                f"{shown_path(suite.file)}{remark.position}: {remark.message}" for remark in suite.problems
            )
            cases.append(_test_case(shown_path(suite.file), "the fixture can be run", 0, error=error))
        _add_suite(root, shown_path(suite.file), cases)
    if shortfalls:
        _add_suite(root, "coverage", [_test_case(id_, "coverage", 0, failure=text) for id_, text in shortfalls.items()])
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in root):.3f}")
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _add_suite(root: ET.Element, name: str, cases: Sequence[ET.Element]) -> None:
    suite = ET.SubElement(
        root,
        "testsuite",
        name=_xml_text(name),
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        skipped="0",
        time=f"{sum(float(case.get('time', '0')) for case in cases):.3f}",
    )
    suite.extend(cases)


def _test_case(classname: str, name: str, seconds: float, **wrong: str) -> ET.Element:
    case = ET.Element("testcase", classname=_xml_text(classname), name=_xml_text(name), time=f"{seconds:.3f}")
    for kind, text in wrong.items():
        if text:
            ET.SubElement(case, kind, message=_xml_text(text.partition("\n")[0]), type=kind).text = _xml_text(text)
    return case


def _xml_text(text: str) -> str:
    """Text without characters that XML does not allow."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", printable(text))


EXAMPLES = """\
  workflowlookup test                                            the fixtures of this project
  workflowlookup test flows --min-coverage 100 --junit out.xml   in CI: every step, and a report
  workflowlookup test my-flow.test.yaml --update                 expect what comes out now
  workflowlookup test my-flow.test.yaml --real                   do the proofs hold in this project?
  workflowlookup test --example my-flow > .workflowlookup/workflows/my-flow.test.yaml
                                                                 a fixture to start from"""
