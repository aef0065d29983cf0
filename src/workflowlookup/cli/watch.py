"""`workflowlookup watch PATH…`: checks documents whenever they are saved, for a window beside the editor.

Fixtures are run as well. A terminal shows the state of all documents, drawn anew; a pipe gets each finding in what was
saved, with what to do about it on a line below.
"""

import argparse
import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from workflowlookup.cli.main import Command
from workflowlookup.cli.new import PROJECT_DIRECTORY
from workflowlookup.cli.output import complain, is_terminal, shown_path, write
from workflowlookup.cli.rehearsals import Suite, Workbench
from workflowlookup.cli.validate import REPORTERS, Checked, Remark, check_all
from workflowlookup.core.document import Finding, Severity, check
from workflowlookup.core.text import plural
from workflowlookup.core.values import Json
from workflowlookup.library.files import FIXTURE_SUFFIXES, is_document_name
from workflowlookup.settings import Settings

_CLEAR: Final = "\x1b[H\x1b[2J"
"""The screen only: what stands above it is the user's own."""
_TIME: Final = "%H:%M:%S"
_READY_AFTER: Final = 200
"""Milliseconds of quiet after which the watcher reports that it is there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", metavar="PATH", nargs="*", help=f"a document or a directory of them (default: {PROJECT_DIRECTORY})"
    )
    parser.add_argument("--once", action="store_true", help="look once; exit code 1 if there are problems")


def run(options: argparse.Namespace, settings: Settings) -> int:
    paths: Sequence[str] = options.paths or [PROJECT_DIRECTORY]
    missing = next((path for path in paths if not os.path.exists(path)), None)
    if missing is not None:
        remedy = "Check the path." if options.paths else "Run `workflowlookup init` to prepare this directory."
        complain(f"{shown_path(missing)} does not exist. {remedy}")
        return 1
    if options.once:
        checked = _look(paths, settings)
        REPORTERS["text"](checked) if is_terminal() else _write_lines(checked)
        return int(any(item.has_problems for item in checked))
    try:
        before: dict[str, Checked] = {}
        for saved in _saves(paths):
            checked = _look(paths, settings)
            fresh = [item for item in checked if _is_fresh(item, before, saved)]
            before = {item.file: item for item in checked}
            _redraw(checked) if is_terminal() else _write_lines(fresh)
    except KeyboardInterrupt:
        pass  # how one leaves
    return 0


def _look(paths: Sequence[str], settings: Settings) -> list[Checked]:
    """The documents, examined, and their fixtures, run."""
    suites = Workbench(settings).load(paths)
    return [
        *check_all([path for path in paths if not path.endswith(FIXTURE_SUFFIXES)], examine),
        *(_rehearsed(suite) for suite in suites if suite.file.endswith(FIXTURE_SUFFIXES)),
    ]


def _rehearsed(suite: Suite) -> Checked:
    failures = [
        Remark(
            severity=Severity.ERROR,
            message=f"Case '{ran.case.name}' failed: {difference.field}: {difference.message}",
            suggestion="Fix the workflow, or the case if it expects too much",
            line=ran.line,
            column=1,
        )
        for ran in suite.run(lambda: None).ran
        for difference in ran.outcome.differences
    ]
    return Checked(file=shown_path(suite.file), remarks=(*suite.problems, *failures))


def examine(document: Json) -> Iterable[Finding]:
    """All that `validate` and `lint` have to say."""
    from workflowlookup.core.lint import lint  # noqa: PLC0415 - a document that does not load needs none

    findings = check(document)
    if any(finding.severity is Severity.ERROR for finding in findings):
        return findings
    return [*findings, *lint(document)]


def _saves(paths: Sequence[str]) -> Iterator[Collection[str]]:
    """The files that were saved, again and again; none at first, when the watcher is ready.

    A file is watched through its directory, because many editors save by putting another file in its place.
    """
    from watchfiles import watch  # noqa: PLC0415 - for nobody else

    directories = [os.path.realpath(path) for path in paths if os.path.isdir(path)]
    files = {os.path.realpath(path) for path in paths} - {*directories}
    files |= {os.path.splitext(file)[0] + suffix for file in files for suffix in FIXTURE_SUFFIXES}

    def is_ours(_: object, path: str) -> bool:
        is_below = any(path.startswith(directory + os.sep) for directory in directories)
        is_named_so = is_document_name(os.path.basename(path)) or path.endswith(FIXTURE_SUFFIXES)
        return path in files or (is_below and is_named_so)

    watched = {*directories, *map(os.path.dirname, files)}
    while True:
        with contextlib.ExitStack() as held:
            standing = _hold(watched, held)
            is_ready = False
            for changes in watch(
                *standing,
                watch_filter=is_ours,
                recursive=bool(directories),
                debounce=400,
                rust_timeout=_READY_AFTER,
                yield_on_timeout=True,
            ):
                if changes or not is_ready:
                    is_ready = True
                    yield {path for _, path in changes}
                if any(_identity(path) != standing.get(path) for path in watched):
                    break  # another directory is in its place, after a checkout for example: that one is watched now


def _hold(directories: Collection[str], held: contextlib.ExitStack) -> dict[str, tuple[int, int] | None]:
    """Which directories there are, and which ones they are: no later one has the number of one that is held open."""
    standing: dict[str, tuple[int, int] | None] = {}
    for directory in directories:
        with contextlib.suppress(OSError):
            held.callback(os.close, handle := os.open(directory, os.O_RDONLY))
            standing[directory] = _identity(handle)
    return standing


def _identity(directory: str | int) -> tuple[int, int] | None:
    try:
        status = os.stat(directory)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_fresh(item: Checked, before: dict[str, Checked], saved: Collection[str]) -> bool:
    """Whether there is news of a document: it was saved, or another one changed what is to say about it."""
    return before.get(item.file) != item or os.path.realpath(item.file) in saved


def _redraw(checked: Sequence[Checked]) -> None:
    print(_CLEAR, end="")
    count = sum(item.is_document for item in checked)
    write((f"{time.strftime(_TIME)}  watching {plural(count, 'document')}; Ctrl-C leaves", "dim"))
    REPORTERS["text"](checked)


def _write_lines(checked: Sequence[Checked]) -> None:
    now = time.strftime(_TIME)
    for item in checked:
        for remark in item.remarks:
            place = f":{remark.line}:{remark.column}" if remark.line else ""
            write(f"{now} {item.file}{place}: {remark.severity.value}: {' '.join(remark.sentence.split())}")
            write(f"    {remark.suggestion}")
        if not item.remarks:
            write(f"{now} {item.file}: no problems")
    print(end="", flush=True)


COMMAND = Command(
    run=run,
    arguments=add_arguments,
    examples="""\
  workflowlookup watch                       the workflows of the project
  workflowlookup watch my-workflow.yaml      one document, as you write it
  workflowlookup watch --once flows          one look, for scripts""",
)
