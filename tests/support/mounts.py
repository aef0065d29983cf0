"""Mounts in a namespace of their own, where unprivileged ones are possible."""

import shutil
import subprocess

import pytest

NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def is_refused(*words: str) -> bool:
    return subprocess.run([*NAMESPACE, *words], capture_output=True, check=False).returncode != 0


may_mount = pytest.mark.skipif(
    shutil.which("unshare") is None or is_refused("mount", "-t", "tmpfs", "tmpfs", "/mnt"),
    reason="a disk of its own cannot be mounted here",
)
