"""Imports modules so that garbage collection stays short.

A full collection stops every thread: 20 to 60 ms with all that a server has loaded, and longer on a busy machine. What
is imported here is exempt from collections, and so is everything else that exists at that moment.
"""

import gc
import importlib
import sys
import threading
from typing import Final

_lock: Final = threading.Lock()


def preload(*modules: str) -> None:
    """Import the modules that are not imported yet. Meanwhile nothing is collected. Any thread may call it."""
    if all(module in sys.modules for module in modules):
        return
    with _lock:
        gc.disable()
        try:
            for module in modules:
                importlib.import_module(module)
        finally:
            gc.freeze()
            gc.enable()
