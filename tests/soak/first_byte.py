"""How long pages of the console take to their first byte with many runs: `python tests/soak/first_byte.py [RUNS]`.

The runs are copies of those of `console/many_runs.py`, without events: lists and statistics read only their rows.
"""

import contextlib
import http.client
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

from console.many_runs import BUNDLED, COUNT, write_many_runs
from console.sites import Served, Site
from workflowlookup.app import make_catalog

PATHS = ("/runs", "/runs?is=stuck", "/runs?q=word", "/runs?q=umlauts", "/statistics", "/attention")
REPEATS = 7


def copy_runs(journal: Path, runs: int) -> None:
    """Copies of the runs, each set a few minutes older than the one before."""
    with contextlib.closing(sqlite3.connect(journal)) as connection, connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
        connection.execute("CREATE TEMP TABLE originals AS SELECT * FROM runs")
        for number in range(1, runs // COUNT):
            shift = number * 211_000
            values = {"id": f"'{number:04x}' || substr(id, 5)"}
            values |= {name: f"{name} - {shift}" for name in ("started", "updated", "since")}
            columns = ", ".join(values.get(name, name) for name in names)
            connection.execute(f"INSERT OR IGNORE INTO runs SELECT {columns} FROM originals")


def first_byte(served: Served, path: str) -> float:
    """Milliseconds."""
    connection = http.client.HTTPConnection(served.address.removeprefix("http://"))
    begun = time.perf_counter()
    connection.request("GET", path, headers={"Cookie": "viewer=mira"})
    answer = connection.getresponse()
    answer.read(1)
    passed = (time.perf_counter() - begun) * 1000
    assert answer.status == 200, path
    connection.close()
    return passed


def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        site = Site(Path(directory), is_furnished=False)
        bundled = [make_catalog(site.settings).get(one) for one in BUNDLED]
        write_many_runs(Path(directory) / "runs.sqlite", time.time_ns() // 1_000_000, bundled)
        copy_runs(Path(directory) / "runs.sqlite", runs)
        served = Served(site)
        for path in PATHS:
            times = [first_byte(served, path) for _ in range(REPEATS)]
            sys.stdout.write(f"{path:20} first {times[0]:6.0f} ms, median {statistics.median(times):6.0f} ms\n")
        served.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
