"""`workflowlookup test PATH…`: runs the fixtures of workflows, and tells what they leave untried.

`core.fixtures` describes the format of a fixture, `core.rehearsal` how a case is run.
"""

import argparse
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from workflowlookup.authoring.fixtures import Case, Outputs
from workflowlookup.authoring.rehearsal import (
    BranchCoverage,
    Coverage,
    Difference,
    conditions_of,
    corrections,
    rehearse,
)
from workflowlookup.authoring.text_edits import with_edits
from workflowlookup.authoring.yaml_layout import text_of
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
from workflowlookup.cli.suites import NO_FIXTURE, Subject, Suite, Workbench
from workflowlookup.errors import StorageError
from workflowlookup.language.conditions import walk
from workflowlookup.language.contract import example_context
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.text import plural, printable
from workflowlookup.library.files import FIXTURE_SUFFIXES
from workflowlookup.settings import Settings

if TYPE_CHECKING:
    from workflowlookup.language.values import Json

MOST_LISTED: Final = 10
"""How many untried branches or rules of one workflow are listed; JSON has them all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help=f"a fixture (*{FIXTURE_SUFFIXES[0]}), a document that has one, or a directory {PATHS_HELP}",
    )
    parser.add_argument(
        "--update", action="store_true", help="write the actual results into the fixtures, and show the difference"
    )
    for flag, kind, what in (
        ("--min-coverage", "steps", "steps were offered"),
        ("--min-branches", "branches", "conditions were both true and false"),
        ("--min-rules", "rules", "rules both passed and failed"),
    ):
        parser.add_argument(
            flag, dest=f"min_{kind}", metavar="PERCENT", type=_percent, default=0.0, help=f"fail if fewer {what}"
        )
    parser.add_argument("--junit", metavar="FILE", help="write the results as JUnit XML too")
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
        _update(Workbench(settings).load(paths), is_quiet=options.json)
    bench = Workbench(settings)
    suites = bench.load(paths)
    with progress("Testing", sum(len(suite.cases) for suite in suites)) as tick:
        suites = [suite.run(tick) for suite in suites]
    wanted = {kind: getattr(options, f"min_{kind}") for kind in _COVERED}
    shortfalls = dict(_shortfalls(bench.subjects, wanted))
    if options.junit:
        write_file(options.junit, _junit(suites, shortfalls))
    (_report_json if options.json else _report_text)(suites, bench.subjects, shortfalls)
    if not suites:
        raise CommandError(
            f"no fixture found in {', '.join(map(shown_path, paths))}. A fixture is a *{FIXTURE_SUFFIXES[0]} beside "
            "its workflow; `workflowlookup test --example ID` prints one to start from."
        )
    return int(bool(shortfalls) or not all(suite.has_passed for suite in suites))


_COVERED: Final = {
    "steps": "of the steps were handed out",
    "branches": "of the branches were taken",
    "rules": "of the verdicts of rules were seen",
}


def _shortfalls(subjects: Sequence[Subject], wanted: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    for subject in subjects:
        texts = [
            f"{100 * seen / total:.0f}% {_COVERED[kind]} ({seen} of {total}); {wanted[kind]:g}% are wanted"
            for kind, (seen, total) in _counts_of(subject.coverage).items()
            if 100 * seen < wanted[kind] * total
        ]
        if texts:
            yield subject.workflow.id, ". ".join(texts)


# ── update ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _update(suites: Sequence[Suite], *, is_quiet: bool) -> None:
    """Write what comes out into the fixtures that expect something else."""
    for suite in suites:
        edits = {
            ("cases", index, *path): value
            for index, ran in enumerate(suite.run(lambda: None).ran)
            for path, value in corrections(ran.case, ran.outcome).items()
        }
        if not edits:
            continue
        before = _read_text(suite.file)
        after = with_edits(before, os.path.splitext(suite.file)[1], edits)
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
    return sum(len(one.outcomes) for one in sides.values()), 2 * len(sides)


_BRANCH_WORDS: Final = {True: "was never true", False: "was never false"}
_RULE_WORDS: Final = {True: "never passed", False: "never failed"}


def _missing(sides: Mapping[tuple[str, str], BranchCoverage], words: Mapping[bool, str], unseen: str) -> list[str]:
    """`fix: runCondition (goal equals "fix") was never false`."""
    return [
        f"{one.step}: {one.name} ({one.words}) "
        + (words[next(iter({True, False} - one.outcomes))] if one.outcomes else unseen)
        for one in sides.values()
        if len(one.outcomes) < 2
    ]


def _missing_of(coverage: Coverage) -> dict[str, list[str]]:
    return {
        "steps": [step_id for step_id, was_seen in coverage.steps.items() if not was_seen],
        "branches": _missing(coverage.branches, _BRANCH_WORDS, "was never asked"),
        "rules": _missing(coverage.rules, _RULE_WORDS, "was never tried"),
    }


def _counts_of(coverage: Coverage) -> dict[str, tuple[int, int]]:
    return {
        "steps": (sum(coverage.steps.values()), len(coverage.steps)),
        "branches": _count_sides(coverage.branches),
        "rules": _count_sides(coverage.rules),
    }


# ── report ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _report_text(suites: Sequence[Suite], subjects: Sequence[Subject], shortfalls: Mapping[str, str]) -> None:
    for suite in suites:
        write_remarks(shown_path(suite.file), suite.problems)
        for ran in suite.ran:
            if not ran.has_passed:
                write(
                    (f"{shown_path(suite.file)}:{ran.line}", "bold"), ": ", ("failed", "bold red"), ": ", ran.case.name
                )
                for difference in ran.outcome.differences:
                    _write_difference(difference)
    if subjects:
        if not all(suite.has_passed for suite in suites):
            write()
        headings = ("workflow", "cases", "steps", "branches", "rules", "result")
        write_table(headings, [_row(subject, suites) for subject in subjects])
    for subject in subjects:
        if any(suite.subject is subject for suite in suites):
            _write_missing(subject)
    write()
    for workflow_id, text in shortfalls.items():
        write((workflow_id, "bold"), ": ", ("too little coverage", "bold red"), ": ", text)
    every = [ran for suite in suites for ran in suite.ran]
    failed = sum(not ran.has_passed for ran in every)
    wrong = sum(bool(suite.problems) for suite in suites)
    state: Piece = (f"{failed} failed", "red") if failed else ("all passed", "green") if every else "nothing to run"
    broken: Piece = (f"; {plural(wrong, 'fixture')} could not be run", "red") if wrong else ""
    write(f"{plural(len(every), 'case')} of {plural(len(suites), 'fixture')}, ", state, broken)


def _write_difference(difference: Difference) -> None:
    first, *rest = difference.message.split("\n")
    write((f"    {difference.field}: ", "yellow"), first, hang=8)
    for line in rest:
        write(f"        {line}", hang=8)


def _row(subject: Subject, suites: Sequence[Suite]) -> Sequence[Piece]:
    own = [suite for suite in suites if suite.subject is subject]
    ran = [ran for suite in own for ran in suite.ran]
    failed = sum(not one.has_passed for one in ran)
    counts = _counts_of(subject.coverage).values()
    result = (f"{failed} failed", "red") if failed else ("passed", "green") if own else (NO_FIXTURE, "yellow")
    return [
        subject.workflow.id,
        str(len(ran)),
        *((f"{seen}/{total}", "green" if seen == total else "yellow") for seen, total in counts),
        result,
    ]


def _write_missing(subject: Subject) -> None:
    for kind, names in _missing_of(subject.coverage).items():
        if names:
            write_heading(f"{subject.workflow.id}: {kind} without a test")
            for name in names[:MOST_LISTED]:
                write(("  - ", "yellow"), name, hang=4)
            if len(names) > MOST_LISTED:
                write((f"    and {len(names) - MOST_LISTED} more; --json has them all", "dim"))


def _report_json(suites: Sequence[Suite], subjects: Sequence[Subject], shortfalls: Mapping[str, str]) -> None:
    fixtures = [
        {
            "file": shown_path(suite.file),
            "workflowId": suite.subject.workflow.id if suite.subject else None,
            "passed": suite.has_passed,
            "problems": suite.problems,
            "cases": [
                {
                    "name": ran.case.name,
                    "line": ran.line,
                    "passed": ran.has_passed,
                    "differences": ran.outcome.differences,
                    "steps": ran.outcome.path,
                    "complete": ran.outcome.is_complete,
                    "iterations": ran.outcome.iterations,
                    "warnings": ran.outcome.warnings,
                    "seconds": round(ran.seconds, 6),
                }
                for ran in suite.ran
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
    """A fixture that passes: the way of an agent who says little and sets nothing but what must be there."""
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
    hint = f"# Conditions look at: {', '.join(sorted(variables))}. Add a case for each way.\n" if variables else ""
    return (
        f"# Put this beside the workflow as {workflow.id}{FIXTURE_SUFFIXES[0]}, and run `workflowlookup test` on it.\n"
        f"{hint}{text_of({'workflow': workflow.id, 'cases': [case]})}"
    )


# ── JUnit XML, which every CI system can show ───────────────────────────────────────────────────────────────────

_NOT_XML: Final = re.compile("[\ufffe\uffff]")


def _junit(suites: Sequence[Suite], shortfalls: Mapping[str, str]) -> bytes:
    """The file: a suite for each fixture, and one for workflows whose coverage falls short (by id, a sentence)."""
    root = ET.Element("testsuites", name="workflowlookup")
    for suite in suites:
        cases = [
            _test_case(
                suite.subject.workflow.id if suite.subject else shown_path(suite.file),
                ran.case.name,
                ran.seconds,
                failure="\n".join(f"{one.field}: {one.message}" for one in ran.outcome.differences),
            )
            for ran in suite.ran
        ]
        if suite.problems:
            error = "\n".join(f"{shown_path(suite.file)}{one.place}: {one.message}" for one in suite.problems)
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
    """Text that XML can hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", printable(text))


EXAMPLES = """\
  workflowlookup test                                            the fixtures of this project
  workflowlookup test flows --min-coverage 100 --junit out.xml   in CI: every step, and a report
  workflowlookup test my-flow.test.yaml --update                 expect what comes out now
  workflowlookup test --example my-flow > .workflowlookup/workflows/my-flow.test.yaml
                                                                 a fixture to start from"""
