"""Triage: what a run needs now. Each run is in exactly one group (`store.journal.RunSummary.triage`)."""

from enum import StrEnum
from typing import Final

STUCK_REFUSALS: Final = 3
"""An agent is stuck at a step after so many refused outputs."""
STUCK_MILLISECONDS: Final = 3_600_000
"""An agent is stuck at a step after this time, however few outputs were refused."""


class Triage(StrEnum):
    """What a run needs now."""

    PERSON = "person"
    """It waits for a person's answer."""
    STUCK = "stuck"
    """The agent does not get on with a step: several outputs were refused, or there was no progress for a long time."""
    AGENT = "agent"
    """It waits for the agent's output; also while it is paused."""
    SERVER = "server"
    """The server makes a call or takes proofs."""
    DONE = "done"
    FAILED = "failed"
    """Also a run whose end is unknown."""
    CANCELLED = "cancelled"
