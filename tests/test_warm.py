"""A process that is begun warm is what a new interpreter would be."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import warm
from support.json_values import JsonObject

PROGRAM = [sys.executable, "-m", "workflowlookup"]
TELL = """
import json, os, sys
print(json.dumps([sys.argv, os.getcwd(), os.environ["TOLD"], sys.stdin.read(), sys.path[0], sorted(os.listdir("/proc/self/fd"))]))
print("done", file=sys.stderr)
sys.exit("wrong")
"""


def both(command: list[str], **options: Any) -> tuple[JsonObject, JsonObject]:
    cold = subprocess.run(command, input=b"in", capture_output=True, check=False, timeout=60, **options)
    return vars(warm.run(command, stdin=b"in", timeout=60, **options)), vars(cold)


@pytest.mark.parametrize(
    "words",
    [("--version",), ("list",), ("show", "nothing-of-that-name"), ("--wrong",), ("validate", "-")],
    ids=" ".join,
)
def test_a_command_says_the_same_and_ends_the_same(words: tuple[str, ...], tmp_path: Path) -> None:
    said, expected = both([*PROGRAM, *words], cwd=tmp_path)

    assert said == expected


def test_a_file_sees_the_same_world(tmp_path: Path) -> None:
    (tmp_path / "tell.py").write_text(TELL)

    said, expected = both([sys.executable, "tell.py", "one"], cwd=tmp_path, env=os.environ | {"TOLD": "x"})

    assert said == expected
    assert json.loads(said["stdout"])[:4] == [["tell.py", "one"], str(tmp_path), "x", "in"]
    assert said["returncode"] == 1


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, -15), (signal.SIGKILL, -9), (signal.SIGINT, -2)])
def test_it_is_ended_by_signals(sent: signal.Signals, code: int) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with warm.Popen([*PROGRAM, "serve"], **pipes) as process:
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"] == {}
        assert process.poll() is None

        process.send_signal(sent)

        assert process.wait(20) == process.poll() == code


def test_what_cannot_be_warm_is_an_interpreter_of_its_own() -> None:
    said = warm.run(
        [sys.executable, "-c", "import sys; print('workflowlookup.app' in sys.modules)"], stdin=b"", timeout=60
    )

    assert said.stdout == b"False\n"
