"""`make demo`, as a new user runs it."""

import os
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parent.parent / "demo" / "session.py"
TIMEOUT = 120


def test_the_demo_goes_to_its_end(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("WORKFLOW", "XDG_"))}
    done = subprocess.run(
        [sys.executable, DEMO],
        cwd=tmp_path,
        env={**environment, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    shown = " ".join(done.stdout.split())
    refused, accepted = shown.index("claims the fix all the same"), shown.index("claims the same again")
    assert "failed: It ended with exit code 1; 0 is needed." in shown[refused:accepted]
    assert "✓ accepted • proved: regression-test" in shown[accepted:]
    assert "with tests/test_period.py), exit code 1" in shown[accepted:]
    assert "The receipt holds" in shown[accepted:]
    assert "new is publish_a_release" in done.stdout
