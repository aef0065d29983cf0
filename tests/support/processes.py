"""What Linux knows about processes: whether they are still there, and their memory. And how tests end them."""

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import Any


def is_alive(pid: int) -> bool:
    """Whether the process is there, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def is_gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether the process ends in time."""
    end = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not is_alive(pid)


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process that a test has started. Where coverage is measured, it may end by itself first, because a killed
    process writes no data.
    """
    if process.poll() is None and "COVERAGE_PROCESS_CONFIG" in os.environ:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if process.stdin is not None:
                process.stdin.close()
            else:
                process.terminate()
            process.wait(10)
    if process.poll() is None:
        process.kill()
    process.wait()


def memory_of(pid: int) -> int:
    """The bytes that a process has in memory now."""
    return _status(pid, "VmRSS")


def peak_memory_of(pid: int) -> int:
    """The most bytes that a process ever had in memory."""
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    return int(Path(f"/proc/{pid}/status").read_text("ascii").partition(f"{name}:")[2].split()[0]) << 10
