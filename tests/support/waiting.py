"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], seconds: float = 180.0) -> T:
    """Return the first true value of the condition; fail if there is none in time, which is long for busy machines."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"it did not happen within {seconds:g} s"
        time.sleep(0.05)
    return value


def read_when_written(path: Path) -> str:
    """The text of a file that another process writes; it is complete when it ends with a newline."""
    return wait_until(lambda: text if path.exists() and (text := path.read_text()).endswith("\n") else "")
