"""Files of the user: atomic replacement, lock files, and reading what nobody else may write."""

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO, TypeAlias

FileVersion: TypeAlias = tuple[int, ...]
"""Of a file that was read: another one after each change."""


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


def read_own_file(path: str, max_bytes: int, version: FileVersion | None) -> tuple[bytes | None, FileVersion]:
    """The content and the version of a file that nobody else can write; no content if this version was read before.

    Raises `OSError`, and `ValueError` for a file that others can write, that is too long, or not a regular file.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        status = os.fstat(stream.fileno())
        current = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode, status.st_uid)
        if current == version:
            return None, current
        if not stat.S_ISREG(status.st_mode) or len(data := stream.read(max_bytes + 1)) > max_bytes:
            raise ValueError("it is not a regular file, or too long")
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise ValueError("others can write to it")
        return data, current
