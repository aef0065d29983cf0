"""A process with an engine, for tests that tell it what to do: a line of JSON in, a line of JSON out.

    python engine_process.py URL DIRECTORY EACH TOTAL [guest]

Its drivers write into DIRECTORY/log who drives what. One of a run named `hold-…` goes on until there is a file of that
name in DIRECTORY; the first of a run named `fail-…` raises.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from workflowlookup.execution.engine import ConcurrencyLimits, Slot, engine_of


class Process:
    def __init__(self, url: str, directory: Path, limits: ConcurrencyLimits, is_guest: bool) -> None:
        self.directory = directory
        self.engine = engine_of(url).make(url, self.drive, limits, is_guest)

    def write(self, what: str, run_id: str) -> None:
        with (self.directory / "log").open("a") as log:
            log.write(f"{what} {run_id} {os.getpid()}\n")

    async def drive(self, run_id: str, slot: Slot) -> None:
        del slot
        self.write("begin", run_id)
        failed = self.directory / f"{run_id}.failed"
        if run_id.startswith("fail-") and not failed.exists():
            failed.touch()
            raise RuntimeError("a fault of ours")
        while run_id.startswith("hold-") and not (self.directory / run_id).exists():  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.01)
        self.write("end", run_id)

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        await self.engine.open()
        print(json.dumps("open"), flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            name, arguments, options = json.loads(line)
            if name == "set_limits":
                arguments = [ConcurrencyLimits(*arguments)]
            done = await getattr(self.engine, name)(*arguments, **options)
            print(json.dumps(sorted(done) if isinstance(done, set) else done), flush=True)
            if name == "close":
                return
        os._exit(0)


if __name__ == "__main__":
    limits = ConcurrencyLimits(int(sys.argv[3]), int(sys.argv[4]))
    asyncio.run(Process(sys.argv[1], Path(sys.argv[2]), limits, "guest" in sys.argv).serve())
