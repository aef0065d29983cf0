"""`make skills`: imports real skills that others wrote, and exports each again.

`tests/authoring/foreign/skills.tsv` names them: repository, package of npm, path, SHA-256. The packages are fetched into
the directory SKILLS once and unpacked, never installed. Exits with 1 if an import crashes, gives an invalid document, or
if its export has lost the name, the description, the order of the steps or the text.
"""

import collections
import hashlib
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from workflowlookup.authoring.export.standalone import standalone
from workflowlookup.authoring.export.targets import TARGETS, export_text
from workflowlookup.authoring.export.text import harmless
from workflowlookup.authoring.foreign.draft import Draft, NotImportable
from workflowlookup.authoring.foreign.page import read_page
from workflowlookup.authoring.foreign.signals import plain
from workflowlookup.authoring.foreign.writing import document_of, markdown_of
from workflowlookup.cli.workflow_import import open_source, provenance_of
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import errors_in
from workflowlookup.language.forms import MARKDOWN
from workflowlookup.language.templates import filler
from workflowlookup.settings import read_settings

LIST = Path(__file__).parents[1] / "authoring" / "foreign" / "skills.tsv"
SETTINGS = read_settings({}, {}, directory=os.devnull)


class Skill:
    """A line of the list."""

    def __init__(self, line: str) -> None:
        self.repository, self.package, self.path, self.digest = line.split("\t")

    @property
    def folder(self) -> str:
        return self.package.replace("/", "_")

    def __str__(self) -> str:
        return f"{self.package} {self.path}"


def listed() -> list[Skill]:
    return [Skill(line) for line in LIST.read_text("utf-8").splitlines() if line and not line.startswith("#")]


def fetch(directory: Path, skills: list[Skill]) -> None:
    """Fetch and unpack the packages that are not there."""
    for package, folder in sorted({(skill.package, skill.folder) for skill in skills}):
        target = directory / folder
        if target.is_dir():
            continue
        command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(directory), package]
        name = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout.split()[-1]
        with tarfile.open(directory / name) as archive:
            archive.extractall(target, filter="data")
        (directory / name).unlink()


def problems_of(path: Path) -> Iterator[str]:
    """What is wrong with the import of a file, or with its export."""
    opened = open_source(str(path), "", SETTINGS)
    assert opened is not None
    draft = opened.format.read(opened.source)
    document, _ = document_of(draft, provenance_of(opened, draft))
    text = markdown_of(document, draft)
    if MARKDOWN.parse(text.encode()) != document:
        yield "the Markdown is not the document"
    yield from (finding.message for finding in errors_in(document))
    workflow = build(document)
    exported = export_text(workflow, TARGETS["skill"], is_standalone=True)
    header = read_page(exported.encode(), "SKILL.md").header
    if draft.name == document["id"] and header["name"] != draft.name:
        yield f"the export is called {header['name']}"
    if len(draft.description) <= 1024 and " ".join(str(header["description"]).split()) != draft.description:
        yield "the export has another description"
    words = _words(standalone(workflow))
    place = 0
    for step in document["steps"]:
        place = words.find(_words(harmless(_filled(step["prompt"]))), place)
        if place < 0:
            yield f"the export has lost the text of '{step['title']}', or its place"
            break
    yield from (f"the import has lost: {line[:80]}" for line in _lost(draft, document, opened.source.data))


def _filled(text: str) -> str:
    return filler({}, {})(text)


def _words(text: str) -> str:
    return " ".join(text.split())


def _lost(draft: Draft, document: dict[str, object], data: bytes) -> Iterator[str]:
    """The lines of the main file that are nowhere in the document."""
    page = read_page(data, "SKILL.md")
    texts = [draft.title, *(text for text, _ in draft.guidance)]
    for step in draft.steps:
        texts += [step.title, step.text]
    there = collections.Counter(_bare(line) for text in texts for line in text.split("\n"))
    for number in range(page.body, page.end):
        line = _bare(page.line(number))
        if line and there[line] == 0:
            yield line


def _bare(line: str) -> str:
    """A line without what a title or the item of a list loses: marks of headings, numbers, emphasis, links."""
    return plain(line.lstrip("# \t0123456789.)").rstrip("#=- \t"))


def main(directory: Path) -> int:
    skills = listed()
    directory.mkdir(parents=True, exist_ok=True)
    fetch(directory, skills)
    outcome: collections.Counter[str] = collections.Counter()
    for skill in skills:
        path = directory / skill.folder / skill.path
        if hashlib.sha256(path.read_bytes()).hexdigest() != skill.digest:
            print(f"{skill}: another file than listed")
            outcome["other file"] += 1
            continue
        try:
            problems = list(problems_of(path))
        except NotImportable as refusal:
            print(f"{skill}: refused: {refusal}")
            outcome["refused"] += 1
            continue
        except Exception as crash:  # noqa: BLE001 - a crash is what is looked for
            problems = [f"crash: {crash!r}"]
        outcome["failed" if problems else "passed"] += 1
        for problem in problems:
            print(f"{skill}: {problem}")
    repositories = len({skill.repository for skill in skills})
    print(f"{len(skills)} skills of {repositories} repositories: {dict(outcome)}")
    return int(bool(outcome["failed"] or outcome["other file"]))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
