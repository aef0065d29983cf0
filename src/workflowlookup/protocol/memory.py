"""Returns memory to the operating system after a request that used a lot of it.

The objects of a large document or message are unused once it is answered, but the process still holds their memory:
in reference cycles of exceptions until the garbage collector runs, and in the allocator, which keeps it for reuse.
"""

import gc
from typing import Any, Final

COSTLY_SECONDS: Final = 0.03
"""Memory is returned after requests that took longer than this: returning it takes about as long."""


def release() -> None:
    """Return the memory that a costly request used to the system."""
    gc.collect()
    trim = _trim()
    if trim is not None:
        trim(0)


def _trim() -> Any:
    """`malloc_trim` of the C library; None where it has none."""
    import ctypes  # noqa: PLC0415 - few requests are costly

    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
