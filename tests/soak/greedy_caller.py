"""A caller that takes all that it can get, as a process of its own: `greedy_caller.py URL SECRET SECONDS`.

It opens sessions and listeners and asks for pages as fast as it can, and prints the statuses of its answers as JSON. In
the process of those who measure, its threads would hold up theirs.
"""

import collections
import contextlib
import json
import sys
import threading
import time

import httpx2

PAGES = ("/statistics", "/library", "/runs")
THREADS = 4
LISTENERS = 40
"""By thread."""


def take_all(url: str, secret: str, seconds: float, statuses: collections.Counter[int]) -> None:
    headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {secret}"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}}
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    base = url.removesuffix("/mcp")
    end = time.monotonic() + seconds
    opened = 0
    with httpx2.Client(headers=headers, timeout=30) as http, contextlib.ExitStack() as listeners:
        while time.monotonic() < end:
            statuses[http.post(url, json=opening).status_code] += 1
            if opened < LISTENERS:
                opened += 1
                stream = http.stream("GET", base + "/events", headers={"accept": "text/event-stream"})
                statuses[listeners.enter_context(stream).status_code] += 1
            for page in PAGES:
                statuses[http.get(base + page).status_code] += 1


def main() -> None:
    url, secret, seconds = sys.argv[1:]
    statuses: collections.Counter[int] = collections.Counter()
    threads = [threading.Thread(target=take_all, args=(url, secret, float(seconds), statuses)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(statuses))


if __name__ == "__main__":
    main()
