"""Processes of the real program, begun by forking one that has already imported what they import.

The tests start two thousand processes, and most of them would be busy with imports for longer than with what they are
asked. So each worker keeps one process that has imported everything and does nothing but fork. The fork gets its own
descriptors, directory, environment and arguments and then runs the program by name, as `python -m NAME` or
`python FILE` would; a `Popen` of it can be read, waited for and killed like any other.

A test about starting itself (its time, its memory, what it imports) takes `subprocess.Popen`. So does everything here
where this cannot be (not on Linux, other locales or settings of the interpreter, more descriptors), and with
WORKFLOWLOOKUP_TEST_COLD=1.
"""

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import inspect
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from typing import Any, Final

_FIXED: Final = ("PYTHON", "LC_", "LANG")
"""What an interpreter looks at only when it starts."""
_BESIDES: Final = (
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "uvicorn.lifespan.on",
)
"""What is imported by name, once it is needed."""
_ENDS: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_MOST_BYTES: Final = 1 << 20


class Popen(subprocess.Popen[Any]):
    """As `subprocess.Popen`, for `[sys.executable, "-m", NAME, …]` and `[sys.executable, FILE, …]`."""

    _end: int | None = None
    """Readable once the process is over; None for one that is an ordinary child."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        options = inspect.signature(super()._execute_child).bind(args, *rest).arguments
        environment = dict(os.environ if options["env"] is None else options["env"])
        if options["pass_fds"] or options["preexec_fn"] or not _is_warm(args, environment):
            super()._execute_child(args, *rest)
            return
        theirs = options["p2cread"], options["c2pwrite"], options["errwrite"]
        asked = {
            "arguments": [os.fspath(word) for word in args[1:]],
            "directory": os.fspath(options["cwd"] or os.getcwd()),
            "environment": environment,
            "session": options["start_new_session"],
        }
        self.pid = _forker().ask(asked, [place if end == -1 else end for place, end in enumerate(theirs)])
        self._end = os.pidfd_open(self.pid)
        self._child_created = True
        self._close_pipe_fds(*(options[name] for name in _ENDS))

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._end is None:
            return super()._try_wait(wait_flags)
        if not select.select([self._end], [], [], 0 if wait_flags else None)[0]:
            return 0, 0
        status = _forker().ask({"wait": self.pid})
        os.close(self._end)
        return self.pid, status

    def _internal_poll(self, *arguments: Any, **options: Any) -> int | None:
        if self._end is None:
            return super()._internal_poll(*arguments, **options)
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                if self.returncode is None and (ended := self._try_wait(os.WNOHANG)) != (0, 0):
                    self._handle_exitstatus(ended[1])
            finally:
                self._waitpid_lock.release()
        return self.returncode


def run(command: Sequence[str], *, stdin: bytes, timeout: float, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run`, with all that it says."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Popen(command, **pipes, **options) as process:
        try:
            out, err = process.communicate(stdin, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _is_warm(args: Any, environment: dict[str, str]) -> bool:
    return (
        sys.platform == "linux"
        and not isinstance(args, str)
        and args[0] == sys.executable
        and (args[1] == "-m" or os.fspath(args[1]).endswith(".py"))
        and not os.environ.get("WORKFLOWLOOKUP_TEST_COLD")
        and all(os.environ.get(name) == value for name, value in environment.items() if name.startswith(_FIXED))
    )


class _Forker:
    """The process that forks, seen from the tests."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdin=quiet, stdout=quiet, pass_fds=[theirs.fileno()])
        self._lock = threading.Lock()
        atexit.register(self._close)

    def ask(self, asked: dict[str, Any], descriptors: Sequence[int] = ()) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(asked).encode(errors="surrogateescape")], descriptors)
            answer = self._socket.recv(64)
        assert answer, "the process that forks is gone"
        return int(answer)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


@functools.cache
def _forker() -> _Forker:
    return _Forker()


# ── in the process that forks ───────────────────────────────────────────────────────────────────────────────────────


def _import_all() -> None:
    import workflowlookup

    ours = (module.name for module in pkgutil.walk_packages(workflowlookup.__path__, "workflowlookup."))
    for name in (*ours, *_BESIDES):
        if not name.endswith("__main__"):
            importlib.import_module(name)


def _fork_when_asked(wire: socket.socket) -> dict[str, Any]:
    """Fork for each that asks. Returns in the forks alone, with what was asked."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(wire, _MOST_BYTES, 3)
        if not data:
            os._exit(0)
        asked: dict[str, Any] = json.loads(data)
        if "wait" in asked:
            wire.send(b"%d" % os.waitpid(asked["wait"], 0)[1])
            continue
        pid = os.fork()
        if pid == 0:
            wire.close()
            _become(asked, descriptors)
            return asked
        for descriptor in descriptors:
            os.close(descriptor)
        wire.send(b"%d" % pid)


def take_terminal() -> None:
    """Make the terminal at standard input, if there is one, the controlling terminal of a new session: `/dev/tty`.

    Its process hears SIGHUP, also where the tests were started with `nohup`.
    """
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _become(asked: dict[str, Any], descriptors: Sequence[int]) -> None:
    if asked["session"]:
        os.setsid()
    for place, descriptor in enumerate(descriptors):  # theirs are all above 2
        os.dup2(descriptor, place)
        os.close(descriptor)
    if asked["session"]:
        take_terminal()
    os.chdir(asked["directory"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    for place, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        old = getattr(sys, name)
        new = open(place, mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        new.reconfigure(line_buffering=place == 2 or new.isatty())
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _be_run(arguments: list[str]) -> int:
    """Run a program as an interpreter would; the exit code."""
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path[0] = os.getcwd()
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - as an interpreter does
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _main() -> None:
    _import_all()
    gc.collect()
    gc.freeze()  # so that what is shared stays shared
    assert threading.active_count() == 1, "one that has threads cannot be forked"
    code = _be_run(_fork_when_asked(socket.socket(fileno=int(sys.argv[1])))["arguments"])
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)  # to take all apart that was imported takes longer than most programs


if __name__ == "__main__":
    _main()
