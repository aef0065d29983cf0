"""A command of `workflowlookup` that dies so many seconds after it began: `doomed_command.py SECONDS WORD…`.

The kernel ends it, wherever it is, and nothing of it is cleaned up. 0 seconds lets it live. What the command imports is
imported before the clock starts, so that the time falls on its work. The last line on standard error says how long one
that lived has worked.
"""

import signal
import sys
import time

from workflowlookup.cli.main import main

seconds = float(sys.argv[1])
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.setitimer(signal.ITIMER_REAL, seconds)
begun = time.monotonic()
code = main(sys.argv[2:])
print(time.monotonic() - begun, file=sys.stderr)
sys.exit(code)
