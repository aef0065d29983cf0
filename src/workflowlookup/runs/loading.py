"""Folding a long run on an event loop that serves others as well: slice by slice, with their turns in between."""

import asyncio
from collections.abc import Callable


async def load_in_slices(load: Callable[[], bool]) -> bool:
    """Call `load`, such as `Runs.load` of a run, until it says that all is done; whether others had their turn."""
    has_waited = False
    while not load():
        has_waited = True
        await asyncio.sleep(0)
    return has_waited
