"""Returns memory to the operating system after requests that used a lot of it.

The objects of a large document or message are unused once it is answered, but the process still holds their memory:
in reference cycles of exceptions until the garbage collector runs, and in the allocator, which keeps it for reuse.
"""

import gc
import sys
from time import process_time
from typing import Any, Final

COSTLY_SECONDS: Final = 0.03
"""Memory is returned after requests that took this long together: returning it takes about as long."""
SHORT_SECONDS: Final = 0.003
"""Requests that take less do not count: they leave nothing worth returning."""
VERY_COSTLY_SECONDS: Final = 0.1
"""After a request that takes longer, what it compiled is dropped from the caches: a few small objects among those of a
large document keep megabytes of the allocator from being returned."""


class MemoryMeter:
    """The processor time that requests have taken since memory was last returned; large requests take long."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._is_very_costly = False
        self._processor_time = process_time()

    def add_elapsed(self, seconds: float) -> bool:
        """As `add`, for the time on the wall: what a request waited for, such as a disk, is not counted.

        The processor's clock is read only after a long request, because reading it is slow.
        """
        if seconds <= SHORT_SECONDS:
            return False
        before, self._processor_time = self._processor_time, process_time()
        return self.add(min(seconds, self._processor_time - before))

    def add(self, seconds: float) -> bool:
        """Count a request by its processor time; True when `release` should be called."""
        if seconds > SHORT_SECONDS:
            self._seconds += seconds
            self._is_very_costly |= seconds > VERY_COSTLY_SECONDS
        return self._seconds > COSTLY_SECONDS

    def release(self) -> None:
        """Return the memory that the requests used to the system."""
        if self._is_very_costly:
            _clear_caches()
        self._seconds, self._is_very_costly = 0.0, False
        gc.collect()
        _clear_type_cache()
        trim = _trim()
        if trim is not None:
            trim(0)


def _clear_caches() -> None:
    from workflowlookup.language.formats import patterns, schemas  # noqa: PLC0415 - such a request has imported them

    patterns.clear_caches()
    schemas.clear_cache()


def _clear_type_cache() -> None:
    """Drop the interpreter's references to names of attributes that were looked up.

    `re.finditer` looks one up under a new string each time: hundreds of small strings, each of which would keep a
    megabyte of the allocator from being returned.
    """
    clear = getattr(sys, "_clear_internal_caches", None) or getattr(sys, "_clear_type_cache", None)
    if clear is not None:  # the former since Python 3.13
        clear()


def _trim() -> Any:
    """`malloc_trim` of the C library; None if it has none."""
    import ctypes  # noqa: PLC0415 - few requests are costly

    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
