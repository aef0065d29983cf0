"""Whether processes are still there."""

import time
from pathlib import Path


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
