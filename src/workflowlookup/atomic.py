"""Files that are replaced whole or not at all, and locks beside them."""

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: str, mode: int | None = 0o600) -> Iterator[BinaryIO]:
    """Open a stream for a new file, which is synced and replaces the one at the path when the block ends without error.

    A link at the path is replaced, not followed. A `mode` of None leaves it to the umask. Raises `OSError`.
    """
    temporary = f"{path}.{os.urandom(4).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600)
    try:
        with open(descriptor, "wb") as stream:
            if mode is not None:
                os.chmod(temporary, mode)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def replace_file(path: str, data: bytes, mode: int | None = 0o600) -> None:
    """Replace a file with this data, as `replacing` does."""
    with replacing(path, mode) as stream:
        stream.write(data)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock of a file, which other processes wait for; its directory is created if needed. Raises `OSError`."""
    import fcntl  # noqa: PLC0415 - only to write

    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
