"""`workflowlookup watch`, as a process; the tests wait for its output."""

import json
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command_line import TIMEOUT, Cli
from support.json_values import JsonObject
from support.make import document, step, write
from support.narrowing import not_none
from workflowlookup.cli.commands.validate import Checked
from workflowlookup.cli.commands.watch import _redraw, _saves
from workflowlookup.library.changes import PollingWatcher

SOUND = document(step(validationCriteria=["."]))


class Watch:
    """A watch that runs, and its lines."""

    def __init__(self, cli: Cli, *words: str) -> None:
        self.process = subprocess.Popen(
            cli._command(("watch", *words)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cli.directory,
            env=cli._environment(),
        )
        self._limit = threading.Timer(TIMEOUT, self.process.kill)
        self._limit.start()

    def line(self) -> str:
        """The next line without its time, which it must have; what to do about it is left out."""
        line = not_none(self.process.stdout).readline()
        while line.startswith("    "):
            line = not_none(self.process.stdout).readline()
        assert re.match(r"\d\d:\d\d:\d\d ", line), (line, self.process.poll() and not_none(self.process.stderr).read())
        return line[9:].rstrip("\n")

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=TIMEOUT)
        self._limit.cancel()
        return self.process.returncode, errors


@pytest.fixture
def watch(cli: Cli, project: Path) -> Iterator[Watch]:
    write(project, SOUND)
    one = Watch(cli)
    yield one
    one.stop()


SAMPLE_PATH = ".workflowlookup/workflows/sample-workflow.json"


def test_a_document_is_checked_at_the_start_and_at_each_save(watch: Watch, project: Path) -> None:
    lines = [watch.line()]
    write(project, document(step(title=7)))
    lines.append(watch.line())
    write(project, SOUND)
    lines.append(watch.line())

    assert [line.partition(": ")[2] for line in lines] == [
        "no problems",
        "error: Field 'title' must be text ('string'); found 7 in step 1 ('first-step')",
        "no problems",
    ]


def test_a_new_document_is_reported_and_the_others_are_not_repeated(watch: Watch, project: Path) -> None:
    watch.line()
    (project / "notes.txt").write_text("nothing")
    write(project, {**SOUND, "id": "another"})

    assert watch.line() == ".workflowlookup/workflows/another.json: no problems"


def test_a_fixture_is_run_when_it_is_saved(watch: Watch, project: Path) -> None:
    lines = [watch.line()]
    fixture = project / "sample-workflow.test.yaml"
    fixture.write_text("cases:\n  - name: usual\n    steps: [other]\n")
    lines.append(watch.line())
    fixture.write_text("cases:\n  - name: usual\n    steps: [first-step]\n")
    lines.append(watch.line())

    name = ".workflowlookup/workflows/sample-workflow.test.yaml"
    assert lines[1].startswith(f"{name}:2:1: error: Case 'usual' failed: steps: The path differs at step 1")
    assert lines[2] == f"{name}: no problems"


def test_a_file_saved_by_rename_is_noticed(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path, SOUND)
    watch = Watch(cli, "sample-workflow.json")
    watch.line()
    write(tmp_path, document(), "other").rename(file)

    line = watch.line()

    watch.stop()
    assert line.startswith("sample-workflow.json:1:")
    assert ": WL" in line, "a step without criteria is a finding of lint"


def test_ctrl_c_exits_silently(watch: Watch) -> None:
    watch.line()

    assert watch.stop() == (0, "")


@pytest.mark.parametrize(("content", "code"), [(SOUND, 0), (document(step(title=7)), 1)], ids=["sound", "not"])
def test_once_checks_and_exits(cli: Cli, project: Path, content: JsonObject, code: int) -> None:
    write(project, content)

    done = cli("watch", "--once")

    first, *hint = done.stdout.splitlines()
    assert (done.returncode, SAMPLE_PATH in first) == (code, True)
    assert hint == ["    Make 'steps[0].title' text ('string'), for example \"Reproduce the bug\""][:code]


def test_once_on_a_terminal_shows_what_to_do_as_well(cli: Cli, project: Path) -> None:
    (project / "bad.json").write_text(json.dumps(document(step(title=7))))

    code, seen = cli.on_terminal("watch", "--once", columns=200, NO_COLOR="1")

    assert (code, "1 document, 1 with problems" in seen) == (1, True)


def test_without_a_directory_the_error_says_how_to_create_one(cli: Cli) -> None:
    done = cli("watch")

    assert (done.returncode, "or run `workflowlookup init`" in " ".join(done.stderr.split())) == (1, True)


def test_from_a_directory_below_the_workflows_of_the_project_are_watched(cli: Cli, project: Path) -> None:
    (cli.directory / ".git").mkdir()
    write(project, SOUND)
    cli.directory = cli.directory / "src"
    cli.directory.mkdir()

    done = cli("watch", "--once")

    assert (done.returncode, "sample-workflow.json: no problems" in done.stdout) == (0, True)


def test_a_missing_path_is_reported(cli: Cli) -> None:
    done = cli("watch", "flows")

    assert (done.returncode, done.stderr) == (1, "workflowlookup: flows does not exist. Check the path.\n")


def test_a_directory_that_is_recreated_is_watched_again(watch: Watch, project: Path) -> None:
    lines = [watch.line()]
    shutil.rmtree(project)
    lines.append(watch.line())
    write(project, SOUND)
    lines.append(watch.line())

    assert lines == [
        f"{SAMPLE_PATH}: no problems",
        ".workflowlookup/workflows: error: The file cannot be read: No such file or directory",
        f"{SAMPLE_PATH}: no problems",
    ]


def test_without_inotify_directories_are_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflowlookup.cli.commands.watch.make_change_watcher", PollingWatcher)
    saves = _saves([str(tmp_path)])

    assert list(next(saves)) == []
    file = write(tmp_path, SOUND)
    assert next(saves) == {str(file)}
    file.unlink()
    assert next(saves) == {str(file)}


def test_the_screen_is_redrawn_and_earlier_output_stays(capsys: pytest.CaptureFixture[str]) -> None:
    _redraw([Checked(file="flows", remarks=(), is_document=False)])

    shown = capsys.readouterr().out
    assert re.sub(r"\d\d:\d\d:\d\d", "TIME", shown) == (
        "\x1b[H\x1b[2JTIME  watching 0 documents; Ctrl-C stops\n0 documents, none to check\n"
    )
