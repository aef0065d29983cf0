"""Clocks for tests, in place of the system's."""


class TickingClock:
    """Milliseconds; each reading is one later than the last."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        self.now += 1
        return self.now


class FixedClock:
    """Moves only when a test says so."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now
