"""The program, bound by the permissions of files even when root starts it: without the capability to pass them over."""

import ctypes
import os
import sys

DROP_FROM_BOUNDING_SET = 24  # of prctl, on Linux; what is dropped is gone with the next program
PASSES_OVER_PERMISSIONS = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH

if os.geteuid() == 0:
    for capability in PASSES_OVER_PERMISSIONS:
        assert ctypes.CDLL(None).prctl(DROP_FROM_BOUNDING_SET, capability, 0, 0, 0) == 0
os.execv(sys.executable, [sys.executable, "-m", "workflowlookup", *sys.argv[1:]])
