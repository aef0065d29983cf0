"""Runs one command and ends it with all its descendants, even if the process that wanted it is killed.

`proving.running` runs this file as a program, without the package: `python -I -S supervisor.py`. It imports little,
because its start is a part of what every proof costs. It reads a job from standard input, which stays
open: when it ends, or our SIGTERM comes, everything is killed. On Linux it is the parent of every orphan below it
(PR_SET_CHILD_SUBREAPER), so that no daemon escapes, whatever its group, session and environment.

Standard output and error are the command's. The descriptor that the argument names gets lines: `pid N`, then `exit N`
or `signal N`, or `error N WHERE` if the command cannot be started. It is closed when no process is left.
"""

import os
import select
import signal
import sys
import time

KILL_SECONDS = 1.0
"""Time between SIGTERM and SIGKILL."""
GIVE_UP_SECONDS = 5.0
"""How long processes that do not die are sent SIGKILL: those of another user, and those in an uninterruptible call."""
_PAUSE_SECONDS = 0.01
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def process_names() -> list[str]:
    """The ids of all processes. Empty on systems without /proc."""
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def live_processes() -> dict[int, tuple[int, bytes]]:
    """By process that is not a zombie: its parent and its start time. Empty on systems without /proc."""
    processes = {}
    for name in process_names():
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields and fields[0] not in b"ZX":
            processes[int(name)] = int(fields[1]), fields[19]
    return processes


def job(cwd: str, program: str, arguments: list[str], environment: dict[str, str]) -> bytes:
    """The job as it is sent to the supervisor. Raises `ValueError` for a text with a NUL character."""
    parts = [cwd, program, str(len(arguments)), *arguments, *(f"{name}={value}" for name, value in environment.items())]
    if any("\0" in part for part in parts):
        raise ValueError("it contains a NUL character")
    content = b"\0".join(map(os.fsencode, parts))
    return b"%020d" % len(content) + content


def _read_job() -> list[bytes]:
    def read(size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = os.read(0, size - len(data))
            if not more:
                sys.exit()
            data += more
        return data

    return read(int(read(20))).split(b"\0")


class _suppress_os_error:  # noqa: N801 - `contextlib.suppress` without the import, which takes milliseconds
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, OSError)


def _report(text: str) -> None:
    with _suppress_os_error():  # nobody reads it any more
        os.write(int(sys.argv[1]), f"{text}\n".encode())


def _prctl(option: int, value: int) -> bool:
    """Whether the kernel did it."""
    try:
        import ctypes  # noqa: PLC0415 - not on every system

        return not ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return False


def _start(parts: list[bytes]) -> int:
    """Start the command in a session of its own. Exits if that fails, after a report."""
    cwd, program, count, *rest = parts
    arguments, environment = rest[: int(count)], dict(entry.split(b"=", 1) for entry in rest[int(count) :])
    is_started, starts = os.pipe()  # closed by a successful exec
    supervisor = os.getpid()
    process = os.fork()
    if not process:
        place = "chdir"
        try:
            os.setsid()
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != supervisor:
                os._exit(127)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.close(int(sys.argv[1]))
            os.chdir(cwd)
            place = "exec"
            os.execve(program, arguments, environment)  # noqa: S606 - this is what it is for
        except OSError as problem:
            os.write(starts, f"error {problem.errno} {place}".encode())
        finally:
            os._exit(127)
    os.close(starts)
    failure = os.read(is_started, 100).decode()
    if failure:
        _report(failure)
        sys.exit()
    return process


def _reap(process: int) -> tuple[bool, int | None]:
    """Whether there are still children, and the status of the command if it has just ended."""
    status = None
    try:
        while True:
            ended, code = os.waitpid(-1, os.WNOHANG)
            if not ended:
                return True, status
            if ended == process:
                status = os.waitstatus_to_exitcode(code)
    except ChildProcessError:
        return False, status


def _report_status(status: int | None) -> None:
    if status is not None:
        _report(f"exit {status}" if status >= 0 else f"signal {-status}")


def _send(number: int, process: int) -> None:
    """Send a signal to the command's group and to all descendants of this process."""
    processes = live_processes()
    family = {os.getpid()}
    size = 0
    while size != len(family):
        size = len(family)
        family |= {descendant for descendant, (parent, _) in processes.items() if parent in family}
    for kill, targets in ((os.killpg, {process}), (os.kill, family - {os.getpid()})):
        for target in targets:
            with _suppress_os_error():
                kill(target, number)


def _end_all(process: int) -> None:
    """End all descendants: SIGTERM, then SIGKILL until none is left."""
    for number, seconds in ((signal.SIGTERM, KILL_SECONDS), (signal.SIGKILL, GIVE_UP_SECONDS)):
        deadline = time.monotonic() + seconds
        _send(number, process)
        while time.monotonic() < deadline:
            has_children, status = _reap(process)
            _report_status(status)
            if not has_children:
                return
            time.sleep(_PAUSE_SECONDS)
            if number == signal.SIGKILL:
                _send(number, process)


def main() -> None:
    """Run the job, and leave nothing behind."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the thread that started us may block some
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    has_all_orphans = _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    process = _start(_read_job())
    _report(f"pid {process}")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        signals = os.read(woken, 4096) if woken in ready else b""
        has_children, status = _reap(process)
        _report_status(status)
        if status is not None or 0 in ready or set(signals) - {signal.SIGCHLD}:
            if has_children or not has_all_orphans:
                _end_all(process)
            return


if __name__ == "__main__":
    main()
    os._exit(0)  # at once: somebody waits
