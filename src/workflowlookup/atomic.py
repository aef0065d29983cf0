"""Atomic replacement of files, and lock files."""

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: str, mode: int | None = 0o600) -> Iterator[BinaryIO]:
    """A stream for a new file. When the block ends without error, it is synced and replaces the file at the path.

    A symbolic link at the path is replaced, not followed. With a `mode` of None the umask decides. Raises `OSError`.
    """
    temporary = f"{path}.{os.urandom(4).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600)
    try:
        with open(descriptor, "wb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def replace_file(path: str, data: bytes, mode: int | None = 0o600) -> None:
    """Replace a file with this data atomically; see `replacing`."""
    with replacing(path, mode) as stream:
        stream.write(data)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock file of a path; other processes wait. The directory is created if needed. Raises `OSError`."""
    import fcntl  # noqa: PLC0415 - only to write

    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
