"""A fresh virtual environment with a wheel and what it needs, and how much that is."""

import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple


class Weight(NamedTuple):
    """What an environment holds, pip left out."""

    distributions: int
    megabytes: float
    """With the bytecode that pip compiles."""


def build_wheel(root: Path, target: Path) -> Path:
    """The wheel of the project at `root`. Raises `subprocess.CalledProcessError`."""
    _run([sys.executable, "-m", "build", "--wheel", "--outdir", str(target), str(root)])
    (wheel,) = target.glob("*.whl")
    return wheel


def install_wheel(wheel: Path, place: Path, *extras: str) -> Path:
    """Make an environment with a wheel and these extras; its interpreter. Raises `subprocess.CalledProcessError`."""
    venv.create(place)
    python = place / "bin" / "python"
    wanted = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    _run([sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", wanted])
    return python


def weigh(place: Path) -> Weight:
    """What is installed in an environment that `install_wheel` made."""
    (packages,) = place.glob("lib/python3*/site-packages")
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
    return Weight(len([*packages.glob("*.dist-info")]), size / 1e6)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
