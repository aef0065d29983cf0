"""What commands read: files, standard input, and the answers of a person at the terminal.

Some answers must not come from an agent (`trust`, `confirm`). These are read from the terminal itself, never from
standard input. Without a controlling terminal, or in an environment that a coding agent made, they are refused. This
stops an agent that uses the command as it is; it cannot stop one that removes the variables and opens a pseudo-terminal
under the same account.
"""

import contextlib
import io
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Final

from workflowlookup.cli.output import QUOTE, quoted_rows, width, wrapped_rows, write
from workflowlookup.errors import SecurityError, StorageError
from workflowlookup.language.text import printable

END: Final = "."
"""A line that ends an output."""
STANDARD_INPUT: Final = "-"
TERMINAL: Final = "/dev/tty"
AGENT_VARIABLES: Final = re.compile(
    r"CLAUDECODE|CLAUDE_CODE(_ENTRYPOINT|_SESSION_ID)?|CODEX_(SANDBOX\w*|THREAD_ID|CI|SESSION\w*)"
    r"|CURSOR_(AGENT|TRACE_ID|SESSION\w*)|GEMINI_CLI|QWEN_CODE|OPENCODE(_CLIENT|_PID|_SESSION\w*)?|COPILOT_(AGENT|CLI)\w*"
    r"|CLINE_ACTIVE|ROO_ACTIVE|AUGMENT_AGENT|ANTIGRAVITY_AGENT|GOOSE_TERMINAL|AIDER_SESSION|AMP_THREAD_ID|AI_AGENT|AGENT"
)
"""Variables that coding agents set for the commands they run, not those that people set for an agent (`CODEX_HOME`)."""


# ── files and pipes ─────────────────────────────────────────────────────────────────────────────────────────────


def is_interactive() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def read_pipe() -> list[str]:
    """The outputs in standard input, separated by lines with a single dot."""
    outputs: list[list[str]] = [[]]
    for line in io.StringIO(_decoded(STANDARD_INPUT), newline=""):
        if line.rstrip("\r\n") == END:
            outputs.append([])
        else:
            outputs[-1].append(line)
    texts = ["".join(lines).removesuffix("\n").removesuffix("\r") for lines in outputs]
    return [text for text in texts if text.strip()]


def read_file(path: str) -> str:
    """The text of a file without its last newline, which editors and shells add. Raises `StorageError`."""
    return _decoded(path).removesuffix("\n")


def read_data(path: str) -> bytes:
    """The bytes of a file; `-` is standard input. Raises `StorageError`."""
    try:
        if path == STANDARD_INPUT:
            return b"" if sys.stdin is None else sys.stdin.buffer.read()
        with open(path, "rb") as stream:
            return stream.read()
    except OSError as problem:
        raise StorageError(f"{path} cannot be read: {problem.strerror}.", file=path) from problem


def _decoded(path: str) -> str:
    try:
        return read_data(path).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        name = "standard input" if path == STANDARD_INPUT else path
        raise StorageError(f"The content of {name} is not UTF-8 text (byte {problem.start + 1}).") from None


# ── questions on standard input ─────────────────────────────────────────────────────────────────────────────────


def ask_yes_or_no(question: str) -> bool:
    """Ask on standard input; only y and yes mean yes."""
    return (ask_line(f"{question} [y/N]") or "").strip().lower() in ("y", "yes")


def ask_line(question: str) -> str | None:
    """Ask on standard input for a line; None at the end of input."""
    *rows, last = wrapped_rows(question, width())
    for row in rows:
        write(row)
    sys.stdout.flush()
    try:
        return input(f"{last} ")
    except EOFError:
        write()
        return None


def prepare_keyboard() -> None:
    """Allow lines of any length that can be edited, and bytes that are not text."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    try:
        import readline  # noqa: PLC0415 - a terminal alone cuts lines at 4,095 characters
    except ImportError:
        return
    if "libedit" not in (readline.__doc__ or ""):
        readline.parse_and_bind("set enable-bracketed-paste off")  # a paste of several lines is read as several lines


def partial_line() -> str:
    """What was typed of an unfinished line."""
    readline = sys.modules.get("readline")
    return str(readline.get_line_buffer()) if readline is not None else ""


class TerminalGone(KeyboardInterrupt):
    """The terminal was closed, or a signal ends the command, while a line was read. `args` has the unfinished line."""


@contextlib.contextmanager
def interrupt_on_hangup() -> Iterator[None]:
    """Make SIGHUP and SIGTERM interrupt the reading of a line, as Ctrl-C does. Raises `TerminalGone`."""

    def interrupt(_: int, __: FrameType | None) -> None:
        line = partial_line()
        null = os.open(os.devnull, os.O_WRONLY)  # writing to a closed terminal would fail
        for descriptor in (1, 2):
            os.dup2(null, descriptor)
        raise TerminalGone(line)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


# ── questions that only a person may answer ─────────────────────────────────────────────────────────────────────


def agent_environment(environment: Mapping[str, str]) -> str:
    """The name of the variable that shows that an agent runs this command; empty when there is none."""
    return next((name for name in sorted(environment) if environment[name] and AGENT_VARIABLES.fullmatch(name)), "")


def refuse_agents(purpose: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raises `SecurityError` when an agent runs this command; `purpose` completes "Only a person may …"."""
    variable = agent_environment(environment)
    if variable:
        raise SecurityError(
            f"Only a person may {purpose}, and {variable} in the environment shows that an agent runs this command. "
            "Run this command yourself, in a terminal that the agent does not control."
        )


class Terminal:
    """The terminal of a person, for one conversation."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def show(self, text: str = "", *, wrap: bool = False) -> None:
        """Write lines without control characters, which could move the cursor or change lines above.

        `wrap` is for prose. Text that must be shown exactly is not wrapped.
        """
        self._write("\n".join([*wrapped_rows(text, self._columns if wrap else None), ""]))

    def show_pages(self, text: str) -> bool:
        """Write lines a screen at a time, so that none scrolls away unread. Returns whether the last page was shown."""
        size = self._size
        columns, height = size.columns or 80, max((size.lines or 24) - 4, 4)  # leaves room for the question
        rows = [
            line[start : start + columns]
            for line in printable(text).split("\n")
            for start in range(0, len(line) or 1, columns)
        ]
        while len(rows) > height:
            self._write("\n".join([*rows[:height], ""]))
            rows = rows[height:]
            if not self._wants_more(f"{len(rows):,} more lines. Enter shows the next page, n stops here:"):
                return False
        self._write("\n".join([*rows, ""]))
        return True

    def _wants_more(self, question: str) -> bool:
        """Whether the answer is Enter and not n; any other answer repeats the question."""
        while True:
            answer = self.ask(question)
            if answer is None or answer.lower() in ("", "n", "no"):
                return answer == ""

    def quote(self, text: str) -> None:
        """Write untrusted text with a bar before each row, so that no part of it looks like a line of ours."""
        self._write("".join(f"{QUOTE}{row}\n" for row in quoted_rows(text, self._columns)))

    def ask(self, question: str) -> str | None:
        """The stripped line that is typed after the question appeared; None at the end of input."""
        line = self._ask(question)
        return None if line is None else line.strip()

    def ask_secret(self, question: str) -> str | None:
        """The line that is typed after the question, as it is and without being shown; None at the end of input."""
        import termios  # noqa: PLC0415 - with the first question

        before = termios.tcgetattr(self._descriptor)
        hidden = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
        try:
            termios.tcsetattr(self._descriptor, termios.TCSAFLUSH, hidden)
            return self._ask(question)
        finally:
            termios.tcsetattr(self._descriptor, termios.TCSAFLUSH, before)
            self._write("\n")

    def _ask(self, question: str) -> str | None:
        import termios  # noqa: PLC0415 - with the first question

        termios.tcflush(self._descriptor, termios.TCIFLUSH)  # what was typed before the question is not an answer
        self._write("\n".join(wrapped_rows(question, self._columns)) + " ")
        typed = b""
        while not typed.endswith(b"\n"):
            part = os.read(self._descriptor, 4096)
            if not part:
                self._write("\n")
                return None
            typed += part
        return typed.decode(errors="replace").rstrip("\r\n")

    def ask_yes_or_no(self, question: str) -> bool:
        """Whether the answer is y or yes; anything else means no."""
        return (self.ask(f"{question} [y/N]") or "").lower() in ("y", "yes")

    @property
    def _columns(self) -> int | None:
        return self._size.columns or None

    @property
    def _size(self) -> os.terminal_size:
        """The columns and lines; zeros when they are unknown."""
        try:
            return os.get_terminal_size(self._descriptor)
        except OSError:
            return os.terminal_size((0, 0))

    def _write(self, text: str) -> None:
        data = text.encode(errors="backslashreplace")
        while data:
            data = data[os.write(self._descriptor, data) :]


@contextlib.contextmanager
def person_terminal(purpose: str, environment: Mapping[str, str] = os.environ) -> Iterator[Terminal]:
    """The terminal of the person who runs this command; `purpose` completes "Only a person may …".

    Raises `SecurityError` when an agent runs it, or when there is no terminal.
    """
    refuse_agents(purpose, environment)
    try:
        descriptor = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as problem:
        raise SecurityError(
            f"Only a person may {purpose}, and there is no terminal to ask one on. "
            "Run this command yourself, in a terminal."
        ) from problem
    try:
        yield Terminal(descriptor)
    except OSError as problem:  # such as a background process, which may not read from it
        raise SecurityError(
            f"The terminal was closed before the question was answered ({problem}). Nothing changed."
        ) from problem
    finally:
        os.close(descriptor)
