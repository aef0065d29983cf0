"""The real command as a process: into pipes, and on a terminal."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

from support.fork_server import ForkServer
from support.json_values import Json, JsonObject
from workflowlookup.cli.input import AGENT_VARIABLES

TIMEOUT = 180.0
"""Long, for busy machines."""
PROGRAM = ("-m", "workflowlookup")
BOUND = (str(Path(__file__).parent.parent / "bound.py"),)
"""The same, bound by the permissions of files."""
_OURS = ("WORKFLOW", "XDG_", "CLAUDE", "CODEX", "GITHUB_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHON")
_TAKE_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes standard input the controlling terminal of a new session, then becomes the command. SIGHUP has its default
effect, also where the tests were started with `nohup`.
"""


_fork_servers: list[ForkServer] = []


def fork_server(environment: Mapping[str, str]) -> ForkServer:
    """The one of this process; the first command starts it in its environment."""
    if not _fork_servers:
        _fork_servers.append(ForkServer(environment))
    return _fork_servers[0]


class Cli:
    """`workflowlookup` in an empty directory, with a home of its own and none of the caller's settings.

    A call is a process forked by `support.fork_server`; on terminals, and with another `program`, Python is started.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.home.mkdir()
        self.environment: dict[str, str] = {}
        self._own: dict[str, str] = {}

    @property
    def own(self) -> Path:
        """The user's own configuration directory, outside the project; it counts once it is used."""
        base = self.directory.with_name(f"{self.directory.name}-config")
        (base / "workflowlookup").mkdir(parents=True, exist_ok=True)
        self._own = {"XDG_CONFIG_HOME": str(base)}
        return base / "workflowlookup"

    def __call__(
        self, *words: str, stdin: bytes = b"", program: tuple[str, ...] = PROGRAM, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        own = self._environment()
        forking = fork_server(own)
        if program == PROGRAM and forking.fits(own | environment):
            done = forking.run(
                words, stdin=stdin, directory=self.directory, environment=own | environment, timeout=TIMEOUT
            )
        else:
            done = subprocess.run(
                [sys.executable, *program, *words],
                input=stdin,
                capture_output=True,
                timeout=TIMEOUT,
                check=False,
                cwd=self.directory,
                env=own | environment,
            )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def start_run(self, *words: str, workflow: str = "sample-workflow", stdin: bytes | str = b"") -> str:
        """The id of a run that was started with `run`; standard input has the outputs."""
        outputs = stdin.encode() if isinstance(stdin, str) else stdin
        return str(json.loads(self("run", workflow, "--json", *words, stdin=outputs).stdout)["runId"])

    def run_status(self, run_id: object) -> JsonObject:
        """What `run show` says about a run."""
        status: JsonObject = json.loads(self("run", "show", str(run_id), "--json").stdout)
        return status

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

    def sit_down(self, *words: str, columns: int = 100, **environment: str) -> "Sitting":
        """A person at a terminal, who reads before they type."""
        return Sitting(self._command(words), self.directory, self._environment() | environment, columns)

    def confirm(self, *words: str, says: str = "y", **environment: Json) -> tuple[int, str]:
        """The exit code and all that was seen when a person answers the question of `confirm`."""
        sitting = self.sit_down("confirm", *words, **environment)
        return sitting.see("[l]eave" if "--deny" not in words else "[y/N]").type(f"{says}\n").leave()

    def alone(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """The command without any terminal, as an agent would run it to get around its questions."""
        return subprocess.run(
            self._command(words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            cwd=self.directory,
            env=self._environment() | environment,
            start_new_session=True,
            check=False,
        )

    def _command(self, words: tuple[str, ...]) -> list[str]:
        return [sys.executable, *PROGRAM, *words]

    def _environment(self) -> dict[str, str]:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_OURS) and not AGENT_VARIABLES.fullmatch(name)
        }
        return clean | {"HOME": str(self.home), "TERM": "xterm-256color"} | self._own | self.environment


class Sitting:
    """The command on a pseudo-terminal that is its controlling terminal, with a person in front of it."""

    def __init__(self, command: list[str], directory: Path, environment: dict[str, str], columns: int) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-ISc", _TAKE_TERMINAL, *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""
        self._read = 0

    def see(self, text: str) -> "Sitting":
        """Wait until this is on the screen, after what was waited for before."""
        end = time.monotonic() + TIMEOUT / 3
        while (position := self.seen.find(text, self._read)) < 0:
            if not self._more(end):
                self._process.kill()
                self._process.wait()
                raise AssertionError(f"{text!r} is not among {self.seen[self._read :]!r}")
        self._read = position + len(text)
        return self

    def type(self, text: str) -> "Sitting":
        os.write(self._ours, text.encode())
        return self

    def interrupt(self) -> "Sitting":
        """What Ctrl-C does on a terminal; once more when it came in a moment in which `readline` misses it."""
        for _ in range(5):
            self._process.send_signal(signal.SIGINT)
            if select.select([self._ours], [], [], 5)[0]:
                break
        return self

    def resize(self, columns: int) -> "Sitting":
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        return self

    def end(self, number: int = 0) -> None:
        """The command is sent this signal; without one, the terminal goes away."""
        if number:
            for _ in range(5):  # once more when it came in a moment in which `readline` misses it
                self._process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(5)
                    break
        os.close(self._ours)
        self._process.wait(TIMEOUT)

    def leave(self) -> tuple[int, str]:
        """The exit code, and all that was seen, without colours."""
        while self._more(time.monotonic() + TIMEOUT):
            pass
        os.close(self._ours)
        return self._process.wait(TIMEOUT), self.seen

    def _more(self, end: float) -> bool:
        data = b""
        if select.select([self._ours], [], [], max(0.0, end - time.monotonic()))[0]:
            with contextlib.suppress(OSError):  # how Linux says that the other side is closed
                data = os.read(self._ours, 1 << 16)
        self.seen = plain(self.seen + data.decode(errors="replace"))
        return bool(data)


def plain(text: str) -> str:
    """Text as it is read: without colours and the like."""
    return re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])", "", text).replace("\r\n", "\n").replace("\r", "")
