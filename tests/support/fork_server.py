"""Runs commands in processes that are forked from one in which the package is imported already.

Two thirds of the processor time of a short command are imports, and the tests start thousands of them. A forked process
has its own arguments, environment, working directory and standard streams, and ends as any other. What is not the same:
its modules are there, so the tests that are about the start of the program, terminals and clients start it anew.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

_AT_START: Final = ("PYTHON", "LC_", "LANG", "COVERAGE_")
"""Python reads these variables when it starts."""
_PIPE_BYTES: Final = 1 << 16
_SIZE_BYTES: Final = 4


# ── in the tests ────────────────────────────────────────────────────────────────────────────────────────────────────


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START)}


class ForkServer:
    """The process that forks. It ends when this one does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._at_start = _at_start(environment)
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                stdin=subprocess.PIPE,  # pipes, as a command has them; nothing goes through them
                stdout=subprocess.PIPE,
                env=environment,
                pass_fds=(theirs.fileno(),),
            )
        atexit.register(self._close)

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether a forked process is the same as a new one in this environment. Coverage measures new ones only."""
        at_start = _at_start(environment)
        return at_start == self._at_start and not any(name.startswith("COVERAGE_") for name in at_start)

    def run(
        self, words: Sequence[str], *, stdin: bytes, directory: Path, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """What `subprocess.run` returns for `python -m workflowlookup` with these words."""
        request = json.dumps([list(words), str(directory), dict(environment)], default=str).encode()
        with contextlib.ExitStack() as stack:
            reading, writing = os.pipe()
            stack.callback(os.close, reading)
            status, status_writing = os.pipe()
            stack.callback(os.close, status)
            output, errors = os.memfd_create("stdout"), os.memfd_create("stderr")
            stack.callback(os.close, output)
            stack.callback(os.close, errors)
            with self._lock:
                size = len(request).to_bytes(_SIZE_BYTES, "big")
                socket.send_fds(self._socket, [size], [reading, output, errors, status_writing])
                self._socket.sendall(request)
            os.close(status_writing)
            _feed(writing, stdin)
            pid, code = _result(status, timeout)
            if code is None:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(words), timeout)
            return subprocess.CompletedProcess(list(words), code, _content(output), _content(errors))

    def _close(self) -> None:
        self._socket.close()
        self._process.communicate()


def _feed(descriptor: int, data: bytes) -> None:
    """Write standard input; if it does not fit into the pipe, while the command reads it."""

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), open(descriptor, "wb") as pipe:
            pipe.write(data)

    if len(data) <= _PIPE_BYTES:
        write()
    else:
        threading.Thread(target=write, daemon=True).start()


def _result(status: int, timeout: float) -> tuple[int, int | None]:
    """The id of the process, and its exit code; None if it has not ended in time."""
    end, text = time.monotonic() + timeout, b""
    with selectors.DefaultSelector() as selector:
        selector.register(status, selectors.EVENT_READ)
        while text.count(b"\n") < 2:
            if not selector.select(max(0.0, end - time.monotonic())):
                return int(text), None
            data = os.read(status, 100)
            assert data, "the fork server has ended"
            text += data
    pid, code = text.split()
    return int(pid), int(code)


def _content(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        return file.read()


# ── in the process that forks ───────────────────────────────────────────────────────────────────────────────────────


def import_package() -> None:
    """Import what commands import, and make it cheap to share."""
    from workflowlookup.cli.main import COMMANDS

    for module, _, _ in COMMANDS.values():
        importlib.import_module(f"workflowlookup.cli.commands.{module}")
    importlib.import_module("workflowlookup.cli.hook_answers")
    assert threading.active_count() == 1, "threads are not forked"
    gc.collect()
    gc.freeze()


class Forked(Exception):
    """Raised in each forked process."""


def serve(connection: socket.socket) -> None:
    """Fork for each request until the tests end. Raises `Forked` in the forked processes, ready for the command."""
    running: dict[int, tuple[int, int]] = {}
    """By descriptor of the process: its id, and where its exit code is written."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd in running:
                    selector.unregister(key.fd)
                    pid, status = running.pop(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    _report(status, code)
                    os.close(status)
                    os.close(key.fd)
                    continue
                size, descriptors, *_ = socket.recv_fds(connection, _SIZE_BYTES, 4)
                if not size:
                    return
                *streams, status = descriptors
                request = b""
                while len(request) < int.from_bytes(size, "big"):
                    request += connection.recv(int.from_bytes(size, "big") - len(request))
                if (pid := os.fork()) == 0:
                    for each in (*running, *(status for _, status in running.values()), status, connection.detach()):
                        os.close(each)
                    become(request, streams)
                    raise Forked
                _report(status, pid)
                for stream in streams:
                    os.close(stream)
                descriptor = os.pidfd_open(pid)
                running[descriptor] = pid, status
                selector.register(descriptor, selectors.EVENT_READ)


def _report(status: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the test did not wait
        os.write(status, f"{number}\n".encode())


def become(request: bytes, streams: Sequence[int]) -> None:
    """Take over what the command is given."""
    words, directory, environment = json.loads(request)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv[1:] = words


def run_command() -> NoReturn:
    """Run the command and end as Python does, but without tearing down what the process shares with the one that
    forked: that would copy all of it.
    """
    from workflowlookup.__main__ import main

    try:
        code = main()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file
    import_package()
    try:
        serve(socket.socket(fileno=int(sys.argv[1])))
    except Forked:
        run_command()
