"""`workflow_validate_json`: the problems of a workflow document, and how to fix them."""

import re
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from workflowlookup.errors import InvalidParams
from workflowlookup.language.document.checking import check
from workflowlookup.language.document.findings import Finding, Severity
from workflowlookup.language.formats.syntax import SyntaxProblem, parse_json
from workflowlookup.language.values import Json
from workflowlookup.library.files import MAX_FILE_BYTES
from workflowlookup.tools.arguments import StructArguments
from workflowlookup.tools.contract import Caller, Services, Tool
from workflowlookup.tools.result_schemas import VERDICT_SCHEMA

OTHER_FORM_REMEDY: Final = (
    "This looks like YAML or Markdown, and this tool takes only JSON: send the document as JSON, "
    "or save it and run `workflowlookup validate FILE`"
)
_YAML: Final = r"(?:#.*\n|---\s|%YAML.*\n|\s)*[\w$-]+[ \t]*:(?:\s|$)"
"""The start of YAML, or of front matter, after comments and markers: a name and a colon, no bracket."""


class ValidateJsonArguments(msgspec.Struct, rename="camel"):
    """What `workflow_validate_json` takes."""

    workflow_json: Annotated[str, Meta(description="The whole document", min_length=1)]


def handle(_: Services, arguments: ValidateJsonArguments, __: Caller) -> Mapping[str, Json]:
    text = arguments.workflow_json
    if not text.strip():
        raise InvalidParams("workflowJson must not be empty")
    data = text.encode()
    if len(data) > MAX_FILE_BYTES:
        return _verdict([f"The document is larger than {MAX_FILE_BYTES:,} bytes"], ["Split the workflow"])
    try:
        document = parse_json(data)
    except SyntaxProblem as problem:
        suggestions = [OTHER_FORM_REMEDY] if re.match(_YAML, text) else list(problem.suggestions)
        return _verdict([problem.message], suggestions)
    return verdict(check(document))


def verdict(findings: list[Finding]) -> Mapping[str, Json]:
    """Findings as the answer of the tool: errors and warnings are issues, notes only warnings."""
    counted = [finding for finding in findings if finding.severity is not Severity.NOTE]
    notes = [finding.message for finding in findings if finding.severity is Severity.NOTE]
    answer = _verdict([finding.message for finding in counted], [finding.suggestion for finding in counted])
    return {**answer, "warnings": notes} if notes else answer


def _verdict(issues: list[str], suggestions: list[str]) -> dict[str, Json]:
    return {
        "valid": not issues,
        "issues": list(dict.fromkeys(issues)),
        "suggestions": list(dict.fromkeys(suggestions)),
    }


TOOL = Tool(
    name="workflow_validate_json",
    title="Validate a workflow document",
    description="Validates workflow JSON content directly, as you write it (JSON only).",
    arguments=StructArguments(ValidateJsonArguments, is_closed=True),
    output_schema=VERDICT_SCHEMA,
    example=(
        {"workflowJson": '{"id": "my-workflow", "name": "My workflow"}'},
        {
            "valid": False,
            "issues": ["Missing required property 'description'", "Missing required property 'steps'"],
            "suggestions": [
                "Add required 'description' field with a meaningful description",
                "Add required 'steps' array with at least one step object",
            ],
        },
    ),
    handler=handle,
)
