"""When memory is returned to the system: after work, not after waiting."""

import time

from workflowlookup.protocol.memory import COSTLY_SECONDS, MemoryMeter


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_request_that_worked_long_is_costly() -> None:
    meter = MemoryMeter()
    burn(2 * COSTLY_SECONDS)

    assert meter.add_elapsed(2 * COSTLY_SECONDS)


def test_requests_that_waited_are_not_costly() -> None:
    meter = MemoryMeter()

    assert not any(meter.add_elapsed(COSTLY_SECONDS) for _ in range(10))


def test_after_memory_was_returned_counting_begins_again() -> None:
    meter = MemoryMeter()
    assert meter.add(2 * COSTLY_SECONDS)

    meter.release()

    assert not meter.add(0.0)
