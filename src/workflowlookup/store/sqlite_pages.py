"""Reads the rows of a damaged SQLite file, from all pages that are intact.

SQLite cannot read a table when a page that leads to it is damaged. Here every page is read by itself, the committed
pages of the write-ahead log in place of those in the file. This module knows the file format of SQLite
(https://sqlite.org/fileformat2.html) and nothing of journals; the caller checks what a row means.
"""

import contextlib
import itertools
import os
import struct
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple, Self

MAGIC: Final = b"SQLite format 3\0"
DEFAULT_PAGE_SIZE: Final = 4096
_PAGE_SIZES: Final = frozenset(1 << power for power in range(9, 17))

_INTERIOR_INDEX: Final = 2
_INTERIOR_TABLE: Final = 5
_LEAF_INDEX: Final = 10
_LEAF_TABLE: Final = 13

_WAL_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_WAL_MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}
"""By magic number: the byte order of the checksums."""

_CONSTANTS: Final = {0: None, 8: 0, 9: 1}
_INTEGER_SIZES: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_DAMAGE: Final = (IndexError, ValueError, struct.error, OverflowError)
"""The exceptions that parsing damaged bytes can raise."""


class Row(NamedTuple):
    """A row, and whether it is in an index tree, as rows of tables `WITHOUT ROWID` are."""

    is_index: bool
    values: tuple[Any, ...]


class WriteAheadLog:
    """The write-ahead log of a SQLite file: the latest committed version of each page in it.

    Does not open the file itself: closing it would release the locks that this process has on it.
    """

    def __init__(self, path: str) -> None:
        self.page_size: int | None = None
        self.page_count: int | None = None
        """Pages of the file after the last transaction."""
        self.is_damaged = False
        """Whether there are damaged frames before valid ones."""
        self._offsets: dict[int, int] = {}
        self._file: BinaryIO | None = None
        with contextlib.suppress(FileNotFoundError):
            self._file = open(f"{path}-wal", "rb")  # noqa: SIM115 - closed by `close`
            self._read(self._file)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def page(self, number: int) -> bytes | None:
        if self._file is None or self.page_size is None or number not in self._offsets:
            return None
        self._file.seek(self._offsets[number])
        return self._file.read(self.page_size)

    def _read(self, file: BinaryIO) -> None:
        header = file.read(_WAL_HEADER)
        start = _read_header(header) or _guess_header(header, file)
        if start is None:
            return
        order, self.page_size, salt, seed = start.order, start.page_size, start.salt, start.seed
        written: dict[int, int] = {}
        commits_after_gap = -1  # no gap yet
        if start.is_guess:  # the header is written before the first frame, so the frames were committed
            commits_after_gap = 1
        for at in itertools.count(_WAL_HEADER, _FRAME_HEADER + self.page_size):
            file.seek(at)
            frame = file.read(_FRAME_HEADER + self.page_size)
            if len(frame) < _FRAME_HEADER + self.page_size:
                return
            # Each checksum continues that of the previous frame, so a frame after a damaged one can be verified.
            is_valid = frame[8:16] == salt and _frame_checksum(seed, frame, order) == frame[16:24]
            seed = frame[16:24]
            if not is_valid:
                commits_after_gap = max(commits_after_gap, 0)
                continue
            written[_u32(frame, 0)] = at + _FRAME_HEADER
            if count := _u32(frame, 4):  # the last frame of a transaction
                commits_after_gap += commits_after_gap >= 0
                if commits_after_gap == 1:  # it may never have been complete; then nothing was committed after it
                    continue
                self._offsets.update(written)
                self.page_count = count
                self.is_damaged = commits_after_gap > 1


class Pages:
    """The pages of a SQLite file, with those in its write-ahead log in place of older ones."""

    def __init__(self, path: str) -> None:
        self._log = WriteAheadLog(path)
        self._file = open(path, "rb")  # noqa: SIM115 - closed by `__exit__`
        header = self._file.read(100)
        self._size = _page_size(header) or self._log.page_size or DEFAULT_PAGE_SIZE
        present = -(-os.fstat(self._file.fileno()).st_size // self._size)
        self._count = self._log.page_count or present
        first = self._page(1)
        has_header = first.startswith(MAGIC)
        self._usable = self._size
        if has_header and not self._uses_last_bytes(first[20]):
            self._usable -= first[20]
        self._free = frozenset(self._free_pages(first)) if has_header else frozenset[int]()
        self._cut_off = 0
        """Pages that were cut off, beyond those that are tried."""
        if has_header:  # pages that were cut off count as unreadable; a wrong number must not make this endless
            claimed = _u32(first, 28)
            self._count = max(self._count, min(claimed, 2 * self._count))
            if first[24:28] == first[92:96]:  # the number is up to date
                self._cut_off = max(0, claimed - self._count)
        self._missing = {number for number in range(present + 1, self._count + 1) if self._log.page(number) is None}
        self._unparsed: set[int] = set()
        self._overflow: set[int] = set()

    @property
    def is_log_damaged(self) -> bool:
        return self._log.is_damaged

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._log.close()

    def rows(self) -> Iterator[Row]:
        """The rows on all pages in use, as far as they can be read."""
        for number in range(1, self._count + 1):
            if number not in self._free:
                yield from self._rows_on(number)

    @property
    def unreadable(self) -> int:
        """After `rows`: how many pages in use are missing or could not be parsed."""
        return len((self._unparsed - self._overflow) | self._missing) + self._cut_off

    def _page(self, number: int) -> bytes:
        logged = self._log.page(number)
        if logged is not None and len(logged) == self._size:
            return logged
        self._file.seek((number - 1) * self._size)
        return self._file.read(self._size).ljust(self._size, b"\0")

    def _uses_last_bytes(self, reserved: int) -> bool:
        """Whether most pages have rows in the space that the header says is reserved: then the header is wrong."""
        limit, votes = self._size - reserved, 0
        for number in range(1, self._count + 1) if reserved else ():
            page = self._page(number)
            ends = [end for end in _row_ends(page, 100 if number == 1 else 0, limit) if end <= self._size]
            if ends:
                votes += 1 if max(ends) > limit else -1
        return votes > 0

    def _free_pages(self, first: bytes) -> Iterator[int]:
        """The free pages, which still have deleted rows that must not come back."""
        trunk, visited = _u32(first, 32), set[int]()
        while 1 < trunk <= self._count and trunk not in visited:
            visited.add(trunk)
            page = self._page(trunk)
            leaves = _u32(page, 4)
            if leaves > self._size // 4 - 2:  # not a page of the list: a wrong number led here
                return
            yield trunk
            yield from struct.unpack_from(f">{leaves}I", page, 8)
            trunk = _u32(page, 0)

    def _rows_on(self, number: int) -> Iterator[Row]:
        page = self._page(number)
        start = 100 if number == 1 else 0
        kind = page[start]
        if kind == _INTERIOR_TABLE:
            return
        if kind not in (_INTERIOR_INDEX, _LEAF_INDEX, _LEAF_TABLE):
            self._unparsed.add(number)
            return
        pointers = start + (12 if kind == _INTERIOR_INDEX else 8)
        count = min(_u16(page, start + 3), (self._size - pointers) // 2)
        for cell in struct.unpack_from(f">{count}H", page, pointers):
            try:
                yield Row(kind != _LEAF_TABLE, _record(self._payload(page, cell, kind)))
            except _DAMAGE:
                self._unparsed.add(number)

    def _payload(self, page: bytes, at: int, kind: int) -> bytes:
        if kind == _INTERIOR_INDEX:
            at += 4  # the number of the child page
        length, at = _varint(page, at)
        if kind == _LEAF_TABLE:
            _, at = _varint(page, at)  # the rowid
        usable = self._usable
        min_local = (usable - 12) * 32 // 255 - 23
        max_local = usable - 35 if kind == _LEAF_TABLE else (usable - 12) * 64 // 255 - 23
        if length <= max_local:
            return _exactly(page[at : at + length], length)
        if length > self._count * self._size:
            raise ValueError(length)
        local = min_local + (length - min_local) % (usable - 4)
        local = local if local <= max_local else min_local
        parts, remaining = [_exactly(page[at : at + local], local)], length - local
        overflow = _u32(page, at + local)
        while remaining > 0:
            if not 0 < overflow <= self._count:
                raise ValueError(overflow)
            self._overflow.add(overflow)
            page = self._page(overflow)
            parts.append(page[4 : 4 + min(remaining, usable - 4)])
            remaining -= usable - 4
            overflow = _u32(page, 0)
        return b"".join(parts)


def _row_ends(page: bytes, start: int, usable: int) -> Iterator[int]:
    """The end offsets of the rows on a leaf that are entirely on this page."""
    kind = page[start]
    if kind not in (_LEAF_INDEX, _LEAF_TABLE):
        return
    count = min(_u16(page, start + 3), (len(page) - start - 8) // 2)
    for cell in struct.unpack_from(f">{count}H", page, start + 8):
        with contextlib.suppress(*_DAMAGE):
            length, at = _varint(page, cell)
            if kind == _LEAF_TABLE:
                _, at = _varint(page, at)
            if length <= (usable - 12) * 64 // 255 - 23:  # the lower limit of both kinds
                yield at + length


class _WalHeader(NamedTuple):
    """The header of a write-ahead log."""

    order: str
    page_size: int
    salt: bytes
    seed: bytes
    """The checksum that the first frame continues."""
    is_guess: bool = False
    """The header is damaged, and this was inferred from the frames."""


def _read_header(header: bytes) -> _WalHeader | None:
    """Parse the header of a log; None when it is damaged."""
    if len(header) < _WAL_HEADER or _u32(header, 0) not in _WAL_MAGIC or _u32(header, 8) not in _PAGE_SIZES:
        return None
    order = _WAL_MAGIC[_u32(header, 0)]
    if _checksum(bytes(8), header[:24], order) != header[24:32]:
        return None
    return _WalHeader(order, _u32(header, 8), header[16:24], header[24:32])


def _guess_header(header: bytes, file: BinaryIO) -> _WalHeader | None:
    """Infer a damaged header, with which SQLite would drop the whole log; None without frames."""
    if len(header) < _WAL_HEADER:
        return None
    order = _WAL_MAGIC.get(_u32(header, 0), "<" if sys.byteorder == "little" else ">")
    for size in (DEFAULT_PAGE_SIZE, *sorted(_PAGE_SIZES - {DEFAULT_PAGE_SIZE})):
        frames = list(_frame_headers(file, size))
        salts = [frame[8:16] for frame in frames if any(frame[8:16])]
        salt = next((one for one, other in itertools.pairwise(salts) if one == other), None)
        if salt is None and len(frames) == 1:
            salt = salts[0] if salts else None
        if salt is not None:
            break
    else:
        return None
    file.seek(_WAL_HEADER)
    first = file.read(_FRAME_HEADER + size)
    seeds = (header[24:32], _checksum(bytes(8), header[:24], order))
    seed = next((seed for seed in seeds if _frame_checksum(seed, first, order) == first[16:24]), seeds[0])
    return _WalHeader(order, size, salt, seed, is_guess=True)


def _frame_headers(file: BinaryIO, page_size: int) -> Iterator[bytes]:
    """The headers of the complete frames."""
    end = os.fstat(file.fileno()).st_size - _FRAME_HEADER - page_size
    for at in range(_WAL_HEADER, end + 1, _FRAME_HEADER + page_size):
        file.seek(at)
        yield file.read(_FRAME_HEADER)


def count_frames(path: str) -> int:
    """How many frames the write-ahead log of a file has up to its last commit. Reads only their headers."""
    last = 0
    try:
        with open(f"{path}-wal", "rb", buffering=0) as wal:
            header = wal.read(_WAL_HEADER)
            start = _read_header(header) or _guess_header(header, wal)
            if start is None:
                return 0
            for number, frame in enumerate(_frame_headers(wal, start.page_size), 1):
                if frame[8:16] == start.salt and _u32(frame, 4):
                    last = number
    except FileNotFoundError:
        pass
    return last


def _record(payload: bytes) -> tuple[Any, ...]:
    end, at = _varint(payload, 0)
    body = end
    if end > len(payload):
        raise ValueError(end)
    values = []
    while at < end:
        kind, at = _varint(payload, at)
        value, body = _value(payload, body, kind)
        values.append(value)
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    """A value of a serial type, and the offset of the next one."""
    if kind in _INTEGER_SIZES:
        size = _INTEGER_SIZES[kind]
        return int.from_bytes(_exactly(payload[at : at + size], size), "big", signed=True), at + size
    if kind == 7:  # floating point
        return struct.unpack_from(">d", payload, at)[0], at + 8
    if kind in _CONSTANTS:
        return _CONSTANTS[kind], at
    if kind < 12:  # reserved
        raise ValueError(kind)
    size = (kind - 12) // 2
    content = _exactly(payload[at : at + size], size)
    return content.decode() if kind % 2 else content, at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for byte in data[at : at + 8]:
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # the last byte
            return value, at
    return value << 8 | data[at], at + 1


def _exactly(data: bytes, length: int) -> bytes:
    if len(data) != length:
        raise ValueError(length)
    return data


def _u16(data: bytes, at: int) -> int:
    return int(struct.unpack_from(">H", data, at)[0])


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from(">I", data, at)[0])


def _page_size(header: bytes) -> int | None:
    """The page size in the header of a file; None when it is damaged."""
    if len(header) < 100 or not header.startswith(MAGIC):  # the size of the header
        return None
    size = _u16(header, 16)
    size = 65_536 if size == 1 else size
    return size if size in _PAGE_SIZES else None


def _frame_checksum(seed: bytes, frame: bytes, order: str) -> bytes:
    """The checksum of the first 8 bytes of a frame's header and its page."""
    return _checksum(seed, frame[:8] + frame[_FRAME_HEADER:], order)


def _checksum(seed: bytes, content: bytes, order: str) -> bytes:
    first, second = struct.unpack(">2I", seed)
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return struct.pack(">2I", first, second)
