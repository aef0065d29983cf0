"""Finds and runs test fixtures, for `workflowlookup test` and `watch`.

A `Suite` is a fixture with the results of its cases. If the fixture or its workflow is malformed or missing, the suite
has problems instead.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.app import make_catalog
from workflowlookup.authoring.coverage import Coverage
from workflowlookup.authoring.fixtures import BadFixture, Case, Fixture, mistake, parse_fixture
from workflowlookup.authoring.rehearsal import Rehearsal, rehearse
from workflowlookup.cli.commands.validate import Remark, check_file
from workflowlookup.cli.documents import document_directories, origin_of_document
from workflowlookup.cli.output import shown_path
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.language.document.building import build
from workflowlookup.language.document.findings import Finding
from workflowlookup.language.forms import DOCUMENT_SUFFIXES, SUFFIXES_IN_WORDS, form_of, split_suffix
from workflowlookup.language.model import Workflow
from workflowlookup.language.values import Json
from workflowlookup.library.files import (
    FIXTURE_SUFFIXES,
    is_document_name,
    load,
    parse_document,
    read_bytes,
    summarise,
)
from workflowlookup.settings import Settings

if TYPE_CHECKING:
    from workflowlookup.cli.real_proofs import RealProofs
    from workflowlookup.library.catalog import Catalog

NO_FIXTURE: Final = "no fixture"


class TestedWorkflow(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A workflow under test, and its coverage by all fixtures."""

    file: str
    workflow: Workflow
    coverage: Coverage


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a case."""

    case: Case
    outcome: Rehearsal
    seconds: float
    line: int

    @property
    def has_passed(self) -> bool:
        return not self.outcome.differences


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """A fixture: its cases and its workflow, or why they cannot be run."""

    file: str
    subject: TestedWorkflow | None = None
    cases: tuple[Case, ...] = ()
    lines: tuple[int, ...] = ()
    """The line of each case."""
    problems: tuple[Remark, ...] = ()
    results: tuple[CaseResult, ...] = ()

    @property
    def has_passed(self) -> bool:
        return not self.problems and all(result.has_passed for result in self.results)

    def run(self, tick: Callable[[], None], real: "RealProofs | None" = None) -> "Suite":
        """Run the cases. Returns the suite with results. `tick` is called after each case; `real` takes proofs."""
        return msgspec.structs.replace(self, results=tuple(self._run(tick, real)))

    def _run(self, tick: Callable[[], None], real: "RealProofs | None") -> Iterator[CaseResult]:
        if self.subject is None:
            return
        for case, line in zip(self.cases, self.lines, strict=True):
            started = time.perf_counter()
            take = real.begin(self.subject.workflow) if real is not None else None
            outcome = rehearse(self.subject.workflow, case, self.subject.coverage, take)
            yield CaseResult(case=case, outcome=outcome, seconds=time.perf_counter() - started, line=line)
            tick()


class SuiteLoader:
    """Loads fixtures, and each workflow once, however many fixtures it has."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._catalog: Catalog | None = None
        self._subjects: dict[str, TestedWorkflow] = {}
        self._ids: dict[str, dict[str, str]] = {}

    @property
    def subjects(self) -> Sequence[TestedWorkflow]:
        return tuple(self._subjects.values())

    def load(self, paths: Iterable[str]) -> list[Suite]:
        """The suites of fixtures, documents and directories. Documents without a fixture are in `subjects`."""
        suites: list[Suite] = []
        documents: list[str] = []
        for path in paths:
            if os.path.isdir(path):
                files = [file for directory in document_directories(path) for file in _files(directory)]
                suites += [self._suite(file) for file in files if file.endswith(FIXTURE_SUFFIXES)]
                documents += [file for file in files if is_document_name(os.path.basename(file))]
            elif path.endswith(FIXTURE_SUFFIXES):
                suites.append(self._suite(path))
            else:
                suites += self._suites_beside(path)
        for document in documents:
            if (
                load(document, os.path.dirname(document)).refusal is None
            ):  # `validate` says what is wrong with the others
                self._open(document)
        return list({os.path.realpath(suite.file): suite for suite in suites}.values())

    def find(self, id_or_path: str, directory: str = ".") -> TestedWorkflow:
        """The workflow with an id or a path. Ids in the directory come before ids in the library."""
        if form_of(id_or_path) or os.sep in id_or_path:
            return self._open(os.path.join(directory, id_or_path))
        documents = self._documents_by_id(directory or ".")
        if id_or_path in documents:
            return self._open(documents[id_or_path])
        if self._catalog is None:
            self._catalog = make_catalog(self._settings)
        workflow = self._catalog.get(id_or_path)
        path = self._catalog.snapshot().entries[id_or_path].file.path
        return self._add(path, workflow)

    def _documents_by_id(self, directory: str) -> dict[str, str]:
        if directory not in self._ids:
            paths = [os.path.join(directory, name) for name in sorted(os.listdir(directory)) if is_document_name(name)]
            self._ids[directory] = {load(path, directory).id: path for path in reversed(paths)}
        return self._ids[directory]

    def _suites_beside(self, document: str) -> list[Suite]:
        stem = split_suffix(document)[0]
        fixtures = [stem + suffix for suffix in FIXTURE_SUFFIXES if os.path.exists(stem + suffix)]
        if fixtures or not os.path.exists(document):
            return [self._suite(file) for file in fixtures or [document]]
        remedy = f"Write {os.path.basename(stem)}{FIXTURE_SUFFIXES[0]}; --example {document} prints one to start from"
        message = f"There is {NO_FIXTURE} beside the document"
        problem = Remark(message=message, suggestion=remedy)
        return [Suite(file=document, problems=(problem,))]

    def _suite(self, file: str) -> Suite:
        suite = Suite(file=file)

        def examine(value: Json) -> Iterable[Finding]:
            nonlocal suite
            try:
                fixture = parse_fixture(value)
                suite = Suite(file=file, subject=self._subject_of(fixture, file), cases=fixture.cases)
            except BadFixture as problem:
                return problem.findings
            except WorkflowLookupError as refusal:
                remedy = "Name a workflow by its id or its path; `workflowlookup validate` checks documents"
                return [mistake(("workflow",), refusal.explain().rstrip("."), remedy)]
            return ()

        checked = check_file(file, os.path.dirname(os.path.realpath(file)), examine)
        lines = tuple(_lines_of(suite.cases, file)) if suite.cases else ()
        return msgspec.structs.replace(suite, problems=checked.remarks, lines=lines)

    def _subject_of(self, fixture: Fixture, file: str) -> TestedWorkflow:
        if fixture.workflow:
            return self.find(fixture.workflow, os.path.dirname(file))
        stem = stem_of(file)
        for document in (stem + suffix for suffix in DOCUMENT_SUFFIXES):
            if os.path.exists(document):
                return self._open(document)
        names = ", ".join(os.path.basename(stem) + suffix for suffix in DOCUMENT_SUFFIXES)
        message = f"The fixture names no workflow, and none of {names} is beside it"
        raise BadFixture(mistake((), message, "Name the workflow, as in 'workflow: some-id'"))

    def _open(self, path: str) -> TestedWorkflow:
        loaded = self._subjects.get(os.path.realpath(path))
        if loaded:
            return loaded
        if form_of(path) is None:
            remedy = f"Name a file that ends in {SUFFIXES_IN_WORDS}"
            raise BadFixture(mistake(("workflow",), f"'{shown_path(path)}' is not a document", remedy))
        data, _ = read_bytes(path, os.path.dirname(os.path.realpath(path)))
        document = parse_document(data, path)
        summarise(document, path)
        return self._add(path, build(document, origin_of_document(path, self._settings)))

    def _add(self, path: str, workflow: Workflow) -> TestedWorkflow:
        subject = TestedWorkflow(file=shown_path(path), workflow=workflow, coverage=Coverage(workflow))
        return self._subjects.setdefault(os.path.realpath(path), subject)


def _lines_of(cases: Sequence[Case], file: str) -> Iterator[int]:
    data, _ = read_bytes(file, os.path.dirname(os.path.realpath(file)))
    if form := form_of(file):
        find = form.find(data)
        yield from (find(("cases", index))[0] for index in range(len(cases)))


def stem_of(file: str) -> str:
    """The path of a fixture without its suffix."""
    return next(file.removesuffix(suffix) for suffix in FIXTURE_SUFFIXES if file.endswith(suffix))


def _files(directory: str) -> Iterator[str]:
    """Every file below a directory in order, without hidden ones."""
    for root, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        yield from (os.path.join(root, name) for name in sorted(names) if not name.startswith("."))
