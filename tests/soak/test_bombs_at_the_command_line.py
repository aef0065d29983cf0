"""Every command that reads a document ends for every bomb: the kernel stops a process that computes for too long."""

import functools
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from support.bombs import BOMBS
from support.make import document, write

MAX_SECONDS = 15
"""Processor time of one command. Measured: four seconds at most, most of them in lint."""
COMMANDS = (
    "validate {file}",
    "lint {file}",
    "fmt --check {file}",
    "convert {file} --output -",
    "graph {file}",
    "graph {file} --format mermaid",
    "diff {file} plain.json",
    "check {file} first-step",
    "test {file}",
)
FIXTURE = {"cases": [{"name": "a walk", "outputs": {"first-step": {"accept": ["word " * 1_000]}}}]}

limit = functools.partial(resource.setrlimit, resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS + 1))


@pytest.mark.parametrize("name", BOMBS)
def test_every_command_ends_and_says_why_it_fails(tmp_path: Path, name: str) -> None:
    ((file, content),) = BOMBS[name]().files.items()
    (tmp_path / file).write_bytes(content)
    (tmp_path / f"{Path(file).stem}.test.json").write_text(json.dumps(FIXTURE))
    write(tmp_path, document(), "plain.json")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "workflowlookup", *command.format(file=file).split()],
            input=b"word " * 1_000,
            check=False,
            capture_output=True,
            cwd=tmp_path,
            env=environment,
            preexec_fn=limit,
        )

        assert done.returncode in (0, 1, 2), (command, done.returncode, done.stderr[-500:])
        assert b"Traceback" not in done.stderr, command
        assert done.returncode == 0 or done.stdout or done.stderr, command
