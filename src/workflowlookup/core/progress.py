"""How far something is: the one form in which calls, drivers and those who wait tell it."""

import msgspec


class Progress(msgspec.Struct, frozen=True):
    """How much is done, of how much if that is known, and a word on it."""

    done: float
    total: float | None
    message: str

    def __str__(self) -> str:
        """`3 of 10, uploading`."""
        amount = f"{self.done:g}" if self.total is None else f"{self.done:g} of {self.total:g}"
        return f"{amount}, {self.message}" if self.message else amount
