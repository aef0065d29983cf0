"""A workflow that a command was given by its id, by the path of its document, or as it stood in a git revision.

A path counts as the library would read it; `PATH@REV` and `ID@REV` ask git, so that `diff` compares with what was
committed.
"""

import os
import subprocess
from typing import Final

from workflowlookup.app import make_catalog, origin_of
from workflowlookup.errors import InvalidWorkflow, StorageError, WorkflowNotFound
from workflowlookup.language.building import build
from workflowlookup.language.model import Workflow
from workflowlookup.library.files import DOCUMENT_SUFFIXES, parse_document, read_bytes, summarise
from workflowlookup.repository import find_repository
from workflowlookup.settings import Settings

GIT_TIMEOUT: Final = 30.0
_NO_TRANSPORT: Final = {"GIT_ALLOW_PROTOCOL": ""}
"""Git fetches nothing. A directory of a clone can itself be a bare repository, whose configuration names the program
that fetches a missing object."""


def open_workflow(name: str, settings: Settings) -> Workflow:
    """The workflow that is meant. Raises `WorkflowNotFound`, or what is wrong with its document."""
    path, _, revision = name.rpartition("@")
    if path.endswith(DOCUMENT_SUFFIXES) and not os.path.exists(name):
        return _parse(_from_git(path, revision), path, settings)
    if name.endswith(DOCUMENT_SUFFIXES) or os.path.basename(name) != name:
        return _parse(read_bytes(name, os.path.dirname(os.path.realpath(name)))[0], name, settings)
    catalog = make_catalog(settings)
    try:
        workflow = catalog.get(path or name)
    except WorkflowNotFound as refusal:
        provider, dot, _ = name.partition(".")
        advice = (
            f"Workflows of the provider '{provider}' are called by MCP clients; `workflowlookup tools` lists them."
            if dot and provider in settings.providers
            else "Call workflow_list to see every id."
        )
        raise WorkflowNotFound(f"{refusal.remedy} {advice}", **refusal.data) from refusal
    if not path:
        return workflow
    file = catalog.snapshot().entries[path].file.path
    return _parse(_from_git(file, revision), file, settings)


def _parse(data: bytes, path: str, settings: Settings) -> Workflow:
    if not path.endswith(DOCUMENT_SUFFIXES):
        raise InvalidWorkflow(f"{path}: a document has a name that ends in {', '.join(DOCUMENT_SUFFIXES)}.", file=path)
    document = parse_document(data, path)
    summarise(document, path)
    return build(document, origin_of(path, settings) or _origin_elsewhere(path))


def _origin_elsewhere(path: str) -> str:
    """The real path of a document that belongs to a repository in which nobody works now; empty for any other."""
    repository = find_repository(path)
    return os.path.realpath(path) if repository is not None and repository.brings(path) else ""


def _from_git(path: str, revision: str) -> bytes:
    directory, file = os.path.split(path)
    if revision.startswith("-"):
        raise StorageError(f"'{revision}' is an option, not a revision.", file=path)
    command = ["git", "-C", directory or ".", "cat-file", "blob", f"{revision}:./{file}"]
    try:
        done = subprocess.run(  # noqa: S603 - no shell
            command, capture_output=True, timeout=GIT_TIMEOUT, check=False, env={**os.environ, **_NO_TRANSPORT}
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as problem:
        raise StorageError(f"git cannot be asked for {path}@{revision}: {problem}.", file=path) from problem
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
        raise StorageError(f"git has no {path}@{revision}: {reason.rstrip('.')}.", file=path, details=reason)
    return done.stdout
