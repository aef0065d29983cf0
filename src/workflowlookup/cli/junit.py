"""Results of `workflowlookup test` as JUnit XML, which every CI system can show."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Final

from workflowlookup.cli.output import shown_path
from workflowlookup.cli.rehearsals import Suite
from workflowlookup.language.text import printable

_NOT_XML: Final = re.compile("[\ufffe\uffff]")


def junit(suites: Sequence[Suite], shortfalls: Mapping[str, str]) -> bytes:
    """The file: a suite for each fixture, and one for workflows whose coverage falls short (by id, a sentence)."""
    root = ET.Element("testsuites", name="workflowlookup")
    for suite in suites:
        cases = [
            _case(
                suite.subject.workflow.id if suite.subject else shown_path(suite.file),
                ran.case.name,
                ran.seconds,
                failure="\n".join(f"{one.field}: {one.message}" for one in ran.outcome.differences),
            )
            for ran in suite.ran
        ]
        if suite.problems:
            error = "\n".join(f"{shown_path(suite.file)}{one.place}: {one.message}" for one in suite.problems)
            cases.append(_case(shown_path(suite.file), "the fixture can be run", 0, error=error))
        _add(root, shown_path(suite.file), cases)
    if shortfalls:
        _add(root, "coverage", [_case(id_, "coverage", 0, failure=text) for id_, text in shortfalls.items()])
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in root):.3f}")
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _add(root: ET.Element, name: str, cases: Sequence[ET.Element]) -> None:
    suite = ET.SubElement(
        root,
        "testsuite",
        name=_text(name),
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        skipped="0",
        time=f"{sum(float(case.get('time', '0')) for case in cases):.3f}",
    )
    suite.extend(cases)


def _case(classname: str, name: str, seconds: float, **wrong: str) -> ET.Element:
    case = ET.Element("testcase", classname=_text(classname), name=_text(name), time=f"{seconds:.3f}")
    for kind, text in wrong.items():
        if text:
            ET.SubElement(case, kind, message=_text(text.partition("\n")[0]), type=kind).text = _text(text)
    return case


def _text(text: str) -> str:
    """Text that XML can hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", printable(text))
