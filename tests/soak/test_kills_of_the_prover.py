"""kill -9 of a server that takes proofs, at any moment: no process is left, and no directory for long."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.processes import is_gone
from support.proving import Project

SERVER = """
import sys
from pathlib import Path
from support.proving import Project
project = Project(Path(sys.argv[1]))
project.begin()
print("ready", flush=True)
script = "echo $$ >> $1; (setsid sh -c 'echo $$ >> $1; sleep 600' x $1 &); sleep 600 & echo $! >> $1; sleep 0.05"
options = {"against": {"base": "run"}} if sys.argv[3] == "against" else {}
while True:
    project.run("sh", "-c", script, "sh", sys.argv[2], **options)
"""


@pytest.mark.parametrize("way", ["in the root", "against"])
def test_nothing_is_left_by_a_killed_server(tmp_path: Path, way: str) -> None:
    root, temporary, pids = tmp_path / "project", tmp_path / "tmp", tmp_path / "pids"
    for directory in (root, temporary):
        directory.mkdir()
    project = Project(root)
    project.git("init", "-q")
    project.write("a.txt")
    project.commit()
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[1])}
    for _ in range(50):
        command = [sys.executable, "-c", SERVER, str(root), str(pids), way]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as server:
            assert server.stdout is not None
            server.stdout.readline()
            time.sleep(random.random() / 2)  # any moment
            server.kill()

    started = [int(line) for line in pids.read_text().split()]
    assert len(started) > 50
    assert all(is_gone(pid) for pid in started)
    assert len(list(temporary.iterdir())) == 1  # of the last one
    assert project.git("status", "--porcelain") == ""
