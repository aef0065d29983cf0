"""The light installation: how many packages and megabytes `pip install workflowlookup` brings."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "packaging"))

from fresh_install import Weight, build_wheel, install_wheel, weigh  # noqa: E402 - found by the path above

__all__ = ["Weight", "measure"]


def measure(scratch: Path) -> Weight:
    """What a fresh environment holds after the wheel was installed without extras; pip left out."""
    place = scratch / "light"
    install_wheel(build_wheel(ROOT, scratch / "dist"), place)
    return weigh(place)
