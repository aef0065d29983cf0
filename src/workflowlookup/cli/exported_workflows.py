"""Writes exported workflows: where each goes, and what may be replaced there.

Only what `export` has written itself is replaced, and only as long as nobody has changed it, unless `force` says so.
What has no mark belongs to somebody else and is never replaced. Everything is checked before anything is written.
"""

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from workflowlookup.atomic import replace_file
from workflowlookup.authoring.export.marks import BrokenSection, Mark, read_mark, section_of, with_section
from workflowlookup.authoring.export.targets import TARGETS, export_text
from workflowlookup.authoring.export.text import skill_name
from workflowlookup.cli.configuration import NotReadable, read_text, replace_text
from workflowlookup.cli.documents import find_document
from workflowlookup.cli.output import CommandError, shown_path
from workflowlookup.errors import StorageError
from workflowlookup.language.model import Workflow
from workflowlookup.library.attachments import Attachment, AttachmentReader
from workflowlookup.library.files import SKILL_FILE
from workflowlookup.settings import Settings

_OTHER_PATH: Final = "Choose another path with --output, or remove it first."


class ExportedWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow as text, and the files that go beside it."""

    workflow: Workflow
    target: str
    text: str
    files: tuple[Attachment, ...] = ()
    document: str = ""
    """The path of the document, for its files."""

    @property
    def path(self) -> str:
        """The path in a directory."""
        return TARGETS[self.target].file.format(name=skill_name(self.workflow.id))


def export_workflow(name: str, target: str, settings: Settings, *, is_standalone: bool) -> ExportedWorkflow:
    """A workflow, by its id or the path of its document. Raises as `find_document`, and if its files are refused."""
    workflow, document = find_document(name, settings)
    files = AttachmentReader().list(document) if document and TARGETS[target].takes_files else ()
    digests = [(file.path, file.digest) for file in files]
    text = export_text(workflow, TARGETS[target], digests, is_standalone=is_standalone)
    return ExportedWorkflow(workflow=workflow, target=target, text=text, files=files, document=document)


def destination(exported: ExportedWorkflow, output: str) -> str:
    """The path of the file for `--output`, which is that file, or a directory; for a skill also its own folder."""
    name = skill_name(exported.workflow.id)
    is_skill = TARGETS[exported.target].takes_files
    if not output.endswith(".md") or os.path.isdir(output):
        is_own = is_skill and os.path.basename(os.path.abspath(output)) == name
        return os.path.join(output, SKILL_FILE if is_own else exported.path)
    if is_skill and os.path.abspath(output).split(os.sep)[-2:] != [name, SKILL_FILE]:
        message = f"A skill is a folder of its name: write to a directory, or to a path that ends in {exported.path}."
        raise CommandError(message, 2)
    return output


def write_exported(exported: ExportedWorkflow, path: str, *, force: bool) -> list[str]:
    """Write a workflow. Returns the paths of what is new or different. Raises `CommandError` and `StorageError`."""
    try:
        before = read_text(path)
        if TARGETS[exported.target].is_section:
            return _replace(path, before, _with_section(exported, path, before or "", force=force))
        return _write_files(exported, path, before, force=force)
    except (NotReadable, BrokenSection) as reason:
        raise CommandError(f"{shown_path(path)} cannot be replaced, because {reason}. {_OTHER_PATH}") from reason


def _with_section(exported: ExportedWorkflow, path: str, before: str, *, force: bool) -> str:
    section = section_of(before, exported.workflow.id)
    if section:
        _check_mark(exported, read_mark(section), f"The section in {shown_path(path)}", force=force)
    return with_section(before, section, exported.text)


def _write_files(exported: ExportedWorkflow, path: str, before: str | None, *, force: bool) -> list[str]:
    if not TARGETS[exported.target].takes_files:
        if before is not None:
            _check_mark(exported, read_mark(before), shown_path(path), force=force)
        return _replace(path, before, exported.text)
    folder = os.path.dirname(os.path.abspath(path))
    present = {file.path: file.digest for file in AttachmentReader().list_skill(folder)}
    mark = None
    if before is not None:
        mark = read_mark(before, list(present.items()))
        _check_mark(exported, mark, shown_path(folder), force=force)
    changed = [file for file in exported.files if present.get(file.path) != file.digest]
    for file in changed:
        if mark is None and file.path in present:
            message = f"{shown_path(os.path.join(folder, file.path))} exists, and `export` has not written it."
            raise CommandError(f"{message} {_OTHER_PATH}")
    reader = AttachmentReader()
    written = [_write(folder, file.path, reader.read(exported.document, file.path)) for file in changed]
    if mark is not None and mark.is_intact:
        written += [_remove(folder, name) for name in present.keys() - {file.path for file in exported.files}]
    return written + _replace(path, before, exported.text)


def _check_mark(exported: ExportedWorkflow, mark: Mark | None, what: str, *, force: bool) -> None:
    """Raises `CommandError` if what exists must not be replaced."""
    if mark is None:
        raise CommandError(f"{what} exists and has no mark of `export`, so it is never replaced. {_OTHER_PATH}")
    if force:
        return
    if mark.workflow != exported.workflow.id:
        raise CommandError(f"{what} was exported from '{mark.workflow}'. Replace it with --force. {_OTHER_PATH}")
    if not mark.is_intact:
        message = f"{what} was changed after it was exported. Put the changes into the workflow, and replace it"
        raise CommandError(f"{message} with --force.")


def _replace(path: str, before: str | None, after: str) -> list[str]:
    if before == after:
        return []
    replace_text(path, before, after, keep_copy=False)
    return [path]


def _write(folder: str, name: str, data: bytes) -> str:
    path = os.path.join(folder, name)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        replace_file(path, data, None)
    except OSError as problem:
        raise StorageError(f"{path} cannot be written: {problem.strerror}.", file=path) from problem
    return path


def _remove(folder: str, name: str) -> str:
    """Remove a file that an earlier export has written and that the workflow no longer brings along."""
    path = os.path.join(folder, name)
    try:
        os.unlink(path)
    except OSError as problem:
        raise StorageError(f"{path} cannot be removed: {problem.strerror}.", file=path) from problem
    return path


def as_json(exported: ExportedWorkflow) -> Mapping[str, object]:
    """What `--json` prints of an exported workflow."""
    mark = read_mark(exported.text)
    return {
        "workflow": exported.workflow.id,
        "version": exported.workflow.version,
        "document": mark and f"sha256:{mark.document}",
        "as": exported.target,
        "path": exported.path,
        "text": exported.text,
        "files": exported.files,
    }
