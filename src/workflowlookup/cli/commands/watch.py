"""`workflowlookup watch PATH…`: checks documents and runs fixtures whenever they are saved.

A terminal shows the state of all documents and is redrawn after each change. A pipe gets the findings in the files that
were saved, each with a suggestion on the next line.
"""

import argparse
import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from workflowlookup.cli.commands.validate import REPORTERS, Checked, Remark, check_all
from workflowlookup.cli.documents import PATHS_HELP, paths_or_project
from workflowlookup.cli.output import CommandError, is_terminal, shown_path, write
from workflowlookup.cli.suites import Suite, SuiteLoader
from workflowlookup.language.document.checking import check
from workflowlookup.language.document.findings import Finding, Severity
from workflowlookup.language.forms import split_suffix
from workflowlookup.language.text import plural
from workflowlookup.language.values import Json
from workflowlookup.library.changes import ChangeWatcher, PollingWatcher, make_change_watcher
from workflowlookup.library.files import FIXTURE_SUFFIXES, Signature, is_document_name, signature_of
from workflowlookup.settings import Settings

_CLEAR: Final = "\x1b[H\x1b[2J"
"""Clears the screen, but not the scrollback."""
_TIME: Final = "%H:%M:%S"
_POLL_SECONDS: Final = 0.1
_QUIET_SECONDS: Final = 0.05
_MAX_ROUNDS: Final = 8
_SHARE: Final = 0.01
"""The share of time spent on polling, which finds what the kernel does not report."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="*", help=f"a document or a directory of them {PATHS_HELP}")
    parser.add_argument("--once", action="store_true", help="check once; exit code 1 if there are problems")


def run(options: argparse.Namespace, settings: Settings) -> int:
    paths = paths_or_project(options.paths)
    missing = next((path for path in paths if not os.path.exists(path)), None)
    if missing is not None:
        raise CommandError(f"{shown_path(missing)} does not exist. Check the path.")
    if options.once:
        checked = _check(paths, settings)
        REPORTERS["text"](checked) if is_terminal() else _write_lines(checked)
        return int(any(item.has_problems for item in checked))
    try:
        before: dict[str, Checked] = {}
        for saved in _saves(paths):
            checked = _check(paths, settings)
            fresh = [item for item in checked if _is_fresh(item, before, saved)]
            before = {item.file: item for item in checked}
            _redraw(checked) if is_terminal() else _write_lines(fresh)
    except KeyboardInterrupt:
        pass
    return 0


def _check(paths: Sequence[str], settings: Settings) -> list[Checked]:
    """Check the documents, and run their fixtures."""
    suites = SuiteLoader(settings).load(paths)
    return [
        *check_all([path for path in paths if not path.endswith(FIXTURE_SUFFIXES)], examine),
        *(_rehearsed(suite) for suite in suites if suite.file.endswith(FIXTURE_SUFFIXES)),
    ]


def _rehearsed(suite: Suite) -> Checked:
    failures = [
        Remark(
            message=f"Case '{result.case.name}' failed: {difference.field}: {difference.message}",
            suggestion="Fix the workflow, or the case if it expects too much",
            line=result.line,
            column=1,
        )
        for result in suite.run(lambda: None).results
        for difference in result.outcome.differences
    ]
    return Checked(file=shown_path(suite.file), remarks=(*suite.problems, *failures))


def examine(document: Json) -> Iterable[Finding]:
    """The findings of `validate` and `lint`."""
    from workflowlookup.authoring.lint.checks import lint  # noqa: PLC0415 - a document that does not load needs none

    findings = check(document)
    if any(finding.severity is Severity.ERROR for finding in findings):
        return findings
    return [*findings, *lint(document)]


def _saves(paths: Sequence[str]) -> Iterator[Collection[str]]:
    """Yield the files that were saved, after each change. The first item is empty: the files are watched from then on.

    The kernel reports changes if it can. Polling finds what it does not report, such as a watched directory that was
    replaced by another.
    """
    directories = {os.path.realpath(path) for path in paths if os.path.isdir(path)}
    files = {os.path.realpath(path) for path in paths} - directories
    files |= {split_suffix(file)[0] + suffix for file in files for suffix in FIXTURE_SUFFIXES}
    changes, polling = make_change_watcher(), PollingWatcher(share=_SHARE)
    signatures = _signatures(directories, files, changes)
    yield ()
    while True:
        time.sleep(_POLL_SECONDS)
        if not changes.pending() and not polling.pending():
            continue
        polling.take()
        saved: set[str] = set()
        for _ in range(_MAX_ROUNDS):  # until it is quiet: many editors save in several steps
            touched = changes.take()
            before, signatures = signatures, _signatures(directories, files, changes)
            changes.scanned()
            changed = {path for path in {*signatures, *before} if signatures.get(path) != before.get(path)}
            changed |= touched & signatures.keys()
            if not changed:
                break
            saved |= changed
            time.sleep(_QUIET_SECONDS)
        polling.scanned()
        if saved:
            yield saved


def _signatures(directories: Collection[str], files: Collection[str], changes: ChangeWatcher) -> dict[str, Signature]:
    """The signature of each file, to notice changes. A file is watched through its directory, because many editors
    save by replacing the file.
    """
    for directory in {os.path.dirname(file) for file in files}:
        changes.watch(directory)
    watched = set(files)
    for directory in directories:
        for parent, _, names in os.walk(directory):
            changes.watch(parent)
            ours = (name for name in names if is_document_name(name) or name.endswith(FIXTURE_SUFFIXES))
            watched |= {os.path.join(parent, name) for name in ours}
    signatures = {}
    for file in watched:
        with contextlib.suppress(OSError):
            signatures[file] = signature_of(os.stat(file))
    return signatures


def _is_fresh(item: Checked, before: dict[str, Checked], saved: Collection[str]) -> bool:
    """Whether a document was saved, or its findings changed because another one was saved."""
    return before.get(item.file) != item or os.path.realpath(item.file) in saved


def _redraw(checked: Sequence[Checked]) -> None:
    print(_CLEAR, end="")
    count = sum(item.is_document for item in checked)
    write((f"{time.strftime(_TIME)}  watching {plural(count, 'document')}; Ctrl-C stops", "dim"))
    REPORTERS["text"](checked)


def _write_lines(checked: Sequence[Checked]) -> None:
    now = time.strftime(_TIME)
    for item in checked:
        for remark in item.remarks:
            write(f"{now} {item.file}{remark.position}: {remark.severity.value}: {' '.join(remark.sentence.split())}")
            write(f"    {remark.suggestion}")
        if not item.remarks:
            write(f"{now} {item.file}: no problems")
    print(end="", flush=True)


EXAMPLES = """\
  workflowlookup watch                       the workflows of the project
  workflowlookup watch my-flow.workflow.md   one document, as you write it
  workflowlookup watch --once flows          check once, for scripts"""
