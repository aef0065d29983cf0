"""Shell completion in bash, zsh and fish, and the words that it offers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import Cli

ASKING = {
    "bash": 'source "$SCRIPT"; COMP_WORDS=(workflowlookup li); COMP_CWORD=1; _workflowlookup; echo "${COMPREPLY[@]}"',
    "zsh": "compdef() { :; }; compadd() { print -r -- ${@:2}; }; source $SCRIPT; words=(workflowlookup li); CURRENT=2; _workflowlookup",
    "fish": 'source $SCRIPT; complete -C "workflowlookup li"',
}


@pytest.mark.parametrize("shell", ASKING)
def test_the_script_of_a_shell_completes_a_command(cli: Cli, tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(cli("completion", shell).stdout)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        [shell, "-c", ASKING[shell]],
        env={**os.environ, "SCRIPT": str(script), "PATH": path, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert sorted(done.stdout.split()) == ["lint", "list"], done.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sho"], ["show"]),
        (["help", "comp"], ["completion"]),
        (["show", "bug"], ["bug-investigation"]),
        (["why", "code-"], ["code-review"]),
        (["lint", "--form"], ["--format"]),
        (["run", "--re"], ["--resume"]),
        (["graph", "--for"], ["--format"]),
        (["runs", "--state", "wait"], ["waiting"]),
        (["token", "re"], ["revoke"]),
        (["validate", "my-"], []),
        (["dance", ""], []),
    ],
)
def test_words_are_completed_by_what_may_come_next(cli: Cli, words: list[str], offered: list[str]) -> None:
    assert cli("completion", "words", "--", *words).stdout.split() == offered


def test_runs_are_completed_by_their_ids(cli: Cli) -> None:
    cli("run", "code-review", input="")
    run_id = cli("runs").stdout.split("\n")[1].split()[0]

    assert cli("completion", "words", "--", "why", run_id[:4]).stdout.split() == [run_id]
