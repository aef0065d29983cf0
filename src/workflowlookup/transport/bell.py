"""The bell: how other threads, and signals, wake the one that waits for input."""

import contextlib
import os
from typing import Final

READ_BYTES: Final = 64


class Bell:
    """A pipe to oneself. Ringing twice before anybody hears it is ringing once."""

    def __init__(self) -> None:
        self.descriptor, self._rope = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._rope, False)
        self._is_rung = False

    def ring(self) -> None:
        """Wake the one who waits; from any thread, never waits itself."""
        if not self._is_rung:
            self._is_rung = True
            with contextlib.suppress(OSError):  # full: it is ringing; closed: nobody waits any more
                os.write(self._rope, b"!")

    def silence(self) -> None:
        """Hear it. Look for what changed after this, not before: what is rung from now on rings again."""
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self.descriptor, READ_BYTES)) == READ_BYTES:
                pass
        self._is_rung = False

    def close(self) -> None:
        """Nobody waits any more."""
        rope, self._rope = self._rope, -1
        os.close(rope)
        os.close(self.descriptor)
