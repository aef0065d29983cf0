"""A replica: a process that drives runs and takes over those of others, until it is killed.

    python replica.py PLACE UPSTREAM-DIRECTORY [--start COUNT SECONDS]

With --start it starts runs of three calls, each of which appends a line after SECONDS; their ids are on standard output.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from execution.working import Working, call, flow, server_config
from upstream.upstreams import McpUpstream
from workflowlookup.providers.config import Plan


def main() -> None:
    journal_url, directory = sys.argv[1:3]
    upstream = McpUpstream(Path(directory))
    working = Working(journal_url, Plan(servers={"up": server_config(upstream)}, max_concurrent=20))
    if "--start" in sys.argv:
        at = sys.argv.index("--start")
        count, seconds = int(sys.argv[at + 1]), float(sys.argv[at + 2])
        steps = [call(f"s{n}", "append", {"seconds": seconds}) for n in range(3)]
        ids = [working.start(flow(*steps)).id for _ in range(count)]
        print(*ids, flush=True)
    else:
        working.execution.recover()
        print("ready", flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
