"""The real command as a process: into pipes, and on a terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

TIMEOUT = 60.0
_OURS = ("WORKFLOW", "XDG_", "CLAUDE", "CODEX", "GITHUB_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHON")


class Cli:
    """`workflowlookup` in an empty directory, with a home of its own and none of the caller's settings."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.home.mkdir()

    def __call__(self, *words: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self._command(words),
            input=stdin,
            capture_output=True,
            cwd=self.directory,
            env=self._environment() | environment,
            timeout=TIMEOUT,
            check=False,
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def on_terminal(self, *words: str, typed: str = "", columns: int = 80, **environment: str) -> tuple[int, str]:
        """The exit code and all that a person would see who types this."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen(
            self._command(words),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=self.directory,
            env=self._environment() | environment,
        )
        os.close(theirs)
        os.write(ours, typed.encode())
        seen = b""
        try:
            while data := os.read(ours, 1 << 16):
                seen += data
        except OSError:  # how Linux says that the other side is closed
            pass
        os.close(ours)
        return process.wait(TIMEOUT), seen.decode().replace("\r\n", "\n")

    def _command(self, words: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "workflowlookup", *words]

    def _environment(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        return clean | {"HOME": str(self.home), "TERM": "xterm-256color"}
