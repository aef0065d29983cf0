"""Real git repositories, which others are fetched from."""

import subprocess
from collections.abc import Mapping
from pathlib import Path


class GitRepository:
    """A repository on this machine with a URL."""

    def __init__(self, root: Path) -> None:
        """`root`: a repository, or a path at which one is made."""
        self.root = root
        if not root.exists():
            root.mkdir(parents=True)
            self.git("init", "-q")

    @property
    def url(self) -> str:
        return f"file://{self.root}"

    def git(self, *words: str, given: bytes = b"") -> str:
        """The output of git."""
        settings = {
            "init.defaultBranch": "main",
            "user.name": "Ann",
            "user.email": "ann@example.org",
            "commit.gpgsign": "false",
            "core.hooksPath": "/dev/null",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        done = subprocess.run(["git", *options, *words], cwd=self.root, input=given, capture_output=True, check=True)
        return done.stdout.decode().strip()

    def commit(self, files: Mapping[str, str]) -> str:
        """Write files and commit everything. Returns the id of the commit."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")
        return self.git("rev-parse", "HEAD")
