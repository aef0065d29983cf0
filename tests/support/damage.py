"""Damage to the file of a SQLite journal, and the copies that are set aside because of it."""

from pathlib import Path

PAGE = 4096


def spoil_page(path: Path, number: int = 1, garbage: bytes = b"\xa5") -> None:
    """Overwrite a page; the first one has number 1, as in SQLite."""
    with path.open("r+b") as file:
        file.seek((number - 1) * PAGE)
        file.write(garbage * (PAGE // len(garbage)))


def set_aside(path: Path) -> list[Path]:
    """The damaged files that were set aside, oldest first."""
    return sorted(path.parent.glob("runs.sqlite.corrupt-*[0-9]"))
