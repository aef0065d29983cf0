"""Every bomb is answered, and so is the next request. `tests/soak/test_bombs_and_memory.py` has what they leave behind.

Time is the processor time of the server's process, which does not depend on what else the machine does.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.bombs import BOMBS, bombs
from support.client import Server, Start
from support.make import document, write

MAX_SECONDS = 1.0
"""Half a second for what authors and callers wrote, and half of one for reading a long message and writing the answer."""
SLOW = 120.0

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


def processor_seconds(server: Server) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def set_off(name: str, server: Server, library: Path) -> dict[str, float]:
    """What the requests of a bomb take; each is answered, and the next one too."""
    bomb = BOMBS[name]()
    for old in library.iterdir():
        old.unlink()
    for file, content in bomb.files.items():
        assert len(content) <= 1 << 20, "a file of this size is not read at all"
        (library / file).write_bytes(content)
    seconds: dict[str, float] = {}
    for number, (method, params) in enumerate(bomb.requests):
        before = processor_seconds(server)
        server.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        assert server.receive(SLOW)["id"] == number
        assert server.is_silent()
        seconds[f"{number} {method}"] = processor_seconds(server) - before
    return seconds


@pytest.mark.parametrize("name", BOMBS)
def test_no_bomb_holds_up_the_server(start: Start, library: Path, name: str) -> None:
    server = start(directory=library)

    seconds = set_off(name, server, library)

    assert {request: taken for request, taken in seconds.items() if taken > MAX_SECONDS} == {}


def test_a_library_of_all_bombs_is_read_in_pieces(start: Start, library: Path) -> None:
    for name, bomb in bombs():
        for file, content in bomb.files.items():
            (library / f"{name.replace(' ', '-')}{Path(file).suffix}").write_bytes(content)
    write(library, document(identifier="last-of-all"), "zzz.json")
    server = start(directory=library)
    answers: list[Mapping[str, Any]] = []
    seconds = []

    while not answers or "warnings" in answers[-1]:
        before = processor_seconds(server)
        answers.append(server.result("workflow_list"))
        seconds.append(processor_seconds(server) - before)
        time.sleep(0.3)

    assert [taken for taken in seconds if taken > MAX_SECONDS] == []
    assert len(answers) > 1, "it was read at once: no bombs"
    assert "the first is" in answers[0]["warnings"][0]
    assert "last-of-all" in [summary["id"] for summary in answers[-1]["workflows"]]
