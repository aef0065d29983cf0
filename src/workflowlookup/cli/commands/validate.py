"""`workflowlookup validate PATH…`: reports what is wrong with documents, where, and how to fix it.

Errors and warnings count as problems, as for the tool `workflow_validate_json`; notes do not. A document is read as the
library would read it, so a link out of its directory, a pipe or a file over the limit is an error. `lint` finds and
reports documents in the same way, with its own checks. What the short forms in Markdown were read as is shown too.
"""

import argparse
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.cli.documents import PATHS_HELP, document_directories, documents_in, path_hint, paths_or_project
from workflowlookup.cli.output import shown_path, write, write_json
from workflowlookup.errors import NotAsLocked, SecurityError, StorageError, WorkflowLookupError
from workflowlookup.language.criteria import describe_criterion
from workflowlookup.language.document.checking import check
from workflowlookup.language.document.findings import Finding, Severity
from workflowlookup.language.formats.positions import Position
from workflowlookup.language.formats.schemas import PathTo, dotted
from workflowlookup.language.formats.syntax import SyntaxProblem
from workflowlookup.language.forms import SUFFIXES_IN_WORDS, Form, form_of, form_of_text, split_suffix
from workflowlookup.language.proof import proofs_of
from workflowlookup.language.rules import parse_criteria
from workflowlookup.language.text import joined, plural
from workflowlookup.language.values import Json
from workflowlookup.library.attachments import AttachmentReader
from workflowlookup.library.files import MAX_FILE_BYTES, read_bytes
from workflowlookup.settings import Settings

STANDARD_INPUT: Final = "-"

Examine = Callable[[Json], Iterable[Finding]]
"""Returns the findings about a document."""


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its position in the text; without a position if it is about the whole file."""

    severity: Severity = Severity.ERROR
    message: str
    suggestion: str
    path: str = ""
    line: int | None = None
    column: int | None = None
    code: str | msgspec.UnsetType = msgspec.UNSET
    """The code of a check of `lint`; `validate` has none."""

    @property
    def position(self) -> str:
        """The suffix of the file name, such as `:3:5`."""
        return f":{self.line}:{self.column}" if self.line else ""

    @property
    def sentence(self) -> str:
        return f"{self.code}: {self.message}" if self.code else self.message


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """What a short form in a Markdown document was read as."""

    path: str
    line: int
    column: int
    words: str


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was checked, or a path without documents."""

    file: str
    remarks: tuple[Remark, ...]
    id: str = ""
    id_position: Position = (1, 1)
    is_document: bool = True
    read: tuple[Read, ...] = ()

    @property
    def has_problems(self) -> bool:
        return any(remark.severity is not Severity.NOTE for remark in self.remarks)


Reporters = Mapping[str, Callable[[Sequence[Checked]], None]]
"""By format: a function that prints the results."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_check_arguments(parser, REPORTERS)


def run(options: argparse.Namespace, settings: Settings) -> int:
    try:
        paths = paths_or_project(options.paths)
    except StorageError:
        if not settings.sources:
            raise
        paths = ()  # a project that only has workflows of others
    from_git = () if options.paths else check_sources(settings)
    checked = [_with_attachments(item) for item in check_all(paths, check)]
    return report([*checked, *from_git], options, REPORTERS)


def check_sources(settings: Settings) -> Iterator[Checked]:
    """What is not as it was locked in the sources from git. Their documents are for their own authors to check."""
    for name, configured in settings.sources.items():
        from workflowlookup.library.locked import LockedSource, faults  # noqa: PLC0415 - only where there are sources

        source = LockedSource(name, configured.source, configured.lock_file, settings.cache_directory)
        for fault in faults(source):
            problem = fault.problem if isinstance(fault, NotAsLocked) else fault.remedy
            fix = fault.fix if isinstance(fault, NotAsLocked) else "Until then the source is left out."
            remark = Remark(message=problem.rstrip("."), suggestion=fix.rstrip("."))
            file = shown_path(str(fault.data.get("file", configured.lock_file)))
            yield Checked(file=file, remarks=(remark,))


def _with_attachments(checked: Checked) -> Checked:
    """The same, with a warning if the files that a document brings along cannot be served."""
    if not checked.is_document or checked.file == STANDARD_INPUT:
        return checked
    try:
        AttachmentReader().list(checked.file)
    except WorkflowLookupError as refusal:
        message, _, remedy = refusal.remedy.rstrip(".").partition(". ")
        suggestion = f"{remedy or 'Check it'}; until then the workflow has neither files nor a skill"
        remark = Remark(severity=Severity.WARNING, message=message, suggestion=suggestion)
        return msgspec.structs.replace(checked, remarks=(*checked.remarks, remark))
    return checked


def add_check_arguments(parser: argparse.ArgumentParser, reporters: Reporters) -> None:
    """Arguments of `validate` and `lint`: the documents, and the format of the report."""
    parser.add_argument(
        "paths", metavar="PATH", nargs="*", help=f"a document, a directory of them, or - (stdin) {PATHS_HELP}"
    )
    others = ", ".join(name for name in reporters if name not in ("text", "github"))
    parser.add_argument(
        "--format",
        choices=tuple(reporters),
        help=f"text (default), {others}, or github: annotations for GitHub Actions (the default there)",
    )
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")


def report(checked: Sequence[Checked], options: argparse.Namespace, reporters: Reporters) -> int:
    """Print the findings in the chosen format. Returns the exit code."""
    form = options.format or ("github" if os.environ.get("GITHUB_ACTIONS") == "true" else "text")
    reporters[form](checked)
    return int(any(item.has_problems for item in checked))


# ── check ───────────────────────────────────────────────────────────────────────────────────────────────────────


def check_all(paths: Iterable[str], examine: Examine) -> list[Checked]:
    """Check the documents at these paths, each once."""
    checked = (item for path in paths for item in _check_path(path, examine))
    return list(_with_duplicates({os.path.abspath(item.file): item for item in checked}.values()))


def _check_path(path: str, examine: Examine) -> Iterator[Checked]:
    if path == STANDARD_INPUT:
        yield _check_input(examine)
    elif os.path.isdir(path):
        yield from _check_directory(path, examine)
    else:
        yield check_file(path, os.path.dirname(os.path.realpath(path)), examine)


def _check_directory(directory: str, examine: Examine) -> Iterator[Checked]:
    """Check the documents that the library would find in a directory."""
    is_empty = True
    for root in document_directories(directory):
        files, refusal = documents_in(root)
        yield from (check_file(file, root, examine) for file in files)
        if refusal:
            remark = _refused(refusal, os.path.abspath(root))
            yield Checked(file=shown_path(root), remarks=(remark,), is_document=False)
        is_empty = is_empty and not files and not refusal
    if is_empty:
        remark = Remark(
            message="No workflow document found",
            suggestion=f"Documents end in {SUFFIXES_IN_WORDS}; hidden files and test fixtures are not documents",
        )
        yield Checked(file=shown_path(directory), remarks=(remark,), is_document=False)


def check_file(path: str, root: str, examine: Examine) -> Checked:
    """Check one file, which must be inside `root`."""
    try:
        data, _ = read_bytes(path, root)
    except WorkflowLookupError as refusal:
        return Checked(file=shown_path(path), remarks=(_refused(refusal, path),))
    form = form_of(path)
    if form is None:
        remark = Remark(
            message="The library would not read a file with this name",
            suggestion=f"Give it a name that ends in {SUFFIXES_IN_WORDS}",
        )
        return Checked(file=shown_path(path), remarks=(remark,))
    return _check_text(data, shown_path(path), form, examine)


def _check_input(examine: Examine) -> Checked:
    try:
        data = _read_input()
    except WorkflowLookupError as refusal:
        return Checked(file=STANDARD_INPUT, remarks=(_refused(refusal, "Standard input"),))
    return _check_text(data, STANDARD_INPUT, form_of_text(data), examine)


def _read_input() -> bytes:
    try:
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1) if sys.stdin else b""
    except OSError as problem:
        raise StorageError(f"Standard input cannot be read: {problem.strerror}. Name a file instead.") from problem
    if len(data) > MAX_FILE_BYTES:
        raise SecurityError(f"Standard input is larger than {MAX_FILE_BYTES:,} bytes. Split the workflow.")
    return data


def _check_text(data: bytes, file: str, form: Form, examine: Examine) -> Checked:
    try:
        document = form.parse(data)
    except SyntaxProblem as problem:
        remark = Remark(
            message=problem.reason, suggestion=problem.suggestions[0], line=problem.line, column=problem.column
        )
        return Checked(file=file, remarks=(remark,))
    find = form.find(data)
    remarks = [_located(finding, *find(finding.path)) for finding in examine(document)]
    remarks.sort(key=lambda remark: (remark.line, remark.column))  # in reading order
    identifier = document.get("id") if isinstance(document, dict) else None
    return Checked(
        file=file,
        remarks=tuple(remarks),
        id=identifier if isinstance(identifier, str) else "",
        id_position=find(("id",)),
        read=tuple(_read(path, *find(path), value) for path, value in form.readings(data)),
    )


def _read(path: PathTo, line: int, column: int, value: Json) -> Read:
    if "kind" in value:
        words = proofs_of({"proof": [{**value, "message": ""}]})[0].words()
    else:
        plain = {"not": {**value["not"], "message": ""}} if "not" in value else {**value, "message": ""}
        criterion = parse_criteria(plain)
        words = describe_criterion(criterion) if criterion else ""
    return Read(path=dotted(path), line=line, column=column, words=words)


def _located(finding: Finding, line: int, column: int) -> Remark:
    return Remark(
        severity=finding.severity,
        message=finding.message,
        suggestion=finding.suggestion,
        path=dotted(finding.path),
        line=line,
        column=column,
        code=getattr(finding, "code", msgspec.UNSET),
    )


def _refused(refusal: WorkflowLookupError, path: str) -> Remark:
    """Why a file could not be read, without the path, which is printed already."""
    reason, _, remedy = refusal.remedy.removeprefix(path).strip(" .").partition(". ")
    return Remark(message=f"The file {reason}", suggestion=remedy or path_hint(path))


def _with_duplicates(checked: Collection[Checked]) -> Iterator[Checked]:
    """Report ids that several files have, at all files but one: the first named after the id, else the first."""
    owners: dict[str, str] = {}
    for item in sorted(checked, key=_is_named_otherwise):
        owners.setdefault(item.id, item.file)
    for item in checked:
        owner = owners[item.id] if item.id else item.file
        if owner == item.file:
            yield item
            continue
        remark = Remark(
            message=f"{owner} has the id '{item.id}' as well, and only one of them would be used",
            suggestion="Give each workflow its own id",
            path="id",
            line=item.id_position[0],
            column=item.id_position[1],
        )
        yield msgspec.structs.replace(item, remarks=(remark, *item.remarks))


def _is_named_otherwise(item: Checked) -> bool:
    return split_suffix(os.path.basename(item.file))[0] != item.id


# ── report ──────────────────────────────────────────────────────────────────────────────────────────────────────

_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "blue"}


def _as_text(checked: Sequence[Checked]) -> None:
    for item in checked:
        write_remarks(item.file, item.remarks)
        for read in item.read:
            write(
                (f"{item.file}:{read.line}:{read.column}", "bold"), ": ", ("read as", "dim"), ": ", joined(read.words)
            )
    _write_summary(checked)


def write_remarks(file: str, remarks: Iterable[Remark]) -> None:
    for remark in remarks:
        severity = (remark.severity.value, _STYLES[remark.severity])
        write((f"{file}{remark.position}", "bold"), ": ", severity, ": ", joined(remark.sentence))
        write((f"    {joined(remark.suggestion)}", "dim"), hang=4)


def _as_json(checked: Sequence[Checked]) -> None:
    documents = [
        {"file": item.file, "valid": not item.has_problems, "findings": item.remarks}
        | ({"read": item.read} if item.read else {})
        for item in checked
    ]
    write_json({"valid": all(document["valid"] for document in documents), "documents": documents})


_COMMANDS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def _as_annotations(checked: Sequence[Checked]) -> None:
    """Workflow commands of GitHub Actions, which shows them beside the lines of a pull request."""
    for item in checked:
        for remark in item.remarks:
            location = {"file": item.file, "line": remark.line, "col": remark.column}
            fields = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in location.items() if value)
            message = _escaped(f"{remark.sentence}\n{remark.suggestion}")
            write(f"::{_COMMANDS[remark.severity]} {fields}::{message}")
    _write_summary(checked)


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(character):02X}" if character in "%\r\n" + more else character for character in text)


def _write_summary(checked: Sequence[Checked]) -> None:
    documents = [item for item in checked if item.is_document]
    wrong = sum(item.has_problems for item in documents)
    state = (f"{wrong} with problems", "red") if wrong else ("no problems", "green") if documents else "none to check"
    write(f"{plural(len(documents), 'document')}, ", state)


REPORTERS: Final[Reporters] = {"text": _as_text, "json": _as_json, "github": _as_annotations}

EXAMPLES = """\
  workflowlookup validate my-workflow.json                         one document
  workflowlookup validate                                          the workflows of the project
  workflowlookup validate flows                                    every document in a directory
  workflowlookup show bug-investigation --mode full --json | workflowlookup validate -"""
