"""Finding and running fixtures for `workflowlookup test`: paths in, suites of plain values out.

A fixture that cannot be run, because it or its workflow is malformed or missing, is a suite with problems.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.app import make_catalog
from workflowlookup.authoring.fixtures import BadFixture, Case, Fixture, mistake, parse_fixture
from workflowlookup.authoring.positions import FINDERS
from workflowlookup.authoring.rehearsal import Coverage, Rehearsal, rehearse
from workflowlookup.cli.commands.validate import Remark, check_file
from workflowlookup.cli.documents import places_in
from workflowlookup.cli.output import shown_path
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.language.building import build
from workflowlookup.language.document import Finding
from workflowlookup.language.model import Workflow
from workflowlookup.language.values import Json
from workflowlookup.library.files import (
    DOCUMENT_SUFFIXES,
    FIXTURE_SUFFIXES,
    is_document_name,
    load,
    parse_document,
    read_bytes,
    summarise,
)
from workflowlookup.settings import Settings

if TYPE_CHECKING:
    from workflowlookup.library.catalog import Catalog

NO_FIXTURE: Final = "no fixture"


class Subject(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A workflow under test, and what all its fixtures have met of it."""

    file: str
    workflow: Workflow
    coverage: Coverage


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A case that was run."""

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
    subject: Subject | None = None
    cases: tuple[Case, ...] = ()
    lines: tuple[int, ...] = ()
    """Where each case begins."""
    problems: tuple[Remark, ...] = ()
    ran: tuple[Ran, ...] = ()

    @property
    def has_passed(self) -> bool:
        return not self.problems and all(ran.has_passed for ran in self.ran)

    def run(self, tick: Callable[[], None]) -> "Suite":
        """The same with its cases run; `tick` is called after each."""
        return msgspec.structs.replace(self, ran=tuple(self._run(tick)))

    def _run(self, tick: Callable[[], None]) -> Iterator[Ran]:
        if self.subject is None:
            return
        for case, line in zip(self.cases, self.lines, strict=True):
            began = time.perf_counter()
            outcome = rehearse(self.subject.workflow, case, self.subject.coverage)
            yield Ran(case=case, outcome=outcome, seconds=time.perf_counter() - began, line=line)
            tick()


class Workbench:
    """Loads fixtures; each workflow once, however many fixtures it has."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._catalog: Catalog | None = None
        self._subjects: dict[str, Subject] = {}
        self._ids: dict[str, dict[str, str]] = {}

    @property
    def subjects(self) -> Sequence[Subject]:
        return tuple(self._subjects.values())

    def load(self, paths: Iterable[str]) -> list[Suite]:
        """The suites of fixtures, documents and directories; documents in a directory without one become subjects."""
        suites: list[Suite] = []
        documents: list[str] = []
        for path in paths:
            if os.path.isdir(path):
                files = [file for place in places_in(path) for file in _files(place)]
                suites += [self._suite(file) for file in files if file.endswith(FIXTURE_SUFFIXES)]
                documents += [file for file in files if is_document_name(os.path.basename(file))]
            elif path.endswith(FIXTURE_SUFFIXES):
                suites.append(self._suite(path))
            else:
                suites += self._suites_beside(path)
        for document in documents:
            if load(document, os.path.dirname(document)).refusal is None:  # what is wrong with it, `validate` tells
                self._open(document)
        return list({os.path.realpath(suite.file): suite for suite in suites}.values())

    def find(self, wanted: str, directory: str = ".") -> Subject:
        """The workflow of a path or an id; of the documents in a directory before those of the library."""
        if wanted.endswith(DOCUMENT_SUFFIXES) or os.sep in wanted:
            return self._open(os.path.join(directory, wanted))
        beside = self._documents_by_id(directory or ".")
        if wanted in beside:
            return self._open(beside[wanted])
        if self._catalog is None:
            self._catalog = make_catalog(self._settings)
        workflow = self._catalog.get(wanted)
        path = self._catalog.snapshot().entries[wanted].file.path
        return self._keep(path, workflow)

    def _documents_by_id(self, directory: str) -> dict[str, str]:
        if directory not in self._ids:
            paths = [os.path.join(directory, name) for name in sorted(os.listdir(directory)) if is_document_name(name)]
            self._ids[directory] = {load(path, directory).id: path for path in reversed(paths)}
        return self._ids[directory]

    def _suites_beside(self, document: str) -> list[Suite]:
        stem = os.path.splitext(document)[0]
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
                remedy = "Name a workflow by its id or its path; `workflowlookup validate` tells what is wrong with one"
                return [mistake(("workflow",), refusal.explain().rstrip("."), remedy)]
            return ()

        checked = check_file(file, os.path.dirname(os.path.realpath(file)), examine)
        lines = tuple(_lines_of(suite.cases, file)) if suite.cases else ()
        return msgspec.structs.replace(suite, problems=checked.remarks, lines=lines)

    def _subject_of(self, fixture: Fixture, file: str) -> Subject:
        if fixture.workflow:
            return self.find(fixture.workflow, os.path.dirname(file))
        stem = stem_of(file)
        for document in (stem + suffix for suffix in DOCUMENT_SUFFIXES):
            if os.path.exists(document):
                return self._open(document)
        names = ", ".join(os.path.basename(stem) + suffix for suffix in DOCUMENT_SUFFIXES)
        message = f"None of {names} lies beside it"
        raise BadFixture(mistake((), message, "Say which workflow it is about, as in 'workflow: some-id'"))

    def _open(self, path: str) -> Subject:
        known = self._subjects.get(os.path.realpath(path))
        if known:
            return known
        if not path.endswith(DOCUMENT_SUFFIXES):
            remedy = f"Name a file that ends in {', '.join(DOCUMENT_SUFFIXES)}"
            raise BadFixture(mistake(("workflow",), f"'{shown_path(path)}' is no document", remedy))
        data, _ = read_bytes(path, os.path.dirname(os.path.realpath(path)))
        document = parse_document(data, path)
        summarise(document, path)
        return self._keep(path, build(document))

    def _keep(self, path: str, workflow: Workflow) -> Subject:
        subject = Subject(file=shown_path(path), workflow=workflow, coverage=Coverage(workflow))
        return self._subjects.setdefault(os.path.realpath(path), subject)


def _lines_of(cases: Sequence[Case], file: str) -> Iterator[int]:
    data, _ = read_bytes(file, os.path.dirname(os.path.realpath(file)))
    find = FINDERS[os.path.splitext(file)[1]](data)
    yield from (find(("cases", index))[0] for index in range(len(cases)))


def stem_of(file: str) -> str:
    """The path of a fixture without the end that makes it one."""
    return next(file.removesuffix(suffix) for suffix in FIXTURE_SUFFIXES if file.endswith(suffix))


def _files(directory: str) -> Iterator[str]:
    """Every file below a directory, hidden ones aside, in order."""
    for root, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        yield from (os.path.join(root, name) for name in sorted(names) if not name.startswith("."))
