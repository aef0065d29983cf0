"""Settings that limit what is served over HTTP, and the names of this server."""

import msgspec

from workflowlookup.errors import JOURNAL_SECONDS
from workflowlookup.web import LOOPBACK


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of this name."""

    max_message_bytes: int
    max_sessions: int
    idle_seconds: float
    requests_per_minute: int
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    journal_seconds: float = JOURNAL_SECONDS
    """How long a request waits for the journal, or for an earlier request of its session that waits for it."""


def names_of(host: str) -> tuple[str, ...]:
    """What a server that listens here may be called, unless the settings say otherwise."""
    plain = host.lower().strip("[]")
    name = f"[{plain}]" if ":" in plain else plain
    return LOOPBACK if name in LOOPBACK else (*LOOPBACK, name)
