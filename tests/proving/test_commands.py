"""Commands that do what no command should, and what they see of the world."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.processes import is_alive, is_gone
from support.proving import Project
from support.waiting import wait_until

PYTHON = sys.executable


def pids_in(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


def test_a_command_that_hangs_is_killed_at_its_timeout(folder: Project) -> None:
    judgement = folder.run(PYTHON, "-c", "import time; print('started', flush=True); time.sleep(600)", timeout=1)

    assert judgement.verdict == "failed"
    assert judgement.reason == "It did not end within 1 s, and was killed."
    assert (judgement.exit_code, judgement.tail) == (None, "started")


IGNORES = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(600)
"""


def test_a_command_that_ignores_sigterm_is_killed(folder: Project, tmp_path: Path) -> None:
    judgement = folder.run(PYTHON, "-c", IGNORES, str(tmp_path / "pid"), timeout=1)

    assert judgement.verdict == "failed"
    assert [is_alive(pid) for pid in pids_in(tmp_path / "pid")] == [False]


FORKS = """
import os, signal, sys, time
for number in range(20):
    if not os.fork():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.setsid()
        with open(sys.argv[1], "a") as file:
            print(os.getpid(), file=file)
        time.sleep(600)
while len(open(sys.argv[1]).readlines()) < 20:
    time.sleep(0.01)
"""


def test_nothing_that_a_command_forks_survives_it(folder: Project, tmp_path: Path) -> None:
    (tmp_path / "pids").touch()

    judgement = folder.run(PYTHON, "-c", FORKS, str(tmp_path / "pids"))

    assert judgement.verdict == "passed"
    assert len(pids_in(tmp_path / "pids")) == 20
    assert not any(map(is_alive, pids_in(tmp_path / "pids")))


DAEMON = """
import os, subprocess, sys, time
if os.fork():
    time.sleep(0.01)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for descriptor in range(3):
    os.close(descriptor)
os.chdir("/")
script = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
os.execve(sys.executable, [sys.executable, "-c", script, sys.argv[1]], {})
"""


def test_a_daemon_without_parent_group_and_environment_does_not_survive(folder: Project, tmp_path: Path) -> None:
    """It exits only when the daemon runs."""
    script = f"""
import os, subprocess, sys, time
subprocess.run([sys.executable, "-c", {DAEMON!r}, sys.argv[1]])
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read():
    time.sleep(0.01)
"""
    judgement = folder.run(PYTHON, "-c", script, str(tmp_path / "pid"))

    assert judgement.verdict == "passed"
    assert [is_alive(pid) for pid in pids_in(tmp_path / "pid")] == [False]


def test_a_descendant_that_keeps_the_output_open_does_not_delay_the_verdict(folder: Project) -> None:
    """The descriptor is sent to a process that is no descendant."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path := str(folder.root / "socket"))
        listener.listen()
        received: list[list[int]] = []

        def receive() -> None:
            connection, _ = listener.accept()
            with connection:
                received.append(socket.recv_fds(connection, 10, 1)[1])

        thread = threading.Thread(target=receive)
        thread.start()
        script = (
            "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
            "socket.send_fds(s, [b'x'], [1])\nprint('done')"
        )
        judgement = folder.run(PYTHON, "-c", script, path)
        thread.join()
    os.close(received[0][0])

    assert (judgement.verdict, judgement.tail) == ("passed", "done")


def test_a_flood_is_counted_and_cut(folder: Project) -> None:
    script = "print('first'); [print('x' * 1023) for _ in range(100_000)]; print('last')"

    judgement = folder.run(PYTHON, "-c", script, stdout=[{"not": "zebra"}])

    assert judgement.verdict == "unproved"
    assert "102,400,011 bytes" in judgement.reason
    assert judgement.tail.endswith("last")
    contains = {"type": "contains", "value": "first", "message": ""}
    assert folder.run(PYTHON, "-c", script, stdout=[contains]).verdict == "passed"
    assert folder.run(PYTHON, "-c", script, measure={"n": {"pattern": "la(st)", "type": "string"}}).measures == {
        "n": "st"
    }
    assert folder.run(PYTHON, "-c", script, measure={"n": {"pattern": "fir(st)"}}).verdict == "unproved"


def test_a_measure_whose_pattern_takes_too_long_is_given_up(folder: Project) -> None:
    judgement = folder.run(PYTHON, "-c", "print('a' * 50_000 + '!')", measure={"n": {"pattern": "((?:a+)+)$"}})

    assert judgement.verdict == "unproved"
    assert judgement.reason == "The measure 'n' could not be read: its pattern took too long."


def test_an_endless_flood_ends_at_the_timeout(folder: Project) -> None:
    assert folder.run("yes", timeout=0.5).verdict == "failed"


@pytest.mark.parametrize("exit_code", [0, "nonzero", [0, 1]])
def test_an_exit_by_signal_never_passes(folder: Project, exit_code: object) -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"

    judgement = folder.run(PYTHON, "-c", script, exitCode=exit_code)

    assert (judgement.verdict, judgement.exit_code) == ("failed", -signal.SIGSEGV)
    assert "signal 11 (SIGSEGV)" in judgement.reason


def test_a_command_that_kills_its_supervisor_proves_nothing_and_dies(folder: Project, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); "
        "os.kill(os.getppid(), signal.SIGKILL); time.sleep(600)"
    )

    judgement = folder.run(PYTHON, "-c", script, str(tmp_path / "pid"))

    assert judgement.verdict == "unproved"
    assert all(is_gone(pid) for pid in pids_in(tmp_path / "pid"))


@pytest.mark.parametrize(
    ("words", "reason", "remedy"),
    [
        (("no-such-program",), "does not exist on the PATH", "Install it"),
        (("./missing",), "does not exist", "Install it"),
        (("tool",), "does not exist on the PATH", "Install it"),
        (("./plain",), "permission denied", "Make it executable"),
        (("./no-interpreter",), "or the interpreter", "Install it"),
        (("./data",), "is not a program of this system", "first line"),
        (("./folder",), "permission denied", "Make it executable"),
    ],
)
def test_a_program_that_cannot_be_run(folder: Project, words: tuple[str, ...], reason: str, remedy: str) -> None:
    for name, text, mode in (
        ("tool", "#!/bin/sh\n", 0o755),
        ("plain", "#!/bin/sh\n", 0o644),
        ("no-interpreter", "#!/no/such\n", 0o755),
        ("data", "\x01\x02", 0o755),
    ):
        folder.write(name, text).chmod(mode)
    (folder.root / "folder").mkdir()

    judgement = folder.run(*words)

    assert judgement.verdict == "unproved"
    assert reason in judgement.reason
    assert remedy in judgement.remedy


def test_a_program_of_the_root_is_run_only_by_a_path(folder: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("tool", "#!/bin/sh\necho ran\n").chmod(0o755)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")

    assert folder.run("tool").verdict == "unproved"
    assert folder.run("./tool").tail == "ran"


def test_what_a_command_gets(folder: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "yes")
    monkeypatch.setenv("OTHER", "no")
    monkeypatch.setenv("LANG", "C.UTF-8")
    (folder.root / "sub").mkdir()
    script = """
import json, os, sys
print(json.dumps({
    "environment": sorted(os.environ), "stdin": sys.stdin.read(), "cwd": os.getcwd(), "descriptors": os.listdir("/proc/self/fd"),
    "leads": os.getsid(0) == os.getpgid(0) == os.getpid(), "ignored": [l for l in open("/proc/self/status") if "SigIgn" in l],
}))
"""

    seen = json.loads(folder.run(PYTHON, "-I", "-c", script, cwd="sub", env=["MINE", "UNSET"]).tail)

    expected = {"PATH", "HOME", "LANG", "TMPDIR", "MINE"} & os.environ.keys() | {"LC_CTYPE"} & {*seen["environment"]}
    assert set(seen["environment"]) == expected
    assert (seen["stdin"], seen["cwd"], seen["leads"]) == ("", str(folder.root / "sub"), True)
    assert len(seen["descriptors"]) == 4  # and the directory that is just being listed


@pytest.mark.parametrize("cwd", ["..", "/", "link", "sub/../..", "missing"])
def test_a_directory_outside_the_root(folder: Project, cwd: str) -> None:
    (folder.root / "link").symlink_to("/")

    assert folder.run("true", cwd=cwd).verdict == "unproved"


def test_templates_fill_arguments_and_nothing_else(folder: Project) -> None:
    words = ("echo", "{{a}}", "$(id)", "{{b.c}}")

    judgement = folder.run(*words, context={"a": "x; rm -rf /", "b": {"c": "--flag\n"}})

    assert judgement.tail == "x; rm -rf / $(id) --flag"
    assert folder.run("echo", "{{unset}}").reason.startswith("unset is not set")
    assert "NUL" in folder.run("echo", "{{a}}", context={"a": "\0"}).reason


def test_a_command_that_changes_its_own_files_is_unproved(folder: Project) -> None:
    script = folder.write("check.py", "open(__file__, 'a').write('# more\\n')\n")

    judgement = folder.run(PYTHON, str(script))

    assert (judgement.verdict, judgement.exit_code) == ("unproved", 0)
    assert "check.py changed while the command ran" in judgement.reason


def test_a_command_that_breaks_the_repository_is_unproved(project: Project) -> None:
    """Else it could change tracked files unseen."""
    program = "open('.git/config', 'a').write('[extensions]\\nrefStorage = reftable\\n')"

    judgement = project.take({"kind": "command", "run": [PYTHON, "-c", program]})

    assert (judgement.verdict, judgement.exit_code) == ("unproved", 0)
    assert "stores its refs in a form that is not supported" in judgement.reason


def test_tracked_files_that_change_while_the_command_runs_make_it_unproved(project: Project) -> None:
    change = "import pathlib; pathlib.Path('src/app.py').write_text('x = 2')"

    judgement = project.run(PYTHON, "-c", change)

    assert judgement.verdict == "unproved"
    assert judgement.reason.startswith("src/app.py changed while the proof was taken")
    assert project.run(PYTHON, "-c", change).verdict == "passed"  # it is as it was before
    assert project.run("git", "-c", "user.name=a", "-c", "user.email=b", "commit", "-qam", "x").verdict == "unproved"


def test_every_judgement_says_what_it_belongs_to(project: Project) -> None:
    project.write("check.py", "print('fine')\n")

    judgement = project.run(PYTHON, "check.py")

    assert judgement.commit == project.git("rev-parse", "HEAD")
    assert judgement.is_clean is False
    assert list(judgement.digests) == ["check.py"]
    assert judgement.summary == f"{PYTHON} check.py"
    assert judgement.seconds > 0


def test_output_is_harmless(folder: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "hunter2hunter2")
    script = r"""
import os, sys
sys.stdout.buffer.write(b"\x1b[31mred\x1b[0m \xff\xfe \x1b]0;title\x07 \x00 \xed\xa0\x80 \x9b1m 10%\r20%\rdone\n")
print(os.environ["SERVICE_TOKEN"])
"""

    judgement = folder.run(
        PYTHON, "-c", script, env=["SERVICE_TOKEN"], measure={"t": {"pattern": "(hunter\\w+)", "type": "string"}}
    )

    assert judgement.verdict == "passed"
    assert judgement.tail == "done\n…"
    assert judgement.measures == {"t": "…"}


def test_progress_is_reported_while_a_command_runs(folder: Project) -> None:
    folder.run(PYTHON, "-c", "import time; time.sleep(1.3)")

    assert any(text.endswith(", 1 s") for text in folder.progress)


def test_cancelling_ends_the_command_first(folder: Project, tmp_path: Path) -> None:
    async def conversation() -> None:
        entry = {"kind": "command", "run": [PYTHON, "-c", IGNORES, str(tmp_path / "pid")]}
        taking = asyncio.create_task(folder.prover.take(folder.task(entry), folder.progress.append))
        await asyncio.to_thread(wait_until, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking

    asyncio.run(conversation())

    assert [is_alive(pid) for pid in pids_in(tmp_path / "pid")] == [False]


def test_what_is_not_trusted_is_not_run(folder: Project) -> None:
    folder.refusal = "The entry is not trusted."

    judgement = folder.run(PYTHON, "-c", "open('ran', 'w')")

    assert (judgement.verdict, judgement.reason) == ("unproved", "The entry is not trusted.")
    assert not (folder.root / "ran").exists()


def test_a_root_that_vanishes(folder: Project) -> None:
    assert folder.run("rm", "-rf", str(folder.root)).verdict in ("passed", "unproved")
    judgement = folder.run("true")

    assert judgement.verdict == "unproved"
    assert "does not exist" in judgement.reason


def test_a_bug_of_ours_proves_nothing(folder: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflowlookup.proving.command._words", lambda *_: 1 / 0)

    judgement = folder.run("true")

    assert (judgement.verdict, judgement.reason) == ("unproved", "The proof could not be taken: ZeroDivisionError.")


SERVER = """
import asyncio, sys
from workflowlookup.language.proof import proofs_of
from workflowlookup.proving.contract import ProofTask
from workflowlookup.proving.prover import Prover

(proof,) = proofs_of({"proof": [{"kind": "command", "run": [sys.executable, "-c", sys.argv[1], sys.argv[2]]}]})
prover = Prover(dict, lambda _: "", list)
asyncio.run(prover.take(ProofTask(run_id="r", proof=proof, context={}, root=sys.argv[3]), print))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_survives_the_server(folder: Project, tmp_path: Path, number: signal.Signals) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    hangs = FORKS + "time.sleep(600)"
    server = subprocess.Popen([PYTHON, "-c", SERVER, hangs, str(pids), str(folder.root)], env={**os.environ})
    try:
        wait_until(lambda: len(pids_in(pids)) == 20)
        supervisors = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(pid) == server.pid]
        server.send_signal(number)
    finally:
        server.wait(20)

    assert supervisors
    assert all(is_gone(pid) for pid in (*pids_in(pids), *supervisors))


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
