"""`workflowlookup validate PATH…`: what is wrong with documents, where it stands, and how to mend it.

Errors are problems; warnings are with `--strict`; notes never are. A document counts as the library would read it, so
a link out of its directory, a pipe or a file over the limit is an error with a reason and never a traceback.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.cli.main import Command
from workflowlookup.cli.output import plural, shown_path, write, write_json
from workflowlookup.cli.positions import FINDERS
from workflowlookup.core.document import Finding, Severity, check
from workflowlookup.core.schemas import dotted
from workflowlookup.core.syntax import SyntaxProblem
from workflowlookup.errors import SecurityError, StorageError, WorkflowLookupError
from workflowlookup.library.directory import DirectorySource, Listing
from workflowlookup.library.files import MAX_FILE_BYTES, PARSERS, read_bytes
from workflowlookup.settings import Settings

STANDARD_INPUT: Final = "-"


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its place in the text; without one when it is about the file as a whole."""

    severity: Severity
    message: str
    suggestion: str
    path: str = ""
    line: int | None = None
    column: int | None = None


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A document that has been looked at, or a place where there was none."""

    file: str
    remarks: tuple[Remark, ...]
    id: str | None = None
    is_document: bool = True

    def problems(self, *, strict: bool) -> list[Remark]:
        counted = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
        return [remark for remark in self.remarks if remark.severity in counted]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", help="a document, a directory of them, or - (standard input)"
    )
    parser.add_argument("--strict", action="store_true", help="count warnings as problems too")
    parser.add_argument(
        "--format",
        choices=tuple(REPORTERS),
        help="text (default), json, or github: annotations for GitHub Actions (the default there)",
    )
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")


def run(options: argparse.Namespace, _: Settings) -> int:
    form = options.format or ("github" if os.environ.get("GITHUB_ACTIONS") == "true" else "text")
    checked = list(_with_duplicates(_check_all(options.paths)))
    REPORTERS[form](checked, options.strict)
    return int(any(item.problems(strict=options.strict) for item in checked))


# ── look ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_all(paths: Iterable[str]) -> Iterator[Checked]:
    seen: set[str] = set()
    for path in paths:
        for item in (
            _check_directory(path) if os.path.isdir(path) else [(path, os.path.dirname(os.path.realpath(path)))]
        ):
            if isinstance(item, Checked):
                yield item
                continue
            file, root = item
            if os.path.abspath(file) not in seen or file == STANDARD_INPUT:
                seen.add(os.path.abspath(file))
                yield _check_input() if file == STANDARD_INPUT else _check_file(file, root)


def _check_directory(directory: str) -> Iterator[tuple[str, str] | Checked]:
    """The documents that the library would find there, each with the directory that it must lie in."""
    source = DirectorySource("given", directory, required=True)
    listing = source.scan(Listing(), (), lambda _: None)
    for file in listing.files:
        yield os.path.join(directory, os.path.relpath(file, source.root)), directory
    if listing.refusal:
        yield Checked(file=shown_path(directory), remarks=(_refused(listing.refusal, source.root),), is_document=False)
    elif not listing.files:
        remark = Remark(
            severity=Severity.ERROR,
            message="No workflow document found",
            suggestion=f"Documents end in {', '.join(PARSERS)}; hidden files and {plural(2, 'fixture')} are left out",
        )
        yield Checked(file=shown_path(directory), remarks=(remark,), is_document=False)


def _check_file(path: str, root: str) -> Checked:
    extension = os.path.splitext(path)[1]
    if extension not in PARSERS:
        remark = Remark(
            severity=Severity.ERROR,
            message=f"The library reads no file that ends in '{extension}'"
            if extension
            else "The file has no extension",
            suggestion=f"Name it so that it ends in {', '.join(PARSERS)}",
        )
        return Checked(file=shown_path(path), remarks=(remark,))
    try:
        data, _ = read_bytes(path, root)
    except WorkflowLookupError as refusal:
        return Checked(file=shown_path(path), remarks=(_refused(refusal, path),))
    return _check_text(data, shown_path(path), extension)


def _check_input() -> Checked:
    try:
        if sys.stdin is None:
            raise StorageError("is closed.")
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise SecurityError(f"is larger than {MAX_FILE_BYTES:,} bytes. Split the workflow.")
    except OSError as problem:
        return Checked(
            file=STANDARD_INPUT, remarks=(_refused(StorageError(f"cannot be read: {problem.strerror}."), ""),)
        )
    except WorkflowLookupError as refusal:
        return Checked(file=STANDARD_INPUT, remarks=(_refused(refusal, ""),))
    return _check_text(data, STANDARD_INPUT, ".json" if data.lstrip()[:1] in (b"{", b"[", b"") else ".yaml")


def _check_text(data: bytes, file: str, extension: str) -> Checked:
    try:
        document = PARSERS[extension](data)
    except SyntaxProblem as problem:
        remark = Remark(
            severity=Severity.ERROR,
            message=problem.message,
            suggestion=problem.suggestions[0],
            line=problem.line,
            column=problem.column,
        )
        return Checked(file=file, remarks=(remark,))
    findings = check(document)
    find = FINDERS[extension](data) if findings else None
    identifier = document.get("id") if isinstance(document, dict) else None
    return Checked(
        file=file,
        remarks=tuple(_located(finding, *find(finding.path)) for finding in findings) if find else (),
        id=identifier if isinstance(identifier, str) else None,
    )


def _located(finding: Finding, line: int, column: int) -> Remark:
    return Remark(
        severity=finding.severity,
        message=finding.message,
        suggestion=finding.suggestion,
        path=dotted(finding.path),
        line=line,
        column=column,
    )


def _refused(refusal: WorkflowLookupError, path: str) -> Remark:
    """Why a file could not be read; its refusal starts with the path, which is told already."""
    reason, _, remedy = refusal.remedy.removeprefix(path).strip(" .").partition(". ")
    return Remark(
        severity=Severity.ERROR,
        message=f"The file {reason}",
        suggestion=remedy or "Check that the path is right and that you may read it",
    )


def _with_duplicates(checked: Iterable[Checked]) -> Iterator[Checked]:
    first: dict[str, str] = {}
    for item in checked:
        if item.id is None or item.id not in first:
            first.setdefault(item.id or "", item.file)
            yield item
            continue
        remark = Remark(
            severity=Severity.ERROR,
            message=f"The id '{item.id}' is that of {first[item.id]} too, and only one of them would be found",
            suggestion="Give every workflow an id of its own",
            path="id",
        )
        yield msgspec.structs.replace(item, remarks=(remark, *item.remarks))


# ── report ──────────────────────────────────────────────────────────────────────────────────────────────────────

_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "blue"}


def _as_text(checked: Sequence[Checked], strict: bool) -> None:
    for item in checked:
        for remark in item.remarks:
            place = f":{remark.line}:{remark.column}" if remark.line else ""
            severity = (remark.severity.value, _STYLES[remark.severity])
            write((f"{item.file}{place}", "bold"), ": ", severity, ": ", remark.message)
            write((f"    {remark.suggestion}", "dim"))
    _write_summary(checked, strict)


def _as_json(checked: Sequence[Checked], strict: bool) -> None:
    documents = [
        {"file": item.file, "valid": not item.problems(strict=strict), "findings": item.remarks} for item in checked
    ]
    write_json({"valid": all(document["valid"] for document in documents), "documents": documents})


_COMMANDS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def _as_annotations(checked: Sequence[Checked], strict: bool) -> None:
    """Workflow commands of GitHub Actions, which puts them beside the lines of a pull request."""
    for item in checked:
        for remark in item.remarks:
            place = {"file": item.file, "line": remark.line, "col": remark.column}
            shown = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in place.items() if value)
            message = _escaped(f"{remark.message}\n{remark.suggestion}")
            write(f"::{_COMMANDS[remark.severity]} {shown}::{message}")
    _write_summary(checked, strict)


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(character):02X}" if character in "%\r\n" + more else character for character in text)


def _write_summary(checked: Sequence[Checked], strict: bool) -> None:
    documents = [item for item in checked if item.is_document]
    wrong = sum(bool(item.problems(strict=strict)) for item in documents)
    warnings = sum(remark.severity is Severity.WARNING for item in checked for remark in item.remarks)
    ignored = f" ({plural(warnings, 'warning')}; --strict counts them)" if warnings and not strict else ""
    state = (f"{wrong} with problems", "red") if wrong else ("no problems", "green")
    write(plural(len(documents), "document"), ", ", state, ignored) if documents else write("0 documents")


REPORTERS: Final[Mapping[str, Callable[[Sequence[Checked], bool], None]]] = {
    "text": _as_text,
    "json": _as_json,
    "github": _as_annotations,
}

COMMAND = Command(
    run=run,
    arguments=add_arguments,
    examples="""\
  workflowlookup validate my-workflow.json               one document
  workflowlookup validate --strict .workflowlookup       a directory; warnings count too
  workflowlookup show bug-investigation --mode full --json | workflowlookup validate -""",
)
