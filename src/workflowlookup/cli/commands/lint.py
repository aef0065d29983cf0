"""`workflowlookup lint PATH…`: finds mistakes in valid documents.

Documents are found and reported as by `validate`; a document that does not load is an error here as well. Warnings
count as problems, notes do not. SARIF is for code scanning in GitHub, GitLab and editors.
"""

import argparse
import os
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from workflowlookup import __version__
from workflowlookup.authoring.lint.checks import CHECKS, MAX_PROMPT_TOKENS, SWITCH, lint
from workflowlookup.cli.arguments import whole_number
from workflowlookup.cli.commands import validate
from workflowlookup.cli.commands.validate import Checked, Remark, Reporters, add_check_arguments, check_all, report
from workflowlookup.cli.documents import paths_or_project
from workflowlookup.cli.output import write_json
from workflowlookup.language.document.checking import check
from workflowlookup.language.document.findings import Finding, Severity
from workflowlookup.language.values import Json
from workflowlookup.settings import Settings

INVALID: Final = "WL000"
"""The code of a document that does not load."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_check_arguments(parser, REPORTERS)
    parser.add_argument(
        "--max-prompt-tokens",
        type=whole_number(1),
        metavar="N",
        default=MAX_PROMPT_TOKENS,
        help="how many tokens a prompt may have, at four characters per token (default: %(default)s)",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help=f"also report findings that documents switch off with '{SWITCH}'; for untrusted documents",
    )


def run(options: argparse.Namespace, _: Settings) -> int:
    def examine(document: Json) -> Iterable[Finding]:
        errors = [finding for finding in check(document) if finding.severity is Severity.ERROR]
        return errors or lint(document, max_prompt_tokens=options.max_prompt_tokens, respect_off=not options.all)

    checked = [_with_codes(item) for item in check_all(paths_or_project(options.paths), examine)]
    return report(checked, options, REPORTERS)


def _with_codes(item: Checked) -> Checked:
    coded = (remark if remark.code else msgspec.structs.replace(remark, code=INVALID) for remark in item.remarks)
    return msgspec.structs.replace(item, remarks=tuple(coded), read=())


# ── SARIF 2.1.0 ─────────────────────────────────────────────────────────────────────────────────────────────────


def _as_sarif(checked: Sequence[Checked]) -> None:
    driver = {
        "name": "workflowlookup",
        "version": __version__,
        "rules": [
            _rule(INVALID, "invalid-document", "A document does not load.", Severity.ERROR),
            *(_rule(code, check.name, check.description, check.severity) for code, check in CHECKS.items()),
        ],
    }
    results = [_result(item.file, remark) for item in checked for remark in item.remarks]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    write_json({"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]})


def _rule(code: str, name: str, description: str, severity: Severity) -> Json:
    off = f'Switch it off for a step, a loop or a workflow with "{SWITCH}": {{"off": ["{code}"]}}.'
    return {
        "id": code,
        "name": name,
        "shortDescription": {"text": description},
        "fullDescription": {"text": description},
        "help": {"text": description if code == INVALID else f"{description} {off}"},
        "defaultConfiguration": {"level": severity.value},
    }


def _result(file: str, remark: Remark) -> Json:
    physical: dict[str, Json] = {"artifactLocation": {"uri": _uri(file)}}
    if remark.line:
        physical["region"] = {"startLine": remark.line, "startColumn": remark.column}
    location: dict[str, Json] = {"physicalLocation": physical}
    if remark.path:
        location["logicalLocations"] = [{"fullyQualifiedName": remark.path}]
    return {
        "ruleId": remark.code,
        "level": remark.severity.value,
        "message": {"text": f"{remark.message}. {remark.suggestion}."},
        "locations": [location],
    }


def _uri(file: str) -> str:
    path = quote(file.replace(os.sep, "/"))
    return f"file://{path}" if os.path.isabs(file) else path.removeprefix("./")


REPORTERS: Final[Reporters] = {**validate.REPORTERS, "sarif": _as_sarif}

_CODES = "\n".join(f"  {code}  {check.name:20} {check.description}" for code, check in CHECKS.items())
EXAMPLES = f"""\
  workflowlookup lint my-workflow.json                   one document
  workflowlookup lint                                    the workflows of the project
  workflowlookup lint --format sarif .workflowlookup     a directory, for code scanning
  workflowlookup lint --all downloaded.yaml              an untrusted one, with what it switches off

{_CODES}

switch a code off for a step, a loop or a whole workflow: "{SWITCH}": {{"off": ["WL003"]}}"""
