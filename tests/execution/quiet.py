"""A run that is driven and one that is cut off; not a byte must be printed, and the process must end by itself."""

import sys
from pathlib import Path

from execution.working import Working, call, flow, server_config
from upstream.upstreams import McpUpstream
from workflowlookup.logs import start_log
from workflowlookup.providers.config import Plan

start_log("error", "text")  # that a call failed is our own warning
upstream = McpUpstream(Path(sys.argv[2]))
working = Working(sys.argv[1], Plan(servers={"up": server_config(upstream)}))
working.finished(flow(call("one", "say"), call("two", "fail")))
working.start(flow(call("one", "sleep", {"seconds": 60})))
upstream.wait_for("call", 3)
working.close()
