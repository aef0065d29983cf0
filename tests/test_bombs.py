"""Every bomb is answered, the next request is answered, and the server is as small afterwards as it was before.

Time is the processor time of the server's process, which does not depend on what else the machine does. Memory is what
is resident once the caches hold a small document again.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bombs import BOMBS
from client import Server
from make import document, write

Start = Callable[..., Server]

MAX_SECONDS = 1.0
"""Half a second for what authors and callers wrote, and half of one for reading a long message and writing the answer."""
MAX_GROWTH_BYTES = 20 << 20
SLOW = 120.0

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


def processor_seconds(server: Server) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(server: Server) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024


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


def test_a_second_round_of_all_bombs_takes_no_more_memory(start: Start, library: Path) -> None:
    """What the first round leaves in caches and in the allocator is bounded: it is used again."""
    server = start(directory=library)
    after: list[int] = []

    for _ in range(2):
        for name in BOMBS:
            set_off(name, server, library)
        for old in library.iterdir():
            old.unlink()
        write(library, document())
        server.result("workflow_get", {"id": "sample-workflow"})
        after.append(resident_bytes(server))

    assert after[1] - after[0] < MAX_GROWTH_BYTES
